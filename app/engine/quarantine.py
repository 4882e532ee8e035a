"""Quarantine: what cannot be handled three times is put aside, so that people see it and other work goes on."""

from collections.abc import Iterable
from uuid import UUID

import structlog

from app.domain.errors import UnavailableError
from app.domain.schedules import Reason
from app.domain.ticks import Tick
from app.observability.logs import log_fields
from app.observability.metrics import QUARANTINED
from app.persistence import recovery
from app.persistence.database import Database
from app.persistence.execution_rows import Settled
from app.persistence.recovery import MOST_MISHAPS

log = structlog.get_logger(__name__)


class Quarantine:
    """Counts ticks and executions that could not be handled, and puts them aside the third time."""

    def __init__(self, database: Database) -> None:
        """Count in Postgres: one count for all workers, which survives a worker that crashes on it."""
        self._database = database

    async def tick_failed(self, tick: Tick, error: Exception) -> None:
        """Count a tick that could not be handled; the third time its schedule is paused as poisoned."""
        try:
            async with self._database.transaction("quarantine_tick") as connection:
                times = await recovery.count_tick(connection, tick.job_id, tick.generation, _first_line(error))
                if times < MOST_MISHAPS or not await recovery.poison_schedule(
                    connection, tick.job_id, _first_line(error)
                ):
                    return
        except UnavailableError:
            return
        QUARANTINED.inc()
        log.error("schedule_quarantined", **log_fields(tick.job_id), error=_first_line(error))

    async def execution_failed(self, execution_id: UUID, token: int, error: Exception) -> None:
        """Count an execution that could not be started or ended; the third time it is ended and its schedule paused."""
        try:
            async with self._database.transaction("quarantine_execution") as connection:
                times = await recovery.count_execution(connection, execution_id, token, _first_line(error))
                if times < MOST_MISHAPS:
                    return
                await recovery.end_execution(connection, execution_id, _first_line(error))
        except UnavailableError:
            return
        QUARANTINED.inc()
        log.error("execution_quarantined", **log_fields(execution=execution_id), error=_first_line(error))

    def note(self, settled: Iterable[Settled]) -> None:
        """Count and log the schedules that were put aside when a run of theirs was settled."""
        for result in settled:
            after = result.job
            if after.status_reason is Reason.POISONED and result.before.status_reason is not Reason.POISONED:
                QUARANTINED.inc()
                log.error("schedule_quarantined", **log_fields(after.id, result.execution_id), error=after.last_error)


def _first_line(error: Exception) -> str:
    """Return the type and the first line of an error: the lines after it may quote whole statements."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].replace("\x00", "\ufffd")
