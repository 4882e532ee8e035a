"""Runs that wait for their turn: who goes next, and who waits in vain."""

from uuid import UUID

from app.domain.executions import ActiveRun, Trigger
from app.domain.schedules import IfRunning, ScheduledJob, Status


def blocking(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> tuple[ActiveRun, ...]:
    """The runs that a queued one has to wait for. Side by side, only those that were to run in turn."""
    if job.if_running is IfRunning.ALLOW:
        return tuple(run for run in active if run.trigger is Trigger.CATCH_UP)
    return active


def next_in_turn(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> UUID | None:
    """The queued run that may go now: the first, once nothing is under way and no retry goes before it."""
    queued = [run for run in active if run.queued]
    if not queued or any(not run.queued for run in blocking(job, active)):
        return None
    if queued[0].counts and (job.status is not Status.ACTIVE or job.next_attempt):
        return None
    return queued[0].execution_id


def in_vain(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> tuple[UUID, ...]:
    """The waiting runs of a schedule that is no longer active: they are cancelled. A manual run goes on waiting."""
    if job.status is Status.ACTIVE:
        return ()
    return tuple(run.execution_id for run in active if run.counts and (run.queued or run.deferred))
