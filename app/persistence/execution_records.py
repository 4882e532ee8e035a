"""Executions as they are read: one with its nodes, the runs of a schedule, pages of many."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import ExecutionStatus, NodeResult
from app.domain.parts import Part
from app.persistence.pages import Page, read_page
from app.persistence.tables import NodeResultRow, WorkflowExecutionRow

_TABLE = WorkflowExecutionRow.__table__
_NODES = NodeResultRow.__table__


async def get(connection: AsyncConnection, execution_id: UUID) -> Row[Any] | None:
    """One execution's row."""
    return (await connection.execute(select(_TABLE).where(_TABLE.c.id == execution_id))).one_or_none()


async def node_results(connection: AsyncConnection, execution_id: UUID) -> list[Row[Any]]:
    """What the nodes did, in the order in which they started."""
    query = select(_NODES).where(_NODES.c.execution_id == execution_id)
    return list(await connection.execute(query.order_by(_NODES.c.started_at, _NODES.c.node_id)))


async def kept_results(connection: AsyncConnection, execution_id: UUID) -> list[NodeResult]:
    """What nodes had done when the execution was last put aside."""
    return [
        NodeResult(
            node_id=row.node_id,
            type=row.type,
            status=ExecutionStatus(row.status),
            output=row.output,
            error=row.error,
            started_at=row.started_at,
            finished_at=row.finished_at,
        )
        for row in await node_results(connection, execution_id)
    ]


async def page(connection: AsyncConnection, actor: Actor, wanted: Mapping[str, Any], part: Part) -> Page:
    """The executions that the actor may see and that have the wanted values, newest first; None is any value."""
    query = select(_TABLE)
    if actor.owner_filter is not None:
        query = query.where(_TABLE.c.user_profile_id == actor.owner_filter)
    for name, value in wanted.items():
        if value is not None:
            query = query.where(_TABLE.c[name] == value)
    return await read_page(connection, query, (_TABLE.c.scheduled_for, _TABLE.c.retry_attempt, _TABLE.c.id), part)


async def runs(connection: AsyncConnection, job_id: UUID, limit: int) -> list[Row[Any]]:
    """The latest runs of a schedule, newest first."""
    query = _newest_first(select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id))
    return list(await connection.execute(query.limit(limit)))


def _newest_first(query: Select[Any]) -> Select[Any]:
    return query.order_by(_TABLE.c.scheduled_for.desc(), _TABLE.c.retry_attempt.desc(), _TABLE.c.id.desc())
