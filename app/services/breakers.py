"""Circuit breakers: looked at and reset."""

from functools import partial
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, require_owner
from app.domain.breakers import BreakerState
from app.domain.parts import Part
from app.persistence import breakers, breakers_part, workflows
from app.persistence.database import Database, database_now
from app.services.inputs import IDS
from app.services.listing import read_shown
from app.services.views import BreakerDetail, BreakerList, BreakerView, TransitionView


class BreakerService:
    """Use cases about the breakers of workflows."""

    def __init__(self, database: Database) -> None:
        """Workers meet a reset at the next tick."""
        self._database = database

    async def list(self, actor: Actor, part: Part) -> BreakerList:
        """The breakers that the actor may see."""
        async with self._database.reading() as connection:
            found = await read_shown(partial(breakers_part.page, connection, actor), _view, part)
        return BreakerList(found.items, found.next_cursor)

    async def get(self, actor: Actor, workflow_id: int, limit: int) -> BreakerDetail:
        """One breaker, with its latest transitions."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, workflow_id)
            return await _detail(connection, row, limit)

    async def reset(self, actor: Actor, workflow_id: int, limit: int) -> BreakerDetail:
        """Close it by hand."""
        async with self._database.transaction() as connection:
            await _owned(connection, actor, workflow_id)
            await workflows.lock_to_change(connection, workflow_id)
            row = await _owned(connection, actor, workflow_id)
            if row.state is not None:
                now = await database_now(connection)
                closed = breakers.to_breaker(row).closed(f"reset by {actor.username}", now)
                await breakers.save_breakers(connection, [closed])
            return await _detail(connection, await _owned(connection, actor, workflow_id), limit)


async def _owned(connection: AsyncConnection, actor: Actor, workflow_id: int) -> Row[Any]:
    row = await breakers_part.of_workflow(connection, workflow_id) if workflow_id in IDS else None
    require_owner(actor, row.user_profile_id if row else None, "workflow")
    if row is None:
        raise AssertionError("a workflow that nobody owns was let through")
    return row


async def _detail(connection: AsyncConnection, row: Row[Any], limit: int) -> BreakerDetail:
    changes = await breakers_part.transitions(connection, row.workflow_id, limit)
    return BreakerDetail(**_fields(row), transitions=[_transition(change) for change in changes])


def _view(row: Row[Any]) -> BreakerView:
    return BreakerView(**_fields(row))


def _fields(row: Row[Any]) -> dict[str, Any]:
    breaker = breakers.to_breaker(row)
    return {
        "workflow_id": row.workflow_id,
        "workflow_name": row.workflow_name,
        "state": breaker.state,
        "failure_count": breaker.failure_count,
        "opened_at": breaker.opened_at,
        "half_opens_at": breaker.half_opens_at,
        "probe_execution_id": breaker.probe_execution_id,
        "breaker_threshold": row.breaker_threshold,
        "breaker_reset_seconds": row.breaker_reset_seconds,
    }


def _transition(row: Row[Any]) -> TransitionView:
    return TransitionView(
        at=row.at,
        from_state=BreakerState(row.from_state),
        to_state=BreakerState(row.to_state),
        reason=row.reason,
        execution_id=row.execution_id,
    )
