"""What a due tick does: fire, or not and why. The order of the checks is the order of the functions."""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.accounting import entry, passed_over
from app.domain.executions import ActiveRun, counting
from app.domain.identities import execution_id
from app.domain.ledger import LedgerEntry, LedgerOutcome
from app.domain.planning import finished, planned, with_retry
from app.domain.schedules import Reason, ScheduledJob, Status

# A tick is never handled in the very moment of its slot; up to this it is on time, whatever the grace.
PUNCTUAL = timedelta(seconds=1)
# How long a retry makes way for a run that somebody started by hand.
MAKE_WAY = timedelta(seconds=5)


class Tick(msgspec.Struct, frozen=True):
    """A wake-up for a schedule, as a message carries it."""

    job_id: UUID
    generation: int


class Stale(msgspec.Struct, frozen=True):
    """The message does not match the row: paused, deleted, already handled. Nothing happens."""


class NotDue(msgspec.Struct, frozen=True):
    """The bell rang early; it shall ring again after ``wait``."""

    wait: timedelta


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """An execution shall be created and run."""

    execution_id: UUID
    slot: datetime
    attempt: int
    repeat_number: int


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule as it shall be written, what fires, and the slots that are accounted for otherwise."""

    job: ScheduledJob
    fire: Fire | None = None
    ledger: tuple[LedgerEntry, ...] = ()


Decision = Stale | NotDue | Decided


def decide(job: ScheduledJob, tick: Tick, active: tuple[ActiveRun, ...], now: datetime) -> Decision:
    """What this tick does, given the runs that are under way and the time."""
    if job.status is not Status.ACTIVE or job.generation != tick.generation or job.next_run_at is None:
        return Stale()
    if now < job.next_run_at:
        return NotDue(wait=job.next_run_at - now)
    return _decide_retry(job, active, now) if job.next_attempt else _decide_slot(job, active, now)


def _decide_slot(job: ScheduledJob, active: tuple[ActiveRun, ...], now: datetime) -> Decided:
    """The latest due slot is late, the earlier ones are missed."""
    first = _pending_slot(job)
    latest = job.cadence.latest_at(now) or first
    ledger = _missed_before(job, first, latest)
    following = job.cadence.first_after(latest)
    if now - latest > max(timedelta(seconds=job.misfire_grace_seconds), PUNCTUAL):
        missed = entry(job, latest, latest, LedgerOutcome.MISSED, "later than misfire_grace_seconds")
        return Decided(job=planned(job, following, counting(active)), ledger=(*ledger, missed))
    if active:
        skipped = _overlap(job, latest, active)
        return Decided(job=planned(job, following, counting(active)), ledger=(*ledger, skipped))
    return _fired(job, latest, 0, following, now, ledger)


def _decide_retry(job: ScheduledJob, active: tuple[ActiveRun, ...], now: datetime) -> Decided:
    """A retry fires its own slot again; the slots that it held up are skipped."""
    if job.end_at is not None and now > job.end_at:
        return Decided(job=finished(job, Reason.END_REACHED), ledger=passed_over(job, now))
    if active and not counting(active):
        return Decided(job=with_retry(job, _pending_slot(job), job.next_attempt, now + MAKE_WAY))
    following = job.cadence_slot
    if following is not None and following <= now:
        following = job.cadence.first_after(now)
    if active:
        # Given up: its slot has its outcome already, and the schedule goes back to its cadence.
        going_on = following if following is not None else job.cadence.first_after(now)
        return Decided(job=planned(job, going_on, counting(active)), ledger=passed_over(job, now))
    return _fired(job, _pending_slot(job), job.next_attempt, following, now, passed_over(job, now))


def _fired(
    job: ScheduledJob,
    slot: datetime,
    attempt: int,
    following: datetime | None,
    now: datetime,
    ledger: tuple[LedgerEntry, ...],
) -> Decided:
    fire = Fire(
        execution_id=execution_id(job.id, slot, attempt), slot=slot, attempt=attempt, repeat_number=job.current_repeat
    )
    after = replace(planned(job, following, active_runs=1), last_run_at=now, last_fired_at=now)
    return Decided(job=after, fire=fire, ledger=ledger)


def _pending_slot(job: ScheduledJob) -> datetime:
    if job.next_slot is None:
        raise AssertionError(f"schedule {job.id} has a due time and no slot")
    return job.next_slot


def _missed_before(job: ScheduledJob, first: datetime, latest: datetime) -> tuple[LedgerEntry, ...]:
    if first >= latest:
        return ()
    last = job.cadence.before(latest)
    return (entry(job, first, last, LedgerOutcome.MISSED, "a later slot was due already"),)


def _overlap(job: ScheduledJob, slot: datetime, active: tuple[ActiveRun, ...]) -> LedgerEntry:
    skipped = entry(job, slot, slot, LedgerOutcome.SKIPPED_OVERLAP, "an earlier execution was still active")
    return replace(skipped, execution_id=active[0].execution_id)
