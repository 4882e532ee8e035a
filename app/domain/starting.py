"""Starting an execution that exists already (manual, queued, caught up, retried, handed back): now, later or never."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from app.domain.breakers import Gate
from app.domain.executions import Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.schedules import ScheduledJob, Status

# How long a run waits before it asks again, if the workflow's guard has no place for it.
GUARD_WAIT = timedelta(seconds=1)
# Before a worker asks again about a schedule with a value that this release does not know.
NEWER_RELEASE_WAIT = timedelta(seconds=5)
SWITCHED_OFF = "schedules are switched off"


class Go(msgspec.Struct, frozen=True):
    """The execution starts; the gate counts it."""

    gate: Gate


class Wait(msgspec.Struct, frozen=True):
    """The execution cannot start yet; ask again after ``time``."""

    time: timedelta


class GiveUp(msgspec.Struct, frozen=True):
    """The execution ends without a run; ``outcome`` is recorded for its slot if this was the first attempt."""

    reason: str
    outcome: LedgerOutcome = LedgerOutcome.MISSED


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that is to be started."""

    execution_id: UUID
    trigger: Trigger
    attempt: int
    due_at: datetime
    # It was running and was handed back by its worker.
    handed_back: bool
    # It was parked while it waited for a callback, and still counts as running in its workflow's guard.
    was_parked: bool = False


class EntityConflict(StrEnum):
    """Another execution of the same entity that keeps a run from starting."""

    RUN = "run"
    RETRY = "retry"


_ENTITY_CONFLICTS = {
    EntityConflict.RUN: GiveUp("another run of the entity was under way", LedgerOutcome.SKIPPED_OVERLAP),
    EntityConflict.RETRY: GiveUp("an earlier run of the entity waited to be tried again", LedgerOutcome.SKIPPED_RETRY),
}


def may_start(
    run: Candidate, job: ScheduledJob, gate: Gate, now: datetime, *, switched_off: bool = False
) -> Go | Wait | GiveUp:
    """Decide whether an execution starts.

    A manual run is not checked, and a parked one has its place already. One that was handed back has passed the checks
    when it first started, so it only waits for a place.
    """
    if run.due_at > now:
        return Wait(run.due_at - now)
    is_new = not (run.was_parked or run.handed_back)
    if is_new and job.lease_ends_at is not None and now >= job.lease_ends_at:
        return GiveUp("the lease of its schedule has ended")
    if run.trigger is Trigger.MANUAL or run.was_parked:
        return Go(gate)
    if run.handed_back:
        return Wait(GUARD_WAIT) if gate.guard_refusal else Go(gate.entered(run.execution_id, now))
    return GiveUp(SWITCHED_OFF) if switched_off else _check_all(run, job, gate, now)


def _check_all(run: Candidate, job: ScheduledJob, gate: Gate, now: datetime) -> Go | Wait | GiveUp:
    if job.unknown_value:
        # Stored by a newer release, whose workers know whether it may start.
        return Wait(NEWER_RELEASE_WAIT)
    return _check_schedule(run, job, now) or _check_workflow(run, gate, now)


def _check_schedule(run: Candidate, job: ScheduledJob, now: datetime) -> Wait | GiveUp | None:
    """Return why the schedule keeps the run from starting, or None. A retry must lie within the window and the end."""
    if job.status is not Status.ACTIVE:
        return GiveUp(f"the schedule is {job.status}")
    if not run.attempt or job.spec.problem:
        return None
    opening = job.spec.opening(now)
    if opening is None or (job.end_at is not None and opening > job.end_at):
        return GiveUp("the schedule has reached its end")
    return Wait(opening - now) if opening > now else None


def _check_workflow(run: Candidate, gate: Gate, now: datetime) -> Go | Wait | GiveUp:
    """Give up at an open breaker. If the guard is full, wait; a retry is given up instead, as in a tick."""
    refusal = gate.breaker.refusal(now, run.execution_id) if gate.breaker else ""
    if refusal:
        return GiveUp(refusal, LedgerOutcome.SKIPPED_BREAKER)
    if gate.guard_refusal:
        return GiveUp(gate.guard_refusal, LedgerOutcome.SKIPPED_GUARD) if run.attempt else Wait(GUARD_WAIT)
    return Go(gate.entered(run.execution_id, now))


def entity_run_may_start(
    run: Candidate, now: datetime, conflict: EntityConflict | None, *, switched_off: bool
) -> Wait | GiveUp | None:
    """Return why a run of an entity does not start now, or None if it does.

    An entity has one run at a time. A run that was handed back counts as the one that is active, so it goes on.
    """
    if run.due_at > now:
        return Wait(run.due_at - now)
    if run.handed_back:
        return None
    if switched_off:
        return GiveUp(SWITCHED_OFF)
    return None if conflict is None else _ENTITY_CONFLICTS[conflict]
