"""Keeping room: the weeks to come are made in time, and what nobody wants any more is deleted, a part at a time."""

from datetime import datetime, timedelta

import structlog

from app import clock
from app.persistence import execution_queries, retention
from app.persistence.database import Database, database_now
from app.persistence.retention import NotNowError, Week

HOUR_SECONDS = 3600.0
# After which somebody looks again for histories to delete; and how long to rest between two parts of one.
LOOK_SECONDS = 5.0
REST_SECONDS = 0.05

log = structlog.get_logger(__name__)


class Housekeeper:
    """Looks after the partitions once an hour, and after the histories of deleted schedules all the time."""

    def __init__(self, database: Database, keep_days: int) -> None:
        """Keep history for so many days; 0 is for ever."""
        self._database = database
        self._keep = timedelta(days=keep_days) if keep_days else None
        self._weeks_at = clock.monotonic()
        self._fills = True
        self._is_said = False

    async def step(self) -> float:
        """Do a part of what is to be done; the seconds until the next part."""
        self._say_how_long()
        if clock.monotonic() >= self._weeks_at:
            await self.keep_weeks()
            self._weeks_at = clock.monotonic() + HOUR_SECONDS
        return REST_SECONDS if await self._work_off() else LOOK_SECONDS

    async def keep_weeks(self) -> None:
        """Make the weeks that are missing and drop those that are old."""
        async with self._database.transaction() as connection:
            now = await database_now(connection)
            missing = await retention.missing_weeks(connection, now)
            old = await retention.old_weeks(connection, now - self._keep) if self._keep else []
        for week in missing:
            await self._make(week)
        for week in old:
            await self._drop(week)
        if self._keep:
            async with self._database.transaction() as connection:
                await retention.delete_rest(connection, now - self._keep)
            await self._drop_orphans(retention.week_of(now - self._keep))
        # Whoever was filling it may have died meanwhile.
        self._fills = True

    async def _work_off(self) -> bool:
        """Delete a part of what deleted schedules left, and fill what is new; whether there is more to do."""
        async with self._database.transaction() as connection:
            deleted = await retention.delete_histories(connection)
        if deleted.histories:
            log.info("histories_deleted", schedules=deleted.histories, rows=deleted.rows)
        if self._fills:
            async with self._database.transaction() as connection:
                self._fills = await execution_queries.fill_unsuccessful(connection)
        return deleted.more or self._fills

    async def _drop_orphans(self, before: datetime) -> None:
        """Weeks before this moment were dropped as a whole; what stood beside them is deleted a part at a time."""
        dropped = execution_queries.MOST_ROWS
        while dropped == execution_queries.MOST_ROWS:
            async with self._database.transaction() as connection:
                dropped = await execution_queries.drop_unsuccessful_orphans(connection, before)

    def _say_how_long(self) -> None:
        if not self._is_said:
            self._is_said = True
            log.info("history_kept", days=self._keep.days if self._keep else "for ever")

    async def _make(self, week: Week) -> None:
        """One that cannot be made is missed by nobody: its rows go to the rest."""
        try:
            if await retention.make_week(self._database, week):
                log.info("partition_created", week=week.name)
        except NotNowError as error:
            log.warning("partition_creation_failed", week=week.name, error=str(error))

    async def _drop(self, week: Week) -> None:
        try:
            if await retention.drop_week(self._database, week):
                log.info("partition_dropped", week=week.name)
        except NotNowError as error:
            log.warning("partition_drop_failed", week=week.name, error=str(error))
