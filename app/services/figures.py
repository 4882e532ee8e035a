"""What Prometheus is told of the state in Postgres."""

from app import clock
from app.domain.breakers import BreakerState
from app.domain.errors import UnavailableError
from app.domain.schedules import Status
from app.observability.metrics import BREAKERS, CONNECTIONS, DUE, OLDEST, SCHEDULES, WORKERS
from app.persistence import gauges
from app.persistence.database import Database

# However many ask.
FRESH_SECONDS = 5.0


class FigureService:
    """Sets the gauges when they are asked for."""

    def __init__(self, database: Database) -> None:
        """Read from here."""
        self._database = database
        self._read_at = -FRESH_SECONDS

    async def refresh(self) -> None:
        """Read, unless that was a moment ago; without Postgres the last figures stand."""
        for state, number in self._database.lanes.counts.items():
            CONNECTIONS.labels(state).set(number)
        if clock.monotonic() - self._read_at < FRESH_SECONDS:
            return
        try:
            async with self._database.reading() as connection:
                found = await gauges.read(connection)
        except UnavailableError:
            return
        self._read_at = clock.monotonic()
        DUE.set(found.due)
        OLDEST.set(found.oldest_seconds)
        WORKERS.set(found.workers)
        for status in Status:
            SCHEDULES.labels(status).set(found.schedules.get(status, 0))
        for state in BreakerState:
            BREAKERS.labels(state).set(found.breakers.get(state, 0))
