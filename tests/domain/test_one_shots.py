"""One-shots: they fire once, however late, and are exhausted."""

from datetime import timedelta
from typing import Any

import pytest

from app.domain.breakers import Gate
from app.domain.errors import InvalidError
from app.domain.executions import ExecutionStatus
from app.domain.ledger import dropped_slots
from app.domain.schedule_lifecycle import edited, paused, problems, resumed, revived
from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.ticks import Decided
from tests.support.domain_builders import T0, after, decision, ended, fired, schedule, settle


def run(job: ScheduledJob, seconds: float, end: ExecutionStatus = ExecutionStatus.SUCCESS) -> ScheduledJob:
    """Fire what is due and end it a second later."""
    moved, fire = fired(job, after(seconds))
    return settle(moved, ended(fire, end, "e"), 0, after(seconds + 1))


@pytest.mark.parametrize("spec", [{"at": after(300)}, {"after": "5m"}])
def test_it_fires_once_and_is_exhausted(spec: dict[str, Any]) -> None:
    """`at` names the moment, `after` counts from the creation."""
    job = schedule(**spec)
    assert after(300) == job.next_run_at
    done = run(job, 300)
    assert (Status.DONE, Reason.EXHAUSTED, None) == (done.status, done.status_reason, done.next_run_at)


def test_it_stays_active_while_it_runs() -> None:
    """Nothing is planned meanwhile."""
    job, _ = fired(schedule(after="5m"), after(300))
    assert (Status.ACTIVE, None) == (job.status, job.next_run_at)


@pytest.mark.corner("last repeat in flight")
def test_cancelled_it_is_done() -> None:
    """There is no next slot to go on with."""
    done = run(schedule(after="5m"), 300, ExecutionStatus.CANCELLED)
    assert (Status.DONE, Reason.EXHAUSTED) == (done.status, done.status_reason)


def test_failed_it_is_retried_and_may_die() -> None:
    """As every other; without an interval the backoff begins at a minute."""
    failed = run(schedule(after="5m", max_retries=1), 300, ExecutionStatus.FAILED)
    assert (Status.ACTIVE, 1, after(361)) == (failed.status, failed.next_attempt, failed.next_run_at)
    dead = run(failed, 361, ExecutionStatus.FAILED)
    assert (Status.DEAD, Reason.MAX_RETRIES) == (dead.status, dead.status_reason)


@pytest.mark.corner("PATCH")
def test_a_future_at_arms_it_again() -> None:
    """A finished one-shot runs once more; its totals go on."""
    done = run(schedule(at=after(300)), 300)
    armed = edited(done, {"at": after(900)}, 0, after(400))
    assert (Status.ACTIVE, after(900), 1) == (armed.status, armed.next_run_at, armed.run_count)
    again = run(armed, 900)
    assert (Status.DONE, Reason.EXHAUSTED, 2) == (again.status, again.status_reason, again.run_count)


def test_a_new_delay_arms_it_again() -> None:
    """It counts from the edit."""
    armed = edited(run(schedule(after="5m"), 300), {"after": "10m"}, 0, after(400))
    assert (Status.ACTIVE, after(1000)) == (armed.status, armed.next_run_at)


@pytest.mark.corner("one-shots")
def test_an_at_that_has_passed_is_refused() -> None:
    """Beyond the grace; within it, it fires at once."""
    done = run(schedule(at=after(300)), 300)
    with pytest.raises(InvalidError) as refused:
        edited(done, {"at": after(310)}, 0, after(400))
    assert ["at"] == [error.field for error in refused.value.errors]
    late = edited(done, {"at": after(390)}, 0, after(400))
    assert (Status.ACTIVE, after(390)) == (late.status, late.next_run_at)


def test_an_at_that_has_fired_is_not_fired_again() -> None:
    """Back to the moment that it has run at, within the grace, is refused."""
    done = run(schedule(at=after(300)), 300)
    armed = edited(done, {"at": after(900)}, 0, after(302))
    with pytest.raises(InvalidError):
        edited(armed, {"at": after(300)}, 0, after(303))


@pytest.mark.corner("one-shots")
def test_paused_over_its_time_it_fires_when_resumed() -> None:
    """It is never missed."""
    job = resumed(paused(schedule(at=after(300))), 0, after(1000))
    assert (Status.ACTIVE, after(300)) == (job.status, job.next_slot)


def test_a_delay_begins_anew_when_resumed() -> None:
    """A fresh slot."""
    assert after(1300) == resumed(paused(schedule(after="5m")), 0, after(1000)).next_run_at


def test_paused_after_it_fired_it_does_not_fire_again() -> None:
    """Its only slot has its outcome."""
    job, fire = fired(schedule(after="5m"), after(300))
    ended_while_paused = settle(paused(job), ended(fire, ExecutionStatus.SUCCESS), 0, after(310))
    done = resumed(ended_while_paused, 0, after(400))
    assert (Status.DONE, Reason.EXHAUSTED) == (done.status, done.status_reason)


@pytest.mark.parametrize(("spec", "slot"), [({"at": after(300)}, after(1000)), ({"after": "5m"}, after(1300))])
def test_a_dead_one_is_revived_to_fire(spec: dict[str, Any], slot: Any) -> None:
    """A moment that has passed is now; a delay counts from now."""
    dead = run(schedule(**spec, max_retries=0), 300, ExecutionStatus.FAILED)
    alive = revived(dead, 0, after(1000))
    assert (Status.ACTIVE, slot, 0) == (alive.status, alive.next_slot, alive.next_attempt)


def test_a_moment_outside_its_own_window_is_refused() -> None:
    """It would never come."""
    job = schedule(at=T0 + timedelta(hours=1), only_between="00:00-06:00")
    assert ["only_between"] == [error.field for error in problems(job, T0)]


@pytest.mark.corner("PATCH")
def test_a_kind_of_spec_replaces_the_other() -> None:
    """A one-shot becomes a cadence, and a cadence a one-shot."""
    every = edited(schedule(after="5m"), {"after": None, "interval_seconds": 60.0}, 0, after(10))
    assert (after(70), False) == (every.next_run_at, every.spec.is_one_shot)
    once = edited(every, {"interval_seconds": None, "at": after(500)}, 0, after(20))
    assert (after(500), True) == (once.next_run_at, once.spec.is_one_shot)
    with pytest.raises(InvalidError):
        edited(once, {"at": None}, 0, after(30))


def test_its_jitter_moves_the_due_time_alone() -> None:
    """The slot stays what was asked for."""
    job = schedule(after="5m", jitter_seconds=60)
    assert job.next_run_at is not None
    assert (after(300), True) == (job.next_slot, after(300) <= job.next_run_at < after(360))


def test_paused_when_it_is_due_it_is_not_missed() -> None:
    """Its slot has no outcome yet, and it fires when it is resumed."""
    job = schedule(at=after(300))
    halted = paused(job)
    assert () == dropped_slots(job, halted, after(301))
    again = resumed(halted, 0, after(302))
    assert (after(300), None) == (again.next_slot, again.last_slot)


def test_moved_when_it_is_due_its_old_slot_is_missed() -> None:
    """It will never come."""
    job = schedule(at=after(300))
    (entry,) = dropped_slots(job, edited(job, {"at": after(900)}, 0, after(301)), after(301))
    assert (after(300), "missed") == (entry.first_slot, entry.outcome)


def test_refused_it_is_spent() -> None:
    """Its slot has an outcome; no edit of a limit arms it at that slot again."""
    shut = Gate(max_running=1, running=1)
    refused = decision(schedule(at=after(300)), after(300), gate=shut)
    assert isinstance(refused, Decided)
    assert (Status.DONE, after(300)) == (refused.job.status, refused.job.last_slot)
    for change in ({"total_repeats": 5}, {"end_at": after(9000)}, {"name": "n"}):
        assert Status.DONE is edited(refused.job, change, 0, after(310)).status


def test_a_limit_of_repeats_means_nothing_to_it() -> None:
    """It ends exhausted, and is armed again."""
    done = run(schedule(at=after(300), total_repeats=1), 300)
    assert Reason.EXHAUSTED is done.status_reason
    assert Status.ACTIVE is edited(done, {"at": after(900)}, 0, after(400)).status


def test_other_fields_of_a_spent_one_can_be_edited() -> None:
    """Only what is changed is judged."""
    done = run(schedule(at=after(300)), 300)
    changed = edited(done, {"timezone": "Europe/Berlin", "not_on": ("sunday",)}, 0, after(5000))
    assert (Status.DONE, "Europe/Berlin") == (changed.status, changed.timezone)


def test_revived_outside_its_window_it_waits_for_it() -> None:
    """And does not end unfired."""
    dead = run(schedule(at=after(300), only_between="12:00-13:00", max_retries=0), 300, ExecutionStatus.FAILED)
    assert after(24 * 3600) == revived(dead, 0, after(7200)).next_slot
