"""Events of iCalendar files as entries of a calendar."""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.calendars import Calendar
from app.domain.icalendar import MAX_BYTES, MAX_EVENTS, read_events
from tests.domain import rrule_oracle
from tests.domain.golden import utc
from tests.domain.rrule_oracle import rule_text
from tests.domain.test_rrule_times import rules
from tests.support.hypothesis_examples import examples

DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"


def ics(*events: str) -> str:
    """A file with these events; each is a text with one property on each line."""
    blocks = "".join(f"BEGIN:VEVENT\n{event}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\n{blocks}END:VCALENDAR\n"


def calendar(*events: str, timezone: str = BERLIN) -> Calendar:
    """The calendar of a file with these events."""
    return Calendar(name="x", timezone=timezone, ics=ics(*events))


def days(shown: Calendar, year: int, hour: int = 12) -> list[str]:
    """The days of a year that a calendar covers at an hour of UTC."""
    moments = (datetime.combine(date(year, 1, 1), time(hour), UTC) + k * DAY for k in range(366))
    return [f"{moment:%m-%d}" for moment in moments if moment.year == year and shown.entry_at(moment) is not None]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART;VALUE=DATE:20261225", ["12-25"]),
        ("DTSTART:20261225", ["12-25"]),
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227", ["12-24", "12-25", "12-26"]),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:P2D", ["12-24", "12-25"]),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:P1W", [f"12-{day}" for day in range(24, 31)]),
        ("DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY", ["05-01"]),
        ("DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY;COUNT=3", []),
        ("DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY;UNTIL=20260501", ["05-01"]),
        ("DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY;UNTIL=20260430", []),
        ("DTSTART;VALUE=DATE:20200501\nRRULE:FREQ=YEARLY;UNTIL=20260501T000000Z", ["05-01"]),
        ("DTSTART;VALUE=DATE:20261123\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", ["11-23", "11-26"]),
        (
            "DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=MONTHLY;COUNT=4\nEXDATE;VALUE=DATE:20260201,20260401",
            ["01-01", "03-01"],
        ),
        (
            "DTSTART;VALUE=DATE:20260101\nRDATE;VALUE=DATE:20260110\nRDATE;VALUE=DATE:20260120",
            ["01-01", "01-10", "01-20"],
        ),
        (
            "DTSTART;VALUE=DATE:20251230\nDTEND;VALUE=DATE:20260103\nRRULE:FREQ=YEARLY",
            ["01-01", "01-02", "12-30", "12-31"],
        ),
        ("DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED", []),
    ],
)
def test_days_of_an_event(event: str, expected: list[str]) -> None:
    """All-day events with their end excluded, repeated ones without the excluded dates."""
    assert expected == days(calendar(event), 2026)


@pytest.mark.parametrize(
    ("event", "covered", "free"),
    [
        (
            "DTSTART:20260601T100000Z\nDTEND:20260601T113000Z",
            ["2026-06-01 10:00", "2026-06-01 11:29"],
            ["2026-06-01 09:59", "2026-06-01 11:30"],
        ),
        (
            "DTSTART:20260601T100000\nDTEND:20260601T110000",
            ["2026-06-01 08:00"],
            ["2026-06-01 07:59", "2026-06-01 09:00"],
        ),
        (
            "DTSTART;TZID=America/New_York:20260601T100000\nDURATION:PT1H30M",
            ["2026-06-01 14:00", "2026-06-01 15:29"],
            ["2026-06-01 15:30"],
        ),
        (
            'DTSTART;TZID="America/New_York":20260601T100000\nDTEND;TZID=Europe/Berlin:20260601T170000',
            ["2026-06-01 14:59"],
            ["2026-06-01 15:00"],
        ),
        ("DTSTART:20260601T100000Z", ["2026-06-01 10:00"], ["2026-06-01 10:01", "2026-06-01 09:59"]),
        (
            "DTSTART;TZID=Europe/Berlin:20260105T090000\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;BYDAY=MO",
            ["2026-01-05 08:00", "2026-07-06 07:00", "2026-07-06 07:59"],
            ["2026-07-06 08:00", "2026-07-07 07:00"],
        ),
        (
            "DTSTART;TZID=Europe/Berlin:20260105T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;UNTIL=20260107T080000Z",
            ["2026-01-07 08:00"],
            ["2026-01-08 08:00"],
        ),
        (
            "DTSTART;TZID=Europe/Berlin:20260105T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY\nEXDATE:20260106T080000Z\nEXDATE;VALUE=DATE:20260107",
            ["2026-01-05 08:00", "2026-01-08 08:00"],
            ["2026-01-06 08:00", "2026-01-07 08:00"],
        ),
    ],
)
def test_times_of_an_event(event: str, covered: list[str], free: list[str]) -> None:
    """In UTC, in a zone that is named, or in that of the calendar; a time is not covered at its end."""
    shown = calendar(event)
    assert covered == [text for text in (*covered, *free) if shown.entry_at(utc(text)) is not None]


def test_a_changed_single_event_takes_the_place_of_one_of_its_series() -> None:
    """Moved, or cancelled."""
    series = "UID:1\nDTSTART;VALUE=DATE:20260101\nRRULE:FREQ=MONTHLY;COUNT=4"
    moved = "UID:1\nRECURRENCE-ID;VALUE=DATE:20260201\nDTSTART;VALUE=DATE:20260205"
    cancelled = "UID:1\nRECURRENCE-ID;VALUE=DATE:20260301\nDTSTART;VALUE=DATE:20260301\nSTATUS:CANCELLED"
    other = "UID:2\nRECURRENCE-ID;VALUE=DATE:20260401\nDTSTART;VALUE=DATE:20260410"
    assert ["01-01", "02-05", "04-01", "04-10"] == days(calendar(moved, series, cancelled, other), 2026)


def test_folded_lines_escapes_and_what_is_not_an_event() -> None:
    """The text of an event is its entry; alarms, to-dos and definitions of zones are passed over."""
    text = (
        "\ufeffBEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nBEGIN:STANDARD\r\nDTSTART:19701025T030000\r\n"
        "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\n"
        "BEGIN:VTODO\r\nDTSTART;VALUE=DATE:20260601\r\nEND:VTODO\r\n"
        "begin:vevent\r\nsummary;language=en:Closed\\, for\\; repai\r\n rs \\\\ at\\nnight\r\n"
        "DTSTA\r\n\tRT;VALUE=DATE:20260701\r\n"
        'X-NOTE;X="a:b;c":1\r\n\r\nBEGIN:VALARM\r\nDTSTART:20260101T000000Z\r\nEND:VALARM\r\nend:vevent\r\nEND:VCALENDAR\r\n'
    )
    shown = Calendar(name="x", ics=text)
    assert ["07-01"] == days(shown, 2026)
    assert "Closed, for; repairs \\ at night" == shown.entry_at(utc("2026-07-01 12:00"))


@given(parts=rules(), start=st.datetimes(datetime(2019, 1, 1), datetime(2026, 12, 31)))  # noqa: DTZ001 - wall times
@examples(80)
def test_repeated_events_are_on_the_days_of_their_rule(parts: dict[str, str], start: datetime) -> None:
    """Those of the brute-force oracle, and the start itself."""
    given_parts: dict[str, Any] = {name: value for name, value in parts.items() if name not in {"BYHOUR", "BYMINUTE"}}
    if not given_parts.keys() & {"BYDAY", "BYMONTH", "BYMONTHDAY"}:
        given_parts.pop("BYSETPOS", None)
    event = f"DTSTART;VALUE=DATE:{start:%Y%m%d}\nRRULE:{rule_text(given_parts)}"
    midnight = datetime.combine(start, time())
    found = rrule_oracle.walls(given_parts, midnight, date(2026, 12, 31))
    expected = sorted({f"{wall:%m-%d}" for wall in (midnight, *found) if wall.year == 2026})
    assert expected == days(calendar(event, timezone="UTC"), 2026)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The iCalendar file is not complete: END:VCALENDAR is missing."),
        ("hello", "The text is not an iCalendar file: it does not begin with BEGIN:VCALENDAR."),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR", "Line 3: END:VCALENDAR closes another component."),
        ("BEGIN:VCALENDAR\nhello\nEND:VCALENDAR", "Line 2: expected NAME:VALUE."),
        ("BEGIN:VCALENDAR\n;\nEND:VCALENDAR", "Line 2: expected NAME:VALUE."),
        (ics("SUMMARY:x"), "Line 4: the event has no DTSTART."),
        (ics("X-OTHER:x"), "An event has no DTSTART."),
        (ics("DTSTART:tomorrow"), "Line 4: DTSTART 'tomorrow' is not a date or a time."),
        (ics("DTSTART:20260230"), "Line 4: DTSTART '20260230' does not exist."),
        (ics("DTSTART:18000101"), "Line 4: the year of DTSTART must be after 1900 and before 3000."),
        (
            ics("DTSTART;TZID=Nowhere:20260101T000000"),
            "Line 4: There is no timezone 'Nowhere'. Use an IANA name such as 'Europe/Berlin'.",
        ),
        (ics("DTSTART:20260102\nDTEND:20260101"), "Line 5: DTEND is before DTSTART."),
        (ics("DTSTART:20260102\nDURATION:1 day"), "Line 5: DURATION '1 day' is not a duration such as P1D or PT1H30M."),
        (
            ics("DTSTART:20260102\nRRULE:FREQ=HOURLY"),
            "Line 5: FREQ=HOURLY is not supported. Use interval_seconds, every or cron.",
        ),
        (
            ics("DTSTART:20260102\nDURATION:P367D\nRRULE:FREQ=YEARLY"),
            "Line 6: an event that repeats may last 366 days at most.",
        ),
        (
            ics("DTSTART:20260102\nRECURRENCE-ID;RANGE=THISANDFUTURE:20260102"),
            "Line 5: RECURRENCE-ID with RANGE is not supported.",
        ),
        (
            ics(*["DTSTART:20260102T000000Z\nRRULE:FREQ=DAILY"] * 6),
            "The events of the iCalendar file repeat more than 2,000 times a year.",
        ),
        (ics(*["DTSTART:20260102"] * (MAX_EVENTS + 1)), "The iCalendar file has more than 10,000 events."),
        (ics("DTSTART:20260102\nSUMMARY:" + "ä" * (MAX_BYTES // 2)), "The iCalendar file is larger than 1024 KiB."),
    ],
    ids=lambda value: value[:40],
)
def test_what_is_refused_and_why(text: str, message: str) -> None:
    """The line is named, and what is wrong with it."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_events(text, BERLIN)


@given(
    st.text()
    | st.lists(
        st.sampled_from(
            ["BEGIN:VEVENT", "END:VEVENT", "DTSTART:20260101", "DTEND:", "RRULE:FREQ=DAILY", " x", "EXDATE:,"]
        )
    ).map(lambda lines: "\n".join(["BEGIN:VCALENDAR", *lines, "END:VCALENDAR"]))
)
@examples(150)
def test_no_text_is_an_error_of_ours(text: str) -> None:
    """Whatever the file holds, it is read or refused with a sentence."""
    try:
        read_events(text, BERLIN)
    except ValueError as error:
        assert str(error).endswith(".")  # noqa: PT017 - the sentence is what is tested


def test_as_many_events_as_there_may_be() -> None:
    """Ten thousand events are read, and found."""
    events = [f"DTSTART;VALUE=DATE:{date(1990, 1, 1) + 2 * k * DAY:%Y%m%d}" for k in range(MAX_EVENTS)]
    shown = calendar(*events)
    assert "event" == shown.entry_at(utc("2026-01-02 12:00"))
    assert 182 == len(days(shown, 2026))
