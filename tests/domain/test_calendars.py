"""Calendars leave slots out or keep only some: which, why, and how far a search goes.

Covers app.domain.calendar_layers.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.calendars import (
    MAX_DATES,
    SEARCHED_YEARS,
    Calendar,
    CalendarRules,
    FilteredSlots,
    canonical_calendar,
    filtered,
    holiday_calendar,
)
from app.domain.errors import InvalidError
from app.domain.recurrence import Recurrence
from app.domain.specs import Spec, canonical
from tests.domain import rrule_oracle
from tests.domain.golden import compiled, shown, utc
from tests.domain.rrule_oracle import rule_text
from tests.domain.strategies import changes, expressions, intervals, limits, moments, zones
from tests.domain.test_differential import assert_agree, backward, names_a_date, onward
from tests.domain.test_rrule_times import rules
from tests.support.hypothesis_examples import examples

DAY = timedelta(days=1)
INSTANT = timedelta.resolution
BERLIN = "Europe/Berlin"
CHRISTMAS = Calendar(name="christmas", timezone=BERLIN, dates=("--12-24/--12-26",))


def walls(moment: datetime, place: str) -> datetime:
    """What the clock of a place shows."""
    return moment.astimezone(ZoneInfo(place)).replace(tzinfo=None, fold=0)


def has(text: str, wall: datetime) -> bool:
    """Whether a date as it is written covers what the clock shows: compared as texts, without any calendar."""
    first, _, last = text.partition("/")
    last = last or first
    if text.startswith("--"):
        shown_day = f"--{wall:%m-%d}"
        return first <= shown_day <= last if first <= last else shown_day >= first or shown_day <= last
    if "T" in text:
        return datetime.fromisoformat(first) <= wall <= datetime.fromisoformat(last)
    return first <= f"{wall:%Y-%m-%d}" <= last


@st.composite
def dates(draw: st.DrawFn, place: str, near: datetime) -> str:
    """A date, a range, a yearly date or a range of times, near a moment or a clock change there."""
    around = st.timedeltas(timedelta(days=-40), timedelta(days=40)).map(lambda distance: walls(near + distance, place))
    if changes(place):
        minutes = st.integers(-1500, 1500).map(lambda number: timedelta(minutes=number))
        at_change = st.builds(
            lambda change, distance: walls(change + distance, place), st.sampled_from(changes(place)), minutes
        )
        near_changes = [change for change in changes(place) if abs(change - near) < 60 * DAY]
        if near_changes:
            at_change = minutes.map(lambda distance: walls(near_changes[0] + distance, place))
        around |= at_change
    first, last = sorted([draw(around), draw(around)])
    kind = draw(st.sampled_from(["date", "range", "yearly", "yearly range", "times"]))
    if kind == "times":
        return f"{first:%Y-%m-%dT%H:%M}/{last:%Y-%m-%dT%H:%M}"
    if kind == "yearly":
        return f"--{first:%m-%d}"
    if kind == "yearly range":
        return f"--{first:%m-%d}/--{last:%m-%d}"
    return f"{first:%Y-%m-%d}" if kind == "date" else f"{first:%Y-%m-%d}/{last:%Y-%m-%d}"


@st.composite
def calendars(draw: st.DrawFn, near: datetime) -> Calendar:
    """Some dates in some zone."""
    place = draw(zones)
    return Calendar(name="drawn", timezone=place, dates=tuple(draw(st.lists(dates(place, near), max_size=5))))


@st.composite
def base_slots(draw: st.DrawFn) -> tuple[Recurrence, datetime, datetime]:
    """The slots of some schedule, and a span in which to look at them."""
    narrowed = draw(limits())
    first = draw(moments(narrowed["timezone"]))
    kind = draw(st.sampled_from(["cron", "every", "rrule"]))
    if kind == "every":
        interval = draw(intervals())
        return (
            compiled({"every": f"{interval.total_seconds():.6f}s", **narrowed}, first),
            first,
            first + min(30 * DAY, 300 * interval),
        )
    if kind == "cron":
        expression = draw(expressions)
        assume(names_a_date(expression))
        return compiled({"cron": expression, **narrowed}, first), first, first + 3 * DAY
    rule = draw(rules())
    try:
        return compiled({"rrule": rule_text(rule), **narrowed}, first), first, first + 60 * DAY
    except InvalidError:
        assume(False)
        raise


def kept(slots: Iterable[datetime], excluded: list[Calendar], only: list[Calendar]) -> list[datetime]:
    """The slots that calendars keep, by a look at each."""

    def covered(calendar: Calendar, slot: datetime) -> bool:
        return any(has(text, walls(slot, calendar.timezone)) for text in calendar.dates)

    return [
        slot
        for slot in slots
        if not any(covered(calendar, slot) for calendar in excluded)
        and (not only or any(covered(calendar, slot) for calendar in only))
    ]


@given(data=st.data(), case=base_slots())
@examples(80)
def test_filtered_slots_are_those_that_a_look_at_each_keeps(
    data: st.DataObject, case: tuple[Recurrence, datetime, datetime]
) -> None:
    """In both directions and by number, for calendars in other zones, over clock changes."""
    slots, first, last = case
    excluded = data.draw(st.lists(calendars(first), max_size=2))
    only = data.draw(st.lists(calendars(first), max_size=2))
    assume(excluded or only)
    named = list(onward(slots, first, last))
    assert_agree(kept(named, excluded, only), filtered(slots, CalendarRules(tuple(excluded), tuple(only))), first, last)


@given(data=st.data(), case=base_slots())
@examples(60)
def test_previous_is_the_mirror_of_next(data: st.DataObject, case: tuple[Recurrence, datetime, datetime]) -> None:
    """Walked in either direction the sequence is the same."""
    slots, first, last = case
    chosen = filtered(slots, CalendarRules((data.draw(calendars(first)),), ()))
    sequence = list(islice(onward(chosen, first, last), 150))
    if sequence:
        assert sequence[::-1] == list(backward(chosen, first, sequence[-1]))
        assert sequence == [chosen.previous(slot + INSTANT) for slot in sequence]


@given(data=st.data(), place=zones)
@examples(100)
def test_nothing_changes_from_since_to_until(data: st.DataObject, place: str) -> None:
    """A jump never passes over a moment at which a slot could be kept, and always goes on."""
    moment = data.draw(moments(place))
    calendar = Calendar(name="x", timezone=place, dates=tuple(data.draw(st.lists(dates(place, moment), max_size=5))))
    since, until = calendar.since(moment), calendar.until(moment)
    assert since <= moment < until
    covered = calendar.entry_at(moment) is not None
    inside = data.draw(
        st.lists(st.datetimes(naive(since), naive(until - INSTANT), timezones=st.just(UTC)), max_size=20)
    )
    near = [since, moment, until - INSTANT, *(change for change in changes(place) if since <= change < until)]
    assert all(covered == (calendar.entry_at(at) is not None) for at in (*inside, *near))


def naive(moment: datetime) -> datetime:
    """A moment of UTC without its zone."""
    return moment.replace(tzinfo=None)


def rules_of(excluded: Iterable[Calendar] = (), only: Iterable[Calendar] = ()) -> CalendarRules:
    """The calendars of a schedule."""
    return CalendarRules(tuple(excluded), tuple(only))


def test_both_ends_of_a_range_are_included() -> None:
    """Days from midnight to midnight in the calendar's zone, moments to the minute."""
    calendar = Calendar(
        name="x", timezone=BERLIN, dates=("2026-12-24/2026-12-26", "--05-01", "2026-11-11T11:11/2026-11-11T12:00")
    )
    expected = {
        "2026-12-23 22:59": None,
        "2026-12-23 23:00": "2026-12-24/2026-12-26",
        "2026-12-26 22:59": "2026-12-24/2026-12-26",
        "2026-12-26 23:00": None,
        "2026-05-01 10:00": "--05-01",
        "2031-05-01 10:00": "--05-01",
        "2026-11-11 10:10": None,
        "2026-11-11 10:11": "2026-11-11T11:11/2026-11-11T12:00",
        "2026-11-11 11:00": "2026-11-11T11:11/2026-11-11T12:00",
        "2026-11-11 11:01": None,
    }
    assert expected == {text: calendar.entry_at(utc(text)) for text in expected}


def test_29_february_comes_in_leap_years() -> None:
    """A yearly range that begins or ends with it goes from or to the nearest day that exists."""
    single = Calendar(name="x", dates=("--02-29",))
    assert [2028] == [
        year for year in range(2026, 2030) if single.entry_at(datetime(year, 3, 1, tzinfo=UTC) - DAY / 2) is not None
    ]
    ending = Calendar(name="x", dates=("--02-20/--02-29",))
    assert ending.entry_at(utc("2027-02-28 12:00")) is not None
    assert ending.entry_at(utc("2027-03-01 12:00")) is None
    beginning = Calendar(name="x", dates=("--02-29/--03-02",))
    assert beginning.entry_at(utc("2027-02-28 12:00")) is None
    assert beginning.entry_at(utc("2027-03-01 12:00")) is not None


def test_a_schedule_leaves_out_what_calendars_exclude_and_keeps_what_only_one_of_others_has() -> None:
    """The reason names the calendar and the entry."""
    year_end = Calendar(name="year-end", timezone=BERLIN, dates=("--12-20/--12-31",))
    rules = rules_of([CHRISTMAS], [year_end])
    daily = compiled({"cron": "0 9 * * *", "timezone": BERLIN}, utc("2026-01-01"))
    found = islice(onward(filtered(daily, rules), utc("2026-12-22"), utc("2028-01-01")), 4)
    expected = [
        "Tue 2026-12-22 09:00 +0100",
        "Wed 2026-12-23 09:00 +0100",
        "Sun 2026-12-27 09:00 +0100",
        "Mon 2026-12-28 09:00 +0100",
    ]
    assert expected == [shown(slot, BERLIN) for slot in found]
    assert "calendar 'christmas' excludes it (--12-24/--12-26)" == str(rules.exclusion(utc("2026-12-25 08:00")))
    assert "it is not in calendar 'year-end'" == str(rules.exclusion(utc("2026-11-25 08:00")))
    assert rules.exclusion(utc("2026-12-22 08:00")) is None


@pytest.mark.parametrize(
    "rules",
    [
        rules_of([Calendar(name="x", dates=("2000-01-01/2999-12-31",))]),
        rules_of([Calendar(name="x", dates=("--01-01/--12-31",))]),
        rules_of(only=[Calendar(name="x")]),
        rules_of(only=[Calendar(name="x", dates=("2020-01-01",))]),
        rules_of(only=[Calendar(name="x", dates=("2090-01-01",))]),
        rules_of([Calendar(name="x", dates=("--06-01/--06-30",))], [Calendar(name="y", dates=("--06-10",))]),
    ],
)
@pytest.mark.parametrize(
    "when", [{"every": "1s"}, {"cron": "* * * * *"}, {"every": "monthly"}, {"rrule": "FREQ=DAILY"}]
)
def test_a_search_past_excluded_slots_ends(rules: CalendarRules, when: dict[str, Any]) -> None:
    """Where calendars leave out everything for twenty years, there is no slot; seconds are not tried one by one."""
    assert 20 == SEARCHED_YEARS
    slots = filtered(compiled(when, utc("2026-01-01")), rules)
    assert slots.next(utc("2026-06-15")) is None
    assert slots.previous(utc("2050-06-15")) is None
    assert 0 == slots.count(utc("2026-06-15"), utc("2027-06-15"))


def test_a_year_of_seconds_is_counted_without_a_look_at_each() -> None:
    """Stretches are counted by arithmetic."""
    slots = filtered(compiled({"every": "1s"}, utc("2026-01-01")), rules_of([CHRISTMAS]))
    assert 365 * 86_400 + 1 - 3 * 86_400 == slots.count(utc("2026-01-01"), utc("2027-01-01"))


def test_a_spec_with_calendars_has_the_slots_that_they_keep() -> None:
    """All that ask the spec for slots see them; the unrestricted ones do not."""
    spec = Spec(**canonical({"cron": "0 9 * * *"}), calendars=rules_of([CHRISTMAS]))
    assert utc("2026-12-27 09:00") == spec.slots(utc("2026-01-01")).next(utc("2026-12-23 12:00"))
    assert isinstance(spec.slots(utc("2026-01-01")), FilteredSlots)
    for every in (spec.unrestricted_slots,):
        assert utc("2026-12-24 09:00") == every(utc("2026-01-01")).next(utc("2026-12-23 12:00"))
    assert "" == spec.problem


def test_a_calendar_that_cannot_be_used_is_a_problem_of_the_spec() -> None:
    """Its name is said."""
    broken = Calendar(name="broken", ics="no calendar")
    spec = Spec(**canonical({"cron": "0 9 * * *"}), calendars=rules_of([CHRISTMAS], [broken]))
    expected = "Calendar 'broken': The text is not an iCalendar file: it does not begin with BEGIN:VCALENDAR."
    assert expected == spec.problem
    assert "Calendar 'x': There is no timezone 'Mars'" in Calendar(name="x", timezone="Mars").problem


def test_the_stored_form_of_a_calendar() -> None:
    """Dates are sorted and stand once, names are spelled as they are known."""
    given_fields = {
        "name": "team.closed-days_1",
        "timezone": "europe/berlin",
        "dates": ["2026-12-25", " --05-01", "2026-12-25", "2026-12-24t12:00/2026-12-24T18:00"],
        "holidays": "de-be",
        "ics": None,
        "public": True,
    }
    expected = {
        "name": "team.closed-days_1",
        "timezone": "Europe/Berlin",
        "dates": ("--05-01", "2026-12-24T12:00/2026-12-24T18:00", "2026-12-25"),
        "holidays": "DE-BE",
        "ics": None,
        "public": True,
    }
    assert expected == canonical_calendar(given_fields)


FORMS = "expected '2026-12-25', '2026-12-24/2027-01-01', '--05-01' or '2026-12-24T12:00/2026-12-24T18:00'"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"dates": ["christmas"]}, "dates", f"'CHRISTMAS' is not a date: {FORMS}."),
        ({"dates": ["2026-02-30"]}, "dates", f"'2026-02-30' does not exist: {FORMS}."),
        ({"dates": ["--02-30"]}, "dates", f"'--02-30' does not exist: {FORMS}."),
        ({"dates": ["--00-00"]}, "dates", f"'--00-00' does not exist: {FORMS}."),
        ({"dates": ["2026-12-24T12:00"]}, "dates", f"'2026-12-24T12:00' is not a date: {FORMS}."),
        (
            {"dates": ["2026-12-24T25:00/2026-12-25T10:00"]},
            "dates",
            f"'2026-12-24T25:00/2026-12-25T10:00' does not exist: {FORMS}.",
        ),
        ({"dates": ["2026-12-24/2026-12-24T12:00"]}, "dates", f"'2026-12-24/2026-12-24T12:00' is not a date: {FORMS}."),
        ({"dates": ["2027-01-01/2026-12-24"]}, "dates", "'2027-01-01/2026-12-24' ends before it begins."),
        ({"dates": ["1800-01-01"]}, "dates", "'1800-01-01': years must be after 1900 and before 3000."),
        (
            {"dates": [f"{date(1950, 1, 1) + k * DAY}" for k in range(MAX_DATES + 1)]},
            "dates",
            "A calendar has at most 10,000 dates.",
        ),
        ({"timezone": "Mars"}, "timezone", "There is no timezone 'Mars'. Use an IANA name such as 'Europe/Berlin'."),
        (
            {"name": "holidays:DE"},
            "name",
            "Expected 1 to 100 letters, digits, '.', '_' or '-', the first a letter or a digit.",
        ),
        ({"name": ""}, "name", "Expected 1 to 100 letters, digits, '.', '_' or '-', the first a letter or a digit."),
        (
            {"holidays": "XX"},
            "holidays",
            "There are no holidays for 'XX'. Use a country such as 'DE', or a part: 'DE-BE'.",
        ),
        (
            {"holidays": "DE-XX"},
            "holidays",
            "There are no holidays for 'DE-XX'. Use a country such as 'DE', or a part: 'DE-BE'.",
        ),
        ({"ics": "BEGIN:VCALENDAR"}, "ics", "The iCalendar file is not complete: END:VCALENDAR is missing."),
    ],
)
def test_what_is_refused_and_why(fields: dict[str, Any], field: str, message: str) -> None:
    """The field is named, and the text in it, with what is allowed."""
    with pytest.raises(InvalidError) as caught:
        canonical_calendar(fields)
    assert [(field, message)] == [(error.field, error.message) for error in caught.value.errors]


def test_holidays_by_their_name() -> None:
    """Such a calendar need not be stored; it is in the zone of the schedule."""
    calendar = holiday_calendar("holidays:de-be", BERLIN)
    assert calendar is not None
    assert ("holidays:DE-BE", "") == (calendar.name, calendar.problem)
    assert "Women's Day" == calendar.entry_at(utc("2026-03-08 12:00"))
    assert calendar.entry_at(utc("2026-03-09 12:00")) is None
    assert holiday_calendar("closed", BERLIN) is None
    with pytest.raises(ValueError, match="There are no holidays for 'atlantis'"):
        holiday_calendar("holidays:atlantis", BERLIN)


def test_the_oracle_reads_dates_as_they_are_written() -> None:
    """What the calendars are measured by is measured, too."""
    noon = datetime(2026, 12, 25, 12)  # noqa: DTZ001 - a wall time
    assert all(
        has(text, noon) for text in ["2026-12-25", "--12-25", "--12-24/--01-01", "2026-12-25T12:00/2026-12-25T12:01"]
    )
    assert not any(has(text, noon) for text in ["2026-12-24", "--12-26/--01-01", "2026-12-25T12:01/2026-12-25T12:02"])
    assert rrule_oracle.CODES[noon.weekday()] == "FR"


def test_a_stretch_of_a_repeated_hour_is_covered_twice() -> None:
    """The clock shows 02:15 to 02:45 twice; what lies between, and the time before the second, is kept."""
    calendar = Calendar(name="x", timezone=BERLIN, dates=("2026-10-25T02:15/2026-10-25T02:45",))
    slots = filtered(compiled({"cron": "*/15 * * * *"}, utc("2026-10-24")), rules_of([calendar]))
    first, last = utc("2026-10-24 23:59"), utc("2026-10-25 02:00")
    expected = [utc("2026-10-25 00:00"), utc("2026-10-25 01:00"), utc("2026-10-25 02:00")]
    assert_agree(expected, slots, first, last)
    for moment in (utc("2026-10-25 00:20"), utc("2026-10-25 00:50"), utc("2026-10-25 01:20")):
        assert calendar.since(moment) <= moment < calendar.until(moment)


def test_a_stretch_that_begins_in_a_repeated_hour_has_a_hole() -> None:
    """From 02:30 on all is covered, but for the minutes before the clock shows 02:30 again."""
    calendar = Calendar(name="x", timezone=BERLIN, dates=("2026-10-25T02:30/2026-10-27T00:00",))
    slots = filtered(compiled({"cron": "*/15 * * * *"}, utc("2026-10-24")), rules_of([calendar]))
    assert utc("2026-10-25 01:15") == slots.previous(utc("2026-10-26 12:00"))
    kept_slots = [utc("2026-10-25 00:15"), utc("2026-10-25 01:00"), utc("2026-10-25 01:15")]
    assert_agree(kept_slots, slots, utc("2026-10-25 00:00"), utc("2026-10-26 12:00"))
