"""Random specs near changes of the clocks: their slots are those of the brute-force oracle.

Covers app.domain.cron_expression.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.cron_expression import canonical_cron
from app.domain.local_time import zone
from app.domain.recurrence import CronTimes, Recurrence
from tests.domain import oracle
from tests.domain.golden import Row, compiled, moment, utc
from tests.domain.golden_calendar import CALENDAR
from tests.domain.golden_clock_changes import CLOCK_CHANGES
from tests.domain.golden_windows import WINDOWS
from tests.domain.strategies import day_rules, expressions, intervals, limits, moments, sparse_expressions, zones
from tests.support.hypothesis_examples import examples

DAY = timedelta(days=1)
INSTANT = timedelta.resolution
# More slots than this from either end of a span show nothing new.
MOST = 150


def onward(slots: Recurrence, first: datetime, last: datetime) -> Iterator[datetime]:
    """The slots after a moment up to another."""
    slot = slots.next(first)
    while slot is not None and slot <= last:
        yield slot
        slot = slots.next(slot)


def backward(slots: Recurrence, first: datetime, last: datetime) -> Iterator[datetime]:
    """The same from the last to the first."""
    slot = slots.previous(last + INSTANT)
    while slot is not None and slot > first:
        yield slot
        slot = slots.previous(slot)


def assert_agree(expected: list[datetime], slots: Recurrence, first: datetime, last: datetime) -> None:
    """The slots of a span are the expected ones from either end, and as many."""
    assert expected[:MOST] == list(islice(onward(slots, first, last), MOST))
    assert expected[::-1][:MOST] == list(islice(backward(slots, first, last), MOST))
    if expected:
        assert len(expected) == slots.count(expected[0], expected[-1])


def names_a_date(expression: str) -> bool:
    """Whether the expression is taken at all: 30 February is not."""
    try:
        canonical_cron(expression)
    except ValueError as error:
        assert "No date fits" in str(error)  # noqa: PT017 - whatever else is refused here is a defect
        return False
    return True


# What the oracle walks through within a second.
NEAR = [
    row
    for row in (*CLOCK_CHANGES, *CALENDAR, *WINDOWS)
    if "cron" in row.spec and moment(row.expected[-1]) - utc(row.start) < 15 * DAY
]


@pytest.mark.parametrize("row", NEAR, ids=lambda row: row.name)
def test_the_oracle_itself_agrees_with_what_was_written_by_hand(row: Row) -> None:
    """What the application is measured by is measured, too."""
    zone, first, last = row.spec.get("timezone", "UTC"), utc(row.start), moment(row.expected[-1])
    named = oracle.cron_slots(row.spec["cron"], zone, first - INSTANT, last)
    found = oracle.allowed(named, zone, row.spec.get("only_between"), row.spec.get("not_on", []))
    assert [moment(slot) for slot in row.expected] == found


@given(data=st.data(), expression=expressions, narrowed=limits())
@examples(80)
def test_cron_slots_near_a_change_of_the_clocks(data: st.DataObject, expression: str, narrowed: dict[str, Any]) -> None:
    """Over the days around the change each slot is where the oracle sees it, in both directions."""
    assume(names_a_date(expression))
    first = data.draw(moments(narrowed["timezone"]))
    last = first + 4 * DAY
    named = oracle.cron_slots(expression, narrowed["timezone"], first, last)
    slots = compiled({"cron": expression, **narrowed}, first)
    assert_agree(oracle.allowed(named, **_places(narrowed)), slots, first, last)


@given(data=st.data(), expression=sparse_expressions, narrowed=limits())
@examples(10)
def test_cron_slots_over_two_months(data: st.DataObject, expression: str, narrowed: dict[str, Any]) -> None:
    """Expressions that name few days agree with the oracle, too."""
    assume(names_a_date(expression))
    first = data.draw(moments(narrowed["timezone"]))
    last = first + 60 * DAY
    named = oracle.cron_slots(expression, narrowed["timezone"], first, last)
    slots = compiled({"cron": expression, **narrowed}, first)
    assert_agree(oracle.allowed(named, **_places(narrowed)), slots, first, last)


@given(rule=day_rules, year=st.integers(1971, 2100))
@examples(48)
def test_the_days_of_five_years(rule: str, year: int) -> None:
    """Days of month and week, by number, from the end and by their count, are those of the calendar."""
    cron = oracle.Cron(rule)
    first = date(year, 1, 1)
    days = [day for day in (first + k * DAY for k in range(2000)) if cron.names_day(day)]
    assume(names_a_date(rule) or days)
    expected = [datetime.combine(day, time(12), UTC) for day in days]
    start = datetime.combine(first, time(), UTC)
    assert_agree(expected, compiled({"cron": rule}, start), start, start + 2000 * DAY)


@given(rule=day_rules)
@examples(80)
def test_a_refused_day_rule_names_no_day(rule: str) -> None:
    """What is refused as impossible does not occur in the 28 years after which the calendar repeats itself."""
    cron = oracle.Cron(rule)
    if not names_a_date(rule):
        assert [] == [day for day in (date(2000, 1, 1) + k * DAY for k in range(10_227)) if cron.names_day(day)]


@given(data=st.data(), interval=intervals(), narrowed=limits())
@examples(80)
def test_interval_slots_near_a_change_of_the_clocks(
    data: st.DataObject, interval: timedelta, narrowed: dict[str, Any]
) -> None:
    """Closed hours are jumped over, and the distance from the anchor stays a multiple of the interval."""
    anchor, first = data.draw(moments(narrowed["timezone"])), data.draw(moments(narrowed["timezone"]))
    last = first + min(60 * DAY, 5000 * interval)
    expected = oracle.allowed(oracle.interval_slots(anchor, interval, first, last), **_places(narrowed))
    slots = compiled({"every": f"{interval.total_seconds():.6f}s", **narrowed}, anchor)
    assert_agree(expected, slots, first, last)


@given(data=st.data(), narrowed=limits())
@examples(10)
def test_monthly_slots_over_changes_of_the_clocks(data: st.DataObject, narrowed: dict[str, Any]) -> None:
    """The wall time of the anchor on its day of each month, or the month's last, as a fixed wall time."""
    zone = narrowed["timezone"]
    anchor, first = (data.draw(moments(zone)).replace(second=0, microsecond=0) for _ in range(2))
    # Of two equal wall times the anchor may be the second, which is a slot then; a test of its own has that.
    assume(not anchor.astimezone(ZoneInfo(zone)).fold)
    last = first + 40 * DAY
    expected = oracle.allowed(oracle.monthly_slots(anchor, zone, first, last), **_places(narrowed))
    slots = compiled({"every": "monthly", **narrowed}, anchor)
    assert_agree(expected, slots, first, last)


@st.composite
def recurrences(draw: st.DrawFn) -> tuple[Recurrence, dict[str, Any], datetime, datetime]:
    """The slots of any kind of spec, what narrows it down, and a span in which to look at them."""
    narrowed = draw(limits())
    first, anchor = draw(moments(narrowed["timezone"])), draw(moments(narrowed["timezone"]))
    kind = draw(st.sampled_from(["cron", "cron", "sparse", "every", "monthly"]))
    if kind == "every":
        interval = draw(intervals())
        fields, span = {"every": f"{interval.total_seconds():.6f}s"}, min(30 * DAY, MOST * interval)
    elif kind == "monthly":
        fields, span = {"every": "monthly"}, 2000 * DAY
    else:
        expression = draw(expressions if kind == "cron" else sparse_expressions)
        assume(names_a_date(expression))
        fields, span = {"cron": expression}, (3 if kind == "cron" else 300) * DAY
    return compiled({**fields, **narrowed}, anchor), narrowed, first, first + span


@given(recurrences())
@examples(80)
def test_previous_is_the_mirror_of_next(case: tuple[Recurrence, dict[str, Any], datetime, datetime]) -> None:
    """Walked in either direction the sequence is the same, and its length is what count says."""
    slots, _, first, last = case
    sequence = list(islice(onward(slots, first, last), MOST))
    if sequence:
        assert sequence[::-1] == list(backward(slots, first, sequence[-1]))
        assert len(sequence) == slots.count(sequence[0], sequence[-1])


@given(recurrences())
@examples(80)
def test_slots_grow_are_allowed_and_are_found_from_just_before(
    case: tuple[Recurrence, dict[str, Any], datetime, datetime],
) -> None:
    """Each slot is later than the last, in the window, and next from one microsecond before and previous from after."""
    slots, narrowed, first, last = case
    sequence = list(islice(onward(slots, first, last), MOST))
    assert all(earlier < later for earlier, later in pairwise([first, *sequence]))
    assert sequence == oracle.allowed(sequence, **_places(narrowed))
    assert sequence == [slots.next(slot - INSTANT) for slot in sequence]
    assert sequence == [slots.previous(slot + INSTANT) for slot in sequence]


@given(data=st.data(), expression=expressions, place=zones)
@examples(24)
def test_a_slot_knows_what_the_clocks_do_to_it(data: st.DataObject, expression: str, place: str) -> None:
    """A slot whose wall time is not named stands for one that is named and skipped; one shown twice says so."""
    cron, info = oracle.Cron(expression), ZoneInfo(place)
    assume(cron.is_fixed and names_a_date(expression))
    first = data.draw(moments(place))
    slots = compiled({"cron": expression, "timezone": place}, first)
    assert isinstance(slots, CronTimes)
    for slot in islice(onward(slots, first, first + 4 * DAY), 30):
        wall, skipped = slot.astimezone(info), slots.moved(slot)
        assert (skipped is None) == cron.names(wall.replace(tzinfo=None))
        assert slots.repeated(slot) == (wall.utcoffset() != wall.replace(fold=1).utcoffset())
        if skipped is not None:
            assert cron.names(skipped)
            assert skipped != skipped.replace(tzinfo=info).astimezone(UTC).astimezone(info).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("place", "year"),
    [
        ("America/Asuncion", 2024),
        ("America/Cambridge_Bay", 2000),
        ("America/Recife", 2000),
        ("Africa/Casablanca", 2030),
        ("Asia/Gaza", 2040),
        ("Asia/Gaza", 2054),
        ("Asia/Gaza", 2072),
    ],
)
def test_changes_of_the_clocks_that_follow_each_other_closely(place: str, year: int) -> None:
    """Some lie less than a week apart, there and back."""
    assert oracle.changes(place, year, year) == [change.at for change in zone(place).transitions(year)]


def _places(narrowed: dict[str, Any]) -> dict[str, Any]:
    return {"zone": narrowed["timezone"], "only_between": narrowed["only_between"], "not_on": narrowed["not_on"]}
