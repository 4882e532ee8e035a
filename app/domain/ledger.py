"""The ledger: the outcomes of slots that did not fire. A slot that fired is accounted for by its execution."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.schedules import ScheduledJob, Status

# The outcome of a slot whose run waits to start.
QUEUED = "queued"


class LedgerOutcome(StrEnum):
    """The outcomes of slots that did not fire."""

    SKIPPED_OVERLAP = "skipped_overlap"
    SKIPPED_GUARD = "skipped_guard"
    SKIPPED_BREAKER = "skipped_breaker"
    SKIPPED_QUEUE_FULL = "skipped_queue_full"
    SKIPPED_RETRY = "skipped_retry"
    # A person asked to leave the slot out.
    SKIPPED_REQUEST = "skipped_request"
    MISSED = "missed"
    COALESCED = "coalesced"


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One slot, or a range of consecutive slots, with one outcome."""

    first_slot: datetime
    last_slot: datetime
    slot_count: int
    outcome: LedgerOutcome
    reason: str
    # The execution that kept the slot from firing, if there was one.
    execution_id: UUID | None = None


def slots_in(entries: Iterable[LedgerEntry]) -> int:
    """Return the number of slots that these entries account for."""
    return sum(entry.slot_count for entry in entries)


def ledger_entry(
    job: ScheduledJob,
    first: datetime,
    last: datetime,
    outcome: LedgerOutcome,
    reason: str,
    execution_id: UUID | None = None,
) -> LedgerEntry:
    """Return the entry for the slots from ``first`` to ``last``, with their number counted."""
    return LedgerEntry(
        first_slot=first,
        last_slot=last,
        slot_count=job.cadence.count(first, last),
        outcome=outcome,
        reason=reason,
        execution_id=execution_id,
    )


def missed_by_invalid_spec(job: ScheduledJob) -> LedgerEntry:
    """Return the entry for the pending slot of a schedule whose spec no longer compiles.

    Slots after it cannot be computed without a valid spec, so only this one is accounted for.
    """
    if job.cadence_slot is None:
        raise AssertionError(f"schedule {job.id} expects no slot")
    return LedgerEntry(
        first_slot=job.cadence_slot,
        last_slot=job.cadence_slot,
        slot_count=1,
        outcome=LedgerOutcome.MISSED,
        reason="the spec was no longer valid",
    )


def unaccounted_slots(job: ScheduledJob, now: datetime) -> tuple[LedgerEntry, ...]:
    """Return one entry for all slots of the cadence that are due and have no outcome yet, or none."""
    if job.cadence_slot is None or job.cadence_slot > now:
        return ()
    if job.spec.problem:
        return (missed_by_invalid_spec(job),)
    first, last = job.cadence_slot, job.cadence.latest_at(now)
    if last is None or first > last:
        return ()
    if job.next_attempt:
        return (ledger_entry(job, first, last, LedgerOutcome.SKIPPED_RETRY, "a retry held the schedule"),)
    reason = "the schedule was changed or ended before it fired"
    return (ledger_entry(job, first, last, LedgerOutcome.MISSED, reason),)


def dropped_slots(before: ScheduledJob, after: ScheduledJob, now: datetime) -> tuple[LedgerEntry, ...]:
    """Return the entry for due slots that a pause, an edit or the end of a schedule drops, or none.

    If the cadence still waits for the same slot, nothing is dropped. A one-shot that is only paused is not missed: it
    fires after the pause, however late.
    """
    if after.cadence_slot == before.cadence_slot:
        return ()
    only_paused = after.is_one_shot and after.anchor_at == before.anchor_at and after.status is Status.PAUSED
    return () if before.is_one_shot and only_paused else unaccounted_slots(before, now)


def accounted(job: ScheduledJob, entries: tuple[LedgerEntry, ...], now: datetime) -> ScheduledJob:
    """Return the schedule with the last slot of these entries as the newest that has an outcome."""
    if not entries:
        return job
    return replace(job, last_slot=entries[-1].last_slot, last_outcome=entries[-1].outcome.value, last_attempt_at=now)
