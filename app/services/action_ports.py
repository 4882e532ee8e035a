"""What actions may use of Carillon, with the rights of their run: the use cases behind the ports."""

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from app.actions.context import HistoryPort, Ports, RefusedError, SchedulesPort, UpkeepPort
from app.domain.access import Actor
from app.domain.errors import CarillonError
from app.persistence import notifications, parking, retention
from app.persistence.database import Database, database_now
from app.persistence.pagination import Part
from app.services.executions import ManualRunService
from app.services.inputs import NoteInput, RunInput, ScheduleInput
from app.services.schedules import ScheduleService
from app.services.validation import checked


class HistoryService:
    """Use cases about what schedules left behind."""

    def __init__(self, database: Database) -> None:
        """Delete from here."""
        self._database = database

    async def purge(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to so many ended executions and ledger entries of the actor's that are older; how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            executions = await retention.purge_executions(connection, actor, before, limit)
            entries = await retention.purge_ledger(connection, actor, before, limit - executions)
        return executions + entries

    async def purge_callbacks(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to so many callbacks of the actor's executions that ended long ago; how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            return await parking.purge_callbacks(connection, actor, before, limit)

    async def retry_deliveries(self, actor: Actor, limit: int) -> int:
        """Try again to deliver up to so many notices of the actor's that were given up; how many."""
        async with self._database.transaction() as connection:
            return await notifications.retry(connection, actor, limit)

    async def purge_deliveries(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to so many old deliveries of the actor's that are over; how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            return await notifications.purge(connection, actor, before, limit)


class ActionPorts:
    """Makes the ports of an owner."""

    def __init__(self, schedules: ScheduleService, manual_runs: ManualRunService, history: HistoryService) -> None:
        """Ask these use cases."""
        self._schedules = schedules
        self._manual_runs = manual_runs
        self._history = history

    def ports_for(self, actor: Actor) -> Ports:
        """What runs of this owner's schedules may use."""
        past = _OwnerHistory(actor, self._history)
        return _OwnerPorts(_OwnerSchedules(actor, self._schedules, self._manual_runs), history=past, upkeep=past)


class _OwnerPorts(msgspec.Struct):
    schedules: SchedulesPort
    history: HistoryPort
    upkeep: UpkeepPort


class _OwnerSchedules:
    def __init__(self, actor: Actor, schedules: ScheduleService, manual_runs: ManualRunService) -> None:
        self._actor = actor
        self._schedules = schedules
        self._manual_runs = manual_runs

    async def create(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            wanted = checked(values, ScheduleInput)
        except CarillonError as error:
            raise RefusedError(str(error)) from None
        return await _answered(self._schedules.create(self._actor, wanted))

    async def list(self, *, status: str | None, workflow_id: int | None, limit: int) -> list[dict[str, Any]]:
        page = await _answered(self._schedules.list(self._actor, Part(limit), status=status, workflow_id=workflow_id))
        items: list[dict[str, Any]] = page["items"]
        return items

    async def pause(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        return await _answered(self._schedules.pause(self._actor, schedule_id, NoteInput(note=note)))

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


async def _answered(question: Awaitable[Any]) -> dict[str, Any]:
    """The answer as JSON values; a refusal in words."""
    try:
        answer = await question
    except CarillonError as error:
        raise RefusedError(str(error)) from None
    # Through bytes: some answers have been encoded already.
    shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return shown
