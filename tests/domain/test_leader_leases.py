"""Who may hold the Lease of the operators, and what is written to it."""

from datetime import UTC, datetime

import pytest

from app.domain.leader_leases import LEASE_SECONDS, Turn, held_of, lease_spec, released_spec, turn_of

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("holder", "seconds", "turn"),
    [
        ("", 0, Turn.ACQUIRE),
        ("me", 100, Turn.RENEW),
        ("another", LEASE_SECONDS - 0.1, Turn.WAIT),
        ("another", LEASE_SECONDS, Turn.ACQUIRE),
    ],
)
def test_a_lease_is_taken_when_it_ended(holder: str, seconds: float, turn: Turn) -> None:
    """It ended if this process has seen it unchanged for its duration, whatever the clock of the holder says."""
    lease = {"spec": lease_spec({}, holder, NOW)}
    first = held_of(lease, None, 1000.0)
    again = held_of(lease, first, 1000.0 + seconds)
    assert turn is turn_of(again, "me", 1000.0 + seconds)


def test_a_renewed_lease_counts_from_the_renewal() -> None:
    """What was seen changed begins anew, and a Lease that does not exist can be acquired."""
    first = held_of({"spec": lease_spec({}, "another", NOW)}, None, 1000.0)
    renewed = held_of({"spec": lease_spec({}, "another", NOW.replace(second=5))}, first, 1014.0)
    assert Turn.WAIT is turn_of(renewed, "me", 1000.0 + LEASE_SECONDS)
    assert Turn.ACQUIRE is turn_of(None, "me", 0.0)


def test_the_lease_says_who_holds_it_and_since_when() -> None:
    """A renewal keeps the time of the acquisition; another holder is a transition; what is given back is free."""
    first = lease_spec({}, "me", NOW)
    assert ("me", "2026-05-01T12:00:00.000000Z", 0) == (
        *(first["holderIdentity"], first["acquireTime"]),
        first["leaseTransitions"],
    )
    renewed = lease_spec(first, "me", NOW.replace(minute=1))
    assert (first["acquireTime"], "2026-05-01T12:01:00.000000Z") == (renewed["acquireTime"], renewed["renewTime"])
    other = lease_spec(renewed, "another", NOW.replace(minute=2))
    assert (1, other["renewTime"]) == (other["leaseTransitions"], other["acquireTime"])
    released = released_spec(other, NOW.replace(minute=3))
    assert Turn.ACQUIRE is turn_of(held_of({"spec": released}, None, 0.0), "me", 0.0)
