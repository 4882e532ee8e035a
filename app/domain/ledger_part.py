"""The account of slots that did not fire. A slot that fired is accounted for by its execution."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec


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
