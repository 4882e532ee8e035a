"""The ports through which actions use Carillon, with the rights of their run, and the use cases behind them."""

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from app.actions.context import HistoryPort, Ports, RefusedError, SchedulesPort, UpkeepPort
from app.domain.access import Actor
from app.domain.errors import CarillonError
from app.persistence import notifications, parked_runs, retention
from app.persistence.database import Database, database_now
from app.persistence.pagination import Part
from app.persistence.schedule_filters import Filters
from app.services.executions import ManualRunService
from app.services.inputs import NoteInput, PauseInput, RunInput, ScheduleInput
from app.services.schedule_queries import ScheduleQueryService
from app.services.schedules import ScheduleService
from app.services.validation import checked


class HistoryService:
    """Use cases about the history of schedules: deleting old rows, and retrying deliveries."""

    def __init__(self, database: Database) -> None:
        """Work on this database."""
        self._database = database

    async def purge(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to ``limit`` ended executions and ledger entries of the actor that are older; return how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            executions = await retention.purge_executions(connection, before, actor.owner_filter, limit)
            entries = await retention.purge_ledger(connection, before, actor.owner_filter, limit - executions)
        return executions + entries

    async def purge_callbacks(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to ``limit`` callbacks of the actor's executions that ended before; return how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            return await parked_runs.purge_callbacks(connection, actor, before, limit)

    async def retry_deliveries(self, actor: Actor, limit: int) -> int:
        """Retry up to ``limit`` failed deliveries of the actor; return how many."""
        async with self._database.transaction() as connection:
            return await notifications.retry(connection, actor, limit)

    async def purge_deliveries(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to ``limit`` old deliveries of the actor that have ended; return how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            return await notifications.purge(connection, actor, before, limit)


class ActionPorts:
    """Makes the ports of a run, with the rights of its owner."""

    def __init__(
        self,
        schedules: ScheduleService,
        queries: ScheduleQueryService,
        manual_runs: ManualRunService,
        history: HistoryService,
    ) -> None:
        """Call these services."""
        self._schedules = schedules
        self._queries = queries
        self._manual_runs = manual_runs
        self._history = history

    def ports_for(self, actor: Actor) -> Ports:
        """Return the ports for runs of this owner's schedules: they have the owner's rights, not those of a member."""
        actor = msgspec.structs.replace(actor, teams=())
        schedules = _OwnerSchedules(actor, self._schedules, self._queries, self._manual_runs)
        history = _OwnerHistory(actor, self._history)
        return _OwnerPorts(schedules, history=history, upkeep=history)


class _OwnerPorts(msgspec.Struct):
    schedules: SchedulesPort
    history: HistoryPort
    upkeep: UpkeepPort


class _OwnerSchedules:
    def __init__(
        self,
        actor: Actor,
        schedules: ScheduleService,
        queries: ScheduleQueryService,
        manual_runs: ManualRunService,
    ) -> None:
        self._actor = actor
        self._schedules = schedules
        self._queries = queries
        self._manual_runs = manual_runs

    async def create(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            schedule = checked(values, ScheduleInput)
        except CarillonError as error:
            raise RefusedError(str(error)) from None
        return await _answered(self._schedules.create(self._actor, schedule))

    async def list(self, *, status: str | None, workflow_id: int | None, limit: int) -> list[dict[str, Any]]:
        filters = Filters(status=status, workflow_id=workflow_id)
        page = await _answered(self._queries.list(self._actor, Part(limit), filters))
        items: list[dict[str, Any]] = page["items"]
        return items

    async def pause(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        return await _answered(self._schedules.pause(self._actor, schedule_id, PauseInput(note=note)))

    async def resume(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        return await _answered(self._schedules.resume(self._actor, schedule_id, NoteInput(note=note)))

    async def run(self, schedule_id: UUID) -> dict[str, Any]:
        return await _answered(self._manual_runs.run(self._actor, schedule_id, RunInput()))

    async def stop(self, schedule_id: UUID) -> None:
        await _answered(self._schedules.delete(self._actor, schedule_id))


class _OwnerHistory:
    def __init__(self, actor: Actor, history: HistoryService) -> None:
        self._actor = actor
        self._history = history

    async def purge(self, older_than: timedelta, limit: int) -> int:
        return await self._history.purge(self._actor, older_than, limit)

    async def purge_callbacks(self, older_than: timedelta, limit: int) -> int:
        return await self._history.purge_callbacks(self._actor, older_than, limit)

    async def retry_deliveries(self, limit: int) -> int:
        return await self._history.retry_deliveries(self._actor, limit)

    async def purge_deliveries(self, older_than: timedelta, limit: int) -> int:
        return await self._history.purge_deliveries(self._actor, older_than, limit)


async def _answered(call: Awaitable[Any]) -> dict[str, Any]:
    """Return the answer of a service as JSON values; raise ``RefusedError`` with the service's reason if it refuses."""
    try:
        answer = await call
    except CarillonError as error:
        raise RefusedError(str(error)) from None
    # By way of the JSON text, as some answers are encoded already.
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return values
