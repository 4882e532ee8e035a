"""What a due tick does.

Covers app.domain.planning.
"""

from uuid import UUID

import pytest
from msgspec.structs import replace

from app.domain.executions import ActiveRun, ExecutionStatus, Trigger
from app.domain.ledger import LedgerEntry
from app.domain.schedule_lifecycle import paused
from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.ticks import Decided, NotDue, Stale, Tick, decide
from tests.support.domain_builders import OPEN, T0, after, decision, ended, fired, schedule, settle

RUNNING = ActiveRun(UUID(int=7), Trigger.SCHEDULE)
MANUAL = ActiveRun(UUID(int=8), Trigger.MANUAL)


def account(entries: tuple[LedgerEntry, ...]) -> list[tuple[str, float, float, int]]:
    """Entries as (outcome, first slot, last slot, count) in seconds after the beginning."""
    return [
        (e.outcome.value, (e.first_slot - T0).total_seconds(), (e.last_slot - T0).total_seconds(), e.slot_count)
        for e in entries
    ]


def decided(job: ScheduledJob, seconds: float, *active: ActiveRun) -> Decided:
    """What the pending tick does, when it does something."""
    result = decision(job, after(seconds), *active)
    assert isinstance(result, Decided)
    return result


def test_a_due_slot_fires_and_the_next_one_is_planned_from_the_slot_not_from_now() -> None:
    """The cadence does not drift by the lateness of a tick."""
    result = decided(schedule(), 307)
    (fire,) = result.fires
    assert (after(300), 0, 0) == (fire.slot, fire.attempt, fire.repeat_number)
    assert (after(600), after(600), 0) == (result.job.next_slot, result.job.next_run_at, result.job.next_attempt)
    assert after(307) == result.job.last_run_at
    assert () == result.ledger


def test_each_planned_tick_has_a_generation_of_its_own() -> None:
    """The generation moves with the tick, so that the old message matches nothing."""
    job = schedule()
    moved = decided(job, 300).job
    assert job.generation + 1 == moved.generation
    assert Stale() == decide(moved, Tick(job.id, job.generation), (), OPEN, after(300))
    ahead = Tick(job.id, moved.generation + 1)
    assert Stale(is_ahead=True) == decide(moved, ahead, (), OPEN, after(300))


def test_nothing_fires_early() -> None:
    """A bell that rings early is asked to ring again when it is time."""
    result = decision(schedule(), after(299))
    assert isinstance(result, NotDue)
    assert 1 == result.wait.total_seconds()


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DONE, Status.DEAD])
def test_a_message_for_a_schedule_that_is_not_active_does_nothing(status: Status) -> None:
    """Whatever its generation."""
    job = replace(schedule(), status=status)
    assert Stale() == decision(job, after(300))


def test_a_message_from_before_a_pause_does_nothing() -> None:
    """Pausing moves the generation."""
    job = schedule()
    assert Stale() == decide(paused(job), Tick(job.id, job.generation), (), OPEN, after(300))


def test_a_slot_that_meets_a_running_execution_is_skipped_and_named() -> None:
    """The chain goes on, and no counter moves."""
    job = schedule()
    result = decided(job, 300, RUNNING)
    assert () == result.fires
    assert [("skipped_overlap", 300, 300, 1)] == account(result.ledger)
    assert RUNNING.execution_id == result.ledger[0].execution_id
    assert after(600) == result.job.next_run_at
    assert (0, 0, 0, 0) == (
        result.job.run_count,
        result.job.error_count,
        result.job.current_repeat,
        result.job.current_retry,
    )


@pytest.mark.corner("several slots due at once")
def test_of_several_due_slots_the_latest_fires_and_the_earlier_ones_are_missed() -> None:
    """One range accounts for all that were missed."""
    result = decided(schedule(), 1510)
    (fire,) = result.fires
    assert after(1500) == fire.slot
    assert [("missed", 300, 1200, 4)] == account(result.ledger)
    assert after(1800) == result.job.next_run_at


def test_a_slot_later_than_its_grace_is_missed() -> None:
    """Under catch_up `skip` nothing fires late; the next slot is planned."""
    result = decided(schedule(), 361)
    assert () == result.fires
    assert [("missed", 300, 300, 1)] == account(result.ledger)
    assert after(600) == result.job.next_run_at


@pytest.mark.corner("last repeat in flight")
def test_with_the_last_repeat_in_flight_nothing_is_planned() -> None:
    """It stays active until the run settles."""
    result = decided(schedule(total_repeats=1), 300)
    (_,) = result.fires
    assert (None, None, Status.ACTIVE) == (result.job.next_run_at, result.job.next_slot, result.job.status)


def test_the_last_slot_before_the_end_fires_and_nothing_is_planned_after_it() -> None:
    """It stays active until the run settles."""
    result = decided(schedule(end_at=after(300)), 301)
    (_,) = result.fires
    assert (None, Status.ACTIVE) == (result.job.next_run_at, result.job.status)


def test_a_missed_last_slot_before_the_end_finishes_the_schedule() -> None:
    """Nothing is under way and nothing is left."""
    result = decided(schedule(end_at=after(300)), 1000)
    assert (Status.DONE, Reason.END_REACHED) == (result.job.status, result.job.status_reason)
    assert [("missed", 300, 300, 1)] == account(result.ledger)


def with_retry(**values: int) -> ScheduledJob:
    """A schedule whose first run, at 300, failed at 310: its retry is due at 610 at the earliest."""
    job, fire = fired(schedule(**values), after(300))
    return settle(job, ended(fire, ExecutionStatus.FAILED, "no"), 0, after(310))


@pytest.mark.corner("slots that pass while a retry holds the schedule")
def test_a_retry_fires_its_own_slot_again() -> None:
    """The same slot, the next attempt; the slots that it held up are skipped in one range."""
    job = with_retry()
    assert after(610) == job.next_run_at
    result = decided(job, 910)
    (fire,) = result.fires
    assert (after(300), 1, 0) == (fire.slot, fire.attempt, fire.repeat_number)
    assert [("skipped_retry", 600, 900, 2)] == account(result.ledger)
    assert (after(1200), 0) == (result.job.next_run_at, result.job.next_attempt)


def test_a_retry_before_the_next_slot_holds_up_nothing() -> None:
    """The pending slot of the cadence comes back."""
    result = decided(with_retry(backoff_base_seconds=5), 316)
    assert () == result.ledger
    assert after(600) == result.job.next_run_at


def test_a_retry_makes_way_for_a_manual_run_and_is_kept() -> None:
    """It comes again in a moment; nothing is accounted for yet."""
    result = decided(with_retry(), 611, MANUAL)
    assert ((), ()) == (result.fires, result.ledger)
    assert (after(616), after(300), 1) == (result.job.next_run_at, result.job.next_slot, result.job.next_attempt)


def test_a_retry_that_meets_a_scheduled_run_is_given_up() -> None:
    """Its slot has its outcome already; back to the cadence, with the retry count as it was."""
    result = decided(with_retry(), 611, RUNNING)
    assert () == result.fires
    assert [("skipped_retry", 600, 600, 1)] == account(result.ledger)
    assert (after(900), 0, 1) == (result.job.next_run_at, result.job.next_attempt, result.job.current_retry)


@pytest.mark.parametrize(("late", "fires"), [(0.9, True), (1.1, False)])
def test_without_a_grace_a_slot_is_on_time_for_a_second(late: float, fires: bool) -> None:
    """No tick is handled in the very moment of its slot."""
    result = decided(schedule(misfire_grace_seconds=0), 300 + late)
    assert fires == bool(result.fires)


@pytest.mark.corner("retry and its slot")
def test_a_retry_does_not_start_after_the_end() -> None:
    """The schedule is done instead."""
    job = replace(with_retry(), end_at=after(700))
    result = decided(job, 701)
    assert () == result.fires
    assert (Status.DONE, Reason.END_REACHED) == (result.job.status, result.job.status_reason)
    assert [("skipped_retry", 600, 600, 1)] == account(result.ledger)
