"""An operator at the command line: whoever may read the database's address may do everything."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.cli.stores import settings_with_database
from app.domain.access import Actor, Role
from app.observability.logs import set_up_logging
from app.persistence.database import Database
from app.persistence.users import BUILT_IN_ADMIN

T = TypeVar("T")

OPERATOR = Actor(0, BUILT_IN_ADMIN, Role.ADMIN)


def on_database(action: Callable[[Database], Awaitable[T]]) -> T:
    """One use case, on a connection of its own."""
    # What happened is said by the command itself.
    set_up_logging("auto", "warning")

    async def call() -> T:
        database = Database(settings_with_database().database_url, pool_size=1)
        try:
            return await action(database)
        finally:
            await database.close()

    return asyncio.run(call())
