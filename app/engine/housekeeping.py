"""Keeping room: the weeks to come are made in time, and what is older than anybody wants is dropped."""

from datetime import timedelta

import structlog

from app.persistence import partitions
from app.persistence.database import Database, database_now
from app.persistence.partitions import NotNowError, Week

HOUR_SECONDS = 3600.0

log = structlog.get_logger(__name__)


class Housekeeper:
    """Looks after the partitions, once an hour."""

    def __init__(self, database: Database, keep_days: int) -> None:
        """Keep history for so many days; 0 is for ever."""
        self._database = database
        self._keep = timedelta(days=keep_days) if keep_days else None

    async def step(self) -> float:
        """Make what is missing and drop what is old; the seconds until the next time."""
        async with self._database.transaction() as connection:
            now = await database_now(connection)
            missing = await partitions.missing(connection, now)
            old = await partitions.old(connection, now - self._keep) if self._keep else []
        for week in missing:
            await self._make(week)
        for week in old:
            await self._drop(week)
        if self._keep:
            async with self._database.transaction() as connection:
                await partitions.delete_rest(connection, now - self._keep)
        return HOUR_SECONDS

    async def _make(self, week: Week) -> None:
        """One that cannot be made is missed by nobody: its rows go to the rest."""
        try:
            if await partitions.make(self._database, week):
                log.info("week_made", week=week.name)
        except NotNowError as error:
            log.warning("week_not_made", week=week.name, error=str(error))

    async def _drop(self, week: Week) -> None:
        try:
            if await partitions.drop(self._database, week):
                log.info("week_dropped", week=week.name)
        except NotNowError as error:
            log.warning("week_not_dropped", week=week.name, error=str(error))
