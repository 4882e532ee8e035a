"""What fails again and again is put aside, so that it is seen and blocks nobody."""

from collections.abc import Iterable
from uuid import UUID

import structlog

from app.domain.errors import UnavailableError
from app.domain.schedules import Reason
from app.domain.ticks import Tick
from app.observability.logs import log_fields
from app.observability.metrics import QUARANTINED
from app.persistence import quarantine
from app.persistence.database import Database
from app.persistence.execution_rows import Settled
from app.persistence.quarantine import MOST_MISHAPS

log = structlog.get_logger(__name__)


class Quarantine:
    """Counts what could not be handled; the third time is the last."""

    def __init__(self, database: Database) -> None:
        """Count in Postgres: all workers together, whatever becomes of each."""
        self._database = database

    async def tick_failed(self, tick: Tick, error: Exception) -> None:
        """A tick could not be handled."""
        try:
            async with self._database.transaction("quarantine_tick") as connection:
                times = await quarantine.count_tick(connection, tick.job_id, tick.generation, _words(error))
                if times < MOST_MISHAPS or not await quarantine.poison_schedule(connection, tick.job_id, _words(error)):
                    return
        except UnavailableError:
            return
        self._tell(log_fields(tick.job_id), error)

    async def execution_failed(self, execution_id: UUID, token: int, error: Exception) -> None:
        """An execution could not be started or ended."""
        try:
            async with self._database.transaction("quarantine_execution") as connection:
                times = await quarantine.count_execution(connection, execution_id, token, _words(error))
                if times < MOST_MISHAPS:
                    return
                await quarantine.end_execution(connection, execution_id, _words(error))
        except UnavailableError:
            return
        self._tell(log_fields(execution=execution_id), error)

    def note(self, settled: Iterable[Settled]) -> None:
        """Say which schedules the end of a run has put aside."""
        for result in settled:
            after = result.job
            if after.status_reason is Reason.POISONED and result.before.status_reason is not Reason.POISONED:
                QUARANTINED.inc()
                log.error("quarantined", **log_fields(after.id, result.execution_id), error=after.last_error)

    def _tell(self, named: dict[str, str], error: Exception) -> None:
        QUARANTINED.inc()
        log.error("quarantined", **named, error=_words(error))


def _words(error: Exception) -> str:
    """The first line: what follows may hold whole statements."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].replace("\x00", "\ufffd")
