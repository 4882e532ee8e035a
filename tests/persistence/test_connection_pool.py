"""Connections that are lent: none is lost, whenever the one who has it is stopped."""

import asyncio
import gc
import re
import tempfile
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from app.domain.errors import UnavailableError
from app.embedded import EmbeddedPostgres
from app.persistence.connection_pool import driver_of
from app.persistence.database import SERVER_SETTINGS, Database
from tests.chaos.proxy import Proxy, to_unix
from tests.support.carillon import until


async def others(database: Database) -> int:
    """How many of the application's Postgres has open, besides the one that asks."""
    async with database.reading() as connection:
        found: int = await driver_of(connection).fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    return found


async def use(database: Database) -> None:
    """A unit of work that asks by SQLAlchemy's means and by the driver's."""
    async with database.transaction() as connection:
        await driver_of(connection).execute("SELECT pg_sleep(0.001)")
        await connection.exec_driver_sql("SELECT pg_sleep(0.001)")


async def test_a_stop_at_any_moment_loses_no_connection(database: Database) -> None:
    """Opening, asking, committing: a connection that is not given back is closed, and not left to the collector."""
    for turns in range(30):
        task = asyncio.create_task(use(database))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert 0 == database.pool.counts["in_use"]
    gc.collect()

    async def none_is_left() -> bool | None:
        return await others(database) <= max(0, database.pool.counts["idle"] - 1) or None

    assert await until(none_is_left)


async def test_what_is_given_back_after_the_end_is_closed(database_url: str) -> None:
    """The last one to use a connection may come home after everything was closed."""
    database = Database(database_url)
    async with database.transaction() as connection:
        await database.close()
        driver = driver_of(connection)
    assert driver.is_closed()
    assert {"in_use": 0, "idle": 0} == database.pool.counts


async def test_one_that_postgres_cut_is_replaced(database: Database) -> None:
    """The unit of work that comes next does not notice."""
    async with database.reading() as connection:
        first = driver_of(connection)
        pid = first.get_server_pid()
    killer = Database(database.url)
    async with killer.reading() as connection:
        await driver_of(connection).execute(f"SELECT pg_terminate_backend({pid}, 5000)")
    await killer.close()
    async with database.transaction() as connection:
        assert 1 == await driver_of(connection).fetchval("SELECT 1")
        assert first is not driver_of(connection)


async def test_an_opening_that_is_refused_gives_its_connection_back(database: Database) -> None:
    """And the one after it finds room."""
    with pytest.raises(asyncpg.PostgresSyntaxError):
        async with database.pool.acquire("nonsense"):
            pass
    assert {"in_use": 0, "idle": 0} == database.pool.counts
    await use(database)


async def test_a_postgres_that_falls_silent_is_given_up(postgres: EmbeddedPostgres, database_url: str) -> None:
    """As when its host has vanished: whoever waits for an answer is told in the end, and later ones find it again."""
    proxy = Proxy(to_unix(lambda: postgres.socket_folder / ".s.PGSQL.5432"))
    with tempfile.TemporaryDirectory(prefix="carillon-") as folder:
        await proxy.listen_unix(Path(folder) / ".s.PGSQL.5432")
        database = Database(re.sub(r"host=.*", f"host={folder}", database_url), call_seconds=1)
        await use(database)
        proxy.swallow()
        async with asyncio.timeout(30):
            with pytest.raises(UnavailableError):
                await use(database)
        assert {"in_use": 0, "idle": 0} == database.pool.counts
        proxy.heal()
        await use(database)
        await database.close()
        await proxy.close()


async def test_a_pooler_by_session_would_let_it_in(database: Database) -> None:
    """PgBouncer knows few parameters of a connection and refuses others; what is needed besides is said afterwards."""
    brought: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4))
        brought.put_nowait(await reader.readexactly(length - 4))
        writer.close()

    with tempfile.TemporaryDirectory(prefix="carillon-") as folder:
        async with await asyncio.start_unix_server(listen, Path(folder) / ".s.PGSQL.5432"):
            other = Database(f"postgresql+asyncpg://carillon@/x?host={folder}")
            with pytest.raises(UnavailableError):
                await other.ping()
            await other.close()
    # Behind the version of the protocol stand names and values by turns.
    names = set(brought.get_nowait()[4:].split(b"\0")[:-2:2])
    assert {b"user", b"database"} <= names <= {b"user", b"database", b"application_name", b"client_encoding"}
    async with database.reading() as connection:
        found = {name: await driver_of(connection).fetchval(f"SHOW {name}") for name in SERVER_SETTINGS}
    assert ("5s", "30s", "off", "force_generic_plan") == tuple(
        found[name] for name in ("lock_timeout", "statement_timeout", "enable_seqscan", "plan_cache_mode")
    )
