"""Named limits: rates, bursts, who is next, and permits of several limits at once."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.permits import (
    LOOKAHEAD,
    Bounds,
    Bucket,
    PermitHolder,
    Rate,
    Waiter,
    bounds_errors,
    grant,
    in_turn,
    parse_rate,
)
from tests.support.hypothesis_examples import examples

NOW = datetime(2026, 7, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def waiter(number: int, *buckets: int, source: str = "s", slot: int = 0) -> Waiter:
    """A run that waits for these buckets; ``slot`` in seconds."""
    holder = PermitHolder(UUID(int=number))
    return Waiter(holder=holder, buckets=buckets or (1,), source=source, slot=NOW + slot * SECOND)


def numbers(waiters: list[Waiter]) -> list[int]:
    """The waiters by their numbers."""
    return [one.holder.execution_id.int for one in waiters]


@pytest.mark.parametrize(
    ("text", "rate", "burst"),
    [
        ("100/s", Rate(100, SECOND), 100),
        ("30/m", Rate(30, MINUTE), 1),
        ("90/m", Rate(90, MINUTE), 2),
        ("7/h", Rate(7, timedelta(hours=1)), 1),
    ],
)
def test_a_rate_is_read_with_its_usual_burst(text: str, rate: Rate, burst: int) -> None:
    """What a second allows may start at once, at least one."""
    assert rate == parse_rate(text)
    assert burst == parse_rate(text).usual_burst


@pytest.mark.parametrize("text", ["0/s", "10", "10/d", "10 /s", "-1/s", "1/s\n"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """The error shows how a rate is written."""
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


def test_a_limit_has_a_bound_and_a_burst_belongs_to_a_rate() -> None:
    """Each error names its field."""
    assert ["max_concurrent"] == [error.field for error in bounds_errors(None, None, None)]
    assert ["burst"] == [error.field for error in bounds_errors(3, None, 5)]
    assert [] == bounds_errors(None, "1/s", 5)


def test_never_more_permits_than_max_concurrent() -> None:
    """The rest waits for a permit to be returned, not for a time."""
    bucket = Bucket(id=1, bounds=Bounds(max_concurrent=3), held=1)
    grants = grant({1: bucket}, [waiter(number) for number in range(5)], NOW)
    assert [0, 1] == numbers([permit.waiter for permit in grants.permits])
    assert 3 == grants.buckets[1].held
    assert grants.ask_again_at is None


def test_sources_take_turns_and_each_goes_in_the_order_of_its_slots() -> None:
    """One with many waiting runs does not hold up the others; what it holds already counts."""
    many = [waiter(number, source="many", slot=-number) for number in range(1, 5)]
    few = [waiter(10, source="few", slot=5), waiter(11, source="few", slot=6)]
    assert [4, 10, 3, 11, 2, 1] == numbers(in_turn([*many, *few], {}))
    assert [10, 4, 11, 3, 2, 1] == numbers(in_turn([*many, *few], {"many": 1}))


def test_a_waiter_gets_all_permits_or_none_and_holds_up_no_other() -> None:
    """What is full keeps only those waiting that need it; one that needs an unknown bucket is passed over."""
    buckets = {
        1: Bucket(id=1, bounds=Bounds(max_concurrent=1)),
        2: Bucket(id=2, bounds=Bounds(max_concurrent=1), held=1),
    }
    grants = grant(buckets, [waiter(1, 1, 2), waiter(2, 1, 3), waiter(3, 1)], NOW)
    assert [3] == numbers([permit.waiter for permit in grants.permits])
    assert [1, 1] == [grants.buckets[1].held, grants.buckets[2].held]


@examples(15)
@given(
    count=st.integers(1, 100),
    unit=st.sampled_from(["s", "m"]),
    burst=st.none() | st.integers(1, 20),
    late=st.lists(st.floats(0, 0.2), min_size=1, max_size=5),
)
def test_over_a_minute_a_rate_is_kept_however_late_somebody_asks(
    count: int, unit: str, burst: int | None, late: list[float]
) -> None:
    """All that the rate allows start in a minute, and beyond it no more than the burst; never early."""
    rate = parse_rate(f"{count}/{unit}")
    bucket = Bucket(id=1, bounds=Bounds(rate=rate, burst=burst))
    waiting = [waiter(number) for number in range(100)]
    now, asked = NOW, 0
    starts: list[datetime] = []
    while now < NOW + MINUTE:
        grants = grant({1: bucket}, waiting, now)
        bucket = grants.buckets[1]
        assert all(permit.starts_at >= now for permit in grants.permits)
        starts += [permit.starts_at for permit in grants.permits]
        again = grants.ask_again_at or now
        now = max(now + LOOKAHEAD / 50, again) + timedelta(seconds=late[asked % len(late)])
        asked += 1
    within = sum(start < NOW + MINUTE for start in starts)
    allowed = MINUTE / rate.interval
    assert int(allowed) <= within <= allowed + (burst or rate.usual_burst)
