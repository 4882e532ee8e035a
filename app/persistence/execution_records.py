"""Executions as they are read: one with its nodes, the runs of a schedule, pages of many."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, Row, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import ExecutionStatus, NodeResult
from app.domain.parts import Part
from app.persistence.pages import Page, read_page
from app.persistence.tables import WorkflowExecutionRow

_TABLE = WorkflowExecutionRow.__table__
# What the nodes did is shown with a single execution only.
# Begun and asleep: shown as running, though no worker holds it.
_IS_ASLEEP = and_(_TABLE.c.status == ExecutionStatus.PENDING, _TABLE.c.deadline_at.is_not(None))
_LISTED = tuple(column for column in _TABLE.columns if column.name != "results")


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
            query = query.where(_condition(name, value))
    return await read_page(connection, query, (_TABLE.c.id,), part)


def _condition(name: str, value: Any) -> ColumnElement[bool]:
    """That a column has a value, as it is shown."""
    stored: ColumnElement[bool] = _TABLE.c[name] == value
    if name == "status" and value == ExecutionStatus.RUNNING:
        return or_(stored, _IS_ASLEEP)
    if name == "status" and value == ExecutionStatus.PENDING:
        return and_(stored, _TABLE.c.deadline_at.is_(None))
    return stored


async def runs(connection: AsyncConnection, job_id: UUID, limit: int) -> list[Row[Any]]:
    """The latest runs of a schedule, newest first."""
    query = select(*_LISTED).where(_TABLE.c.scheduled_job_id == job_id).order_by(_TABLE.c.id.desc())
    return list(await connection.execute(query.limit(limit)))
