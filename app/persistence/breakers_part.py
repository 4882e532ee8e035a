"""Breakers as people see them: listed, and read with their transitions."""

from typing import Any

from sqlalchemy import Row, Select, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.parts import Part
from app.persistence.pagination import Page, read_page
from app.persistence.tables import CircuitBreakerRow, CircuitBreakerTransitionRow, WorkflowRow

_TABLE = CircuitBreakerRow.__table__
_TRANSITIONS = CircuitBreakerTransitionRow.__table__
_WORKFLOWS = WorkflowRow.__table__


async def page(connection: AsyncConnection, actor: Actor, part: Part) -> Page:
    """The breakers of the workflows that the actor may see and that have one, by workflow."""
    query = _shown().where(or_(_WORKFLOWS.c.breaker_threshold.is_not(None), _TABLE.c.workflow_id.is_not(None)))
    if actor.owner_filter is not None:
        query = query.where(_WORKFLOWS.c.user_profile_id == actor.owner_filter)
    return await read_page(connection, query, (_WORKFLOWS.c.id,), part, ascending=True)


async def of_workflow(connection: AsyncConnection, workflow_id: int) -> Row[Any] | None:
    """The breaker of one workflow, whether it has had to do anything or not."""
    row: Row[Any] | None = (await connection.execute(_shown().where(_WORKFLOWS.c.id == workflow_id))).one_or_none()
    return row


async def transitions(connection: AsyncConnection, workflow_id: int, limit: int) -> list[Row[Any]]:
    """Its latest changes of state, newest first."""
    query = select(_TRANSITIONS).where(_TRANSITIONS.c.workflow_id == workflow_id)
    return list(await connection.execute(query.order_by(_TRANSITIONS.c.id.desc()).limit(limit)))


def _shown() -> Select[Any]:
    return select(
        _WORKFLOWS.c.id,
        _WORKFLOWS.c.id.label("workflow_id"),
        _WORKFLOWS.c.name.label("workflow_name"),
        _WORKFLOWS.c.user_profile_id,
        _WORKFLOWS.c.breaker_threshold,
        _WORKFLOWS.c.breaker_reset_seconds,
        _TABLE.c.state,
        _TABLE.c.failure_count,
        _TABLE.c.opened_at,
        _TABLE.c.probe_execution_id,
    ).outerjoin_from(_WORKFLOWS, _TABLE, _TABLE.c.workflow_id == _WORKFLOWS.c.id)
