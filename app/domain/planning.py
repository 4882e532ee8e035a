"""The pending tick of a schedule: which slots are due, which were missed, and which tick is planned next."""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.domain.identities import jitter_share
from app.domain.ledger import LedgerEntry, LedgerOutcome, ledger_entry
from app.domain.schedules import CatchUp, Reason, ScheduledJob, Status, with_status
from app.domain.specs import Cadence, parse_duration

_MILLISECOND = timedelta(milliseconds=1)


def due_time(job: ScheduledJob, slot: datetime) -> datetime:
    """When a slot shall really fire: its jitter is the same whenever it is computed, and ends before the next slot."""
    if not job.jitter_seconds:
        return slot
    room = timedelta(seconds=job.jitter_seconds)
    following = job.cadence.first_after(slot)
    if following is not None:
        room = min(room, following - slot)
    return slot + int(jitter_share(job.id, slot) * (room // _MILLISECOND)) * _MILLISECOND


def with_tick(job: ScheduledJob, slot: datetime) -> ScheduledJob:
    """Plan the first attempt at ``slot`` of the cadence."""
    return replace(
        job,
        next_slot=slot,
        next_run_at=due_time(job, slot),
        next_attempt=0,
        cadence_slot=slot,
        generation=job.generation + 1,
    )


def with_retry(job: ScheduledJob, slot: datetime, attempt: int, due: datetime) -> ScheduledJob:
    """Replace the pending tick by another attempt at ``slot``; the cadence waits where it is."""
    return replace(job, next_slot=slot, next_run_at=due, next_attempt=attempt, generation=job.generation + 1)


def without_tick(job: ScheduledJob) -> ScheduledJob:
    """Drop the pending tick, a retry too; no further slot is expected."""
    return replace(
        job, next_slot=None, next_run_at=None, next_attempt=0, cadence_slot=None, generation=job.generation + 1
    )


def finished(job: ScheduledJob, reason: Reason) -> ScheduledJob:
    """The schedule has nothing left to do."""
    return with_status(without_tick(job), Status.DONE, reason)


def _out_of_slots(job: ScheduledJob) -> ScheduledJob:
    """No slot is left: a one-shot is exhausted, all else has come to its end."""
    return finished(job, Reason.EXHAUSTED if job.is_one_shot else Reason.END_REACHED)


def paused_as_invalid(job: ScheduledJob) -> ScheduledJob:
    """Its spec can no longer be read: it waits until it can."""
    paused = with_status(without_tick(job), Status.PAUSED, Reason.INVALID_SPEC)
    return replace(paused, last_error=f"The spec is no longer valid: {job.spec.problem}")


def planned(job: ScheduledJob, slot: datetime | None, active_runs: int) -> ScheduledJob:
    """Plan ``slot`` next, unless the runs under way use up the repeats or the cadence has ended.

    With runs under way, an ended schedule stays active until the last of them settles.
    """
    if not job.expects_more(active_runs):
        return without_tick(job)
    if slot is not None:
        return with_tick(job, slot)
    return without_tick(job) if active_runs else _out_of_slots(job)


def with_next_slot(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Go on with the first slot after now; a pending retry is dropped, and a schedule at its limit is done."""
    if job.limit_reached:
        return finished(job, Reason.REPEAT_LIMIT)
    if job.spec.problem:
        return paused_as_invalid(job)
    return planned(job, job.cadence.first_after(now), active_runs)


def with_first_slot(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """The same for a schedule that somebody sets going: a one-shot without an outcome fires, however late."""
    if job.is_one_shot and not job.spec.problem and not one_shot_has_outcome(job):
        return planned(job, job.cadence.latest_at(now) or job.cadence.first_after(now), active_runs)
    return with_next_slot(job, active_runs, now)


def one_shot_has_outcome(job: ScheduledJob) -> bool:
    """Whether the slot of a one-shot has its outcome."""
    return job.last_slot is not None and job.last_slot >= job.anchor_at


def with_anchor(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Count the slots anew: from ``start_at`` if that is to come, else from now."""
    if job.is_one_shot:
        return replace(job, anchor_at=_only_slot(job, now))
    coming = job.start_at is not None and job.start_at > now
    return replace(job, anchor_at=job.start_at if coming else now)


def with_start_anchor(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Count the slots from ``start_at`` where there is one, be it past: its phase is what was asked for."""
    if job.start_at is None or job.is_one_shot:
        return with_anchor(job, now)
    return replace(job, anchor_at=job.start_at)


def _only_slot(job: ScheduledJob, now: datetime) -> datetime:
    """The slot of a one-shot: the moment that is named, or so long after the one that it begins to wait in."""
    if job.at is not None:
        return job.at
    start = now if job.start_at is None else max(now, job.start_at)
    return start + parse_duration(job.after or "")


# A tick is never handled in the very moment of its slot; up to this it is on time, whatever the grace.
ON_TIME = timedelta(seconds=1)
# run_all runs the newest of the missed slots, up to this many.
MAX_CAUGHT_UP = 100


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
    if lateness <= ON_TIME or however_late or job.is_one_shot or lateness <= _grace(job):
        before = cadence.before(latest) if first < latest else None
        return DueSlots(missed=(first, before) if before else None, late=latest, following=following)
    return DueSlots(missed=(first, latest), late=None, following=following)


def catch_up_plan(job: ScheduledJob, due: DueSlots, room: int | None, now: datetime) -> CatchUpPlan:
    """What ``catch_up`` makes of the missed slots, when at most ``room`` more runs are wanted."""
    if due.missed is None:
        return CatchUpPlan()
    first, last = due.missed
    if job.catch_up is CatchUp.SKIP:
        words = "a later slot was due already" if due.late else "later than misfire_grace_seconds"
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, words),))
    if not job.spec.hours.allows(now):
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, "the window had closed"),))
    wanted = 1 if job.catch_up is CatchUp.RUN_ONCE else MAX_CAUGHT_UP
    slots = _newest(job, first, last, wanted if room is None else min(wanted, room))
    if not slots:
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, "the repeats were used up"),))
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
        return (ledger_entry(job, first, last, LedgerOutcome.COALESCED, "run_once ran the latest missed slot for all"),)
    words = f"run_all ran the newest {len(slots)} only"
    return (ledger_entry(job, first, last, LedgerOutcome.MISSED, words),)
