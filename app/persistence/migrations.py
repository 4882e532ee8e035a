"""Bringing the schema up to date. The migrations travel inside the wheel."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

import migrations
from app.domain.errors import UnavailableError
from app.persistence import retention
from app.persistence.database import Database, database_now, state_of, translate_db_errors, unreachable_reason
from app.persistence.schema_version import is_later

# Any number will do, as long as it is always the same: two migrations at once wait for each other.
MIGRATION_LOCK = 7_245_301_846
WAIT_SECONDS = 3.0
# Whoever comes after a migration that waits for a table waits too: it lets them go first, and tries again, with more
# patience. Postgres looks for deadlocks after a second and may end either of the two: it shall not be a worker or a
# client.
LOCK_TIMEOUT_MILLISECONDS = (100, 200, 300, 400, 500)
AGAIN_SECONDS = 0.5
# The lock timeout, and a deadlock.
_IN_THE_WAY = {"55P03", "40P01"}

log = structlog.get_logger(__name__)


def alembic_config() -> Config:
    """Alembic's settings, without a file of its own."""
    config = Config()
    # configparser reads a % as the start of something.
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    return config


async def migrate(database_url: str) -> None:
    """Apply what is missing; safe to run from several places at once. The schema of a later release is left alone."""
    patience = chain(LOCK_TIMEOUT_MILLISECONDS, repeat(LOCK_TIMEOUT_MILLISECONDS[-1]))
    while not await _upgraded(database_url, next(patience)):
        log.info("migration_waits")
        await asyncio.sleep(AGAIN_SECONDS)
    await _make_weeks(database_url)


async def until_migrated(database_url: str) -> None:
    """Wait until the schema is what this release needs, or newer; a database that is away is waited for too."""
    database = Database(database_url, pool_size=1)
    try:
        while True:
            try:
                await database.ping()
            except UnavailableError as error:
                log.info("waiting_for_migrations", error=unreachable_reason(error))
            else:
                return
            await asyncio.sleep(WAIT_SECONDS)
    finally:
        await database.close()


async def run_alembic(database_url: str, action: Callable[[Connection], None]) -> None:
    """Run an action on a connection of its own, without the pool's time limits."""
    engine = create_async_engine(database_url)
    try:
        with translate_db_errors():
            async with engine.begin() as connection:
                await connection.run_sync(action)
    finally:
        await engine.dispose()


async def _upgraded(database_url: str, lock_timeout_milliseconds: int) -> bool:
    """Whether it could be done now: all of it in one transaction, or nothing if somebody was in the way."""
    try:
        await run_alembic(database_url, partial(_upgrade, lock_timeout_milliseconds))
    except UnavailableError as error:
        if state_of(error.__cause__) in _IN_THE_WAY:
            return False
        raise
    return True


async def _make_weeks(database_url: str) -> None:
    """The weeks at hand, so that nothing goes to the rest."""
    database = Database(database_url, pool_size=1)
    try:
        async with database.transaction() as connection:
            missing = await retention.missing_weeks(connection, await database_now(connection))
        for week in missing:
            await retention.make_week(database, week)
    finally:
        await database.close()


def _upgrade(lock_timeout_milliseconds: int, connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
    connection.execute(text(f"SET LOCAL lock_timeout = {lock_timeout_milliseconds}"))
    found = MigrationContext.configure(connection).get_current_revision()
    if is_later(found):
        log.info("schema_is_later", found=found)
        return
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def migrate_now(database_url: str) -> None:
    """The same, for callers without an event loop."""
    asyncio.run(migrate(database_url))
