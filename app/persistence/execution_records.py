"""Executions as they are read: one with its nodes, the runs of a schedule, pages of many."""

from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import ExecutionStatus, NodeResult
from app.persistence.pages import Page
from app.persistence.tables import NodeResultRow, ScheduledJobRow, WorkflowExecutionRow

_TABLE = WorkflowExecutionRow.__table__
_JOBS = ScheduledJobRow.__table__
_NODES = NodeResultRow.__table__


async def get_with_owner(connection: AsyncConnection, execution_id: UUID) -> tuple[Row[Any], int] | None:
    """One execution's row, and who owns its schedule."""
    query = select(_TABLE, _JOBS.c.user_profile_id).join(_JOBS, _JOBS.c.id == _TABLE.c.scheduled_job_id)
    row = (await connection.execute(query.where(_TABLE.c.id == execution_id))).one_or_none()
    return (row, row.user_profile_id) if row else None


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


async def page(  # noqa: PLR0913 - the filters of one list
    connection: AsyncConnection,
    actor: Actor,
    *,
    scheduled_job_id: UUID | None,
    workflow_id: int | None,
    status: str | None,
    limit: int,
    offset: int,
) -> Page:
    """The executions that the actor may see, newest first."""
    query = select(_TABLE)
    if actor.owner_filter is not None:
        query = query.join(_JOBS, _JOBS.c.id == _TABLE.c.scheduled_job_id)
        query = query.where(_JOBS.c.user_profile_id == actor.owner_filter)
    wanted = (("scheduled_job_id", scheduled_job_id), ("workflow_id", workflow_id), ("status", status))
    for name, value in wanted:
        if value is not None:
            query = query.where(_TABLE.c[name] == value)
    total = (await connection.execute(select(func.count()).select_from(query.subquery()))).scalar_one()
    return Page(list(await connection.execute(_newest_first(query).limit(limit).offset(offset))), total)


async def runs(connection: AsyncConnection, job_id: UUID, limit: int) -> list[Row[Any]]:
    """The latest runs of a schedule, newest first."""
    query = _newest_first(select(_TABLE).where(_TABLE.c.scheduled_job_id == job_id))
    return list(await connection.execute(query.limit(limit)))


def _newest_first(query: Select[Any]) -> Select[Any]:
    return query.order_by(_TABLE.c.scheduled_for.desc(), _TABLE.c.retry_attempt.desc(), _TABLE.c.id.desc())
