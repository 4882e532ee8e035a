"""What is past: deleted when it is old."""

from datetime import timedelta

from app.domain.access import Actor
from app.persistence import notices, parking, purging
from app.persistence.database import Database, database_now


class HistoryService:
    """Use cases about what schedules left behind."""

    def __init__(self, database: Database) -> None:
        """Delete from here."""
        self._database = database

    async def purge(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to so many ended executions and ledger entries of the actor's that are older; how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            executions = await purging.executions(connection, actor, before, limit)
            entries = await purging.ledger_entries(connection, actor, before, limit - executions)
        return executions + entries

    async def purge_callbacks(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to so many callbacks of the actor's executions that ended long ago; how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            return await parking.purge(connection, actor, before, limit)

    async def retry_deliveries(self, actor: Actor, limit: int) -> int:
        """Try again to deliver up to so many notices of the actor's that were given up; how many."""
        async with self._database.transaction() as connection:
            return await notices.retry(connection, actor, limit)

    async def purge_deliveries(self, actor: Actor, older_than: timedelta, limit: int) -> int:
        """Delete up to so many old deliveries of the actor's that are over; how many."""
        async with self._database.transaction() as connection:
            before = await database_now(connection) - older_than
            return await notices.purge(connection, actor, before, limit)
