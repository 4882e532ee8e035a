"""The ledger: entries for slots that did not fire, and the first executions of those that did."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import Trigger
from app.domain.ledger import LedgerEntry, LedgerOutcome
from app.domain.run_ids import execution_id, first_id_at, last_id_at
from app.observability.metrics import MISSED
from app.persistence.database import after_commit
from app.persistence.pagination import cursor_of, position_of, read_all, read_one
from app.persistence.permits import waited_limit
from app.persistence.sql_batches import insert_many, run_batch
from app.persistence.tables import LedgerEntryRow, WorkflowExecutionRow

_TABLE = LedgerEntryRow.__table__
_FIRED = WorkflowExecutionRow.__table__
INSERT = insert_many(LedgerEntryRow, ("scheduled_job_id", *LedgerEntry.__struct_fields__))


async def add(connection: AsyncConnection, entries: Sequence[tuple[UUID, LedgerEntry]]) -> None:
    """Write entries, each with the schedule that it belongs to."""
    if entries:
        await run_batch(connection, INSERT, [row(job_id, entry) for job_id, entry in entries])
        after_commit(connection, partial(count, [entry for _, entry in entries]))


def count_unrun(connection: AsyncConnection, outcomes: Iterable[LedgerOutcome]) -> None:
    """Count slots whose execution ended before it began, once the transaction is committed."""
    for outcome in outcomes:
        after_commit(connection, MISSED.labels(outcome).inc)


def count(entries: Iterable[LedgerEntry]) -> None:
    """Count committed entries in ``carillon_slots_missed_total``.

    Never before the commit: a batch that is rolled back and redone one by one would count twice.
    """
    for entry in entries:
        MISSED.labels(entry.outcome).inc(entry.slot_count)


def row(job_id: UUID, entry: LedgerEntry | None = None) -> dict[str, Any]:
    """Return an entry as a row; without an entry all its columns are NULL."""
    return {"scheduled_job_id": job_id, **(msgspec.structs.asdict(entry) if entry else {})}


class Stretch(msgspec.Struct, frozen=True):
    """A span of time, open where an end is None. Slots from ``before`` on, the position of a cursor, are left out."""

    since: datetime | None
    until: datetime | None
    before: datetime | None = None


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it is stored. A newer release may write outcomes that this one does not know: they are texts here."""

    first_slot: datetime
    last_slot: datetime
    slot_count: int
    outcome: str
    reason: str
    execution_id: UUID | None


class FiredSlot(msgspec.Struct, frozen=True, kw_only=True):
    """The first execution of a slot."""

    id: UUID
    scheduled_for: datetime
    started_at: datetime | None
    status: str
    error: str
    unrun_outcome: str | None
    # The name of the limit that it waits for.
    waiting_limit: str | None


def cursor_at(slot: datetime) -> str:
    """Return the cursor that continues with the slots before this one."""
    return cursor_of([slot])


def before(cursor: str | None) -> datetime | None:
    """Return the slot that a cursor of the ledger names, or None without a cursor."""
    slot: datetime | None = None if cursor is None else position_of((_TABLE.c.last_slot,), cursor)[0]
    return slot


async def of_job(connection: AsyncConnection, job_id: UUID, stretch: Stretch, limit: int) -> list[StoredEntry]:
    """Return the latest entries of a schedule that touch a span of time, newest first."""
    since, until = stretch.since, stretch.until
    query = select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id)
    if stretch.before is not None:
        query = query.where(_TABLE.c.last_slot < stretch.before)
    if since is not None:
        query = query.where(_TABLE.c.last_slot >= since)
    if until is not None:
        query = query.where(_TABLE.c.first_slot <= until)
    return await read_all(connection, query.order_by(_TABLE.c.last_slot.desc()).limit(limit), StoredEntry)


async def fired(connection: AsyncConnection, job_id: UUID, stretch: Stretch, limit: int) -> list[FiredSlot]:
    """Return the latest slots of a schedule that fired, newest first."""
    query = _first_attempts(job_id)
    if stretch.since is not None:
        query = query.where(_FIRED.c.id >= first_id_at(stretch.since), _FIRED.c.scheduled_for >= stretch.since)
    if stretch.until is not None:
        query = query.where(_FIRED.c.id < last_id_at(stretch.until), _FIRED.c.scheduled_for <= stretch.until)
    if stretch.before is not None:
        query = query.where(_FIRED.c.id < last_id_at(stretch.before), _FIRED.c.scheduled_for < stretch.before)
    return await read_all(connection, query.order_by(_FIRED.c.id.desc()).limit(limit), FiredSlot)


async def near(connection: AsyncConnection, job_id: UUID, moment: datetime) -> list[datetime]:
    """Return the stored slots next to a moment, fired and not fired: before it, after it, and the ends of a range."""
    fired, entries = _first_attempts(job_id), select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id)
    run, slot, first, last = _FIRED.c.id, _FIRED.c.scheduled_for, _TABLE.c.first_slot, _TABLE.c.last_slot
    latest = last_id_at(moment)
    queries = (
        (fired.with_only_columns(slot).where(run <= latest, slot <= moment).order_by(run.desc())),
        (fired.with_only_columns(slot).where(run >= first_id_at(moment), slot > moment).order_by(run)),
        (entries.with_only_columns(first, last).where(first <= moment).order_by(first.desc())),
        (entries.with_only_columns(first).where(first > moment).order_by(first)),
    )
    return [slot for query in queries for row in await connection.execute(query.limit(1)) for slot in row]


class LastAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The last execution of a slot that was tried again."""

    id: UUID
    retry_attempt: int
    status: str


async def last_attempt(connection: AsyncConnection, job_id: UUID, slot: datetime) -> LastAttempt | None:
    """Return the last execution of a slot that was tried again, or None if it was not."""
    query = select(_FIRED.c.id, _FIRED.c.retry_attempt, _FIRED.c.status).where(
        _FIRED.c.scheduled_job_id == job_id,
        _FIRED.c.id.between(first_id_at(slot), last_id_at(slot)),
        _FIRED.c.scheduled_for == slot,
        _FIRED.c.retry_attempt > 0,
        _FIRED.c.trigger != Trigger.MANUAL,
    )
    return await read_one(connection, query.order_by(_FIRED.c.retry_attempt.desc()).limit(1), LastAttempt)


async def at_slot(
    connection: AsyncConnection, job_id: UUID, slot: datetime
) -> tuple[FiredSlot | None, StoredEntry | None]:
    """Return the first execution of a slot, and the entry that covers the slot; None for what is not there."""
    firing = _first_attempts(job_id).where(_FIRED.c.id == execution_id(job_id, slot, 0))
    covering = select(_TABLE).where(
        _TABLE.c.scheduled_job_id == job_id, _TABLE.c.first_slot <= slot, _TABLE.c.last_slot >= slot
    )
    return (
        await read_one(connection, firing, FiredSlot),
        await read_one(connection, covering.limit(1), StoredEntry),
    )


def _first_attempts(job_id: UUID) -> Select[Any]:
    columns: tuple[Any, ...] = (
        _FIRED.c.id,
        _FIRED.c.scheduled_for,
        _FIRED.c.started_at,
        _FIRED.c.status,
        _FIRED.c.error,
        _FIRED.c.unrun_outcome,
        literal_column(waited_limit("workflow_executions")).label("waiting_limit"),
    )
    return select(*columns).where(
        _FIRED.c.scheduled_job_id == job_id, _FIRED.c.retry_attempt == 0, _FIRED.c.trigger != Trigger.MANUAL
    )
