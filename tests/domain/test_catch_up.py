"""Slots that were missed: what skip, run_once and run_all make of them."""

from datetime import timedelta

import pytest

from app.domain.breakers import Breaker, BreakerState, Gate
from app.domain.executions import ActiveRun, Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.schedules import IfRunning, ScheduledJob
from app.domain.ticks import Decided, Start
from tests.support.domain_builders import RUNNING, after, decision, schedule

MINUTE = 60


def woken(job: ScheduledJob, minutes: float, *active: ActiveRun, gate: Gate | None = None) -> Decided:
    """What the first tick does after an outage that ends so many minutes after the beginning."""
    result = decision(job, after(minutes * MINUTE), *active, gate=gate or Gate())
    assert isinstance(result, Decided)
    return result


def account(result: Decided) -> list[tuple[LedgerOutcome, int]]:
    """The ledger as (outcome, number of slots)."""
    return [(entry.outcome, entry.slot_count) for entry in result.ledger]


# 5 m slots at 5, 10, 15 and 20 minutes; it wakes up at 22, when none is within the grace of a minute.
@pytest.mark.parametrize(
    ("policy", "runs", "ledger"),
    [
        ("skip", 0, [(LedgerOutcome.MISSED, 4)]),
        ("run_once", 1, [(LedgerOutcome.COALESCED, 3)]),
        ("run_all", 4, []),
    ],
)
@pytest.mark.corner("run_all")
def test_down_for_20_minutes_at_5(policy: str, runs: int, ledger: list[tuple[LedgerOutcome, int]]) -> None:
    """Skip fires nothing late and lands on the next slot; run_once fires one; run_all fires four."""
    result = woken(schedule(catch_up=policy), 22)
    assert (runs, ledger) == (len(result.fires), account(result))
    assert after(25 * MINUTE) == result.job.next_run_at
    assert {Trigger.CATCH_UP} >= {fire.trigger for fire in result.fires}


@pytest.mark.corner("run_all")
def test_down_for_1000_minutes_at_5_run_all() -> None:
    """Exactly the newest 100 run, in order; the other 100 are missed."""
    result = woken(schedule(catch_up="run_all"), 1002)
    assert [(LedgerOutcome.MISSED, 100)] == account(result)
    assert [after((505 + 5 * k) * MINUTE) for k in range(100)] == [fire.slot for fire in result.fires]
    assert [Start.NOW] + [Start.QUEUED] * 99 == [fire.start for fire in result.fires]
    assert list(range(100)) == [fire.repeat_number for fire in result.fires]


def test_the_late_slot_runs_after_those_that_are_caught_up() -> None:
    """It is within the grace, so it fires as itself; it takes its place in the line."""
    result = woken(schedule(catch_up="run_all"), 20.5)
    assert [Trigger.CATCH_UP] * 3 + [Trigger.SCHEDULE] == [fire.trigger for fire in result.fires]
    assert [Start.NOW] + [Start.QUEUED] * 3 == [fire.start for fire in result.fires]


def test_under_allow_the_late_slot_does_not_wait() -> None:
    """The line is for the missed ones."""
    result = woken(schedule(catch_up="run_once", if_running=IfRunning.ALLOW), 20.5)
    assert [Start.NOW, Start.SOON] == [fire.start for fire in result.fires]
    assert [(LedgerOutcome.COALESCED, 2)] == account(result)


def test_catching_up_waits_for_what_runs_whatever_if_running_says() -> None:
    """Even under skip."""
    result = woken(schedule(catch_up="run_once"), 22, RUNNING)
    assert [Start.QUEUED] == [fire.start for fire in result.fires]


def test_catching_up_heeds_the_breaker() -> None:
    """What would have run is skipped by it."""
    breaker = Breaker(
        workflow_id=1, threshold=1, reset_seconds=3600, state=BreakerState.OPEN, failure_count=1, opened_at=after(0)
    )
    result = woken(schedule(catch_up="run_once"), 22, gate=Gate(breaker=breaker))
    assert ((), [(LedgerOutcome.COALESCED, 3), (LedgerOutcome.SKIPPED_BREAKER, 1)]) == (result.fires, account(result))


def test_catching_up_heeds_the_window() -> None:
    """Slots outside are not expected, and outside nothing is made up for."""
    job = schedule(catch_up="run_all", only_between="12:00-12:16")
    assert [(LedgerOutcome.MISSED, 3)] == account(woken(job, 22))
    inside = schedule(catch_up="run_all", only_between="12:10-13:00")
    assert [after(10 * MINUTE), after(15 * MINUTE), after(20 * MINUTE)] == [f.slot for f in woken(inside, 22).fires]


def test_catching_up_stops_at_the_repeats() -> None:
    """The newest run; nothing is planned after the last."""
    result = woken(schedule(catch_up="run_all", total_repeats=2), 22)
    assert [after(15 * MINUTE), after(20 * MINUTE)] == [fire.slot for fire in result.fires]
    assert ([(LedgerOutcome.MISSED, 2)], None) == (account(result), result.job.next_run_at)
    late = woken(schedule(catch_up="run_all", total_repeats=1), 20.5)
    assert [after(20 * MINUTE)] == [fire.slot for fire in late.fires]


def test_within_the_grace_nothing_is_missed() -> None:
    """A single late slot is simply fired."""
    result = woken(schedule(catch_up="run_once"), 5.9)
    assert [(Trigger.SCHEDULE, Start.NOW)] == [(fire.trigger, fire.start) for fire in result.fires]


@pytest.mark.corner("one-shots")
def test_a_one_shot_is_never_missed() -> None:
    """It fires however late."""
    result = woken(schedule(after="5m"), 60 * 24 * 400)
    assert [(after(300), Trigger.SCHEDULE)] == [(fire.slot, fire.trigger) for fire in result.fires]


def test_jitter_moves_the_moment_at_which_a_slot_is_missed() -> None:
    """The grace counts from the due time."""
    job = schedule(jitter_seconds=200, misfire_grace_seconds=1)
    assert job.next_run_at is not None
    on_time = decision(job, job.next_run_at + timedelta(seconds=0.5))
    too_late = decision(job, job.next_run_at + timedelta(seconds=1.5))
    assert isinstance(on_time, Decided)
    assert isinstance(too_late, Decided)
    assert [1, 0] == [len(on_time.fires), len(too_late.fires)]
