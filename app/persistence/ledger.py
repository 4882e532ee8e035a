"""The ledger's own rows: slots that did not fire."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import Trigger
from app.domain.ledger import LedgerEntry
from app.persistence.batches import insert_many, run_many
from app.persistence.tables import LedgerEntryRow, WorkflowExecutionRow

_TABLE = LedgerEntryRow.__table__
_FIRED = WorkflowExecutionRow.__table__
_INSERT = insert_many(LedgerEntryRow, ("scheduled_job_id", *LedgerEntry.__struct_fields__))


async def add(connection: AsyncConnection, entries: Sequence[tuple[UUID, LedgerEntry]]) -> None:
    """Write entries, each with the schedule that it belongs to."""
    rows = [{"scheduled_job_id": job_id, **msgspec.structs.asdict(entry)} for job_id, entry in entries]
    await run_many(connection, _INSERT, rows)


async def of_job(
    connection: AsyncConnection, job_id: UUID, since: datetime | None, until: datetime | None, limit: int
) -> list[Row[Any]]:
    """The latest entries of a schedule that touch a span of time, newest first."""
    query = select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id)
    if since is not None:
        query = query.where(_TABLE.c.last_slot >= since)
    if until is not None:
        query = query.where(_TABLE.c.first_slot <= until)
    return list(await connection.execute(query.order_by(_TABLE.c.last_slot.desc()).limit(limit)))


async def fired(
    connection: AsyncConnection, job_id: UUID, since: datetime | None, until: datetime | None, limit: int
) -> list[Row[Any]]:
    """The latest slots of a schedule that fired, newest first: the executions that were the first at their slot."""
    query = select(_FIRED.c.id, _FIRED.c.scheduled_for).where(
        _FIRED.c.scheduled_job_id == job_id, _FIRED.c.retry_attempt == 0, _FIRED.c.trigger != Trigger.MANUAL
    )
    if since is not None:
        query = query.where(_FIRED.c.scheduled_for >= since)
    if until is not None:
        query = query.where(_FIRED.c.scheduled_for <= until)
    return list(await connection.execute(query.order_by(_FIRED.c.scheduled_for.desc()).limit(limit)))
