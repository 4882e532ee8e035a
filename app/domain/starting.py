"""Whether an execution that exists already may start: its turn has come, now schedule and workflow have a say."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from app.domain.breakers import Gate
from app.domain.executions import Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.schedules import ScheduledJob, Status

# How soon a run that finds no place asks again.
GUARD_WAIT = timedelta(seconds=1)
SWITCHED_OFF = "schedules are switched off"


class Go(msgspec.Struct, frozen=True):
    """It may; the gate as it is then."""

    gate: Gate


class Wait(msgspec.Struct, frozen=True):
    """Not now; it shall be asked for again after this."""

    time: timedelta


class GiveUp(msgspec.Struct, frozen=True):
    """It shall end without having run; what its slot is accounted as, if this was its first attempt."""

    reason: str
    outcome: LedgerOutcome = LedgerOutcome.MISSED


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that wants to start."""

    execution_id: UUID
    trigger: Trigger
    attempt: int
    due_at: datetime
    # It has run before and was handed back.
    handed_back: bool
    # It was put aside while it waited, and has kept its place in its workflow.
    was_parked: bool = False


def may_start(
    run: Candidate, job: ScheduledJob, gate: Gate, now: datetime, *, switched_off: bool = False
) -> Go | Wait | GiveUp:
    """A manual run asks nobody, and what was handed back waits for a place at the most."""
    if run.due_at > now:
        return Wait(run.due_at - now)
    if run.trigger is Trigger.MANUAL:
        return Go(gate)
    if run.was_parked:
        return Go(gate)
    if run.handed_back:
        return Wait(GUARD_WAIT) if gate.guard_refusal else Go(gate.entered(run.execution_id, now))
    if switched_off:
        return GiveUp(SWITCHED_OFF)
    return _by_the_schedule(run, job, now) or _by_the_workflow(run, gate, now)


class EntityConflict(StrEnum):
    """What else of an entity is under way."""

    RUN = "run"
    RETRY = "retry"


_NOT_BESIDE = {
    EntityConflict.RUN: GiveUp("another run of the entity was under way", LedgerOutcome.SKIPPED_OVERLAP),
    EntityConflict.RETRY: GiveUp("an earlier run of the entity waited to be tried again", LedgerOutcome.SKIPPED_RETRY),
}


def entity_run_may_start(
    run: Candidate, now: datetime, beside: EntityConflict | None, *, switched_off: bool
) -> Wait | GiveUp | None:
    """At its time, one at a time for each entity; None if nothing is in the way. What was handed back goes on."""
    if run.due_at > now:
        return Wait(run.due_at - now)
    if run.handed_back:
        return None
    if switched_off:
        return GiveUp(SWITCHED_OFF)
    return None if beside is None else _NOT_BESIDE[beside]


def _by_the_schedule(run: Candidate, job: ScheduledJob, now: datetime) -> Wait | GiveUp | None:
    """Nothing fires unless it is active; a retry heeds window and end."""
    if job.status is not Status.ACTIVE:
        return GiveUp(f"the schedule is {job.status}")
    if not run.attempt or job.spec.problem:
        return None
    opening = job.spec.hours.opening(now)
    if opening is None or (job.end_at is not None and opening > job.end_at):
        return GiveUp("the schedule has reached its end")
    return Wait(opening - now) if opening > now else None


def _by_the_workflow(run: Candidate, gate: Gate, now: datetime) -> Go | Wait | GiveUp:
    """An open breaker ends it; a full house makes it wait, unless it is a retry."""
    refusal = gate.breaker.refusal(now, run.execution_id) if gate.breaker else ""
    if refusal:
        return GiveUp(refusal, LedgerOutcome.SKIPPED_BREAKER)
    if gate.guard_refusal:
        return GiveUp(gate.guard_refusal, LedgerOutcome.SKIPPED_GUARD) if run.attempt else Wait(GUARD_WAIT)
    return Go(gate.entered(run.execution_id, now))
