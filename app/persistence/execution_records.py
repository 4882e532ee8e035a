"""Executions as they are read: one with its nodes, the runs of a schedule, pages of many."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import NodeResult
from app.domain.parts import Part
from app.persistence.pages import Page, read_page
from app.persistence.tables import WorkflowExecutionRow

_TABLE = WorkflowExecutionRow.__table__
# What the nodes did is shown with a single execution only, and the payload with a run; both may be large.
_LISTED = tuple(column for column in _TABLE.columns if column.name not in {"results", "payload", "work"})


async def get(connection: AsyncConnection, execution_id: UUID) -> Row[Any] | None:
    """One execution's row."""
    return (await connection.execute(select(_TABLE).where(_TABLE.c.id == execution_id))).one_or_none()


def results_of(row: Row[Any]) -> list[NodeResult]:
    """What the nodes of an execution did, in the order in which they started."""
    return sorted(msgspec.convert(row.results, list[NodeResult]), key=lambda one: (one.started_at, one.node_id))


async def kept_results(connection: AsyncConnection, execution_id: UUID) -> list[NodeResult]:
    """What nodes had done when the execution was last put aside."""
    row = await get(connection, execution_id)
    return results_of(row) if row else []


async def page(connection: AsyncConnection, actor: Actor, wanted: Mapping[str, Any], part: Part) -> Page:
    """The executions that the actor may see and that have the wanted values, newest first; None is any value."""
    query = select(*_LISTED)
    if actor.owner_filter is not None:
        query = query.where(_TABLE.c.user_profile_id == actor.owner_filter)
    for name, value in wanted.items():
        if value is not None:
            query = query.where(_TABLE.c[name] == value)
    return await read_page(connection, query, (_TABLE.c.id,), part)


async def runs(connection: AsyncConnection, job_id: UUID, part: Part) -> Page:
    """The latest runs of a schedule, newest first, with their payloads."""
    query = select(*_LISTED, _TABLE.c.payload).where(_TABLE.c.scheduled_job_id == job_id)
    return await read_page(connection, query, (_TABLE.c.id,), part)
