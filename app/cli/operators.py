"""The database that an operator's command works on, and the rights it works with."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from app.config import Settings, SettingsError, load_settings
from app.domain.access import Actor, Role
from app.embedded.data_folder import read_url_file
from app.observability.logs import set_up_logging
from app.persistence.database import Database
from app.persistence.users import BUILT_IN_ADMIN


def settings_with_database() -> Settings:
    """The settings; where they name no database, that of a `carillon up` which runs on the data folder."""
    settings = load_settings()
    if settings.database_url:
        return settings
    posted = read_url_file(Path(settings.data_dir).expanduser())
    if not posted:
        raise SettingsError(f"CARILLON_DATABASE_URL is not set, and no `carillon up` is running on {settings.data_dir}")
    return replace(settings, database_url=posted)


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
