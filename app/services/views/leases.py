"""Views of agents' leases."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from app.domain.agent_leases import AtEnd, Lease, LeaseStatus, Review, Usage, left_of
from app.services.inputs import Instant
from app.services.listing import Encoded


class LeaseUsage(msgspec.Struct, kw_only=True):
    """Schedules that are alive, runs that are made or reserved, and calls that changed something."""

    schedules: int
    runs: int
    writes: int


class LeaseRest(msgspec.Struct, kw_only=True):
    """What is left of each bound; null where there is none."""

    schedules: int
    runs: int
    writes: int | None


class ListedLease(msgspec.Struct, kw_only=True):
    """A lease in a list."""

    id: int
    agent: str
    purpose: str
    status: LeaseStatus
    owner: str
    owner_id: int
    granted_by: str
    expires_at: Instant
    max_schedules: int
    max_runs: int
    max_retries: int
    min_interval_seconds: int
    max_writes: int
    workflows: list[int]
    review: Review
    at_end: AtEnd
    created_at: Instant
    revoked_at: Instant | None


class LeaseView(ListedLease, kw_only=True):
    """A lease, what of it is used, and the schedules that were made with it."""

    used: LeaseUsage
    left: LeaseRest
    schedule_ids: list[UUID]
    awaiting_review: list[UUID]


class FreshLeaseView(LeaseView, kw_only=True):
    """A new lease with the agent's token, which is shown only once."""

    token: str


class LeaseList(msgspec.Struct):
    """A page of the list of leases."""

    items: list[Encoded[ListedLease]]
    next_cursor: str | None


def listed_lease(lease: Lease, now: datetime) -> ListedLease:
    """Return a lease as lists show it."""
    return ListedLease(
        id=lease.id,
        agent=lease.agent,
        purpose=lease.purpose,
        status=lease.status(now),
        owner=lease.owner,
        owner_id=lease.user_profile_id,
        granted_by=lease.granted_by,
        expires_at=lease.expires_at,
        max_schedules=lease.max_schedules,
        max_runs=lease.max_runs,
        max_retries=lease.max_retries,
        min_interval_seconds=lease.min_interval_seconds,
        max_writes=lease.max_writes,
        workflows=list(lease.workflows),
        review=lease.review,
        at_end=lease.at_end,
        created_at=lease.created_at,
        revoked_at=lease.revoked_at,
    )


def lease_view(
    lease: Lease, now: datetime, used: Usage, schedule_ids: Sequence[UUID], awaiting: Sequence[UUID]
) -> LeaseView:
    """Return a lease with what of it is used."""
    return LeaseView(
        **msgspec.structs.asdict(listed_lease(lease, now)),
        used=LeaseUsage(**msgspec.structs.asdict(used)),
        left=msgspec.convert(left_of(lease, used), LeaseRest),
        schedule_ids=list(schedule_ids),
        awaiting_review=list(awaiting),
    )
