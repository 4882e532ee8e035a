"""The repeat and retry state machine.

Covers app.domain.executions.
"""

import pytest
from msgspec.structs import replace

from app.domain.executions import ExecutionStatus, Trigger
from app.domain.schedule_lifecycle import edited, paused
from app.domain.schedules import Reason, ScheduledJob, Status
from tests.support.domain_builders import after, ended, fired, schedule, settle

SUCCESS, FAILED = ExecutionStatus.SUCCESS, ExecutionStatus.FAILED
FAILURES = [ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.LOST]


def counters(job: ScheduledJob) -> tuple[int, int, int, int]:
    """(run_count, error_count, n, rc)."""
    return (job.run_count, job.error_count, job.current_repeat, job.current_retry)


def test_a_success_completes_a_repeat_and_leaves_the_pending_tick_alone() -> None:
    """run_count 1, n 1, rc 0, the next run one interval after the slot."""
    job, fire = fired(schedule(), after(300))
    settled = settle(job, ended(fire, SUCCESS), 0, after(302))
    assert (1, 0, 1, 0) == counters(settled)
    assert after(600) == settled.next_run_at
    assert job.generation == settled.generation
    assert (after(302), fire.execution_id) == (settled.last_success_at, settled.last_success_execution_id)


def test_the_last_success_finishes_the_schedule() -> None:
    """Done, nothing planned."""
    job, fire = fired(schedule(total_repeats=1), after(300))
    settled = settle(job, ended(fire, SUCCESS), 0, after(302))
    assert (Status.DONE, Reason.REPEAT_LIMIT, None) == (settled.status, settled.status_reason, settled.next_run_at)


@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_plans_a_retry_of_its_slot(status: ExecutionStatus) -> None:
    """error_count 1, rc 1, the same n, the next run a backoff from now. A timeout and a lost worker are failures."""
    job, fire = fired(schedule(), after(300))
    settled = settle(job, ended(fire, status, "boom"), 0, after(310))
    assert (0, 1, 0, 1) == counters(settled)
    assert (after(300), after(610), 1) == (settled.next_slot, settled.next_run_at, settled.next_attempt)
    assert "boom" == settled.last_error
    assert job.generation + 1 == settled.generation


def test_a_failure_with_all_retries_used_is_death() -> None:
    """Dead, since when, nothing planned."""
    job, fire = fired(schedule(max_retries=0), after(300))
    settled = settle(job, ended(fire, FAILED, "boom"), 0, after(310))
    assert (Status.DEAD, Reason.MAX_RETRIES) == (settled.status, settled.status_reason)
    assert (None, None, after(310)) == (settled.next_run_at, settled.next_slot, settled.dead_at)
    assert (0, 1, 0, 0) == counters(settled)


def test_a_success_in_a_retry_resets_the_retries_and_clears_the_error() -> None:
    """The retry budget is per repeat."""
    job, fire = fired(schedule(), after(300))
    waiting = settle(job, ended(fire, FAILED, "boom"), 0, after(310))
    retried, again = fired(waiting, after(610))
    settled = settle(retried, ended(again, SUCCESS), 0, after(611))
    assert (1, 1, 1, 0) == counters(settled)
    assert "" == settled.last_error


@pytest.mark.parametrize("status", [ExecutionStatus.SKIPPED, ExecutionStatus.BLOCKED])
def test_skipped_and_blocked_end_the_repeat_without_a_run(status: ExecutionStatus) -> None:
    """N moves on, run_count does not."""
    job, fire = fired(schedule(), after(300))
    assert (0, 0, 1, 0) == counters(settle(job, ended(fire, status), 0, after(302)))


def test_a_cancelled_run_changes_nothing_but_the_last_outcome() -> None:
    """Neutral."""
    job, fire = fired(schedule(), after(300))
    cancelled = settle(job, ended(fire, ExecutionStatus.CANCELLED), 0, after(302))
    assert replace(job, last_outcome="cancelled") == cancelled


@pytest.mark.corner("last repeat in flight")
def test_a_cancelled_last_repeat_plans_the_next_slot() -> None:
    """The repeat is still to be had."""
    job, fire = fired(schedule(total_repeats=1), after(300))
    settled = settle(job, ended(fire, ExecutionStatus.CANCELLED), 0, after(302))
    assert (Status.ACTIVE, after(600)) == (settled.status, settled.next_run_at)


@pytest.mark.corner("manual run")
def test_a_manual_run_touches_nothing() -> None:
    """Neither counters nor cadence."""
    job, fire = fired(schedule(), after(300))
    manual = ended(fire, FAILED, "boom")
    assert job is settle(job, replace(manual, trigger=Trigger.MANUAL), 0, after(302))


@pytest.mark.corner("pause")
def test_a_run_that_ends_after_the_pause_still_counts_and_plans_nothing() -> None:
    """Success counts; a failure counts and plans no retry."""
    job, fire = fired(schedule(), after(300))
    stopped = paused(job)
    assert (1, 0, 1, 0) == counters(settle(stopped, ended(fire, SUCCESS), 0, after(302)))
    failed = settle(stopped, ended(fire, FAILED, "boom"), 0, after(302))
    assert (0, 1, 0, 1) == counters(failed)
    assert (Status.PAUSED, None) == (failed.status, failed.next_run_at)


def test_a_paused_schedule_may_end_done_or_dead() -> None:
    """By the run that was under way."""
    job, fire = fired(schedule(total_repeats=1, max_retries=0), after(300))
    stopped = paused(job)
    assert Status.DONE is settle(stopped, ended(fire, SUCCESS), 0, after(302)).status
    assert Status.DEAD is settle(stopped, ended(fire, FAILED, "boom"), 0, after(302)).status


def test_a_run_that_ends_after_an_edit_finished_the_schedule_still_counts() -> None:
    """R lowered to what is completed: done; the run under way is counted and changes nothing else."""
    job, fire = fired(schedule(total_repeats=5), after(300))
    once = settle(job, ended(fire, SUCCESS), 0, after(301))
    running, second = fired(once, after(600))
    done = edited(running, {"total_repeats": 1}, 1, after(601))
    assert Status.DONE is done.status
    settled = settle(done, ended(second, FAILED, "boom"), 0, after(602))
    assert (Status.DONE, (1, 1, 1, 0)) == (settled.status, counters(settled))


def test_a_retry_that_would_start_after_the_end_is_not_planned() -> None:
    """The schedule is done."""
    job, fire = fired(schedule(end_at=after(400)), after(300))
    settled = settle(job, ended(fire, FAILED, "boom"), 0, after(310))
    assert (Status.DONE, Reason.END_REACHED) == (settled.status, settled.status_reason)


def test_the_end_of_the_last_run_before_end_at_finishes_the_schedule() -> None:
    """Nothing is left to plan."""
    job, fire = fired(schedule(end_at=after(300)), after(300))
    settled = settle(job, ended(fire, SUCCESS), 0, after(302))
    assert (Status.DONE, Reason.END_REACHED) == (settled.status, settled.status_reason)


@pytest.mark.parametrize(
    ("times_lost", "max_retries", "wanted"),
    [
        (1, 1000, (Status.ACTIVE, Reason.NONE)),
        (2, 1000, (Status.ACTIVE, Reason.NONE)),
        (3, 1000, (Status.PAUSED, Reason.POISONED)),
        (3, 0, (Status.DEAD, Reason.MAX_RETRIES)),
    ],
)
def test_a_slot_that_loses_its_worker_three_times_is_quarantined(
    times_lost: int, max_retries: int, wanted: tuple[Status, Reason]
) -> None:
    """Whatever max_retries says: each more would cost another worker."""
    job, fire = fired(schedule(max_retries=max_retries), after(300))
    lost = replace(ended(fire, ExecutionStatus.LOST, "its worker is gone"), times_lost=times_lost)
    settled = settle(job, lost, 0, after(310))
    assert wanted == (settled.status, settled.status_reason)
    assert "its worker is gone" in settled.last_error
    assert (settled.next_run_at is None) == (settled.status is not Status.ACTIVE)
