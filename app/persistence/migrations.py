"""Migrations: bring the schema up to date, or wait until it is. The scripts are part of the wheel."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Index, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateIndex

import migrations
from app import clock
from app.domain.errors import MissingRightsError, NoSuchRoleError, UnavailableError
from app.persistence import retention
from app.persistence.database import (
    Database,
    database_now,
    state_of,
    translate_db_errors,
    unreachable_fields,
    unreachable_reason,
)
from app.persistence.engines import create_engine
from app.persistence.schema_version import is_later, newest_revision
from app.persistence.tables import Base

# The key of an advisory lock, the same in every release: of two migrations, the second waits for the first.
MIGRATION_LOCK = 7_245_301_846
# The same for the indexes that are built afterwards.
INDEX_LOCK = 7_245_301_848
WAIT_SECONDS = 3.0
# Statements that come after a migration that waits for a table wait too. So it gives up soon, lets them go first, and
# tries again with a longer timeout. All timeouts are below a second, after which Postgres looks for deadlocks and may
# end either side: that must not be a worker or a client. Therefore all tables are locked by one statement before the
# first change: the waits for one table after the other, each short, would take longer together.
LOCK_TIMEOUT_MILLISECONDS = (100, 200, 300, 400, 500)
AGAIN_SECONDS = 0.5
# lock_not_available, deadlock_detected and query_canceled.
_TABLE_IN_USE = {"55P03", "40P01", "57014"}
# insufficient_privilege and undefined_object.
_NO_RIGHTS, _UNKNOWN_ROLE = "42501", "42704"

_VALID_INDEXES = text(
    "SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indisvalid"
)
# Those of partitions are validated with their table.
_UNVALIDATED_CHECKS = text(
    "SELECT conrelid::regclass::text, conname FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = c.conrelid "
    "WHERE c.contype = 'c' AND NOT c.convalidated AND NOT t.relispartition AND pg_table_is_visible(t.oid)"
)
# The partitions of a table that have no part of an index of the whole table.
_PARTITIONS_WITHOUT = text(
    "SELECT c.relname FROM pg_inherits AS p JOIN pg_class AS c ON c.oid = p.inhrelid "
    "WHERE p.inhparent = CAST(:table AS regclass) AND NOT EXISTS (SELECT FROM pg_index AS i "
    "JOIN pg_inherits AS h ON h.inhrelid = i.indexrelid WHERE i.indrelid = c.oid "
    "AND h.inhparent = CAST(:index AS regclass)) ORDER BY c.relname"
)
_TABLES = text(
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND pg_table_is_visible(oid) "
    "AND relname = ANY(:names) ORDER BY relname"
)
# What the API and the workers do with tables and sequences; only the owner changes the schema.
_RUNTIME_RIGHTS = (("SELECT, INSERT, UPDATE, DELETE", "TABLES"), ("USAGE, SELECT", "SEQUENCES"))
_EXTENSIONS = text("SELECT extname FROM pg_extension")
_TRY_LOCK = text("SELECT pg_try_advisory_lock(:lock)")

log = structlog.get_logger(__name__)

# Takes a step of a migration, in words.
Report = Callable[[str], None]


def alembic_config() -> Config:
    """Return Alembic's settings, so that it needs no file."""
    config = Config()
    # configparser expands what begins with a %.
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    return config


def _ignore(_step: str) -> None:
    """Take no notice of a step."""


async def migrate(database_url: str, wait_seconds: float = 0.0, report: Report = _ignore) -> None:
    """Apply missing migrations. Several may run at once; the schema of a later release is left unchanged.

    An unreachable database is tried again for ``wait_seconds``. A migration that was interrupted has changed nothing.
    ``report`` is called with each step that may take long.
    """
    deadline = clock.monotonic() + wait_seconds
    while True:
        try:
            return await _migrate(database_url, report)
        except UnavailableError as error:
            seconds_left = deadline - clock.monotonic()
            if seconds_left <= 0:
                raise
            log.warning("database_awaited", seconds_left=round(seconds_left), **unreachable_fields(error))
            await asyncio.sleep(min(WAIT_SECONDS, seconds_left))


async def _migrate(database_url: str, report: Report) -> None:
    lock_timeouts = chain(LOCK_TIMEOUT_MILLISECONDS, repeat(LOCK_TIMEOUT_MILLISECONDS[-1]))
    report("waits for the tables")
    while not await _upgraded(database_url, next(lock_timeouts), report):
        log.info("migration_postponed")
        await asyncio.sleep(AGAIN_SECONDS)
    await _build_late_indexes(database_url, report)
    await _validate_late_checks(database_url, report)
    report("creates the partitions of the coming weeks")
    await _make_weeks(database_url)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise ``UnavailableError`` for what is no defect of a migration: an outage, or a role without the rights."""
    try:
        with translate_db_errors():
            yield
    except DBAPIError as error:
        if state_of(error) != _NO_RIGHTS:
            raise
        raise MissingRightsError(
            "The database role may not change the schema. Migrate as the owner of the database: "
            "CARILLON_MIGRATION_DATABASE_URL."
        ) from error


async def grant_to(database_url: str, role: str) -> None:
    """Give a role that owns nothing the rights that the API and the workers need on the tables of this schema."""
    try:
        await run_alembic(database_url, partial(_grant, f'"{role.replace(chr(34), chr(34) * 2)}"'))
    except DBAPIError as error:
        if state_of(error) != _UNKNOWN_ROLE:
            raise
        raise NoSuchRoleError from error


def _grant(quoted_role: str, connection: Connection) -> None:
    schema = connection.execute(text("SELECT quote_ident(current_schema())")).scalar_one()
    for rights, objects in _RUNTIME_RIGHTS:
        connection.execute(text(f"GRANT {rights} ON ALL {objects} IN SCHEMA {schema} TO {quoted_role}"))
        default = f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {rights} ON {objects} TO {quoted_role}"
        connection.execute(text(default))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {quoted_role}"))
    connection.execute(text(f"REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {quoted_role}"))


async def until_migrated(database_url: str) -> None:
    """Wait until the database is reachable and has the schema that this release needs, or a newer one."""
    database = Database(database_url, pool_size=1)
    try:
        while True:
            try:
                await database.ping()
            except UnavailableError as error:
                log.info("migrations_awaited", error=unreachable_reason(error))
            else:
                return
            await asyncio.sleep(WAIT_SECONDS)
    finally:
        await database.close()


async def run_alembic(database_url: str, action: Callable[[Connection], None]) -> None:
    """Run an action on a connection of its own, without the pool's time limits."""
    engine = create_engine(database_url)
    try:
        with _translated_errors():
            async with engine.begin() as connection:
                await connection.run_sync(action)
    finally:
        await engine.dispose()


async def _upgraded(database_url: str, lock_timeout_milliseconds: int, report: Report) -> bool:
    """Apply all migrations in one transaction. Return False, with nothing changed, if a table was in use."""
    try:
        await run_alembic(database_url, partial(_upgrade, lock_timeout_milliseconds, report))
    except UnavailableError as error:
        if state_of(error.__cause__) in _TABLE_IN_USE:
            return False
        raise
    return True


async def _build_late_indexes(database_url: str, report: Report) -> None:
    """Build the indexes that a migration left out because their table is large, without blocking the table.

    One that an earlier attempt has not finished is not valid: it is dropped and built again.
    """
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
    try:
        with _translated_errors():
            async with engine.connect() as connection:
                if await _missing_indexes(connection):
                    await _alone(connection)
                    missing = await _missing_indexes(connection)
                    for index in missing:
                        log.info("index_building", index=index.name)
                        report(f"builds the index {index.name}")
                        await _build(connection, index)
                    for table in sorted({index.table.name for index in missing if index.table is not None}):
                        # Else the planner knows nothing of their expressions until a part of the table has changed.
                        report(f"looks at the values of {table}")
                        await connection.execute(text(f"ANALYZE {table}"))
    finally:
        await engine.dispose()


async def _validate_late_checks(database_url: str, report: Report) -> None:
    """Validate the checks that a migration only declared because their table is large. Writers are not blocked."""
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
    try:
        with _translated_errors():
            async with engine.connect() as connection:
                for table, name in list(await connection.execute(_UNVALIDATED_CHECKS)):
                    report(f"checks the rows of {table} ({name})")
                    await connection.execute(text(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}"))
    finally:
        await engine.dispose()


async def _missing_indexes(connection: AsyncConnection) -> list[Index]:
    late = [index for table in Base.metadata.tables.values() for index in table.indexes if index.info.get("built_late")]
    valid = set((await connection.execute(_VALID_INDEXES)).scalars())
    installed = {None, *(await connection.execute(_EXTENSIONS)).scalars()}
    possible = [index for index in late if index.info.get("extension") in installed]
    return [index for index in possible if index.name not in valid]


async def _build(connection: AsyncConnection, index: Index) -> None:
    """Build an index without blocking its table."""
    # Compiled with the dialect of Postgres, whose constructor is not typed.
    create = str(CreateIndex(index).compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    if index.table is not None and index.table.dialect_options["postgresql"]["partition_by"]:
        await _build_in_partitions(connection, index, create)
        return
    await connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {index.name}"))
    await connection.execute(text(create.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)))


async def _build_in_partitions(connection: AsyncConnection, index: Index, create: str) -> None:
    """Build an index of a partitioned table in one partition after another; it is valid when all have their part."""
    table = index.table.name if index.table is not None else ""
    named = f"CREATE INDEX {index.name} ON {table} "
    whole = create.replace(named, f"CREATE INDEX IF NOT EXISTS {index.name} ON ONLY {table} ", 1)
    await connection.execute(text(whole))
    columns = "_".join(column.name for column in index.columns)
    for partition in (await connection.execute(_PARTITIONS_WITHOUT, {"table": table, "index": index.name})).scalars():
        # The name that Postgres would give it.
        part = f"{partition}_{columns}_idx"
        await connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {part}"))
        await connection.execute(text(create.replace(named, f"CREATE INDEX CONCURRENTLY {part} ON {partition} ", 1)))
        await connection.execute(text(f"ALTER INDEX {index.name} ATTACH PARTITION {part}"))


async def _alone(connection: AsyncConnection) -> None:
    """Wait for another process that builds indexes; not in a statement, for which that process would wait."""
    while not (await connection.execute(_TRY_LOCK, {"lock": INDEX_LOCK})).scalar_one():  # noqa: ASYNC110 - a lock elsewhere
        await asyncio.sleep(AGAIN_SECONDS)


async def _make_weeks(database_url: str) -> None:
    """Create the partitions of the coming weeks, so that no row goes to the default partitions."""
    database = Database(database_url, pool_size=1)
    try:
        async with database.transaction() as connection:
            missing = await retention.missing_weeks(connection, await database_now(connection))
        for week in missing:
            await retention.make_week(database, week)
    finally:
        await database.close()


def _upgrade(lock_timeout_milliseconds: int, report: Report, connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
    revision = MigrationContext.configure(connection).get_current_revision()
    if is_later(revision):
        log.info("newer_schema_accepted", revision=revision)
        return
    if revision != newest_revision():
        _lock_tables(connection, lock_timeout_milliseconds)
    config = alembic_config()
    config.attributes["connection"] = connection
    config.attributes["report"] = report
    command.upgrade(config, "head")


def _lock_tables(connection: Connection, most_milliseconds: int) -> None:
    """Lock all tables that there are, or none of them if that takes too long."""
    names = list(connection.execute(_TABLES, {"names": list(Base.metadata.tables)}).scalars())
    if names:
        connection.execute(text(f"SET LOCAL statement_timeout = {most_milliseconds}"))
        connection.execute(text(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))


def migrate_now(database_url: str) -> None:
    """Apply missing migrations, for callers without an event loop."""
    asyncio.run(migrate(database_url))
