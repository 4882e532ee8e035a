"""The ping of the sitemap after publishing runs: planned as soon as it is wanted, else by the next poll of entities."""

from app.domain.errors import UnavailableError
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.persistence.sitemap_pings import SitemapScheduler


class SitemapPlanner:
    """Plans the ping that a settled run wants, and rings for it."""

    def __init__(self, database: Database, ringer: Ringer, scheduler: SitemapScheduler) -> None:
        """Plan with this scheduler, which is also polled."""
        self._database = database
        self._ringer = ringer
        self._scheduler = scheduler

    async def plan(self) -> None:
        """Plan the ping that is wanted, if any. Without Postgres the next poll does it."""
        try:
            async with self._database.transaction("plan_sitemap_ping") as connection:
                run = await self._scheduler.plan(connection)
        except UnavailableError:
            return
        if run is not None:
            await self._ringer.executions([run])
