"""Why things ran or did not: the ledger, previews, explanations, histories, breakers."""

from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row

from app.domain.breakers import BreakerState
from app.domain.ledger_part import LedgerEntry
from app.domain.revisions import Action
from app.services.inputs import Instant


class LedgerItem(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"first": "from", "last": "to"}):
    """A slot and what became of it; or, with ``from``, ``to`` and ``count``, a range of them."""

    slot: Instant
    outcome: str
    reason: str
    execution_id: UUID | None
    first: Instant | None = None
    last: Instant | None = None
    count: int | None = None


class LedgerList(msgspec.Struct):
    """The account of the latest slots."""

    items: list[LedgerItem]
    next_cursor: str | None


class PreviewRun(msgspec.Struct):
    """A run that would come: when, and what is special about it."""

    at: Instant
    note: str


class PreviewView(msgspec.Struct):
    """A spec in plain words, what may surprise about it, and its next runs."""

    description: str
    warnings: list[str]
    next_runs: list[PreviewRun]


class CheckView(msgspec.Struct):
    """One of the checks that a slot goes through."""

    check: str
    passed: bool
    detail: str


class ExplanationView(msgspec.Struct, kw_only=True):
    """Why a schedule did, or did not, run at some time."""

    slot: Instant | None
    outcome: str
    sentence: str
    execution_id: UUID | None
    checks: list[CheckView]


class HistoryItem(msgspec.Struct, kw_only=True):
    """A change of a schedule or a workflow: by whom, when, and what it was before and after."""

    at: Instant
    by: str
    user_profile_id: int | None
    action: Action
    changes: dict[str, Any]
    note: str


class HistoryList(msgspec.Struct):
    """The latest changes."""

    items: list[HistoryItem]
    # Where the next part begins, for ``cursor``; null at the end.
    next_cursor: str | None


class BreakerView(msgspec.Struct, kw_only=True):
    """The breaker of a workflow."""

    workflow_id: int
    workflow_name: str
    state: BreakerState
    failure_count: int
    opened_at: Instant | None
    half_opens_at: Instant | None
    probe_execution_id: UUID | None
    breaker_threshold: int | None
    breaker_reset_seconds: int | None


class TransitionView(msgspec.Struct, kw_only=True):
    """A change of a breaker's state, and why."""

    at: Instant
    from_state: BreakerState
    to_state: BreakerState
    reason: str
    execution_id: UUID | None


class BreakerDetail(BreakerView, kw_only=True):
    """The breaker of a workflow, with its latest transitions, newest first."""

    transitions: list[TransitionView]


class BreakerList(msgspec.Struct):
    """The breakers of all workflows that have one."""

    items: list[BreakerView]
    next_cursor: str | None


def history_item(row: Row[Any]) -> HistoryItem:
    """A change as callers see it."""
    return HistoryItem(
        at=row.at,
        by=row.author,
        user_profile_id=row.user_profile_id,
        action=row.action,
        changes=row.changes,
        note=row.note,
    )


def ledger_item(row: Row[Any] | LedgerEntry) -> LedgerItem:
    """An entry as callers see it."""
    item = LedgerItem(slot=row.last_slot, outcome=row.outcome, reason=row.reason, execution_id=row.execution_id)
    if row.slot_count > 1:
        item.first, item.last, item.count = row.first_slot, row.last_slot, row.slot_count
    return item
