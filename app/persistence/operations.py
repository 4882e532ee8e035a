"""Operations on many schedules: stored, taken by workers batch by batch, and counted."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Restriction, Scope
from app.domain.audit import Origin
from app.domain.bulk_operations import BulkAction, OperationStatus, Terms
from app.persistence.pagination import Page, Part, read_newest, read_one, read_page
from app.persistence.sql_batches import fetch
from app.persistence.tables import OperationRow

# Of the rows that failed, these many are named.
MOST_ERRORS = 100
_TABLE = OperationRow.__table__


class Warrant(msgspec.Struct, frozen=True, kw_only=True):
    """How far the token reached that started an operation, and where the request came from."""

    scope: Scope
    restriction: Restriction | None
    origin: Origin


class RowError(msgspec.Struct, frozen=True):
    """A schedule that could not be changed, and why."""

    schedule_id: UUID
    message: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on many schedules."""

    id: UUID
    user_profile_id: int
    username: str
    warrant: Warrant
    action: BulkAction
    terms: Terms = Terms()
    selection: dict[str, Any]
    note: str
    status: OperationStatus = OperationStatus.RUNNING
    total: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    skipped_reasons: dict[str, int] = {}
    errors: list[RowError] = []
    error: str = ""
    position: UUID | None = None
    undo_of: UUID | None = None
    undone_by: UUID | None = None
    starts_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def can_be_undone(self) -> bool:
        """Return whether it has ended and what it has changed can be restored."""
        is_change = self.action not in {BulkAction.RUN, BulkAction.BACKFILL, BulkAction.UNDO}
        return is_change and self.status.has_ended and self.done > 0 and self.undone_by is None


async def add(connection: AsyncConnection, operation: Operation) -> None:
    """Store a new operation."""
    values = {name: getattr(operation, name) for name in operation.__struct_fields__}
    for name in ("warrant", "terms", "errors"):
        values[name] = msgspec.to_builtins(values[name])
    await connection.execute(insert(OperationRow).values(values))


async def get(connection: AsyncConnection, operation_id: UUID, *, lock: bool = False) -> Operation | None:
    """Return an operation; with ``lock`` once the batch that is under way has ended, and no other can begin."""
    query = select(_TABLE).where(_TABLE.c.id == operation_id)
    return await read_one(connection, query.with_for_update() if lock else query, Operation)


async def page(connection: AsyncConnection, owner: int | None, part: Part) -> Page[Operation]:
    """Return a page of the operations of a user, or of all users, newest first."""
    query = select(_TABLE)
    if owner is None:
        return await read_page(connection, query, Operation, (_TABLE.c.id,), part)
    return await read_newest(connection, query, Operation, [(_TABLE.c.user_profile_id, owner)], _TABLE.c.id, part)


async def change(connection: AsyncConnection, operation_id: UUID, **values: Any) -> None:
    """Give a locked operation new values."""
    changed = {"updated_at": text("clock_timestamp()"), **values}
    await connection.execute(update(OperationRow).where(_TABLE.c.id == operation_id).values(changed))


async def end(connection: AsyncConnection, operation_id: UUID, status: OperationStatus, error: str = "") -> None:
    """End a locked operation."""
    await change(connection, operation_id, status=status, error=error, finished_at=text("clock_timestamp()"))


# The lock ends with the transaction: a worker that dies leaves the operation to the others. Operations take turns.
_TAKE = (
    select(_TABLE)
    .where(
        _TABLE.c.status == OperationStatus.RUNNING,
        text("(starts_at IS NULL OR starts_at <= clock_timestamp())"),
    )
    .order_by(_TABLE.c.updated_at)
    .limit(1)
    .with_for_update(skip_locked=True)
)


async def take(connection: AsyncConnection) -> Operation | None:
    """Lock the operation whose last batch is the longest ago, and that no other worker holds; None if there is none."""
    return await read_one(connection, _TAKE, Operation)


_WAIT = (
    "SELECT extract(epoch FROM min(starts_at) - clock_timestamp())::float AS seconds FROM operations "
    "WHERE status = 'running' AND starts_at IS NOT NULL"
)


async def seconds_to_next(connection: AsyncConnection) -> float | None:
    """Return the seconds until an operation that waits goes on; None if there is none."""
    (row,) = await fetch(connection, _WAIT)
    seconds: float | None = row["seconds"]
    return seconds


class Item(msgspec.Struct, frozen=True):
    """A schedule of an operation; of an undo, with when and from what it was changed."""

    job_id: UUID
    at: datetime | None = None
    before: dict[str, Any] | None = None


_NEXT = (
    "SELECT i.scheduled_job_id, f.at, f.before FROM operation_items AS i "
    "LEFT JOIN operation_items AS f ON f.operation_id = $2 AND f.scheduled_job_id = i.scheduled_job_id "
    "WHERE i.operation_id = $1 AND i.scheduled_job_id > $3 ORDER BY i.scheduled_job_id LIMIT $4"
)
_FIRST_ID = UUID(int=0)


async def next_items(connection: AsyncConnection, operation: Operation, limit: int) -> list[Item]:
    """Return the next schedules of an operation, in the order of their ids."""
    position = operation.position or _FIRST_ID
    rows = await fetch(connection, _NEXT, operation.id, operation.undo_of, position, limit)
    return [Item(row[0], row[1], _decoded(row[2])) for row in rows]


def _decoded(value: Any) -> dict[str, Any] | None:
    decoded: dict[str, Any] | None = msgspec.json.decode(value) if isinstance(value, str) else value
    return decoded


_SELECT_UNDONE = (
    "WITH added AS (INSERT INTO operation_items (operation_id, scheduled_job_id) SELECT $1::uuid, i.scheduled_job_id "
    "FROM operation_items AS i WHERE i.operation_id = $2 AND i.outcome = 'changed' RETURNING 1) "
    "SELECT count(*) FROM added"
)


async def select_changed(connection: AsyncConnection, undo_id: UUID, undone_id: UUID) -> int:
    """Note the schedules that an operation has changed as those of its undo. Return how many."""
    number: int = (await fetch(connection, _SELECT_UNDONE, undo_id, undone_id))[0][0]
    return number


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What came of some schedules of an operation: what they were before, or why they were skipped or failed."""

    at: datetime
    changed: Mapping[UUID, Any] = {}
    skipped: Mapping[UUID, str] = {}
    failed: Mapping[UUID, str] = {}


_STORE = (
    "UPDATE operation_items AS i SET outcome = r.outcome, at = CASE r.outcome WHEN 'changed' THEN $2::timestamptz END, "
    "before = r.before::jsonb FROM unnest($3::uuid[], $4::text[], $5::text[]) AS r(id, outcome, before) "
    "WHERE i.operation_id = $1 AND i.scheduled_job_id = r.id"
)


async def store(connection: AsyncConnection, operation: Operation, batch: Batch, last: UUID | None) -> None:
    """Store what came of a batch, which ended with this schedule, and count it."""
    outcomes = [
        *((job_id, "changed", _encoded(before)) for job_id, before in batch.changed.items()),
        *((job_id, "skipped", None) for job_id in batch.skipped),
        *((job_id, "failed", None) for job_id in batch.failed),
    ]
    if outcomes:
        ids, words, befores = zip(*outcomes, strict=True)
        await fetch(connection, _STORE, operation.id, batch.at, list(ids), list(words), list(befores))
    errors = [*operation.errors, *(RowError(job_id, message) for job_id, message in batch.failed.items())]
    await change(
        connection,
        operation.id,
        position=last or operation.position,
        started_at=operation.started_at or batch.at,
        done=operation.done + len(batch.changed),
        skipped=operation.skipped + len(batch.skipped),
        failed=operation.failed + len(batch.failed),
        skipped_reasons=_counted(operation.skipped_reasons, batch.skipped.values()),
        errors=msgspec.to_builtins(errors[:MOST_ERRORS]),
    )


def _encoded(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _counted(counts: Mapping[str, int], reasons: Any) -> dict[str, int]:
    counted = dict(counts)
    for reason in reasons:
        counted[reason] = counted.get(reason, 0) + 1
    return counted


_CHANGED_SINCE = (
    "SELECT c.id FROM unnest($1::uuid[], $2::timestamptz[]) AS c(id, at) WHERE EXISTS (SELECT FROM schedule_revisions "
    "AS r WHERE r.scheduled_job_id = c.id AND r.at > c.at)"
)


async def changed_since(connection: AsyncConnection, items: Sequence[Item]) -> set[UUID]:
    """Return those of these schedules that were changed again after the operation changed them."""
    rows = await fetch(connection, _CHANGED_SINCE, [item.job_id for item in items], [item.at for item in items])
    return {row[0] for row in rows}


_DELETE_OLD = text(
    "DELETE FROM operations WHERE id IN (SELECT o.id FROM operations AS o WHERE o.finished_at < :before "
    "ORDER BY o.id LIMIT :limit)"
)
MOST_DELETED = 10


async def delete_old(connection: AsyncConnection, before: datetime) -> int:
    """Delete some operations that ended before a moment, with their schedules. Return how many."""
    return (await connection.execute(_DELETE_OLD, {"before": before, "limit": MOST_DELETED})).rowcount
