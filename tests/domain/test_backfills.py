"""Backfills: which past slots, in which order, what became of them, and how many at a time.

Covers app.domain.backfills.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.domain.backfills import BackfillOrder, BackfillTerms, Era, Records, Span, eras, fates, parse_rate, past_slots
from app.domain.breakers import Gate
from app.domain.errors import InvalidError
from app.domain.executions import ActiveRun, ExecutionStatus, Trigger
from app.domain.overlap import Arrival, Begin, overlap
from app.domain.schedule_lifecycle import paused, resumed
from app.domain.schedules import IfRunning
from app.domain.settle import EndedRun, after_run
from app.domain.starting import Candidate, Go, Wait, may_start
from tests.support.domain_builders import JOB, T0, after, schedule


def terms(first: float, last: float, **values: Any) -> BackfillTerms:
    """A backfill between so many seconds after the beginning."""
    return BackfillTerms(schedule_id=JOB, first=after(first), last=after(last), **values)


def history() -> list[Era]:
    """A schedule at 300 s that was paused at 700 s and resumed at 1000 s, from where its slots count anew."""
    job = schedule()
    resting = paused(job)
    return eras(T0, [(T0, job), (after(700), resting), (after(1000), resumed(resting, 0, after(1000)))])


def seconds(slots: list[tuple[datetime, Era]]) -> list[float]:
    """The slots as seconds after the beginning."""
    return [(slot - T0).total_seconds() for slot, _ in slots]


EXPECTED = [-600, -300, 300, 600, 900, 1300, 1600]


@pytest.mark.parametrize("order", BackfillOrder)
def test_slots_are_counted_as_they_were_then(order: BackfillOrder) -> None:
    """Before the creation, in a pause and after it, in both orders, and the same page by page."""
    backfill = terms(-600, 1600, order=order)
    expected = EXPECTED if order is BackfillOrder.OLDEST else EXPECTED[::-1]
    assert expected == seconds(past_slots(history(), backfill, 100))
    paged: list[float] = []
    while page := past_slots(history(), backfill, 2):
        paged += seconds(page)
        backfill = replace(backfill, position=page[-1][0])
    assert expected == paged


def test_what_became_of_each_slot() -> None:
    """By its run, by an earlier backfill, by the ledger, or because nothing was expected; the rest is not known."""
    records = Records(
        runs={after(300): ("fired", "")},
        backfilled={after(-300)},
        spans=[Span(after(1300), after(1300), "missed", "late")],
    )
    found = fates(past_slots(history(), terms(-600, 1600), 100), records)
    assert ["not_expected", "fired", "fired", "unknown", "not_expected", "missed", "unknown"] == [
        past.outcome for past in found
    ]
    assert "the schedule was paused" == found[4].reason
    runs = [past.slot for past in found if terms(0, 0).admits(past.outcome)]
    assert [after(-600), after(900), after(1300)] == runs


def test_bound_and_rate() -> None:
    """No more than the bound at once; a rate spaces the starts, and what was not used is lost after a second."""
    assert (2, 0) == (terms(0, 0, max_concurrent=3).budget(1, T0), terms(0, 0, max_concurrent=3).budget(5, T0))
    paced = terms(0, 0, max_concurrent=100, per_second=parse_rate("10/s"))
    assert 1 == paced.budget(0, T0)
    paced = paced.started(1, T0)
    assert (0, 1, 4, 10) == tuple(paced.budget(0, T0 + timedelta(seconds=at)) for at in (0.05, 0.1, 0.4, 1.05))
    assert paced.started(1, after(60)).budget(0, after(60)) <= 11
    assert (0.5, 2.0) == (parse_rate("30/m"), parse_rate(2))
    for wrong in ("fast", "10/d", "0/s", "/s", 0):
        with pytest.raises(InvalidError):
            parse_rate(wrong)


@pytest.mark.corner("backfill")
@pytest.mark.parametrize("policy", IfRunning)
def test_its_runs_are_in_no_ones_way(policy: IfRunning) -> None:
    """Under no policy: a slot fires beside them, and their ends leave the schedule as it is."""
    run = ActiveRun(JOB, Trigger.BACKFILL, exclusive=False)
    assert Begin() == overlap(policy, Arrival.SLOT, (run,), 1)
    job = schedule(total_repeats=1, if_running=policy)
    ended = EndedRun(
        execution_id=JOB, trigger=Trigger.BACKFILL, slot=after(-300), attempt=0, status=ExecutionStatus.FAILED
    )
    assert job is after_run(job, ended, 0, after(10)).job


def test_its_runs_wait_where_a_slot_would_be_refused() -> None:
    """They are not given up, and need no active schedule; they count nowhere."""
    run = Candidate(execution_id=JOB, trigger=Trigger.BACKFILL, attempt=0, due_at=T0, handed_back=False)
    resting = paused(schedule())
    assert Go(Gate()) == may_start(run, resting, Gate(), T0)
    assert isinstance(may_start(run, resting, Gate(max_running=1, running=1), T0), Wait)
    assert isinstance(may_start(run, resting, Gate(), T0, switched_off=True), Wait)
