"""How many objects one user may have."""

import pytest

from app.domain.errors import QuotaExceededError
from app.domain.limits import Quota, Quotas, has_room, require_room


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
    with pytest.raises(QuotaExceededError, match=f"This user may have {limit} parked runs and has {used}") as refused:
        require_room(Quota.PARKED_RUNS, limit, used, wanted)
    assert (limit, used) == (refused.value.limit, refused.value.used)


def test_every_quota_has_a_limit() -> None:
    """Each kind by its name, and no other."""
    assert {str(quota) for quota in Quota} == set(Quotas.__struct_fields__)
    assert 5 == Quotas(parked_runs=5).limit_of(Quota.PARKED_RUNS)
