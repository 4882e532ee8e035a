"""Overlap (``if_running``): what a new run does while others of its schedule are active, and which is next."""

from uuid import UUID

import msgspec

from app.domain.errors import ConflictError
from app.domain.executions import ActiveRun, Trigger
from app.domain.schedules import IfRunning, ScheduledJob, Status


def in_the_way(active: tuple[ActiveRun, ...], *, exclusive: bool) -> bool:
    """Whether a run has to wait for one of these. What may run beside others waits for those in its own line alone."""
    return any(exclusive or run.trigger is Trigger.CATCH_UP for run in active)


def next_in_turn(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> UUID | None:
    """The queued run that may go now: the first, once nothing is under way and no retry goes before it."""
    first = next((run for run in active if run.queued), None)
    if first is None or in_the_way(tuple(run for run in active if not run.queued), exclusive=first.exclusive):
        return None
    if first.counts and (job.status is not Status.ACTIVE or job.next_attempt):
        return None
    return first.execution_id


def in_vain(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> tuple[UUID, ...]:
    """What still waits in a schedule that is no longer active, and is cancelled. A manual run goes on waiting."""
    if job.status is Status.ACTIVE:
        return ()
    return tuple(run.execution_id for run in active if run.counts and run.waiting)


def dropped_retries(before: ScheduledJob, after: ScheduledJob, active: tuple[ActiveRun, ...]) -> tuple[UUID, ...]:
    """The retries that wait as executions of their own and that a changed cadence drops."""
    if (before.spec, before.start_at) == (after.spec, after.start_at):
        return ()
    return tuple(run.execution_id for run in active if run.counts and run.waiting and run.attempt)


class ManualStart(msgspec.Struct, frozen=True):
    """How it begins: at once or in its turn, and what has to go before."""

    queued: bool = False
    cancels: tuple[UUID, ...] = ()


def manual_start(policy: IfRunning, active: tuple[ActiveRun, ...], max_queued: int) -> ManualStart:
    """What the policy makes of a manual run while these are under way."""
    if not active or policy is IfRunning.ALLOW:
        return ManualStart()
    if policy is IfRunning.CANCEL:
        return ManualStart(cancels=tuple(run.execution_id for run in active))
    if policy is IfRunning.SKIP:
        raise ConflictError("An execution of this schedule is under way, and its if_running is 'skip'.")
    if sum(run.queued for run in active) >= max_queued:
        raise ConflictError(f"As many runs are queued as max_queued allows ({max_queued}).")
    return ManualStart(queued=True)
