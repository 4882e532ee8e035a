"""The pending tick of a schedule: which slots are due, which were missed, and which tick is planned next."""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.executions import ExecutionStatus
from app.domain.ledger import QUEUED, LedgerEntry, LedgerOutcome, ledger_entry
from app.domain.run_ids import jitter_share
from app.domain.schedules import CatchUp, Reason, ScheduledJob, Status, with_status
from app.domain.specs import Cadence, parse_duration

_MILLISECOND = timedelta(milliseconds=1)
# A tick is always handled a little after its slot. Up to this lateness it is on time, even with a grace of 0 seconds.
ON_TIME = timedelta(seconds=1)
# The number of missed slots that ``run_all`` runs at most; these are the newest.
MAX_CAUGHT_UP = 100


class DueSlots(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The due slots of a schedule: the missed ones as (first, last), then the late one, which still fires."""

    missed: tuple[datetime, datetime] | None
    late: datetime | None
    # The first slot that is not due yet; None if no slot follows.
    following: datetime | None


class CatchUpPlan(msgspec.Struct, frozen=True, gc=False):
    """The missed slots that run after all, oldest first, and ledger entries for those that do not."""

    slots: tuple[datetime, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()


def due_time(job: ScheduledJob, slot: datetime) -> datetime:
    """Return when a slot fires: the slot plus its jitter.

    The jitter is a hash of schedule and slot, so that every worker and every restart computes the same time. It ends
    before the next slot: if it could reach beyond, two slots would be due in the wrong order, and the later one would
    turn the earlier one into a missed slot although no worker was late.
    """
    if not job.jitter_seconds:
        return slot
    longest = timedelta(seconds=job.jitter_seconds)
    following = job.cadence.first_after(slot)
    if following is not None:
        longest = min(longest, following - slot)
    return slot + int(jitter_share(job.id, slot) * (longest // _MILLISECOND)) * _MILLISECOND


# The three functions below are the only ones that change the pending tick, and each moves the generation. A message in
# Redis carries the generation that it was written for: once the tick has changed, a message that is late, duplicated or
# delivered again matches no row and does nothing. Without this, an old message would fire the new tick a second time.


def with_tick(job: ScheduledJob, slot: datetime) -> ScheduledJob:
    """Return the schedule with the first attempt at ``slot`` as its pending tick."""
    return replace(
        job,
        next_slot=slot,
        next_run_at=due_time(job, slot),
        next_attempt=0,
        cadence_slot=slot,
        generation=job.generation + 1,
    )


def with_retry(job: ScheduledJob, slot: datetime, attempt: int, due: datetime) -> ScheduledJob:
    """Return the schedule with another attempt at ``slot`` as its pending tick.

    The retry holds the cadence: ``cadence_slot`` stays, and no further slot fires before the retry. If slots went on
    firing, a failing target would get new slots on top of its retries, and a later slot could succeed before an
    earlier one. Under ``if_running: allow`` a failed run is retried as an execution of its own instead.
    """
    return replace(job, next_slot=slot, next_run_at=due, next_attempt=attempt, generation=job.generation + 1)


def without_tick(job: ScheduledJob) -> ScheduledJob:
    """Return the schedule without a pending tick or retry; no further slot is expected."""
    return replace(
        job, next_slot=None, next_run_at=None, next_attempt=0, cadence_slot=None, generation=job.generation + 1
    )


def stopped(job: ScheduledJob, status: Status, reason: Reason) -> ScheduledJob:
    """Return the schedule in a state in which nothing is planned. A run that waited to start is cancelled with it."""
    still = without_tick(job)
    if still.last_outcome == QUEUED:
        still = replace(still, last_outcome=LedgerOutcome.MISSED.value)
    return with_status(still, status, reason)


def finished(job: ScheduledJob, reason: Reason) -> ScheduledJob:
    """Return the schedule as done, with this reason."""
    return stopped(job, Status.DONE, reason)


def paused_as_invalid(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return the schedule as paused because its stored spec can no longer be compiled."""
    paused = stopped(job, Status.PAUSED, Reason.INVALID_SPEC)
    return replace(paused, last_error=f"The spec is no longer valid: {job.spec.problem}", last_error_at=now)


def with_started_run(job: ScheduledJob, execution_id: UUID, slot: datetime, now: datetime) -> ScheduledJob:
    """Return the schedule after a run that waited has started."""
    return replace(
        job,
        last_run_at=now,
        last_attempt_at=now,
        last_execution_id=newest_run(job, execution_id),
        last_outcome=ExecutionStatus.RUNNING.value if slot == job.last_slot else job.last_outcome,
    )


def newest_run(job: ScheduledJob, execution_id: UUID) -> UUID:
    """Return the later of the last run and this one: ids begin with the slot and the attempt."""
    last = job.last_execution_id
    return execution_id if last is None or last < execution_id else last


def planned(job: ScheduledJob, slot: datetime | None, active_runs: int) -> ScheduledJob:
    """Return the schedule with ``slot`` as its next tick; None means that the cadence has no further slot.

    No tick is planned if the active runs may use up the repeats. While runs are active, a schedule without further
    slots stays active: the last of them may fail and be retried.
    """
    if not job.expects_more(active_runs):
        # Under a lease every run counts, also one that was cancelled: none may be left to wait for.
        return finished(job, Reason.REPEAT_LIMIT) if job.lease_id is not None and not active_runs else without_tick(job)
    if slot is not None:
        return with_tick(job, slot)
    return without_tick(job) if active_runs else _out_of_slots(job)


def _out_of_slots(job: ScheduledJob) -> ScheduledJob:
    return finished(job, Reason.EXHAUSTED) if job.is_one_shot else past_end(job)


def past_end(job: ScheduledJob) -> ScheduledJob:
    """Return the schedule as done, as its end comes before the next slot or retry.

    If that is the end of its lease, it waits: a person may extend the lease until it ends.
    """
    return without_tick(job) if job.ends_with_lease else finished(job, Reason.END_REACHED)


def with_first_slot(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Plan a schedule that was created, resumed, revived or edited.

    A one-shot without an outcome fires even if its time has passed; all others go on with the first slot after now.
    """
    if job.is_one_shot and not job.spec.problem and not one_shot_has_outcome(job):
        return planned(job, job.cadence.latest_at(now) or job.cadence.first_after(now), active_runs)
    return with_next_slot(job, active_runs, now)


def with_next_slot(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Plan the first slot after now instead of the pending tick; a schedule at its repeat limit is done."""
    if job.limit_reached:
        return finished(job, Reason.REPEAT_LIMIT)
    if job.spec.problem:
        return paused_as_invalid(job, now)
    return planned(job, job.cadence.first_after(now), active_runs)


def one_shot_has_outcome(job: ScheduledJob) -> bool:
    """Return whether the only slot of a one-shot has fired or has been accounted for."""
    return job.last_slot is not None and job.last_slot >= job.anchor_at


def with_anchor(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return the schedule with its slots counted from ``start_at`` if that lies in the future, else from now."""
    if job.is_one_shot:
        return replace(job, anchor_at=_only_slot(job, now))
    is_future = job.start_at is not None and job.start_at > now
    return replace(job, anchor_at=job.start_at if is_future else now)


def with_start_anchor(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return the schedule with its slots counted from ``start_at``, even if that has passed; without it, from now.

    A ``start_at`` in the past fires nothing for the past: it says at which minutes and seconds the slots lie.
    """
    if job.start_at is None or job.is_one_shot:
        return with_anchor(job, now)
    return replace(job, anchor_at=job.start_at)


def _only_slot(job: ScheduledJob, now: datetime) -> datetime:
    """Return the slot of a one-shot: ``at``, or ``after`` counted from now or from a later ``start_at``."""
    if job.at is not None:
        return job.at
    start = now if job.start_at is None else max(now, job.start_at)
    return start + parse_duration(job.after or "")


def due_slots(job: ScheduledJob, first: datetime, now: datetime, *, however_late: bool = False) -> DueSlots:
    """Sort the slots from ``first`` to now into missed and late ones.

    Only the latest due slot can be late: it fires if it is within the grace. The earlier ones are missed. A one-shot is
    never missed, and with ``however_late`` neither is the latest slot.
    """
    cadence = job.cadence
    latest, following = first, cadence.first_after(first)
    if following is not None and following <= now:
        latest = _latest_due(job, cadence, first, now)
        following = cadence.first_after(latest)
    lateness = now - due_time(job, latest)
    grace = timedelta(seconds=job.misfire_grace_seconds)
    if lateness <= ON_TIME or however_late or job.is_one_shot or lateness <= grace:
        before = cadence.before(latest) if first < latest else None
        return DueSlots(missed=(first, before) if before else None, late=latest, following=following)
    return DueSlots(missed=(first, latest), late=None, following=following)


def _latest_due(job: ScheduledJob, cadence: Cadence, first: datetime, now: datetime) -> datetime:
    """Return the latest slot whose due time has come. The jitter of the last slot may still lie ahead."""
    latest = cadence.latest_at(now)
    if latest is not None and latest > first and due_time(job, latest) > now:
        latest = cadence.before(latest)
    return first if latest is None else max(first, latest)


def catch_up_plan(
    job: ScheduledJob, due: DueSlots, room: int | None, now: datetime, skipped: frozenset[datetime] = frozenset()
) -> CatchUpPlan:
    """Decide by ``catch_up`` which missed slots run, if the repeats allow at most ``room`` more runs (None: any).

    Of the ``skipped`` slots none runs.
    """
    if due.missed is None:
        return CatchUpPlan()
    first, last = due.missed
    if job.catch_up is CatchUp.SKIP:
        reason = "a later slot was due already" if due.late else "later than misfire_grace_seconds"
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, reason),))
    if not job.spec.hours.allows(now):
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, "the window had closed"),))
    exclusion = job.calendars.exclusion(now)
    if exclusion is not None:
        reason = f"it could not be made up for: {exclusion}"
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, reason),))
    most = 1 if job.catch_up is CatchUp.RUN_ONCE else MAX_CAUGHT_UP
    slots = _newest(job, first, last, most if room is None else min(most, room), skipped)
    if not slots:
        return CatchUpPlan((), (ledger_entry(job, first, last, LedgerOutcome.MISSED, "the repeats were used up"),))
    return CatchUpPlan(slots, _left_out(job, first, slots))


def _newest(
    job: ScheduledJob, first: datetime, last: datetime, most: int, skipped: frozenset[datetime]
) -> tuple[datetime, ...]:
    """Return the newest slots from ``first`` to ``last``, at most ``most`` of them, oldest first."""
    slots: list[datetime] = []
    slot: datetime | None = last
    while slot is not None and slot >= first and len(slots) < most:
        if slot not in skipped:
            slots.append(slot)
        slot = job.cadence.before(slot)
    return tuple(reversed(slots))


def _left_out(job: ScheduledJob, first: datetime, slots: tuple[datetime, ...]) -> tuple[LedgerEntry, ...]:
    """Return the entry for the missed slots before those that run, as one range."""
    last = job.cadence.before(slots[0]) if first < slots[0] else None
    if last is None:
        return ()
    if job.catch_up is CatchUp.RUN_ONCE:
        reason = "run_once ran the latest missed slot for all"
        return (ledger_entry(job, first, last, LedgerOutcome.COALESCED, reason),)
    reason = f"run_all ran the newest {len(slots)} only"
    return (ledger_entry(job, first, last, LedgerOutcome.MISSED, reason),)
