"""What a due slot does while others run: skip, queue, cancel, allow; breaker and guard come before.

Covers app.domain.breakers, app.domain.starting.
"""

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.domain.breakers import Breaker, BreakerState, Gate
from app.domain.executions import ActiveRun, ExecutionStatus, Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.overlap import dropped_retries, next_queued, stopped_by_status
from app.domain.schedules import IfRunning, ScheduledJob, Status
from app.domain.settle import after_run
from app.domain.starting import Candidate, GiveUp, Go, Wait, may_start
from app.domain.ticks import FROM_PING, FROM_WORKER, Decided, NotDue, Start, TickSource
from tests.support.domain_builders import after, decision, ended, fired, schedule

A, B, C = (UUID(int=number) for number in (1, 2, 3))
RUNNING = ActiveRun(A, Trigger.SCHEDULE)
QUEUED = ActiveRun(B, Trigger.SCHEDULE, queued=True, waiting=True)
MANUAL = ActiveRun(C, Trigger.MANUAL)


def decided(
    job: ScheduledJob,
    seconds: float,
    *active: ActiveRun,
    gate: Gate | None = None,
    occasion: TickSource = FROM_WORKER,
) -> Decided:
    """What a tick that is due does."""
    result = decision(job, after(seconds), *active, gate=gate or Gate(), occasion=occasion)
    assert isinstance(result, Decided)
    return result


def open_breaker(opened: float = 0, reset: int = 100) -> Breaker:
    """A breaker that opened so many seconds after the beginning."""
    return Breaker(
        workflow_id=1,
        threshold=2,
        reset_seconds=reset,
        state=BreakerState.OPEN,
        failure_count=2,
        opened_at=after(opened),
    )


@pytest.mark.parametrize("active", [RUNNING, QUEUED, MANUAL])
def test_skip_names_the_run_that_stood_in_the_way(active: ActiveRun) -> None:
    """Pending or running, scheduled or manual."""
    result = decided(schedule(if_running="skip"), 300, active)
    (entry,) = result.ledger
    assert (LedgerOutcome.SKIPPED_OVERLAP, active.execution_id) == (entry.outcome, entry.execution_id)
    assert ((), after(600)) == (result.fires, result.job.next_run_at)


@pytest.mark.corner("repeat_number")
def test_queue_waits_behind_what_runs() -> None:
    """The slot is accounted for by a pending execution; the cadence goes on."""
    result = decided(schedule(if_running=IfRunning.QUEUE), 300, RUNNING)
    (fire,) = result.fires
    assert (Start.QUEUED, 1, after(300)) == (fire.start, fire.repeat_number, fire.slot)
    assert ((), (), after(600)) == (result.ledger, result.cancels, result.job.next_run_at)


def test_a_full_queue_refuses() -> None:
    """max_queued bounds those that wait, not the one that runs."""
    job = schedule(if_running=IfRunning.QUEUE, max_queued=1)
    (entry,) = decided(job, 300, RUNNING, QUEUED).ledger
    assert LedgerOutcome.SKIPPED_QUEUE_FULL == entry.outcome
    assert 1 == len(decided(replace(job, max_queued=2), 300, RUNNING, QUEUED).fires)


@pytest.mark.corner("queue")
def test_queue_counts_toward_the_repeats() -> None:
    """One runs and one waits of two: nothing more is planned."""
    result = decided(schedule(if_running=IfRunning.QUEUE, total_repeats=2), 300, RUNNING)
    assert (None, Status.ACTIVE) == (result.job.next_run_at, result.job.status)


def test_cancel_stops_all_that_runs_and_fires_at_once() -> None:
    """The newest wins."""
    result = decided(schedule(if_running=IfRunning.CANCEL), 300, RUNNING, MANUAL)
    (fire,) = result.fires
    assert (Start.NOW, 0) == (fire.start, fire.repeat_number)
    assert (A, C) == result.cancels


def test_allow_fires_side_by_side() -> None:
    """The repeat number says how many are before it."""
    result = decided(schedule(if_running=IfRunning.ALLOW), 300, RUNNING, MANUAL)
    (fire,) = result.fires
    assert (Start.NOW, 1, ()) == (fire.start, fire.repeat_number, result.cancels)


@pytest.mark.corner("allow")
def test_under_allow_a_failed_run_is_retried_beside_the_cadence() -> None:
    """As an execution of its own, at its time; the pending tick stays, and the failures of all count together."""
    job, fire = fired(schedule(if_running=IfRunning.ALLOW, backoff_base_seconds=10), after(300))
    settlement = after_run(job, ended(fire, ExecutionStatus.FAILED, "e"), 0, after(320))
    assert after(330) == settlement.retry_at
    assert (job.next_run_at, job.generation) == (settlement.job.next_run_at, settlement.job.generation)
    again = after_run(settlement.job, ended(fire, ExecutionStatus.FAILED, "e"), 0, after(340))
    assert (2, after(360)) == (again.job.current_retry, again.retry_at)


def test_the_next_in_line_goes_when_nothing_is_under_way() -> None:
    """In the order of the slots."""
    job = schedule(if_running=IfRunning.QUEUE)
    later = ActiveRun(C, Trigger.SCHEDULE, queued=True)
    assert [None, B, None] == [next_queued(job, runs) for runs in ((RUNNING, QUEUED), (QUEUED, later), ())]


@pytest.mark.corner("queue")
def test_a_retry_goes_before_what_is_queued() -> None:
    """The queue moves on when the retry has ended, or was given up."""
    job, fire = fired(schedule(if_running=IfRunning.QUEUE), after(300))
    waiting = after_run(job, ended(fire, ExecutionStatus.FAILED, "e"), 1, after(310)).job
    assert (1, None) == (waiting.next_attempt, next_queued(waiting, (QUEUED,)))
    retried = decided(waiting, 610, QUEUED)
    (retry,) = retried.fires
    assert (after(300), 1, Start.NOW) == (retry.slot, retry.attempt, retry.start)
    assert B == next_queued(retried.job, (QUEUED,))


def test_a_queued_run_is_cancelled_when_its_schedule_ends() -> None:
    """Dead or paused: cancelled; a manual run goes on waiting."""
    queued_by_hand = ActiveRun(C, Trigger.MANUAL, queued=True, waiting=True)
    retry = ActiveRun(A, Trigger.SCHEDULE, exclusive=False, waiting=True, attempt=1)
    job = schedule(if_running=IfRunning.QUEUE)
    assert () == stopped_by_status(job, (QUEUED, retry, queued_by_hand))
    assert (B, A) == stopped_by_status(replace(job, status=Status.DEAD), (QUEUED, retry, queued_by_hand))
    assert C == next_queued(replace(job, status=Status.PAUSED), (queued_by_hand,))


def test_side_by_side_only_what_runs_in_turn_blocks_the_queue() -> None:
    """A chain of caught-up slots waits for itself alone; what may not run beside others waits for all of them."""
    job = schedule(if_running=IfRunning.ALLOW)
    chained = ActiveRun(B, Trigger.CATCH_UP, queued=True, exclusive=False)
    assert B == next_queued(job, (RUNNING, chained))
    assert None is next_queued(job, (ActiveRun(A, Trigger.CATCH_UP), chained))
    assert None is next_queued(job, (ActiveRun(A, Trigger.SCHEDULE, exclusive=False), QUEUED))


def test_a_changed_cadence_drops_the_retries_beside_it() -> None:
    """And no run that has begun, and no other change does."""
    job = schedule(if_running=IfRunning.ALLOW)
    waiting = ActiveRun(A, Trigger.SCHEDULE, exclusive=False, waiting=True, attempt=1)
    begun = ActiveRun(B, Trigger.SCHEDULE, exclusive=False, attempt=1)
    assert (A,) == dropped_retries(job, replace(job, interval_seconds=60.0), (waiting, begun, RUNNING))
    assert () == dropped_retries(job, replace(job, name="n", max_retries=9), (waiting, begun))


def test_the_breaker_speaks_before_the_guard_and_the_guard_before_the_overlap() -> None:
    """The order of the checks."""
    gates = (
        Gate(breaker=open_breaker(250), max_running=1, running=1),
        Gate(max_running=1, running=1),
        Gate(max_running=2, running=1),
    )
    outcomes = [decided(schedule(), 300, RUNNING, gate=gate).ledger[0].outcome for gate in gates]
    assert [LedgerOutcome.SKIPPED_BREAKER, LedgerOutcome.SKIPPED_GUARD, LedgerOutcome.SKIPPED_OVERLAP] == outcomes


def test_an_open_breaker_consumes_no_retries() -> None:
    """Slots pass as skipped; the counters stay."""
    job = schedule()
    result = decided(job, 300, gate=Gate(breaker=open_breaker(250)))
    assert (0, 0, after(600)) == (result.job.current_retry, result.job.error_count, result.job.next_run_at)


@pytest.mark.parametrize("gate", [Gate(breaker=open_breaker(590)), Gate(max_running=1, running=1)])
@pytest.mark.corner("retry blocked by breaker or guard")
def test_a_retry_that_is_blocked_is_given_up(gate: Gate) -> None:
    """No second outcome for its slot, the retry count stays, back to the cadence."""
    job, fire = fired(schedule(), after(300))
    waiting = after_run(job, ended(fire, ExecutionStatus.FAILED, "e"), 0, after(301)).job
    result = decided(waiting, 601, gate=gate)
    assert () == result.fires
    assert [(after(600), LedgerOutcome.SKIPPED_RETRY)] == [(entry.first_slot, entry.outcome) for entry in result.ledger]
    assert (1, 0, after(900)) == (result.job.current_retry, result.job.next_attempt, result.job.next_run_at)


@pytest.mark.corner("retry and its slot")
def test_a_retry_waits_for_its_window() -> None:
    """It may not start outside, neither by its backoff nor because it was handled late."""
    job, fire = fired(schedule(only_between="12:00-12:06"), after(300))
    waiting = after_run(job, ended(fire, ExecutionStatus.FAILED, "e"), 0, after(350)).job
    opening = after(24 * 3600)
    assert opening == waiting.next_run_at
    late = replace(waiting, next_run_at=after(355))
    assert (opening, 1) == (decided(late, 361).job.next_run_at, decided(late, 361).job.next_attempt)


def test_two_failures_open_the_breaker_and_a_success_between_does_not() -> None:
    """Consecutive ones, and the reason is kept."""
    breaker = Breaker(workflow_id=1, threshold=2, reset_seconds=60)
    once = breaker.after(A, ExecutionStatus.FAILED, "boom", after(1))
    assert (BreakerState.CLOSED, 1) == (once.state, once.failure_count)
    assert 0 == once.after(B, ExecutionStatus.SUCCESS, "", after(2)).failure_count
    twice = once.after(B, ExecutionStatus.TIMED_OUT, "slow", after(2))
    (change,) = twice.transitions
    assert (BreakerState.OPEN, after(2)) == (twice.state, twice.opened_at)
    assert ("2 consecutive failures, the last: slow", B) == (change.reason, change.execution_id)


def test_after_the_reset_exactly_one_run_is_let_through() -> None:
    """The probe; all others are refused until it has ended."""
    breaker = open_breaker(0, reset=100)
    assert breaker.refusal(after(99))
    assert "" == breaker.refusal(after(100))
    probing = breaker.let_through(A, after(100))
    assert (BreakerState.HALF_OPEN, A) == (probing.state, probing.probe_execution_id)
    assert probing.refusal(after(101))
    assert "" == probing.refusal(after(101), A)


@pytest.mark.parametrize(
    ("end", "state", "probe"),
    [
        (ExecutionStatus.SUCCESS, BreakerState.CLOSED, None),
        (ExecutionStatus.FAILED, BreakerState.OPEN, None),
        (ExecutionStatus.LOST, BreakerState.OPEN, None),
        (ExecutionStatus.CANCELLED, BreakerState.HALF_OPEN, None),
    ],
)
def test_the_end_of_the_probe_decides(end: ExecutionStatus, state: BreakerState, probe: UUID | None) -> None:
    """Success closes, a failed or lost probe opens again, a cancelled one makes room for another."""
    done = open_breaker().let_through(A, after(100)).after(A, end, "e", after(110))
    assert (state, probe) == (done.state, done.probe_execution_id)


def test_what_began_before_the_breaker_opened_has_no_say() -> None:
    """Only the probe's word counts."""
    probing = open_breaker().let_through(A, after(100))
    assert probing == probing.after(B, ExecutionStatus.SUCCESS, "", after(101))
    assert open_breaker() == open_breaker().after(B, ExecutionStatus.FAILED, "e", after(50))


def test_whether_a_waiting_execution_may_start() -> None:
    """A manual run asks nobody; an open breaker ends others, a full house makes them wait, a retry gives up."""
    shut, full = Gate(breaker=open_breaker()), Gate(max_running=1, running=1)

    def start(
        gate: Gate, trigger: Trigger = Trigger.SCHEDULE, attempt: int = 0, *, back: bool = False, off: bool = False
    ) -> object:
        run = Candidate(execution_id=A, trigger=trigger, attempt=attempt, due_at=after(50), handed_back=back)
        return type(may_start(run, schedule(), gate, after(50), switched_off=off))

    assert [Go, Go] == [start(shut, Trigger.MANUAL), start(full, Trigger.MANUAL)]
    assert [GiveUp, Wait, GiveUp, Wait] == [
        start(shut),
        start(full),
        start(full, attempt=1),
        start(full, attempt=1, back=True),
    ]
    assert [Go, Go, GiveUp] == [
        start(Gate(max_running=2, running=1)),
        start(shut, back=True),
        start(Gate(), off=True),
    ]


def test_a_waiting_execution_asks_its_schedule_too() -> None:
    """Nothing fires while it is paused; a retry waits for its window and ends with its schedule."""

    def start(job: ScheduledJob, seconds: float, attempt: int = 0, *, back: bool = False) -> object:
        run = Candidate(execution_id=A, trigger=Trigger.SCHEDULE, attempt=attempt, due_at=after(100), handed_back=back)
        return may_start(run, job, Gate(), after(seconds))

    halted = replace(schedule(), status=Status.PAUSED)
    assert GiveUp("the schedule is paused") == start(halted, 100)
    assert isinstance(start(halted, 100, back=True), Go)
    assert Wait(timedelta(seconds=10)) == start(schedule(), 90)
    windowed = schedule(only_between="12:00-12:02")
    assert isinstance(start(windowed, 130), Go)
    assert Wait(timedelta(seconds=24 * 3600 - 130)) == start(windowed, 130, 1)
    assert GiveUp("the schedule has reached its end") == start(schedule(end_at=after(310)), 320, 1)


def test_under_cancel_what_is_caught_up_goes_on() -> None:
    """One after another, whatever if_running says: the newest takes its place behind, and only regular ones go."""
    caught_up = ActiveRun(A, Trigger.CATCH_UP)
    result = decided(schedule(if_running=IfRunning.CANCEL), 300, caught_up, QUEUED, MANUAL)
    (fire,) = result.fires
    assert ((B, C), Start.QUEUED) == (result.cancels, fire.start)


def test_a_retry_stops_a_manual_run_only_under_cancel() -> None:
    """Elsewhere it makes way for it."""
    job, fire = fired(schedule(), after(300))
    waiting = after_run(job, ended(fire, ExecutionStatus.FAILED, "e"), 0, after(301)).job
    assert (after(606), ()) == (decided(waiting, 601, MANUAL).job.next_run_at, decided(waiting, 601, MANUAL).fires)
    stopping = decided(replace(waiting, if_running=IfRunning.CANCEL), 601, MANUAL)
    assert ((C,), 1) == (stopping.cancels, len(stopping.fires))
    beside = decided(replace(waiting, if_running=IfRunning.ALLOW), 601, MANUAL)
    assert ((), 1) == (beside.cancels, len(beside.fires))


def test_the_gate_counts_who_enters() -> None:
    """Within one batch, too."""
    gate = Gate(max_running=1, breaker=open_breaker()).entered(A, after(100))
    assert gate.guard_refusal
    assert gate.breaker is not None
    assert gate.breaker.refusal(after(100) + timedelta(seconds=1))


@pytest.mark.corner("switched off globally")
def test_what_is_due_while_schedules_are_switched_off_is_missed() -> None:
    """With the reason, and whatever catch_up says; a retry is given up, and a one-shot waits."""
    off = TickSource(switched_off=True)
    result = decided(schedule(catch_up="run_all"), 1000, occasion=off)
    assert [("missed", 3, "disabled")] == [(one.outcome, one.slot_count, one.reason) for one in result.ledger]
    assert ((), after(1200)) == (result.fires, result.job.next_run_at)
    job, fire = fired(schedule(), after(300))
    waiting = after_run(job, ended(fire, ExecutionStatus.FAILED, "e"), 0, after(301)).job
    given_up = decided(waiting, 601, occasion=off)
    assert (0, after(900), 1) == (given_up.job.next_attempt, given_up.job.next_run_at, given_up.ledger[0].slot_count)
    assert isinstance(decision(schedule(after="5m"), after(300), occasion=off), NotDue)


@pytest.mark.corner("ping without workers")
def test_a_ping_fires_the_latest_due_slot_however_late() -> None:
    """With the trigger cron; the earlier ones are for catch_up to handle."""
    hours_later = 5 * 3600 + 10
    skipping = decided(schedule(), hours_later, occasion=FROM_PING)
    (fire,) = skipping.fires
    assert (after(5 * 3600), Trigger.CRON) == (fire.slot, fire.trigger)
    assert [(LedgerOutcome.MISSED, 59)] == [(one.outcome, one.slot_count) for one in skipping.ledger]
    catching_up = decided(schedule(catch_up="run_once"), hours_later, occasion=FROM_PING)
    assert [Trigger.CATCH_UP, Trigger.CRON] == [one.trigger for one in catching_up.fires]
