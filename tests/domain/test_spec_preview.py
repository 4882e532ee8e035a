"""Warnings about what surprises people."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.recurrence import CronTimes
from app.domain.spec_preview import spec_warnings
from app.domain.specs import Cadence, Spec, canonical

BERLIN = "Europe/Berlin"
# A Friday.
NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)
YEAR = timedelta(days=366)
EITHER = "It fires on days that fit the day of month or the day of week, not only on those that fit both."


def warnings(
    *,
    anchor: datetime | None = None,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    timeout: int = 1,
    **spec: Any,
) -> list[str]:
    """The traps of a schedule that is to begin now."""
    read = Spec(**canonical(spec))
    begun = anchor or read.at or start_at or NOW
    return spec_warnings(read, anchor=begun, start_at=start_at, end_at=end_at, timeout_seconds=timeout, now=NOW)


@pytest.mark.parametrize(
    "spec",
    [
        {"interval_seconds": 300},
        {"interval_seconds": 86_400},
        {"interval_seconds": 300, "timezone": BERLIN},
        {"every": "monthly"},
        {"cron": "*/15 * * * *", "timezone": BERLIN},
        {"cron": "0 9 * * 1-5", "timezone": BERLIN},
        {"cron": "30 2 * * *"},
        {"cron": "0 */6 * * *"},
        {"cron": "0 0 1 */3 *"},
        {"cron": "0 0 L * *"},
        {"at": NOW + timedelta(days=1)},
        {"after": "10m", "anchor": NOW + timedelta(minutes=10)},
    ],
)
def test_what_surprises_nobody_is_left_alone(spec: dict[str, Any]) -> None:
    """No warning without a reason."""
    assert [] == warnings(**spec)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"cron": "30 2 * * *", "only_between": "03:00-04:00"}, "the window leaves out every slot"),
        ({"cron": "0 9 * * 1", "not_on": ["monday"]}, "the excluded weekdays leave out every slot"),
        (
            {"cron": "0 9 * * 1", "only_between": "08:00-18:00", "not_on": ["monday"]},
            "the window and the excluded weekdays leave out every slot",
        ),
        ({"interval_seconds": 86_400, "only_between": "13:00-14:00"}, "the window leaves out every slot"),
        ({"every": "monthly", "only_between": "13:00-14:00"}, "the window leaves out every slot"),
        (
            {"at": datetime(2028, 1, 1, tzinfo=UTC), "only_between": "08:00-18:00"},
            "the window leaves out 2028-01-01T00:00:00Z",
        ),
        (
            {"at": datetime(2026, 1, 1, tzinfo=UTC), "not_on": ["thursday"]},
            "the excluded weekdays leave out 2026-01-01T00:00:00Z",
        ),
        (
            {"cron": "0 9 * * *", "end_at": NOW + timedelta(hours=1)},
            "it ends at 2027-01-15T13:00:00Z, and its next slot would be 2027-01-16T09:00:00Z",
        ),
        (
            {"interval_seconds": 300, "start_at": NOW + timedelta(days=1), "end_at": NOW},
            "it ends at 2027-01-15T12:00:00Z, and its next slot would be 2027-01-16T12:00:00Z",
        ),
        (
            {"at": datetime(2028, 1, 1, tzinfo=UTC), "end_at": NOW},
            "it ends at 2027-01-15T12:00:00Z, and its next slot would be 2028-01-01T00:00:00Z",
        ),
        ({"cron": "0 0 */15 * 1#2"}, "no date fits the expression"),
        ({"cron": "0 0 */15 * 1#2", "end_at": NOW + YEAR}, "no date fits the expression"),
    ],
)
def test_what_never_fires_says_why(spec: dict[str, Any], expected: str) -> None:
    """The window, the weekdays, the end, or a date that does not exist; nothing else matters then."""
    assert [f"It never fires: {expected}."] == warnings(**spec)


def test_a_moment_that_has_passed() -> None:
    """It may fire late or be refused: that is not for the spec to say."""
    assert ["The moment has passed: 2026-01-01T00:00:00Z."] == warnings(at=datetime(2026, 1, 1, tzinfo=UTC))


def test_the_end_may_be_a_slot() -> None:
    """Start and end are both included."""
    assert [] == warnings(interval_seconds=300, start_at=NOW + YEAR, end_at=NOW + YEAR)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/7 * * * *", ["The gap from minute 56 to the next hour is 4 minutes, not 7."]),
        ("*/59 * * * *", ["The gap from minute 59 to the next hour is 1 minute, not 59."]),
        ("*/90 * * * *", ["The gap from minute 0 to the next hour is 60 minutes, not 90."]),
        ("*/60 * * * *", []),
        ("*/7 9 * * *", []),
        ("*/7 9,10 * * *", ["The gap from minute 56 to the next hour is 4 minutes, not 7."]),
        ("0 */5 * * *", ["The gap from hour 20 to the next day is 4 hours, not 5."]),
        ("* */5 * * *", ["The gap from hour 20 to the next day is 4 hours, not 5."]),
        ("0 */48 * * *", ["The gap from hour 0 to the next day is 24 hours, not 48."]),
        ("0 */5 * * 1", []),
        ("*/30 */5 * * 1", []),
        ("0 0 1 */5 *", ["The gap from month 11 to the next year is 2 months, not 5."]),
        ("0 0 * * */2", ["The gap from weekday 6 to the next week is 1 day, not 2."]),
        ("0 0 */2 * *", ["Steps of days begin anew with every month: the last one is not always 2 days long."]),
    ],
)
def test_steps_that_begin_anew(expression: str, expected: list[str]) -> None:
    """Where a step does not divide its hour, day, month or year, and one follows the other, a gap is shorter."""
    assert expected == warnings(cron=expression)


@pytest.mark.parametrize(("between", "warned"), [("09:00-11:00", True), ("09:00-10:00", False)])
def test_a_gap_outside_the_window_is_no_trap(between: str, *, warned: bool) -> None:
    """What the window leaves out has no gaps."""
    assert warned == bool(warnings(cron="*/7 * * * *", only_between=between))


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("13 * 5", [EITHER]),
        ("1-31 * 5", [EITHER]),
        ("*/31 * 5", ["Steps of days begin anew with every month: the last one is not always 31 days long."]),
        ("29 * *", ["Day 29 is left out in months that do not have it."]),
        ("30 * *", ["Day 30 is left out in months that do not have it."]),
        ("31 * *", ["Day 31 is left out in months that do not have it."]),
        ("1,31 * 5", [EITHER, "Day 31 is left out in months that do not have it."]),
        ("30,31 * *", ["Day 30 is left out in months that do not have it."]),
        ("28-31 * *", []),
        ("31,L * *", []),
        ("31 1,3,5 *", []),
        ("29 2 *", ["Day 29 is left out in months that do not have it."]),
    ],
)
def test_days_that_surprise(days: str, expected: list[str]) -> None:
    """Either kind of day is enough, and not every month has every day."""
    assert expected == warnings(cron=f"0 0 {days}")


@pytest.mark.parametrize(
    ("day", "expected"), [(28, []), (31, ["In months without day 31 it fires on their last day."])]
)
def test_a_month_without_the_day(day: int, expected: list[str]) -> None:
    """Monthly goes back to the month's last day where cron leaves it out."""
    assert expected == warnings(every="monthly", start_at=datetime(2027, 1, day, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("spec", "skipped", "repeated"),
    [
        ({"cron": "30 2 * * *"}, "02:30: it fires at 03:00 instead", "02:30 twice: it fires once, the first time"),
        ({"cron": "0 2,3 * * *"}, "02:00: it fires at 03:00 instead", "02:00 twice: it fires once, the first time"),
        ({"cron": "*/15 2 * * *"}, "02:00: it does not fire then", "02:00 twice: it fires both times"),
        ({"cron": "*/15 2-3 * * *"}, "02:00: it does not fire then", "02:00 twice: it fires both times"),
        ({"cron": "0 */2 * * *"}, "02:00: it does not fire then", "02:00 twice: it fires both times"),
        (
            {"cron": "30 2 * * *", "only_between": "02:00-03:00"},
            "02:30: it does not fire then",
            "02:30 twice: it fires once, the first time",
        ),
    ],
)
def test_changes_of_the_clocks(spec: dict[str, Any], skipped: str, repeated: str) -> None:
    """A time of day that is skipped or comes twice within a year, and what becomes of it."""
    expected = [
        f"On 2027-03-28 the clocks in Europe/Berlin skip {skipped}.",
        f"On 2027-10-31 the clocks in Europe/Berlin show {repeated}.",
    ]
    assert expected == warnings(timezone=BERLIN, **spec)


def test_only_changes_before_the_end_and_after_the_start_matter() -> None:
    """What comes before the first slot, or after the last, surprises nobody."""
    summer, winter = datetime(2027, 6, 1, tzinfo=UTC), datetime(2027, 12, 1, tzinfo=UTC)
    assert [] == warnings(cron="30 2 * * *", timezone=BERLIN, start_at=summer, end_at=summer + timedelta(days=30))
    (skipped, repeated) = warnings(cron="30 2 * * *", timezone=BERLIN, start_at=winter)
    assert skipped.startswith("On 2028-03-26")
    assert repeated.startswith("On 2028-10-29")


def test_each_kind_of_change_is_told_once() -> None:
    """A year may hold the same change twice."""
    start = datetime(2027, 3, 27, tzinfo=UTC)
    found = warnings(cron="30 2 * * *", timezone=BERLIN, start_at=start)
    assert ["On 2027-03-28", "On 2027-10-31"] == [one[:13] for one in found]


def test_a_monthly_time_of_day_may_be_skipped() -> None:
    """It is a time on the wall as well."""
    start = datetime(2027, 1, 28, 1, 30, tzinfo=UTC)
    expected = ["On 2027-03-28 the clocks in Europe/Berlin skip 02:30: it fires at 03:00 instead."]
    assert expected == warnings(every="monthly", timezone=BERLIN, start_at=start)


def test_a_slot_that_only_the_clocks_move_into_the_window() -> None:
    """Once a year it does fire, which nobody meant."""
    expected = ["It fires only where the clocks change: the window leaves out every other slot."]
    assert expected == warnings(cron="30 2 * * *", timezone=BERLIN, only_between="03:00-04:00")


@pytest.mark.parametrize("seconds", [86_400, 604_800])
def test_an_interval_of_days_counts_hours(seconds: int) -> None:
    """Where the clocks change it does not stay at its time of day."""
    moves = "its time of day in Europe/Berlin moves when the clocks change on 2027-03-28"
    assert [f"It counts hours, not days: {moves}."] == warnings(interval_seconds=seconds, timezone=BERLIN)


@pytest.mark.parametrize(
    ("spec", "timeout", "expected"),
    [
        ({"interval_seconds": 300}, 600, ["A run may take up to 600 s, and the slots are 300 s apart."]),
        ({"interval_seconds": 300}, 300, []),
        ({"every": "2.5s"}, 3, ["A run may take up to 3 s, and the slots are 2.5 s apart."]),
        ({"cron": "0,10 * * * *"}, 601, ["A run may take up to 601 s, and some slots are 600 s apart."]),
        ({"cron": "0,10 * * * *"}, 600, []),
        ({"at": NOW + YEAR}, 10**9, []),
        ({"cron": "0 0 29 2 *"}, 2**31 - 1, ["Day 29 is left out in months that do not have it."]),
    ],
)
def test_slots_closer_than_a_run_may_take(spec: dict[str, Any], timeout: int, expected: list[str]) -> None:
    """The smallest gap of the first slots counts."""
    assert expected == warnings(timeout=timeout, **spec)


@pytest.mark.parametrize(
    "spec",
    [Spec(cron="garbage"), Spec(interval_seconds=1.0, timezone="no/where"), Spec(every="monthly", only_between="x")],
)
def test_an_invalid_spec_has_one_problem(spec: Spec) -> None:
    """What is wrong is all there is to say."""
    found = spec_warnings(spec, anchor=NOW, start_at=None, end_at=None, timeout_seconds=600, now=NOW)
    assert [spec.problem] == found
    assert all(found)


ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Beirut"])


@given(st.integers(0, 59), st.integers(0, 23), ZONES)
def test_the_warnings_agree_with_the_slots(minute: int, hour: int, timezone: str) -> None:
    """One is given exactly where a slot of the coming year is moved, or stands for two."""
    spec = Spec(cron=f"{minute} {hour} * * *", timezone=timezone)
    found = warnings(cron=spec.cron, timezone=timezone)
    times, slot, moved, repeated = spec.slots(NOW), NOW, False, False
    assert isinstance(times, CronTimes)
    while slot < NOW + YEAR:
        slot = times.next(slot) or NOW + YEAR
        moved, repeated = moved or times.moved(slot) is not None, repeated or times.repeated(slot)
    assert (moved, repeated) == (any("instead" in one for one in found), any("twice" in one for one in found))


SPECS = st.fixed_dictionaries(
    {"timezone": ZONES},
    optional={
        "only_between": st.sampled_from(["08:00-18:00", "22:00-06:00", "02:00-03:00", "12:00-12:01"]),
        "not_on": st.sets(st.integers(0, 6), max_size=6).map(sorted),
    },
)
WHENS = st.one_of(
    st.builds(
        lambda *parts: {"cron": " ".join(parts)},
        st.sampled_from(["*", "0", "30", "*/7", "*/15", "1,5,7"]),
        st.sampled_from(["*", "2", "*/5", "9-17", "22-2"]),
        st.sampled_from(["*", "1", "31", "L", "*/15", "29"]),
        st.sampled_from(["*", "2", "1,7", "*/5"]),
        st.sampled_from(["*", "1", "1#2", "5L", "1-5"]),
    ).filter(lambda when: when["cron"].split()[2:4] != ["31", "2"]),
    st.floats(1, 10**7).map(lambda seconds: {"interval_seconds": seconds}),
    st.just({"every": "monthly"}),
)


@given(SPECS, WHENS, st.timedeltas(-YEAR, YEAR), st.none() | st.timedeltas(timedelta(0), YEAR))
def test_what_never_fires_is_told_and_nothing_else(
    limits: dict[str, Any], when: dict[str, Any], start: timedelta, length: timedelta | None
) -> None:
    """Whatever compiles has warnings, and "never" among them exactly if no slot comes."""
    start_at, end_at = NOW + start, None if length is None else NOW + start + length
    found = warnings(start_at=start_at, end_at=end_at, timeout=600, **limits, **when)
    slots = Spec(**canonical(limits | when)).slots(start_at)
    never = Cadence(slots, start_at, end_at).first_after(NOW) is None
    assert never == any("never fires" in one for one in found)
    assert all(one.endswith(".") for one in found)
