"""Leases of agents: what a person grants to an agent, and what it leaves for a schedule, a run or a change."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain.declarations import same
from app.domain.errors import FieldError, LeaseExhaustedError, OutsideLeaseError, WrongStateError
from app.domain.planning import one_shot_has_outcome, stopped, with_first_slot, with_start_anchor
from app.domain.schedules import EDITABLE, Reason, ScheduledJob, Status
from app.domain.trigger_event import rfc3339

ALIVE = frozenset({Status.ACTIVE, Status.PAUSED})
# The slots in which the shortest gap of a spec is looked for. Hours and minutes of a spec are the same on all days, so
# that a short gap appears early.
_SLOTS_COMPARED = 200
# The action whose nodes create schedules as the owner, beyond any lease.
_ACTS_AS_OWNER = "scheduler_tools"


class Review(StrEnum):
    """Whether a person looks at what an agent makes."""

    NONE = "none"
    # It runs, and is flagged until a person approves it.
    AFTER = "after"
    # It is paused until a person approves it.
    BEFORE = "before"


class AtEnd(StrEnum):
    """What becomes of the schedules of a lease that expires."""

    PAUSE = "pause"
    DELETE = "delete"


class LeaseStatus(StrEnum):
    """The states of a lease."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a person grants, and can change later."""

    purpose: str = ""
    expires_at: datetime
    # Schedules that are active or paused at once.
    max_schedules: int
    # Runs of all its schedules together, retries not counted.
    max_runs: int
    max_retries: int
    min_interval_seconds: int
    # Calls that change something; 0 is no limit.
    max_writes: int
    # Empty: all that the owner may use.
    workflows: tuple[int, ...] = ()
    review: Review = Review.NONE
    at_end: AtEnd = AtEnd.PAUSE


class Lease(LeaseTerms, frozen=True, kw_only=True):
    """A stored lease."""

    id: int
    # The owner, whose rights the agent borrows.
    user_profile_id: int
    owner: str
    granted_by: str
    agent: str
    created_at: datetime
    revoked_at: datetime | None = None
    # When its schedules were paused or deleted because it had expired or was revoked.
    ended_at: datetime | None = None
    # Runs on request, and runs of schedules that are deleted or adopted.
    spent_runs: int = 0
    writes: int = 0

    def status(self, now: datetime) -> LeaseStatus:
        """Return the state of the lease at a moment."""
        if self.revoked_at is not None:
            return LeaseStatus.REVOKED
        return LeaseStatus.EXPIRED if self.expires_at <= now else LeaseStatus.ACTIVE


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What of a lease is used: schedules that are alive, runs that are made or reserved, and changes."""

    schedules: int = 0
    runs: int = 0
    writes: int = 0

    def plus(self, added: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(
            schedules=self.schedules + added.schedules,
            runs=self.runs + added.runs,
            writes=self.writes + added.writes,
        )


def left_of(lease: Lease, usage: Usage) -> dict[str, int | None]:
    """Return how much of a lease is left; None where it has no bound."""
    return {
        "schedules": max(0, lease.max_schedules - usage.schedules),
        "runs": max(0, lease.max_runs - usage.runs),
        "writes": max(0, lease.max_writes - usage.writes) if lease.max_writes else None,
    }


def charge(job: ScheduledJob) -> Usage:
    """Return what a schedule takes from its lease: while it is alive all runs that it may make, later those it made."""
    if job.status not in ALIVE:
        return Usage(runs=job.lease_runs)
    if job.is_one_shot:
        return Usage(schedules=1, runs=job.lease_runs + (not one_shot_has_outcome(job)))
    return Usage(schedules=1, runs=max(job.total_repeats, job.lease_runs))


def require_room(lease: Lease, usage: Usage, added: Usage) -> None:
    """Raise ``LeaseExhaustedError`` if a lease has no room for more."""
    bounds = {"schedules": lease.max_schedules, "runs": lease.max_runs, "writes": lease.max_writes or None}
    for name, bound in bounds.items():
        wanted = getattr(added, name)
        if bound is not None and wanted > 0 and getattr(usage, name) + wanted > bound:
            raise LeaseExhaustedError(_exhausted(lease, name, bound, usage, wanted), left_of(lease, usage), lease.owner)


def _exhausted(lease: Lease, name: str, bound: int, usage: Usage, wanted: int) -> str:
    kind, advice = {
        "schedules": ("schedules at once", "Stop one of them"),
        "runs": ("runs", "Ask for fewer (`total_repeats`), or stop a schedule that does not need its own"),
        "writes": ("changes", "Stop changing"),
    }[name]
    return (
        f"The lease {lease.id} of the agent '{lease.agent}' allows {bound} {kind}: {getattr(usage, name)} are used or "
        f"reserved, and this needs {wanted}. {advice}, or ask {lease.owner} to extend it: "
        f"PATCH /api/v1/leases/{lease.id}/."
    )


def require_active(lease: Lease, now: datetime) -> None:
    """Refuse what needs a lease that has ended."""
    status = lease.status(now)
    if status is not LeaseStatus.ACTIVE:
        raise WrongStateError(
            f"The lease {lease.id}, under which the schedule was made, is {status}. "
            f"{lease.owner} can {'adopt the schedule' if status is LeaseStatus.REVOKED else 'extend the lease'}."
        )


def compiled(lease: Lease, draft: ScheduledJob) -> ScheduledJob:
    """Return a new schedule with the bounds of its lease as fields that ticks heed."""
    waits = lease.review is not Review.NONE
    return replace(
        within_end(replace(draft, lease_id=lease.id, lease_ends_at=lease.expires_at)),
        max_retries=min(draft.max_retries, lease.max_retries),
        status=Status.PAUSED if lease.review is Review.BEFORE else Status.ACTIVE,
        status_reason=Reason.AWAITING_REVIEW if waits else Reason.NONE,
    )


def within_end(job: ScheduledJob) -> ScheduledJob:
    """Return a schedule that ends no later than its lease."""
    ends_at = job.lease_ends_at
    if ends_at is None or (job.end_at is not None and job.end_at <= ends_at):
        return job
    return replace(job, end_at=ends_at)


def term_errors(lease: Lease, job: ScheduledJob, now: datetime) -> list[FieldError]:
    """Return what of a schedule does not fit the terms of its lease."""
    errors = []
    if not job.is_one_shot and not job.total_repeats:
        text = f"A schedule under a lease says how often it runs at most; the lease allows {lease.max_runs} in all."
        errors.append(FieldError("total_repeats", text))
    if job.max_retries > lease.max_retries:
        errors.append(FieldError("max_retries", f"The lease allows {lease.max_retries} retries at most."))
    gap = shortest_gap(job, now)
    if gap is not None and gap < timedelta(seconds=lease.min_interval_seconds):
        text = (
            f"The lease wants at least {lease.min_interval_seconds} seconds between slots; "
            f"this spec has {gap.total_seconds():g}."
        )
        errors.append(FieldError(job.kind, text))
    return errors


def first_slot_errors(lease: Lease, job: ScheduledJob, now: datetime) -> list[FieldError]:
    """Return an error if a new schedule has no slot before its lease ends."""
    anchored = with_start_anchor(job, now)
    first = anchored.cadence.first_after(now) or anchored.cadence.latest_at(now)
    if first is not None and first <= lease.expires_at and (anchored.is_one_shot or first > now):
        return []
    text = f"The first slot lies after the end of the lease, {rfc3339(lease.expires_at)}, or after `end_at`."
    return [FieldError(job.kind, text)]


def shortest_gap(job: ScheduledJob, now: datetime) -> timedelta | None:
    """Return the shortest time between two of the next slots; None if there are not two."""
    if job.is_one_shot or job.spec.problem:
        return None
    slots = job.spec.slots_from(job.anchor_at, job.start_at)
    moments = [slots.next(now)]
    while moments[-1] is not None and len(moments) < _SLOTS_COMPARED:
        moments.append(slots.next(moments[-1]))
    known = [moment for moment in moments if moment is not None]
    return min((later - earlier for earlier, later in pairwise(known)), default=None)


def require_workflow(lease: Lease, workflow_id: int, node_types: frozenset[str]) -> None:
    """Refuse a workflow that a lease does not allow.

    One whose nodes act on schedules with all rights of the owner must be named by the lease.
    """
    if lease.workflows and workflow_id not in lease.workflows:
        listed = ", ".join(map(str, lease.workflows))
        raise OutsideLeaseError(f"The lease {lease.id} allows the workflows {listed} only, and this is {workflow_id}.")
    if _ACTS_AS_OWNER in node_types and workflow_id not in lease.workflows:
        raise OutsideLeaseError(
            f"The workflow {workflow_id} has a node of the type `{_ACTS_AS_OWNER}`, which acts with all rights of its "
            f"owner. The lease {lease.id} must name it in `workflows`."
        )


def is_edited(before: ScheduledJob, after: ScheduledJob) -> bool:
    """Return whether a field differs that people can change."""
    return any(not same(getattr(before, name), getattr(after, name)) for name in EDITABLE)


def reviewed_again(lease: Lease, before: ScheduledJob, after: ScheduledJob) -> ScheduledJob:
    """Return a schedule after a change by its agent: what a person approved is not what it is now."""
    if after.status not in ALIVE or lease.review is Review.NONE:
        return after
    if lease.review is Review.AFTER:
        return replace(after, status_reason=Reason.AWAITING_REVIEW) if after.status is Status.ACTIVE else after
    if after.status is Status.ACTIVE:
        require_reviewed(lease, before)
    if not is_edited(before, after):
        return after
    if after.status is Status.ACTIVE:
        return stopped(after, Status.PAUSED, Reason.AWAITING_REVIEW)
    return replace(after, status_reason=Reason.AWAITING_REVIEW)


def require_reviewed(lease: Lease, job: ScheduledJob) -> None:
    """Refuse to let an agent start a schedule that a person has to approve first, by its cadence or on request."""
    if job.status is Status.PAUSED and job.status_reason is Reason.AWAITING_REVIEW:
        raise WrongStateError(
            f"The schedule awaits review. {lease.owner} approves it: POST /api/v1/leases/{lease.id}/approve/."
        )


def with_lease_end(job: ScheduledJob, ends_at: datetime, active_runs: int, now: datetime) -> ScheduledJob:
    """Return a schedule whose lease ends at another moment; one that was paused at the former end goes on."""
    follows = job.end_at is None or job.end_at == job.lease_ends_at
    moved = within_end(replace(job, lease_ends_at=ends_at, end_at=ends_at if follows else job.end_at))
    if moved.status is Status.PAUSED and moved.status_reason is Reason.LEASE_EXPIRED:
        resumed = replace(moved, status=Status.ACTIVE, status_reason=Reason.NONE)
        return with_first_slot(resumed, active_runs, now)
    return _planned_anew(moved, active_runs, now)


def ended_with_lease(job: ScheduledJob, reason: Reason, ends_at: datetime) -> ScheduledJob:
    """Return a schedule whose lease has expired or was revoked: nothing of it fires from ``ends_at`` on."""
    bounded = job if ends_at == job.lease_ends_at else within_end(replace(job, lease_ends_at=ends_at))
    if job.status is Status.ACTIVE:
        return stopped(bounded, Status.PAUSED, reason)
    # A pause that would end by itself ends with the lease.
    return bounded if job.paused_until is None else replace(bounded, paused_until=None, status_reason=reason)


def adopted(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return a schedule without its lease: it belongs to the owner alone, and has no bounds but its own."""
    ends_at = None if job.end_at == job.lease_ends_at else job.end_at
    reason = job.status_reason
    if reason in LEASE_REASONS:
        reason = Reason.NONE if job.status is Status.ACTIVE else Reason.MANUAL
    free = replace(job, lease_id=None, lease_ends_at=None, lease_runs=0, end_at=ends_at, status_reason=reason)
    return _planned_anew(free, active_runs, now)


LEASE_REASONS = frozenset({Reason.AWAITING_REVIEW, Reason.LEASE_EXPIRED, Reason.LEASE_REVOKED})


def approved(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return a schedule that a person has reviewed; one that waited for it goes on."""
    if job.status_reason is not Reason.AWAITING_REVIEW:
        return job
    active = replace(job, status=Status.ACTIVE, status_reason=Reason.NONE)
    return active if job.status is Status.ACTIVE else with_first_slot(with_start_anchor(active, now), active_runs, now)


def _planned_anew(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return an active schedule with a tick that fits its end."""
    if job.status is not Status.ACTIVE:
        return job
    late = job.end_at is not None and job.next_slot is not None and job.next_slot > job.end_at
    return with_first_slot(job, active_runs, now) if job.next_run_at is None or late else job


def terms_of(lease: Lease) -> dict[str, Any]:
    """Return what can be changed of a lease, with its values."""
    return {name: getattr(lease, name) for name in LeaseTerms.__struct_fields__}


def changed_terms(lease: Lease, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of these values that differ from the lease."""
    terms = terms_of(lease)
    return {name: value for name, value in values.items() if terms[name] != value}
