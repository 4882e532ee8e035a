"""Slots that people ask to leave out: which are chosen, and what a tick makes of them.

Covers app.domain.skips.
"""

from datetime import datetime

import pytest
from msgspec.structs import replace

from app.domain.errors import InvalidError, WrongStateError
from app.domain.schedule_lifecycle import paused
from app.domain.schedules import ScheduledJob, Status
from app.domain.skips import MOST_SKIPS, Skip, SkipRequest, chosen_slots
from app.domain.ticks import Decided
from tests.support.domain_builders import T0, after, decision, schedule


def skips(*seconds: float) -> tuple[Skip, ...]:
    """Skips of the slots so many seconds after the beginning."""
    return tuple(Skip(after(second), "mia", T0, "deploy") for second in seconds)


def woken(job: ScheduledJob, now: datetime, *seconds: float) -> Decided:
    """What a tick does if these slots are to be skipped."""
    decided = decision(replace(job, has_skips=True), now, skips=skips(*seconds))
    assert isinstance(decided, Decided)
    return decided


def account(decided: Decided) -> str:
    """The outcomes of slots in their order: when, what, and of how many slots."""
    entries = [(entry.first_slot, entry.slot_count, entry.outcome.value) for entry in decided.ledger]
    fires = [(fire.slot, 1, fire.trigger.value) for fire in decided.fires]
    rows = sorted([*entries, *fires])
    return ", ".join(f"{(slot - T0).total_seconds():.0f} {what} x{count}" for slot, count, what in rows)


@pytest.mark.corner("skipped by request")
def test_a_skipped_slot_does_not_fire() -> None:
    """It says who asked and why, the cadence goes on, and the last skip clears the mark that costs a query."""
    decided = woken(schedule(total_repeats=1), after(300), 300)
    assert "300 skipped_request x1" == account(decided)
    assert "mia asked for it at 2026-03-01T12:00:00Z (deploy)" == decided.ledger[0].reason
    job = decided.job
    assert (after(600), 0, False, "skipped_request") == (
        *(job.next_slot, job.current_repeat, job.has_skips, job.last_outcome),
    )
    assert woken(schedule(), after(300), 300, 900).job.has_skips


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("skip", "300 missed x1, 600 skipped x1, 900 missed x2, 1500 skipped x1"),
        ("run_once", "300 coalesced x1, 600 skipped x1, 900 coalesced x1, 1200 catch_up x1, 1500 skipped x1"),
        ("run_all", "300 catch_up x1, 600 skipped x1, 900 catch_up x1, 1200 catch_up x1, 1500 skipped x1"),
    ],
)
def test_ranges_are_split_around_skipped_slots(catch_up: str, expected: str) -> None:
    """After an outage of five slots: nothing makes up for the skipped ones, and each slot has one outcome."""
    decided = woken(schedule(catch_up=catch_up), after(1510), 600, 1500)
    assert expected.replace("skipped", "skipped_request") == account(decided)
    job = decided.job
    assert ("skipped_request", after(1500), after(1800)) == (job.last_outcome, job.last_slot, job.next_slot)


def test_times_that_are_no_slots_any_more_do_nothing() -> None:
    """A skip that an edit has left behind is dropped with the next tick."""
    decided = woken(schedule(), after(300), 299)
    assert ("300 schedule x1", False) == (account(decided), decided.job.has_skips)


def test_a_skipped_one_shot_is_done() -> None:
    """Its only slot has its outcome."""
    decided = woken(schedule(at=after(60)), after(60), 60)
    assert ("60 skipped_request x1", Status.DONE) == (account(decided), decided.job.status)


def test_which_slots_a_request_names() -> None:
    """Next ones that are not skipped yet, a span with both ends, or times that must be slots to come."""
    job = schedule()
    assert [after(300), after(900)] == chosen_slots(job, SkipRequest(next=2), [after(600)])
    assert [after(600), after(900)] == chosen_slots(job, SkipRequest(first=after(600), last=after(900)), [])
    assert [after(300)] == chosen_slots(job, SkipRequest(first=after(-9000), last=after(599)), [])
    assert [after(300), after(600)] == chosen_slots(job, SkipRequest(slots=(after(600), after(300))), [])
    for request in (SkipRequest(slots=(after(301),)), SkipRequest(first=T0, last=after(300 * (MOST_SKIPS + 1)))):
        with pytest.raises(InvalidError):
            chosen_slots(job, request, [])
    with pytest.raises(WrongStateError):
        chosen_slots(paused(job), SkipRequest(next=1), [])
