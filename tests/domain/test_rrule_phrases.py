"""Recurrence rules in plain words."""

import pytest
from hypothesis import given

from app.domain.calendars import Calendar, CalendarRules
from app.domain.descriptions import describe
from app.domain.specs import Spec, canonical
from tests.domain.rrule_oracle import rule_text
from tests.domain.test_rrule_times import rules
from tests.support.hypothesis_examples import examples

BERLIN = "Europe/Berlin"


def words(rule: str, timezone: str = BERLIN) -> str:
    """A rule in words."""
    return describe(Spec(rrule=rule, timezone=timezone))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY", "every day at the time of its start, Europe/Berlin"),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0", "every day at 09:00 Europe/Berlin"),
        ("FREQ=DAILY;INTERVAL=2;BYHOUR=9;BYMINUTE=0", "every second day at 09:00 Europe/Berlin"),
        ("FREQ=DAILY;INTERVAL=10;COUNT=5;BYHOUR=9;BYMINUTE=0", "every 10th day at 09:00 Europe/Berlin, 5 times"),
        ("FREQ=DAILY;BYHOUR=9", "every day at hour 9, at the minute of its start, Europe/Berlin"),
        ("FREQ=DAILY;BYMINUTE=30", "every day at minute 30 of the hour of its start, Europe/Berlin"),
        ("FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE=0", "every weekday at 09:00 Europe/Berlin"),
        (
            "FREQ=DAILY;BYMONTH=1;BYMONTHDAY=1,2;BYHOUR=9;BYMINUTE=0",
            "on days 1 and 2 of January at 09:00 Europe/Berlin",
        ),
        ("FREQ=WEEKLY", "every week on the weekday and at the time of its start, Europe/Berlin"),
        ("FREQ=WEEKLY;BYDAY=TU;BYHOUR=9;BYMINUTE=0", "every Tuesday at 09:00 Europe/Berlin"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=9;BYMINUTE=0", "every second Tuesday at 09:00 Europe/Berlin"),
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;BYHOUR=9;BYMINUTE=0",
            "every second week on Mondays and Wednesdays at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9,10,11,12,13;BYMINUTE=0",
            "every hour from 09:00 to 13:00 on weekdays, Europe/Berlin",
        ),
        ("FREQ=WEEKLY;INTERVAL=3", "every third week on the weekday and at the time of its start, Europe/Berlin"),
        (
            "FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1;BYHOUR=9;BYMINUTE=0",
            "on the first Monday or Tuesday of the week at 09:00 Europe/Berlin",
        ),
        ("FREQ=MONTHLY", "every month on the day and at the time of its start, Europe/Berlin"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=9;BYMINUTE=0",
            "on the last working day of the month at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;BYMONTHDAY=1,15,-1;BYHOUR=9;BYMINUTE=0",
            "on days 1 and 15 and the last day of the month at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;BYDAY=1MO,-1FR;BYHOUR=9;BYMINUTE=0",
            "on the first Monday and the last Friday of the month at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;BYHOUR=9;BYMINUTE=0",
            "on day 13 of the month if it is a Friday at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;INTERVAL=2;BYDAY=2TU;BYHOUR=9;BYMINUTE=0",
            "on the second Tuesday of every second month at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;BYMONTHDAY=-2;BYHOUR=9;BYMINUTE=0",
            "on the second to last day of the month at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;BYMONTH=3,6,9,12;BYMONTHDAY=-1;BYHOUR=9;BYMINUTE=0",
            "on the last day of March, June, September and December at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=31;BYHOUR=9;BYMINUTE=0",
            "on day 31 of every third month at 09:00 Europe/Berlin",
        ),
        ("FREQ=MONTHLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0", "every Monday at 09:00 Europe/Berlin"),
        (
            "FREQ=MONTHLY;BYMONTHDAY=1,2,3;BYSETPOS=1;BYDAY=MO;BYHOUR=9;BYMINUTE=0",
            "rrule 'FREQ=MONTHLY;BYMONTHDAY=1,2,3;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSETPOS=1', Europe/Berlin",
        ),
        ("FREQ=YEARLY", "every year on the date and at the time of its start, Europe/Berlin"),
        ("FREQ=YEARLY;BYMONTH=3", "every year in March on the day and at the time of its start, Europe/Berlin"),
        ("FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24;BYHOUR=9;BYMINUTE=0", "on day 24 of December at 09:00 Europe/Berlin"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;BYHOUR=9;BYMINUTE=0", "on the last Sunday of March at 09:00 Europe/Berlin"),
        ("FREQ=YEARLY;BYDAY=20MO;BYHOUR=9;BYMINUTE=0", "on the 20th Monday of the year at 09:00 Europe/Berlin"),
        (
            "FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29;BYHOUR=9;BYMINUTE=0",
            "on day 29 of February every fourth year at 09:00 Europe/Berlin",
        ),
        (
            "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;BYHOUR=9;BYMINUTE=0",
            "on the last working day of the year at 09:00 Europe/Berlin",
        ),
        ("FREQ=YEARLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0", "every Monday at 09:00 Europe/Berlin"),
        ("FREQ=YEARLY;BYMONTHDAY=1;BYHOUR=9;BYMINUTE=0", "on day 1 of the month at 09:00 Europe/Berlin"),
        (
            "FREQ=YEARLY;BYMONTH=1,2,3;BYMONTHDAY=1;BYHOUR=9;BYMINUTE=0;UNTIL=20281231",
            "on day 1 of the months from January to March at 09:00 Europe/Berlin, until 2028-12-31",
        ),
        (
            "FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0;BYSETPOS=1",
            "rrule 'FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0;BYSETPOS=1', Europe/Berlin",
        ),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1,-1;BYHOUR=9,17;BYMINUTE=0",
            "rrule 'FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9,17;BYMINUTE=0;BYSETPOS=1,-1', Europe/Berlin",
        ),
    ],
)
def test_rules_as_people_say_them(rule: str, expected: str) -> None:
    """What the start decides is said; a rule for which words would be ambiguous is shown itself."""
    assert expected == describe(Spec(**canonical({"rrule": rule, "timezone": BERLIN})))


def test_the_zone_is_named_where_it_matters() -> None:
    """With a time of day always, without one unless it is UTC; a rule that is not valid is shown."""
    assert "every day at the time of its start" == words("FREQ=DAILY", "UTC")
    assert "every day at 09:00 UTC" == words("FREQ=DAILY;BYHOUR=9;BYMINUTE=0", "UTC")
    assert "rrule 'FREQ=OFTEN'" == words("FREQ=OFTEN", "UTC")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY;COUNT=1", "1 time"),
        ("FREQ=DAILY;UNTIL=20261231", "until 2026-12-31"),
        ("FREQ=DAILY;UNTIL=20261231T120000", "until 2026-12-31 12:00:00"),
        ("FREQ=DAILY;UNTIL=20261231T120000Z", "until 2026-12-31T12:00:00Z"),
    ],
)
def test_the_end_of_a_rule_is_said(rule: str, expected: str) -> None:
    """After the zone, before the window."""
    text = describe(Spec(rrule=rule, timezone=BERLIN, only_between="08:00-18:00"))
    assert f"every day at the time of its start, {BERLIN}, {expected}, only between 08:00 and 18:00" == text


def test_calendars_are_named() -> None:
    """Those that leave slots out and those that keep some."""
    closed, open_days, fairs = (Calendar(name=name) for name in ("closed", "open", "fairs"))
    daily = {"cron": "0 9 * * *", "timezone": BERLIN}
    excluding = Spec(**canonical(daily), calendars=CalendarRules((closed,), ()))
    assert "every day at 09:00 Europe/Berlin, not in calendar 'closed'" == describe(excluding)
    both = Spec(**canonical({"interval_seconds": 300}), calendars=CalendarRules((closed,), (open_days, fairs)))
    assert "every 5 minutes, only in calendars 'open' and 'fairs', not in calendar 'closed'" == describe(both)


@given(rules())
@examples(200)
def test_every_rule_has_words(parts: dict[str, str]) -> None:
    """Never empty, never long, and without anything of Python in it."""
    text = words(rule_text(parts))
    assert 0 < len(text) <= 200
    assert not set("(){}<>") & set(text)
