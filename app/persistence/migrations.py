"""Bringing the schema up to date. The migrations travel inside the wheel."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

import migrations

# Any number will do, as long as it is always the same: two migrations at once wait for each other.
MIGRATION_LOCK = 7_245_301_846


def alembic_config() -> Config:
    """Alembic's settings, without a file of its own."""
    config = Config()
    # configparser reads a % as the start of something.
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    return config


async def migrate(database_url: str) -> None:
    """Apply what is missing; safe to run from several places at once."""
    await run_alembic(database_url, _upgrade)


async def run_alembic(database_url: str, action: Callable[[Connection], None]) -> None:
    """Run an action on a connection of its own, without the pool's time limits."""
    engine = create_async_engine(database_url)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(action)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def migrate_now(database_url: str) -> None:
    """The same, for callers without an event loop."""
    asyncio.run(migrate(database_url))
