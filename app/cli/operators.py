"""How commands for operators reach the database: as the built-in admin, on a connection of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.domain.access import Actor, Role
from app.domain.audit import Origin, Via
from app.embedded.data_folder import settings_with_database
from app.observability.logs import set_up_logging
from app.persistence.audit import ORIGIN
from app.persistence.database import Database
from app.persistence.users import BUILT_IN_ADMIN

T = TypeVar("T")

OPERATOR = Actor(0, BUILT_IN_ADMIN, Role.ADMIN)


def on_database(action: Callable[[Database], Awaitable[T]]) -> T:
    """Run one action with a database connection, and return its result."""
    # Only warnings: the command itself prints what it did.
    set_up_logging("auto", "warning")

    async def call() -> T:
        ORIGIN.set(Origin(Via.CLI))
        database = Database(settings_with_database().database_url, pool_size=1)
        try:
            return await action(database)
        finally:
            await database.close()

    return asyncio.run(call())
