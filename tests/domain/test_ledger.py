"""Slots that a change passes over."""

from app.domain.executions import ExecutionStatus
from app.domain.ledger import dropped_slots
from app.domain.schedule_lifecycle import edited, paused
from tests.support.domain_builders import after, ended, fired, schedule, settle


def test_a_slot_that_was_due_when_the_schedule_died_is_missed() -> None:
    """The death drops the pending tick, whose slot had come already."""
    running, fire = fired(schedule(max_retries=0), after(300))
    dead = settle(running, ended(fire, ExecutionStatus.FAILED, "no"), 0, after(601))
    assert [("missed", after(600), 1)] == [
        (e.outcome, e.first_slot, e.slot_count) for e in dropped_slots(running, dead, after(601))
    ]


def test_a_pause_before_the_slot_passes_over_nothing() -> None:
    """What had not come due was not expected yet."""
    job = schedule()
    assert () == dropped_slots(job, paused(job), after(299))


def test_a_change_that_leaves_the_cadence_waiting_passes_over_nothing() -> None:
    """The tick itself will account for its slot."""
    running, fire = fired(schedule(), after(300))
    waiting = settle(running, ended(fire, ExecutionStatus.FAILED, "no"), 0, after(601))
    assert () == dropped_slots(running, waiting, after(601))
    assert () == dropped_slots(running, edited(running, {"name": "other"}, 1, after(601)), after(601))
