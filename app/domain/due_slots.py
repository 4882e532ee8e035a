"""Which slots are due at once, which of them are late and which were missed, and what catching up makes of those."""

from datetime import datetime, timedelta

import msgspec

from app.domain.cadence import Cadence
from app.domain.ledger import entry
from app.domain.ledger_part import LedgerEntry, LedgerOutcome
from app.domain.planning import due_time
from app.domain.schedules import CatchUp, ScheduledJob

# A tick is never handled in the very moment of its slot; up to this it is on time, whatever the grace.
PUNCTUAL = timedelta(seconds=1)
# run_all runs the newest of the missed slots, up to this many.
MOST_CAUGHT_UP = 100


class DueSlots(msgspec.Struct, frozen=True, kw_only=True):
    """The due slots of a schedule: ``missed`` from the first to the last, then the one that is merely late."""

    missed: tuple[datetime, datetime] | None
    late: datetime | None
    following: datetime | None


class CatchUpPlan(msgspec.Struct, frozen=True):
    """The missed slots that are to run after all, oldest first, and the account of the others."""

    slots: tuple[datetime, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()


def due_slots(job: ScheduledJob, first: datetime, now: datetime, *, however_late: bool = False) -> DueSlots:
    """The latest due slot is late if it is within the grace; all others are missed. A one-shot is never missed."""
    cadence = job.cadence
    latest, following = first, cadence.first_after(first)
    if following is not None and following <= now:
        latest = _latest_due(job, cadence, first, now)
        following = cadence.first_after(latest)
    lateness = now - due_time(job, latest)
    if lateness <= PUNCTUAL or however_late or job.is_one_shot or lateness <= _grace(job):
        before = cadence.before(latest) if first < latest else None
        return DueSlots(missed=(first, before) if before else None, late=latest, following=following)
    return DueSlots(missed=(first, latest), late=None, following=following)


def caught_up(job: ScheduledJob, due: DueSlots, room: int | None, now: datetime) -> CatchUpPlan:
    """What ``catch_up`` makes of the missed slots, when at most ``room`` more runs are wanted."""
    if due.missed is None:
        return CatchUpPlan()
    first, last = due.missed
    if job.catch_up is CatchUp.SKIP:
        words = "a later slot was due already" if due.late else "later than misfire_grace_seconds"
        return CatchUpPlan((), (entry(job, first, last, LedgerOutcome.MISSED, words),))
    if not job.spec.hours.allow(now):
        return CatchUpPlan((), (entry(job, first, last, LedgerOutcome.MISSED, "the window had closed"),))
    wanted = 1 if job.catch_up is CatchUp.RUN_ONCE else MOST_CAUGHT_UP
    slots = _newest(job, first, last, wanted if room is None else min(wanted, room))
    if not slots:
        return CatchUpPlan((), (entry(job, first, last, LedgerOutcome.MISSED, "the repeats were used up"),))
    return CatchUpPlan(slots, _left_out(job, first, slots))


def _grace(job: ScheduledJob) -> timedelta:
    return timedelta(seconds=job.misfire_grace_seconds)


def _latest_due(job: ScheduledJob, cadence: Cadence, first: datetime, now: datetime) -> datetime:
    latest = cadence.latest_at(now)
    if latest is not None and latest > first and due_time(job, latest) > now:
        latest = cadence.before(latest)
    return first if latest is None else max(first, latest)


def _newest(job: ScheduledJob, first: datetime, last: datetime, wanted: int) -> tuple[datetime, ...]:
    slots: list[datetime] = []
    slot: datetime | None = last
    while slot is not None and slot >= first and len(slots) < wanted:
        slots.append(slot)
        slot = job.cadence.before(slot)
    return tuple(reversed(slots))


def _left_out(job: ScheduledJob, first: datetime, slots: tuple[datetime, ...]) -> tuple[LedgerEntry, ...]:
    last = job.cadence.before(slots[0]) if first < slots[0] else None
    if last is None:
        return ()
    if job.catch_up is CatchUp.RUN_ONCE:
        return (entry(job, first, last, LedgerOutcome.COALESCED, "run_once ran the latest missed slot for all"),)
    words = f"run_all ran the newest {len(slots)} only"
    return (entry(job, first, last, LedgerOutcome.MISSED, words),)
