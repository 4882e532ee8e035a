"""The history of schedules: who changed what, when."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.parts import Part
from app.domain.revisions import Revision
from app.persistence.pagination import Page, read_page
from app.persistence.sql_batches import insert_many, run_many
from app.persistence.tables import ScheduleRevisionRow

_TABLE = ScheduleRevisionRow.__table__
_INSERT = insert_many(ScheduleRevisionRow, Revision.__struct_fields__)


async def add(connection: AsyncConnection, revisions: Sequence[Revision]) -> None:
    """Write changes down."""
    await run_many(connection, _INSERT, revisions)


async def of_job(connection: AsyncConnection, job_id: UUID, part: Part) -> Page:
    """The latest changes of a schedule, newest first."""
    query = select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id)
    return await read_page(connection, query, (_TABLE.c.at, _TABLE.c.id), part)


async def in_force(connection: AsyncConnection, job_id: UUID, moment: datetime) -> Row[Any] | None:
    """The change that had made a schedule what it was at a moment; None if the history does not reach back so far."""
    query = select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id, _TABLE.c.at <= moment)
    latest = query.order_by(_TABLE.c.at.desc(), _TABLE.c.id.desc()).limit(1)
    row: Row[Any] | None = (await connection.execute(latest)).one_or_none()
    return row
