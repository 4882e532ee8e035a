"""The next runs of a spec, and what is special about each."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from app.domain.planning import begun_cadence, due_time
from app.domain.recurrence import CronTimes
from app.domain.schedules import ScheduledJob

# What comes later than this after the first run is not searched for.
HORIZON = timedelta(days=100 * 366)


class NextRun(msgspec.Struct, frozen=True):
    """When a run would come, and what the clocks do to it."""

    at: datetime
    note: str


class Runs(msgspec.Struct, frozen=True):
    """The runs that would come, and whether the search for more was ended."""

    runs: list[NextRun]
    cut: bool


def next_runs(job: ScheduledJob, count: int, now: datetime, is_enough: Callable[[], bool] = lambda: False) -> Runs:
    """The first ``count`` runs of a schedule that is to begin now, or goes on.

    The search ends early when ``is_enough`` says so, and with the first run that comes long after the first.
    """
    slots = job.spec.slots(job.anchor_at)
    runs: list[NextRun] = []
    for slot in _coming(job, now):
        if runs and (is_enough() or slot - runs[0].at > HORIZON):
            return Runs(runs, cut=True)
        note = _note(job, slots, slot) if isinstance(slots, CronTimes) else ""
        runs.append(NextRun(due_time(job, slot), note))
        if len(runs) == count:
            break
    return Runs(runs, cut=False)


def _coming(job: ScheduledJob, now: datetime) -> Iterator[datetime]:
    """The pending slot first, or the one that would be planned."""
    slot = job.next_slot if job.next_attempt == 0 else job.cadence_slot
    if slot is None:
        slot = begun_cadence(job, 0, now).next_slot
    while slot is not None:
        yield slot
        slot = job.cadence.first_after(slot)


def _note(job: ScheduledJob, times: CronTimes, slot: datetime) -> str:
    wall = job.spec.hours.place.local(slot)
    skipped = times.moved(slot)
    if skipped is not None:
        return f"the clocks skip {skipped:%H:%M} on {skipped:%Y-%m-%d}: moved to {wall:%H:%M}"
    if times.repeated(slot):
        return f"the clocks repeat {wall:%H:%M} on {wall:%Y-%m-%d}: only the first one counts"
    return ""
