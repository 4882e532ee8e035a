"""Whole lives of schedules under random outcomes and delays: what must hold whatever happens."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.executions import FAILURES, ActiveRun, ExecutionStatus, Trigger
from app.domain.schedules import ScheduledJob, Status
from app.domain.ticks import Decided, decide
from tests.support.domain_builders import OPEN, ended, schedule, settle, tick
from tests.support.hypothesis_examples import examples

ENDS = [
    ExecutionStatus.SUCCESS,
    ExecutionStatus.FAILED,
    ExecutionStatus.TIMED_OUT,
    ExecutionStatus.LOST,
    ExecutionStatus.CANCELLED,
    ExecutionStatus.SKIPPED,
]

# For each run: how it ends, how late its tick is handled, how long it takes.
STEPS = st.lists(st.tuples(st.sampled_from(ENDS), st.integers(0, 50), st.integers(0, 1000)), min_size=1, max_size=30)


class History:
    """What happened to one schedule."""

    def __init__(self, job: ScheduledJob) -> None:
        self.job = job
        assert job.next_slot is not None
        self.first_slot = job.next_slot
        self.interval = timedelta(seconds=job.interval_seconds or 0)
        # The outcome of each slot: of its entry, or of its last attempt.
        self.outcomes: dict[datetime, str] = {}
        self.ends: list[ExecutionStatus] = []
        self.fired: list[datetime] = []
        self.not_fired: list[datetime] = []
        self.due: datetime | None = job.next_run_at

    def live(self, steps: list[tuple[ExecutionStatus, int, int]]) -> None:
        """Handle one tick and end its run for each step, with the ticks that fall into the run."""
        for end, late, duration in steps:
            if self.job.next_run_at is None:
                return
            start = self.job.next_run_at + timedelta(seconds=late)
            decided = self._handle(start, ())
            if not decided.fires:
                continue
            (fire,) = decided.fires
            finish = start + timedelta(seconds=duration)
            active = (ActiveRun(fire.execution_id, Trigger.SCHEDULE),)
            while self.job.next_run_at is not None and self.job.next_run_at <= finish:
                self._handle(self.job.next_run_at, active)
            self.ends.append(end)
            self.outcomes[fire.slot] = end.value
            self.job = settle(self.job, ended(fire, end, "e"), 0, finish)

    def _handle(self, now: datetime, active: tuple[ActiveRun, ...]) -> Decided:
        decided = decide(self.job, tick(self.job), active, OPEN, now)
        assert isinstance(decided, Decided)
        self.job = decided.job
        self.outcomes |= {fire.slot: "running" for fire in decided.fires}
        self.fired += [fire.slot for fire in decided.fires if fire.attempt == 0]
        for entry in decided.ledger:
            self.not_fired += [entry.first_slot + k * self.interval for k in range(entry.slot_count)]
            assert self.not_fired[-1] == entry.last_slot
            self.outcomes |= dict.fromkeys(self.not_fired, entry.outcome.value) | self.outcomes
        return decided


@given(steps=STEPS, repeats=st.integers(0, 4), retries=st.integers(0, 3))
@examples(150)
def test_counters_equal_the_history(steps: list[tuple[ExecutionStatus, int, int]], repeats: int, retries: int) -> None:
    """Totals, the consecutive failures and the completed repeats are what the list of ends says."""
    history = History(schedule(total_repeats=repeats, max_retries=retries))
    history.live(steps)
    ends = history.ends
    assert ends.count(ExecutionStatus.SUCCESS) == history.job.run_count
    assert sum(end in FAILURES for end in ends) == history.job.error_count
    completed = sum(end in {ExecutionStatus.SUCCESS, ExecutionStatus.SKIPPED} for end in ends)
    assert completed == history.job.current_repeat
    consecutive = 0
    for end in ends:
        if end in FAILURES:
            consecutive += 1
        elif end is not ExecutionStatus.CANCELLED:
            consecutive = 0
    # The failure that kills is not followed by a retry, so it is not counted as one.
    assert min(consecutive, retries) == history.job.current_retry
    assert (consecutive > retries) == (history.job.status is Status.DEAD)


@given(steps=STEPS, repeats=st.integers(1, 4), retries=st.integers(0, 3))
@examples(150)
def test_the_number_of_runs_is_bounded(
    steps: list[tuple[ExecutionStatus, int, int]], repeats: int, retries: int
) -> None:
    """R x (mr + 1) runs at the most, cancelled ones aside; and R repeats at the most."""
    history = History(schedule(total_repeats=repeats, max_retries=retries))
    history.live(steps)
    runs = [end for end in history.ends if end is not ExecutionStatus.CANCELLED]
    assert len(runs) <= repeats * (retries + 1)
    assert history.job.current_repeat <= repeats
    assert (history.job.current_repeat == repeats) == (history.job.status is Status.DONE)


@given(steps=STEPS, retries=st.integers(0, 3))
@examples(150)
def test_every_slot_has_exactly_one_outcome(steps: list[tuple[ExecutionStatus, int, int]], retries: int) -> None:
    """Fired or not fired, each slot from the first to the last is accounted for once."""
    history = History(schedule(max_retries=retries, backoff_base_seconds=7))
    history.live(steps)
    slots = sorted(history.fired + history.not_fired)
    interval = history.interval
    assert [history.first_slot + k * interval for k in range(len(slots))] == slots


@given(steps=STEPS, retries=st.integers(0, 3))
@examples(150)
def test_the_last_outcome_is_that_of_the_newest_slot(
    steps: list[tuple[ExecutionStatus, int, int]], retries: int
) -> None:
    """While a retry of an older slot runs or has ended, a newer slot that did not fire still has the last word."""
    history = History(schedule(max_retries=retries, backoff_base_seconds=7))
    for step in steps:
        history.live([step])
        newest = max(history.outcomes)
        assert (newest, history.outcomes[newest]) == (history.job.last_slot, history.job.last_outcome)
        assert bool(history.job.last_error) == (history.job.last_error_at is not None)


@given(steps=STEPS)
@examples(100)
def test_no_execution_is_early_and_generations_only_grow(steps: list[tuple[ExecutionStatus, int, int]]) -> None:
    """A tick that is planned lies after its slot, and each change of the tick moves the generation."""
    history = History(schedule())
    seen = history.job.generation
    for step in steps:
        before = (history.job.next_run_at, history.job.next_slot, history.job.next_attempt)
        history.live([step])
        job = history.job
        changed = before != (job.next_run_at, job.next_slot, job.next_attempt)
        assert job.generation > seen or not changed
        seen = job.generation
        if job.next_run_at is not None and job.next_slot is not None:
            assert job.next_run_at >= job.next_slot


@pytest.mark.parametrize("runs", [1, 50])
def test_without_a_limit_it_never_ends(runs: int) -> None:
    """R = 0."""
    history = History(schedule(total_repeats=0))
    history.live([(ExecutionStatus.SUCCESS, 0, 1)] * runs)
    assert (Status.ACTIVE, runs) == (history.job.status, history.job.run_count)
