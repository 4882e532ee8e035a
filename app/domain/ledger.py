"""The ledger: the outcomes of slots that did not fire. A slot that fired is accounted for by its execution."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.schedules import ScheduledJob, Status


class LedgerOutcome(StrEnum):
    """Why a slot did not fire."""

    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_GUARD = "skipped_guard"
    SKIPPED_BREAKER = "skipped_breaker"
    SKIPPED_QUEUE_FULL = "skipped_queue_full"
    SKIPPED_RETRY = "skipped_retry"
    MISSED = "missed"
    COALESCED = "coalesced"


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One slot, or a run of neighbouring slots, that shared an outcome."""

    first_slot: datetime
    last_slot: datetime
    slot_count: int
    outcome: LedgerOutcome
    reason: str
    # The execution that stood in the way, where there was one.
    execution_id: UUID | None = None


def unaccounted_slots(job: ScheduledJob, now: datetime) -> tuple[LedgerEntry, ...]:
    """The slots of the cadence that have come due and have no outcome yet, as one range."""
    if job.cadence_slot is None or job.cadence_slot > now:
        return ()
    if job.spec.problem:
        return (missed_by_invalid_spec(job),)
    first, last = job.cadence_slot, job.cadence.latest_at(now)
    if last is None or first > last:
        return ()
    if job.next_attempt:
        return (ledger_entry(job, first, last, LedgerOutcome.SKIPPED_RETRY, "a retry held the schedule"),)
    return (ledger_entry(job, first, last, LedgerOutcome.MISSED, "the schedule was changed or ended before it fired"),)


def dropped_slots(before: ScheduledJob, after: ScheduledJob, now: datetime) -> tuple[LedgerEntry, ...]:
    """What a change that is not a tick passes over: a pause, an edit, a death. None if the cadence waits as it was.

    A one-shot that is merely paused is not missed: it will fire however late.
    """
    if after.cadence_slot == before.cadence_slot:
        return ()
    waits = after.is_one_shot and after.anchor_at == before.anchor_at and after.status is Status.PAUSED
    return () if before.is_one_shot and waits else unaccounted_slots(before, now)


def with_last_slot(job: ScheduledJob, entries: tuple[LedgerEntry, ...]) -> ScheduledJob:
    """The schedule once these slots have their outcome."""
    return replace(job, last_slot=entries[-1].last_slot) if entries else job


def missed_by_invalid_spec(job: ScheduledJob) -> LedgerEntry:
    """The one slot that is known of a schedule whose spec can no longer be read."""
    if job.cadence_slot is None:
        raise AssertionError(f"schedule {job.id} expects no slot")
    return LedgerEntry(
        first_slot=job.cadence_slot,
        last_slot=job.cadence_slot,
        slot_count=1,
        outcome=LedgerOutcome.MISSED,
        reason="the spec was no longer valid",
    )


def ledger_entry(
    job: ScheduledJob,
    first: datetime,
    last: datetime,
    outcome: LedgerOutcome,
    reason: str,
    execution_id: UUID | None = None,
) -> LedgerEntry:
    """An entry for the slots from ``first`` to ``last``."""
    return LedgerEntry(
        first_slot=first,
        last_slot=last,
        slot_count=job.cadence.count(first, last),
        outcome=outcome,
        reason=reason,
        execution_id=execution_id,
    )
