"""Executions: read and cancelled."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.access import Actor, require_owner
from app.domain.errors import WrongStateError
from app.domain.executions import ACTIVE, ExecutionStatus, Outcome
from app.domain.parts import Part
from app.engine.ringing import Ringer
from app.persistence import execution_queries
from app.persistence.database import Database
from app.persistence.results import Settled, Superseded
from app.persistence.settle import settle
from app.services.listing import read_shown
from app.services.views import ExecutionDetail, ExecutionPage, ExecutionView, execution_fields, node_view


class ExecutionService:
    """Use cases about executions."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring for what a cancelled run makes room for."""
        self._database = database
        self._ringer = ringer

    async def list(self, actor: Actor, wanted: Mapping[str, Any], part: Part) -> ExecutionPage:
        """What the actor may see and what has the wanted values, newest first."""
        async with self._database.reading() as connection:
            found = await read_shown(partial(execution_queries.page, connection, actor, wanted), _view, part)
        return ExecutionPage(found.items, found.total, found.total_is_estimate, found.next_cursor)

    async def get(self, actor: Actor, execution_id: UUID) -> ExecutionDetail:
        """One execution, with what each of its nodes did."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, execution_id)
        now = clock.now()
        nodes = [node_view(result, now, row.graph) for result in execution_queries.results_of(row)]
        return ExecutionDetail(**execution_fields(row), payload=row.payload, nodes=nodes)

    async def cancel(self, actor: Actor, execution_id: UUID) -> ExecutionDetail:
        """End it here and now; whoever runs it drops the work."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, execution_id)
        if row.status not in ACTIVE:
            raise WrongStateError(f"Cannot cancel execution with status '{row.status}'.")
        outcome = Outcome(
            execution_id=execution_id,
            scheduled_job_id=row.scheduled_job_id,
            token=row.token,
            status=ExecutionStatus.CANCELLED,
            error=f"Cancelled by {actor.username}.",
        )
        (result,) = await settle(self._database, [outcome])
        if isinstance(result, Superseded):
            raise WrongStateError("The execution ended, or changed hands, before it could be cancelled.")
        await self._ringer.call_off([execution_id])
        await self._ringer.ticks([result.job] if isinstance(result, Settled) else [])
        await self._ringer.executions(result.pending)
        return await self.get(actor, execution_id)


def _view(row: Row[Any]) -> ExecutionView:
    return ExecutionView(**execution_fields(row))


async def _owned(connection: AsyncConnection, actor: Actor, execution_id: UUID) -> Row[Any]:
    row = await execution_queries.get(connection, execution_id)
    require_owner(actor, row.user_profile_id if row else None, "execution")
    if row is None:
        raise AssertionError("an execution that nobody owns was let through")
    return row
