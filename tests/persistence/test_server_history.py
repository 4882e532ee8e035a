"""After a failover that lost commits, no cache answers with what was lost.

Covers app.persistence.database, app.persistence.row_cache.
"""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.embedded import EmbeddedPostgres
from app.persistence import connection_pool, schedules
from app.persistence.connection_pool import driver_of
from app.persistence.database import Database
from app.persistence.migrations import migrate
from app.persistence.row_cache import ScheduleCache, ServerIdentity
from tests.support.api_server import serving
from tests.support.carillon import settings_on

# So many transactions does the old primary see that the standby never hears of.
LOST_TRANSACTIONS = 60


class Counted:
    """A cache that counts how often it was dropped."""

    def __init__(self) -> None:
        self.dropped = 0

    def clear(self) -> None:
        """One time more."""
        self.dropped += 1


class Pair:
    """A primary, a copy of it that is promoted later, and one address that leads to either."""

    def __init__(self, folder: Path) -> None:
        self.primary = EmbeddedPostgres(folder / "primary", durable=False)
        self.copy = EmbeddedPostgres(folder / "copy", durable=False)
        self._address = folder / "address"
        self.running: list[EmbeddedPostgres] = []

    @property
    def url(self) -> str:
        """The same before and after a failover."""
        return f"postgresql+asyncpg://carillon@/carillon?host={self._address}"

    def start(self, server: EmbeddedPostgres) -> None:
        """Run one of them."""
        server.start()
        self.running.append(server)

    def stop(self, server: EmbeddedPostgres) -> None:
        """End one of them."""
        self.running.remove(server)
        server.stop()

    def lead_to(self, server: EmbeddedPostgres) -> None:
        """Let the address lead here."""
        self._address.unlink(missing_ok=True)
        self._address.symlink_to(server.socket_folder)

    def make_copy(self) -> None:
        """Copy the primary as it is, as a standby that receives nothing more."""
        self.stop(self.primary)
        subprocess.run(["cp", "-a", self.primary.data_dir, self.copy.data_dir], check=True)
        (self.copy.data_dir / "standby.signal").touch()
        self.start(self.copy)


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two data folders."""
    made = Pair(tmp_path_factory.mktemp("pair"))
    yield made
    for server in list(made.running):
        made.stop(server)


async def connect(server: EmbeddedPostgres, **options: Any) -> asyncpg.Connection:
    """A connection of the test's own."""
    return await asyncpg.connect(
        host=str(server.socket_folder), **{"user": "carillon", "database": "carillon", **options}
    )


async def burn(connection: asyncpg.Connection, until: int) -> None:
    """Use transaction ids up, so that the next one is this one."""
    while int(await connection.fetchval("SELECT pg_current_xact_id()::text")) < until - 1:
        pass


async def rename(connection: asyncpg.Connection, schedule_id: str, name: str) -> int:
    """Edit a schedule, and say in which version that leaves its row."""
    statement = "UPDATE scheduled_jobs SET name = $2 WHERE id = $1 RETURNING xmin::text"
    return int(await connection.fetchval(statement, UUID(schedule_id), name))


async def test_a_lost_edit_is_not_answered_from_a_cache(pair: Pair, redis_url: str, tmp_path: Path) -> None:
    """The row has the same version on the new primary, and another content."""
    pair.start(pair.primary)
    await migrate(pair.primary.url)
    pair.lead_to(pair.primary)
    database, memory = Database(pair.url), ScheduleCache()
    database.history.watch(memory)
    async with serving(settings_on(pair.url, redis_url, tmp_path)) as carillon:
        schedule = await carillon.schedule(name="kept")
        connection = await connect(pair.primary)
        # It would use up ids when it likes.
        await connection.execute("ALTER SYSTEM SET autovacuum = off")
        await connection.close()
        pair.make_copy()
        pair.start(pair.primary)
        pair.lead_to(pair.primary)
        connection = await connect(pair.primary)
        for _ in range(LOST_TRANSACTIONS):
            await connection.fetchval("SELECT pg_current_xact_id()")
        version = await rename(connection, schedule["id"], "lost")
        await connection.close()
        async with database.reading() as reading:
            ((seen, job),) = await schedules.many(reading, [UUID(schedule["id"])])
            memory.keep(job, seen)
        assert (version, "lost") == (seen, (await carillon.get(schedule))["name"])

        promoted = await connect(pair.copy)
        assert await promoted.fetchval("SELECT pg_promote()")
        await burn(promoted, version)
        assert version == await rename(promoted, schedule["id"], "other")
        await promoted.close()
        pair.stop(pair.primary)
        pair.lead_to(pair.copy)
        assert "other" == (await carillon.get(schedule))["name"]
        (item,) = (await carillon.call("GET", "/schedules/"))["items"]
        assert "other" == item["name"]
        async with database.reading():
            assert memory.recall(job.id) is None
            assert 1 == memory.epoch
    await database.close()


async def test_a_promotion_is_noticed(pair: Pair) -> None:
    """By its timeline: the server is the same, and has not been started anew."""
    pair.start(pair.primary)
    pair.make_copy()
    connection = await connect(pair.copy)
    history = ServerIdentity()
    cache = history.watch(Counted())
    await history.check(connection)
    await history.check(connection)
    assert 0 == cache.dropped
    await connection.fetchval("SELECT pg_promote()")
    with capture_logs() as events:
        await history.check(connection)
        await history.check(connection)
    assert 1 == cache.dropped
    assert ["server_history_changed"] == [event["event"] for event in events]
    await connection.close()


@pytest.fixture
async def humble(postgres: EmbeddedPostgres, database_url: str) -> AsyncIterator[tuple[asyncpg.Connection, Any]]:
    """A connection by an ordinary role, and one by the owner of the database."""
    name = database_url.rpartition("?")[0].rpartition("/")[2]
    owner = await connect(postgres, database=name)
    await owner.execute("DROP ROLE IF EXISTS humble")
    await owner.execute("CREATE ROLE humble LOGIN")
    connection = await connect(postgres, database=name, user="humble")
    yield connection, owner
    await connection.close()
    await owner.execute("DROP ROLE humble")
    await owner.close()


@pytest.mark.parametrize(
    ("revoked", "asked"),
    [
        ([], 0),
        (["pg_control_system()"], 1),
        (["pg_control_system()", "pg_current_wal_lsn()"], 2),
    ],
)
async def test_an_ordinary_role_may_ask(humble: tuple[Any, Any], revoked: list[str], asked: int) -> None:
    """What it may not ask is left out, where somebody has taken that right away."""
    connection, owner = humble
    for function in revoked:
        await owner.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    history = ServerIdentity()
    cache = history.watch(Counted())
    await history.check(connection)
    await history.check(connection)
    assert (asked, 0) == (history._first_question, cache.dropped)


async def test_a_server_that_changes_behind_a_pooler_is_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to the pooler stays: it is looked at now and then while it is used."""
    cache = database.history.watch(Counted())
    async with database.reading() as connection:
        first = driver_of(connection)
    monkeypatch.setattr(database.history, "_known", "another server")
    async with database.reading():
        assert 0 == cache.dropped
    monkeypatch.setattr(connection_pool, "REPLAN_SECONDS", -1.0)
    async with database.reading() as connection:
        assert (first, 1) == (driver_of(connection), cache.dropped)


async def test_a_cache_that_is_gone_is_not_kept_alive(database: Database) -> None:
    """Pings make an engine each."""
    for _ in range(10):
        database.history.watch(Counted())
    assert 0 == len(database.history._caches)
