"""Settling: what the end of a run does to its schedule. This is the state machine of repeats and retries."""

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.backoff import schedule_backoff
from app.domain.executions import BESIDE_CADENCE, FAILURES, NEUTRAL_ENDS, ExecutionStatus, Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.overlap import runs_alone
from app.domain.planning import finished, past_end, stopped, with_next_slot, with_retry
from app.domain.schedules import CatchUp, IfRunning, Reason, ScheduledJob, Status

# When so many runs of one slot have lost their worker, the run itself is taken for the cause. One or two may be lost
# for other reasons, such as a machine that fails.
MAX_LOST_RUNS = 3


# What a run changes whatever becomes of its schedule.
_COUNTERS = (
    *("current_repeat", "current_retry", "run_count", "error_count"),
    *("last_error", "last_error_at", "last_outcome", "last_success_at", "last_success_execution_id"),
)


class EndedRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about a run that has ended that its schedule needs."""

    execution_id: UUID
    trigger: Trigger
    slot: datetime
    attempt: int
    status: ExecutionStatus
    error: str = ""
    # A first attempt that ends before it began gives its slot the outcome ``unrun``.
    has_begun: bool = True
    unrun: LedgerOutcome = LedgerOutcome.MISSED
    # The number of runs of this slot that have lost their worker, this one included.
    times_lost: int = 0


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The schedule after a run, and the time of a retry that is an execution of its own, if there is one."""

    job: ScheduledJob
    retry_at: datetime | None = None


def after_run(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    """Return the schedule after this run; ``other_active`` counts its other runs that are still active."""
    if job.unknown_value:
        return _after_run_of_newer(job, run, other_active, now)
    if run.trigger in BESIDE_CADENCE:
        return Settlement(job)
    if run.status is ExecutionStatus.SUCCESS:
        return Settlement(_with_tick_or_done(_with_success(job, run, now), other_active, now))
    job = _with_outcome(job, run)
    if run.status in NEUTRAL_ENDS:
        return Settlement(_with_tick_or_done(_with_ended_repeat(job), other_active, now))
    if run.status in FAILURES:
        return _failed(job, run, other_active, now)
    return Settlement(_with_tick_or_done(job, other_active, now))


def _after_run_of_newer(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    """Settle a run during which a newer release stored a value that this one does not know; the value is kept.

    An unknown policy is settled like ``skip``. Under an unknown status only the counters move: what is planned next is
    left to newer workers, as after a run that ends while its schedule is paused.
    """
    known = replace(
        job,
        if_running=job.if_running if type(job.if_running) is IfRunning else IfRunning.SKIP,
        status=job.status if type(job.status) is Status else Status.PAUSED,
    )
    settlement = after_run(replace(known, catch_up=CatchUp.SKIP), run, other_active, now)
    if type(job.status) is Status:
        return replace(settlement, job=replace(settlement.job, if_running=job.if_running, catch_up=job.catch_up))
    return Settlement(replace(job, **{name: getattr(settlement.job, name) for name in _COUNTERS}))


def _with_outcome(job: ScheduledJob, run: EndedRun) -> ScheduledJob:
    """Return the schedule with the run's status as its last outcome, if no newer slot has an outcome.

    A retry that ends before it began gives its slot no second outcome.
    """
    outcome = _outcome_of_slot(job, run)
    return job if outcome == job.last_outcome else replace(job, last_outcome=outcome)


def _outcome_of_slot(job: ScheduledJob, run: EndedRun) -> str | None:
    if run.slot != job.last_slot or (run.attempt and not run.has_begun):
        return job.last_outcome
    return run.status.value if run.has_begun else run.unrun.value


def _with_success(job: ScheduledJob, run: EndedRun, now: datetime) -> ScheduledJob:
    return replace(
        job,
        last_outcome=_outcome_of_slot(job, run),
        current_repeat=job.current_repeat + 1,
        current_retry=0,
        run_count=job.run_count + 1,
        last_error="",
        last_error_at=None,
        last_success_at=now,
        last_success_execution_id=run.execution_id,
    )


def _with_ended_repeat(job: ScheduledJob) -> ScheduledJob:
    return replace(job, current_repeat=job.current_repeat + 1, current_retry=0)


def _with_tick_or_done(job: ScheduledJob, other_active: int, now: datetime) -> ScheduledJob:
    """Return the schedule as done at its limit; else with its pending tick, which is planned if there is none.

    There is none if the run that ended could have been the last repeat.
    """
    if job.status in {Status.DONE, Status.DEAD}:
        return job
    if job.limit_reached:
        return finished(job, Reason.REPEAT_LIMIT)
    if job.status is Status.ACTIVE and job.next_run_at is None:
        return with_next_slot(job, other_active, now)
    return job


def _failed(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    """Count the failure, then retry, quarantine or end the schedule."""
    retry = job.current_retry + 1
    counted = replace(job, error_count=job.error_count + 1, last_error=run.error, last_error_at=now)
    if job.status in {Status.DONE, Status.DEAD}:
        return Settlement(counted)
    if retry > job.max_retries:
        return Settlement(replace(stopped(counted, Status.DEAD, Reason.MAX_RETRIES), dead_at=now))
    if is_poison(run.times_lost) and job.status is Status.ACTIVE:
        return Settlement(_quarantined(counted))
    retrying = replace(counted, current_retry=retry)
    if job.status is Status.PAUSED:
        # A paused schedule plans no retry, but its failures in a row still count.
        return Settlement(retrying)
    return _with_next_attempt(retrying, run, other_active, now)


def is_poison(times_lost: int) -> bool:
    """Return whether a slot is given up because its runs crash their workers: more retries would crash more workers."""
    return times_lost >= MAX_LOST_RUNS


def _quarantined(job: ScheduledJob) -> ScheduledJob:
    """Return the schedule as paused until a person resumes it, even if retries are left."""
    error = f"Quarantined: {MAX_LOST_RUNS} runs of one slot lost their worker. {job.last_error}"
    return replace(stopped(job, Status.PAUSED, Reason.POISONED), last_error=error)


def _with_next_attempt(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> Settlement:
    """Plan the next attempt as the pending tick, so that it holds the cadence.

    Under a policy that lets runs overlap, it is an execution of its own and the cadence goes on.
    """
    due = _retry_time(job, now)
    if not runs_alone(job.if_running):
        return Settlement(_with_tick_or_done(job, other_active, now)) if due is None else Settlement(job, retry_at=due)
    if due is None:
        return Settlement(past_end(job))
    return Settlement(with_retry(job, run.slot, run.attempt + 1, due))


def _retry_time(job: ScheduledJob, now: datetime) -> datetime | None:
    """Return the first moment after the backoff at which the window is open; None if the schedule ends before."""
    due = now + schedule_backoff(job).delay(job.current_retry)
    if not job.spec.problem:
        opening = job.spec.opening(due)
        if opening is None:
            return None
        due = opening
    return None if job.end_at is not None and due > job.end_at else due
