"""A database of its own for a test, on the Postgres that the whole run shares, and transactions that meet in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import text

from app.embedded import EmbeddedPostgres
from app.persistence.database import Connection
from tests.support.carillon import until

_WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
MIGRATED = "carillon"

# A database is emptied for the next test only if its tables, columns, functions, triggers and constraints are those
# of the template, and if nothing has been analyzed in it.
_SHAPE = """
    SELECT (SELECT count(*) FROM pg_class), (SELECT max(oid::bigint) FROM pg_class),
           (SELECT sum(hashtextextended(concat(oid, relname), 0)) FROM pg_class WHERE oid >= 16384),
           (SELECT sum(reltuples)::bigint FROM pg_class), (SELECT max(oid::bigint) FROM pg_attrdef),
           (SELECT sum(hashtextextended(concat(attrelid, attname, atttypid, atttypmod, attnotnull), 0))
            FROM pg_attribute WHERE attrelid >= 16384),
           (SELECT sum(hashtextextended(concat(oid, proname, prosrc), 0)) FROM pg_proc WHERE oid >= 16384),
           (SELECT sum(hashtextextended(concat(oid, tgenabled), 0)) FROM pg_trigger),
           (SELECT sum(hashtextextended(concat(oid, conname, convalidated), 0)) FROM pg_constraint),
           (SELECT count(*) FROM pg_namespace)
"""
# And only if it has not grown by more than this.
_GROWTH_BYTES = 4_000_000
_SIZE = "SELECT pg_database_size(current_database())"
_TABLES = "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
_SEQUENCES = (
    "SELECT quote_ident(sequencename), coalesce(last_value, start_value), last_value IS NOT NULL FROM pg_sequences"
)


class _Databases(NamedTuple):
    """What a new database of a server is like, the statements that make a used one so, and those that are free."""

    shape: tuple[Any, ...]
    size: int
    emptying: str
    free: list[str]


_known: WeakKeyDictionary[EmbeddedPostgres, _Databases] = WeakKeyDictionary()


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres, template: str = MIGRATED) -> AsyncIterator[str]:
    """Yield the URL of a copy of the migrated database, or of another one.

    A copy of the migrated database is emptied afterwards and used again: that takes a tenth of the time of a new copy.
    """
    free = (await _databases(server)).free if template == MIGRATED else []
    name = free.pop() if free else await _copied(server, template)
    yield server.url.replace(f"/{MIGRATED}?", f"/{name}?")
    async with _connected(server) as connection:
        if template == MIGRATED and await _emptied(server, connection, name):
            (await _databases(server)).free.append(name)
        else:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def _connected(server: EmbeddedPostgres, name: str = "postgres") -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(host=str(server.socket_folder), user="carillon", database=name)
    try:
        yield connection
    finally:
        await connection.close()


async def _copied(server: EmbeddedPostgres, template: str) -> str:
    name = f"test_{uuid4().hex}"
    async with _connected(server) as connection:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
    return name


async def _databases(server: EmbeddedPostgres) -> _Databases:
    """Return what is known of the databases of a server; the first copy shows what a new one is like."""
    if server not in _known:
        name = await _copied(server, MIGRATED)
        async with _connected(server, name) as connection:
            shape, size = await _shape(connection), await connection.fetchval(_SIZE)
            _known[server] = _Databases(shape, size, await _emptying(connection), [name])
    return _known[server]


async def _shape(connection: asyncpg.Connection) -> tuple[Any, ...]:
    return tuple((await connection.fetch(_SHAPE))[0])


async def _emptying(connection: asyncpg.Connection) -> str:
    """Return the statements that leave the rows of a new database, and its places of sequences; one round trip."""
    # Without triggers and foreign keys.
    statements = ["SET LOCAL session_replication_role = replica"]
    for (table,) in await connection.fetch(_TABLES):
        statements.append(f"DELETE FROM ONLY {table}")
        rows = await connection.fetchval(f"SELECT json_agg(one) FROM ONLY {table} one")
        if rows:
            statements.append(
                f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, $rows${rows}$rows$)"
            )
    for name, place, is_used in await connection.fetch(_SEQUENCES):
        statements.append(f"SELECT setval('{name}', {place}, {is_used})")
    return "; ".join(statements)


async def _emptied(server: EmbeddedPostgres, admin: asyncpg.Connection, name: str) -> bool:
    """Make a used database equal to a new one; return whether that was possible."""
    known = await _databases(server)
    await admin.execute(f"SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE datname = '{name}'")
    async with _connected(server, name) as connection:
        if await _shape(connection) != known.shape or await connection.fetchval(_SIZE) > known.size + _GROWTH_BYTES:
            return False
        # Several statements in one call are one transaction.
        await connection.execute(known.emptying)
    return True


async def until_waiting(holder: Connection) -> None:
    """Wait until another transaction waits for a lock, such as one that this transaction holds."""

    async def waits() -> bool:
        # Within a transaction, the first answer would be given again.
        await holder.execute(text("SELECT pg_stat_clear_snapshot()"))
        return bool((await holder.execute(_WAITING)).scalar())

    await until(waits, seconds=20)
