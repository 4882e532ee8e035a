"""Specs in plain words.

Covers app.domain.phrases.
"""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.cron_expression import canonical_cron, cron
from app.domain.descriptions import describe
from app.domain.specs import Spec, canonical

BERLIN = "Europe/Berlin"
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def words(expression: str, timezone: str = "UTC", **limits: Any) -> str:
    """A cron expression in words."""
    return describe(Spec(**canonical({"cron": expression, "timezone": timezone, **limits})))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("5/15 * * * *", "every 15 minutes from minute 5 of the hour"),
        ("*/7 * * * *", "every hour at every 7th minute"),
        ("*/45 * * * *", "every hour at minutes 0 and 45"),
        ("1,5,7 * * * *", "every hour at minutes 1, 5 and 7"),
        ("0-29 * * * *", "every hour at minutes 0-29"),
        ("0 * * * *", "every hour"),
        ("@hourly", "every hour"),
        ("30 * * * *", "every hour at minute 30"),
        ("0 */2 * * *", "every 2 hours"),
        ("0 */12 * * *", "every 12 hours"),
    ],
)
def test_what_no_wall_clock_decides_names_no_zone(expression: str, expected: str) -> None:
    """Steps of minutes and hours read the same everywhere."""
    assert expected == words(expression, BERLIN)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9 * * *", "every day at 09:00 UTC"),
        ("@daily", "every day at 00:00 UTC"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00 UTC"),
        ("0 0,12 * * *", "every day at 00:00 and 12:00 UTC"),
        ("0 1,5,6,9,20 * * *", "every day at 01:00, 05:00, 06:00, 09:00 and 20:00 UTC"),
        ("0,30 9,12,15 * * *", "every day at 09:00, 09:30, 12:00, 12:30, 15:00 and 15:30 UTC"),
        ("0 */24 * * *", "every day at 00:00 UTC"),
        ("0 */5 * * *", "every 5 hours from 00:00 to 20:00 UTC"),
        ("30 */2 * * *", "every 2 hours from 00:30 UTC"),
        ("0 1-23/2 * * *", "every 2 hours from 01:00 UTC"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00 UTC"),
        ("0 0-20,22 * * *", "every hour from 00:00 to 20:00 and at 22:00 UTC"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:45 UTC"),
        ("*/15 22-1 * * *", "every 15 minutes from 00:00 to 01:45 and from 22:00 to 23:45 UTC"),
        ("* 9 * * *", "every minute from 09:00 to 09:59 UTC"),
        ("0-29 9 * * *", "every minute from 09:00 to 09:29 UTC"),
        ("1,5,7 2-5 * * *", "every day at minutes 1, 5 and 7 past hours 2-5, UTC"),
        ("*/7 9-17 * * *", "every day at every 7th minute past hours 9-17, UTC"),
        ("0,5 1,3,5-9 * * *", "every day at minutes 0 and 5 past hours 1, 3 and 5-9, UTC"),
    ],
)
def test_times_of_day_are_listed_or_told_by_their_ends(expression: str, expected: str) -> None:
    """A few are listed, even steps are told from first to last, and the rest by minutes and hours."""
    assert expected == words(expression)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("* * 1-5", "every weekday"),
        ("* * sat,sun", "on weekends"),
        ("* * 1", "every Monday"),
        ("* * 1,3,5", "on Mondays, Wednesdays and Fridays"),
        ("* * 1-6", "on Mondays to Saturdays"),
        ("* * fri-mon", "on Mondays and Fridays to Sundays"),
        ("* * 1#2", "on the second Monday of every month"),
        ("* * 5L", "on the last Friday of every month"),
        ("* * 7L", "on the last Sunday of every month"),
        ("* * 5L,5#1,1#1", "on the first Monday, the first Friday and the last Friday of every month"),
        ("* * 1,5L", "on Mondays and on the last Friday of every month"),
        ("1 * *", "on day 1 of every month"),
        ("1,15 * *", "on days 1 and 15 of every month"),
        ("1-7,20 * *", "on days 1-7 and 20 of every month"),
        ("L * *", "on the last day of every month"),
        ("LW * *", "on the last weekday of every month"),
        ("1,15,L * *", "on days 1 and 15 and the last day of every month"),
        ("*/2 * *", "on every 2nd day from day 1 of every month"),
        ("2/3 * *", "on every 3rd day from day 2 of every month"),
        ("*/10 * *", "on days 1, 11, 21 and 31 of every month"),
        ("1 1,7 *", "on day 1 of January and July"),
        ("1 6-8 *", "on day 1 of every month from June to August"),
        ("1 1,6-8 *", "on day 1 of January and June to August"),
        ("* 1,7 *", "every day in January and July"),
        ("* 6-8 1-5", "every weekday from June to August"),
        ("13 * 5", "on day 13 of every month or on Fridays"),
        ("13 1 5", "on day 13 of January or on Fridays in January"),
        ("*/2 * 1", "on every 2nd day from day 1 of every month but only on Mondays"),
        ("1-7 * */6", "on days 1-7 of every month but only on weekends"),
        ("1-31 * 1", "every day"),
        ("1 * 0-6", "every day"),
    ],
)
def test_days_are_named(days: str, expected: str) -> None:
    """Dates, weekdays and months, both kinds of days joined as cron joins them."""
    assert f"{expected} at 00:00 Europe/Berlin" == words(f"0 0 {days}", BERLIN)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on weekdays, Europe/Berlin"),
        ("*/15 * * * 1", "every 15 minutes on Mondays, Europe/Berlin"),
        ("0 * 1 * *", "every hour on day 1 of every month, Europe/Berlin"),
        ("*/15 * * 1 *", "every 15 minutes in January, Europe/Berlin"),
        ("0 */2 13 * 5", "every 2 hours on day 13 of every month or on Fridays, Europe/Berlin"),
    ],
)
def test_days_follow_a_step(expression: str, expected: str) -> None:
    """What happens many times a day says so first; a day makes the zone matter."""
    assert expected == words(expression, BERLIN)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"interval_seconds": 1}, "every second"),
        ({"interval_seconds": 60}, "every minute"),
        ({"interval_seconds": 90}, "every 90 seconds"),
        ({"interval_seconds": 300}, "every 5 minutes"),
        ({"interval_seconds": 3600}, "every hour"),
        ({"interval_seconds": 5400}, "every 90 minutes"),
        ({"interval_seconds": 86_400}, "every 24 hours"),
        ({"interval_seconds": 129_600}, "every 36 hours"),
        ({"interval_seconds": 604_800}, "every 7 days"),
        ({"every": "2.5s"}, "every 2.5 seconds"),
        ({"every": "1234567.000001s"}, "every 1234567.000001 seconds"),
        ({"every": "monthly"}, "every month"),
        ({"every": "monthly", "timezone": BERLIN}, "every month, Europe/Berlin"),
        ({"at": NEW_YEAR}, "once at 2027-01-01T00:00:00Z"),
        ({"after": "10m"}, "once, 10 minutes after it was created"),
        ({"after": "1h"}, "once, 1 hour after it was created"),
        ({"after": "1d"}, "once, 24 hours after it was created"),
    ],
)
def test_the_other_kinds(spec: dict[str, Any], expected: str) -> None:
    """Intervals, months and one-shots; a day of an interval is 24 hours."""
    assert expected == describe(Spec(**canonical(spec)))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"interval_seconds": 300, "only_between": "8:00-18:00"}, ", only between 08:00 and 18:00 Europe/Berlin"),
        ({"interval_seconds": 300, "not_on": ["sun", "sat"]}, ", not on Saturdays and Sundays, Europe/Berlin"),
        (
            {"interval_seconds": 300, "only_between": "22:00-06:00", "not_on": ["mon"]},
            ", only between 22:00 and 06:00, not on Mondays, Europe/Berlin",
        ),
        ({"cron": "*/5 * * * *", "only_between": "08:00-18:00"}, ", only between 08:00 and 18:00 Europe/Berlin"),
        (
            {"cron": "*/5 * * * 1", "only_between": "08:00-18:00"},
            " on Mondays, Europe/Berlin, only between 08:00 and 18:00",
        ),
    ],
)
def test_the_zone_is_named_once(spec: dict[str, Any], expected: str) -> None:
    """With a window or excluded weekdays it matters for every kind."""
    assert f"every 5 minutes{expected}" == describe(Spec(**canonical({"timezone": BERLIN, **spec})))


def test_bounds_and_jitter_come_last() -> None:
    """From, until, and how much later."""
    end = NEW_YEAR + timedelta(days=1, seconds=1)
    said = describe(Spec(interval_seconds=300.0), start_at=NEW_YEAR, end_at=end, jitter_seconds=30)
    bounds = "from 2027-01-01T00:00:00Z, until 2027-01-02T00:00:01Z"
    assert f"every 5 minutes, {bounds}, up to 30 seconds later" == said


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Spec(cron="garbage"), "cron 'garbage'"),
        (Spec(cron="0 0 30 2 *"), "cron '0 0 30 2 *'"),
        (Spec(cron=""), "cron ''"),
        (Spec(cron="x" * 1000), f"cron '{'x' * 150}...'"),
        (Spec(cron="0 9 * * *", timezone="Mars/Olympus"), "every day at 09:00 Mars/Olympus"),
        (Spec(every="now and then"), "every 'now and then'"),
        (Spec(after="a while"), "once, 'a while' after it was created"),
        (Spec(), "at no time"),
        (
            Spec(interval_seconds=300.0, only_between="noon", not_on=("doomsday",)),
            "every 5 minutes, only between 'noon', not on Doomsdays, UTC",
        ),
    ],
)
def test_an_invalid_spec_is_told_as_it_stands(spec: Spec, expected: str) -> None:
    """What was stored under other rules still has words."""
    assert expected == describe(spec)


def test_what_takes_too_many_words_stays_an_expression() -> None:
    """A long expression is clearer than its words."""
    expression = "1,3,6,8,11,13,17,19 1,3,6,8,11,13,17,19 1,3,5,8 1,3,5 1#1,2#2,3#3,4#4"
    assert f"cron '{expression}', UTC" == words(expression)


MINUTES = ("*", "0", "30", "*/15", "*/7", "*/30", "5/15", "0,30", "0-29", "1,5,7", "0,45", "*/90", "0-59")
HOURS = ("*", "0", "9", "*/2", "*/5", "*/12", "0,12", "9-17", "22-2", "1-23/2", "1,5,6,9,20", "0-20,22", "9-11,14-16")
DATES = ("*", "1", "13", "31", "L", "LW", "1,L", "*/2", "2/2", "*/10", "1-7", "28-31", "1-31", "1-30")
MONTHS = ("*", "1", "1,7", "6-8", "*/2", "2-12")
WEEKDAYS = ("*", "1", "0", "1-5", "0,6", "1-6", "0-6", "*/2", "5L", "1#2", "1,5L", "1#1,1#3", "1#2,1")


def test_what_differs_in_time_differs_in_words() -> None:
    """No two times of day read the same."""
    meanings = defaultdict(set)
    for minute, hour in product(MINUTES, HOURS):
        fields = cron(canonical_cron(f"{minute} {hour} * * *"))
        meanings[words(f"{minute} {hour} * * *")].add((frozenset(fields.minutes), frozenset(fields.hours)))
    assert {} == {said: meant for said, meant in meanings.items() if len(meant) > 1}


def test_what_differs_in_days_differs_in_words() -> None:
    """No two sets of days read the same."""
    meanings = defaultdict(set)
    for days in product(DATES, MONTHS, WEEKDAYS):
        expression = f"0 0 {' '.join(days)}"
        meanings[words(expression)].add(days_of_two_years(expression))
    assert {} == {said: meant for said, meant in meanings.items() if len(meant) > 1}


def days_of_two_years(expression: str) -> frozenset[date]:
    """The days that an expression names, a leap year's included."""
    fields = cron(canonical_cron(expression))
    days = (date(2027, 1, 1) + timedelta(days=number) for number in range(731))
    return frozenset(day for day in days if day.month in fields.months and fields.match_day(day))


def field_texts(low: int, high: int, *special: str) -> st.SearchStrategy[str]:
    """Texts of one field: stars, numbers, ranges (wrapped ones too), steps, and lists of them."""
    number = st.integers(low, high).map(str)
    span = st.builds("{}-{}".format, number, number)
    step = st.builds("{}/{}".format, st.one_of(st.just("*"), number, span), st.integers(1, 99))
    item = st.one_of(number, span, step, *(st.just(text) for text in special))
    return st.one_of(st.just("*"), step, st.lists(item, min_size=1, max_size=12).map(",".join))


CRONS = st.tuples(
    field_texts(0, 59),
    field_texts(0, 23),
    field_texts(1, 31, "L", "LW"),
    field_texts(1, 12),
    field_texts(0, 7, *(f"{day}{mark}" for day in range(8) for mark in ("L", "#1", "#5"))),
).map(" ".join)


def stored(expression: str) -> str | None:
    """Its stored form, if it has one."""
    try:
        return canonical_cron(expression)
    except ValueError:
        return None


@given(CRONS.map(stored).filter(bool), st.sampled_from(["UTC", BERLIN, "no/where"]))
def test_every_expression_has_words(expression: str, timezone: str) -> None:
    """Whatever is valid is told in a line or two."""
    assert 0 < len(describe(Spec(cron=expression, timezone=timezone))) <= 200


@given(st.text(), st.text(), st.text(), st.lists(st.text()).map(tuple))
def test_no_stored_text_is_too_strange(text: str, timezone: str, between: str, days: tuple[str, ...]) -> None:
    """Whatever a column holds, there are words for it."""
    for kind in ("cron", "every", "after"):
        stored: dict[str, Any] = {kind: text}
        assert describe(Spec(**stored, timezone=timezone, only_between=between, not_on=days))
