"""What the end of a run does to its schedule: the repeat and retry state machine."""

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.backoff import schedule_backoff
from app.domain.executions import FAILURES, NEUTRAL_ENDS, ExecutionStatus, Trigger
from app.domain.overlap import runs_alone
from app.domain.planning import finished, with_next_slot, with_retry, without_tick
from app.domain.schedules import IfRunning, Reason, ScheduledJob, Status, with_status

# A worker may die once or twice of something else.
MAX_LOST_RUNS = 3


class EndedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, as far as its schedule is concerned."""

    execution_id: UUID
    trigger: Trigger
    slot: datetime
    attempt: int
    status: ExecutionStatus
    error: str = ""
    # How many runs of this slot have lost their worker, this one among them.
    times_lost: int = 0


class Settlement(msgspec.Struct, frozen=True):
    """The schedule after a run, and when the run is to be tried again as an execution of its own, if it is."""

    job: ScheduledJob
    retry_at: datetime | None = None


def after_run(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    """Return the schedule after this run; ``other_active`` counts its other runs that are still active."""
    if type(job.if_running) is not IfRunning:
        # A newer release has stored it while this worker ran: the run is settled as under a policy that runs alone.
        settlement = after_run(replace(job, if_running=IfRunning.SKIP), run, other_active, now)
        return replace(settlement, job=replace(settlement.job, if_running=job.if_running))
    if run.trigger is Trigger.MANUAL:
        return Settlement(job)
    if run.status is ExecutionStatus.SUCCESS:
        return Settlement(_gone_on(_succeeded(job, run, now), other_active, now))
    if run.status in NEUTRAL_ENDS:
        return Settlement(_gone_on(_repeat_ended(job), other_active, now))
    if run.status in FAILURES:
        return _failed(job, run, other_active, now)
    return Settlement(_gone_on(job, other_active, now))


def _succeeded(job: ScheduledJob, run: EndedRun, now: datetime) -> ScheduledJob:
    return replace(
        _repeat_ended(job),
        run_count=job.run_count + 1,
        last_error="",
        last_success_at=now,
        last_success_execution_id=run.execution_id,
    )


def _repeat_ended(job: ScheduledJob) -> ScheduledJob:
    return replace(job, current_repeat=job.current_repeat + 1, current_retry=0)


def _gone_on(job: ScheduledJob, other_active: int, now: datetime) -> ScheduledJob:
    """Done at the limit; else the pending tick stays as it is, or the cadence is taken up again."""
    if job.status in {Status.DONE, Status.DEAD}:
        return job
    if job.limit_reached:
        return finished(job, Reason.REPEAT_LIMIT)
    if job.status is Status.ACTIVE and job.next_run_at is None:
        return with_next_slot(job, other_active, now)
    return job


def _failed(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    retry = job.current_retry + 1
    counted = replace(job, error_count=job.error_count + 1, last_error=run.error)
    if job.status in {Status.DONE, Status.DEAD}:
        return Settlement(counted)
    if retry > job.max_retries:
        return Settlement(replace(with_status(without_tick(counted), Status.DEAD, Reason.MAX_RETRIES), dead_at=now))
    if is_poison(run.times_lost) and job.status is Status.ACTIVE:
        return Settlement(_quarantined(counted))
    waiting = replace(counted, current_retry=retry)
    if job.status is Status.PAUSED:
        # A paused schedule plans nothing; the count of its failures goes on.
        return Settlement(waiting)
    return _retried(waiting, run, other_active, now)


def is_poison(times_lost: int) -> bool:
    """Whether a slot is given up: a run that takes its worker down with it would take down one after another."""
    return times_lost >= MAX_LOST_RUNS


def _quarantined(job: ScheduledJob) -> ScheduledJob:
    """Paused until somebody has looked at it, however many retries are left."""
    error = f"Quarantined: {MAX_LOST_RUNS} runs of one slot lost their worker. {job.last_error}"
    return replace(with_status(without_tick(job), Status.PAUSED, Reason.POISONED), last_error=error)


def _retried(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    """The next attempt holds the schedule; side by side with other runs it is an execution of its own."""
    due = _retry_time(job, now)
    if not runs_alone(job.if_running):
        return Settlement(_gone_on(job, other_active, now)) if due is None else Settlement(job, retry_at=due)
    if due is None:
        return Settlement(finished(job, Reason.END_REACHED))
    return Settlement(with_retry(job, run.slot, run.attempt + 1, due))


def _retry_time(job: ScheduledJob, now: datetime) -> datetime | None:
    """After the backoff, when the window is open; None if that is after the end, or never."""
    due = now + schedule_backoff(job).delay(job.current_retry)
    if not job.spec.problem:
        opening = job.spec.hours.opening(due)
        if opening is None:
            return None
        due = opening
    return None if job.end_at is not None and due > job.end_at else due
