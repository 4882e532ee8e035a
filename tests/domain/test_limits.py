"""How many objects one user may have, and how the places of a worker are shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import QuotaExceededError
from app.domain.limits import (
    PlaceUsage,
    Quota,
    Quotas,
    equal_share,
    has_room,
    may_take_place,
    min_reserved,
    next_reserved,
    require_room,
)

TOTALS = st.integers(1, 2000)


@pytest.mark.parametrize(("total", "kept"), [(1, 0), (2, 1), (10, 1), (100, 10), (1000, 100)])
def test_a_tenth_is_always_kept(total: int, kept: int) -> None:
    """A worker with one place has none to keep."""
    assert kept == min_reserved(total)


@given(total=TOTALS, owners=st.integers(1, 50), reserved=st.integers(0, 2000), were_short=st.booleans())
def test_what_is_kept_leaves_the_greediest_its_share(
    *, total: int, owners: int, reserved: int, were_short: bool
) -> None:
    """And is never less than the tenth, nor more than there is."""
    found = next_reserved(total, owners, reserved, were_short=were_short)
    assert min_reserved(total) <= found <= total
    assert total - found >= equal_share(total, owners) or found == min_reserved(total)


def test_more_is_kept_while_others_find_no_place_and_less_when_they_do() -> None:
    """Doubled up to an equal share, halved down to the tenth."""
    rising = [100]
    for _ in range(4):
        rising.append(next_reserved(1000, 2, rising[-1], were_short=True))
    falling = [rising[-1]]
    for _ in range(4):
        falling.append(next_reserved(1000, 2, falling[-1], were_short=False))
    assert [100, 200, 400, 500, 500] == rising
    assert [500, 250, 125, 100, 100] == falling


@given(st.integers(2, 2000), st.integers(1, 50), st.integers(0, 2000))
def test_an_owner_who_holds_nothing_gets_in_while_there_is_a_place(total: int, owners: int, used: int) -> None:
    """However greedy the others are."""
    usage = PlaceUsage(total=total, used=used, reserved=total, owners=owners)
    assert may_take_place(usage, 0) == (used < total)


def test_the_last_places_are_for_those_who_hold_next_to_nothing() -> None:
    """A second greedy owner leaves them to a third."""
    usage = PlaceUsage(total=1000, used=950, reserved=100, owners=3)
    assert (True, False) == (may_take_place(usage, 24), may_take_place(usage, 25))


def test_up_to_its_share_an_owner_takes_what_is_kept_for_others() -> None:
    """And no more than that."""
    usage = PlaceUsage(total=10, used=6, reserved=5, owners=2)
    assert (True, False) == (may_take_place(usage, 4), may_take_place(usage, 5))


@pytest.mark.parametrize(
    ("limit", "used", "wanted", "fits"),
    [
        (0, 10**9, 1, True),
        (3, 2, 1, True),
        (3, 3, 1, False),
        (3, 1, 2, True),
        (3, 1, 3, False),
        # A limit that was lowered deletes nothing.
        (3, 7, 1, False),
    ],
)
def test_a_limit_counts_what_there_is_and_what_is_wanted(limit: int, used: int, wanted: int, fits: bool) -> None:
    """0 is no limit; the refusal says both numbers."""
    assert fits == has_room(limit, used, wanted)
    if fits:
        require_room(Quota.PARKED_RUNS, limit, used, wanted)
        return
    with pytest.raises(QuotaExceededError, match=f"The owner may have {limit} parked runs and has {used}") as refused:
        require_room(Quota.PARKED_RUNS, limit, used, wanted)
    assert (limit, used) == (refused.value.limit, refused.value.used)


def test_every_quota_has_a_limit() -> None:
    """Each kind by its name, and no other."""
    assert {str(quota) for quota in Quota} == set(Quotas.__struct_fields__)
    assert 5 == Quotas(parked_runs=5).limit_of(Quota.PARKED_RUNS)
