"""``carillon worker --processes`` and ``carillon migrate --wait``."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from app.persistence.migrations import until_migrated
from tests.carillon import Carillon, until


@asynccontextmanager
async def carillon_process(settings: Settings, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process on the stores of the test; whatever it has started is gone afterwards."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
    stores = {"CARILLON_DATABASE_URL": settings.database_url, "CARILLON_REDIS_URL": settings.redis_url}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", *command),
        env=environ | stores | {"CARILLON_LOG_LEVEL": "error", "CARILLON_LEASE_SECONDS": "5"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def children(pid: int) -> set[int]:
    """The processes that one has started."""
    return {int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()


async def workers(database: Database) -> int:
    """How many hold a lease."""
    async with database.transaction() as connection:
        query = text("SELECT count(*) FROM workers WHERE lease_expires_at > clock_timestamp()")
        number: int = (await connection.execute(query)).scalar_one()
        return number


async def test_several_workers_are_kept_up_and_stopped_together(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """They share the work; one that is killed is started again; all end at a word."""
    schedule = await carillon.schedule(interval_seconds=1)
    async with carillon_process(settings, "worker", "--processes", "2") as fleet:

        async def both_work() -> bool:
            return await workers(database) >= 2

        await until(both_work)
        before = children(fleet.pid)
        os.kill(min(before), signal.SIGKILL)

        async def another() -> bool:
            return len(children(fleet.pid)) == 2 and children(fleet.pid) != before

        await until(another)

        async def fires() -> bool:
            return bool(await carillon.runs(schedule))

        await until(fires)
        last = children(fleet.pid)
        fleet.terminate()
        assert 0 == await asyncio.wait_for(fleet.wait(), 30)
    assert [] == [pid for pid in last if is_running(pid)]


async def test_waiting_for_migrations_ends_when_they_are_made(settings: Settings, database: Database) -> None:
    """At once where they are; else as soon as they are, and a later release's will do."""
    await asyncio.wait_for(until_migrated(settings.database_url), 30)
    async with database.transaction() as connection:
        found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
        await connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    waiting = asyncio.create_task(until_migrated(settings.database_url))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    for later in (found, "9999"):
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = :later"), {"later": later})
        await asyncio.wait_for(waiting if later == found else until_migrated(settings.database_url), 30)
