"""``/health/ready``: judged by a write, at most once a second, never a 500.

Covers app.api.system, app.services.system.
"""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.embedded import EmbeddedPostgres
from app.persistence.database import Database
from app.persistence.migrations import migrate_now
from tests.support.api_server import serving
from tests.support.carillon import Carillon, until
from tests.support.skip_reports import leave_untested

WRITERS = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
DISK_MB = 256


@pytest.fixture
async def carillon(settings: Settings) -> AsyncIterator[Carillon]:
    """An API that is ready."""
    async with serving(settings) as served:
        assert "ok" == (await readiness(served))["status"]
        yield served


async def readiness(carillon: Carillon) -> dict[str, object]:
    """What it says of itself, with the status of the answer."""
    answer = await carillon.raw("GET", "/health/ready")
    return {**answer.json(), "http": answer.status_code}


async def until_it_says(carillon: Carillon, words: str) -> None:
    """Wait until it is unavailable with this detail."""

    async def said() -> bool:
        found = await readiness(carillon)
        assert found["http"] in {200, 503}, found
        return (503, "unavailable", "away") == (found["http"], found["status"], found["postgres"]) and words in str(
            found["detail"]
        )

    await until(said)


async def until_ok(carillon: Carillon) -> None:
    """Wait until all is well again."""

    async def said() -> bool:
        return (await readiness(carillon))["status"] == "ok"

    await until(said)


async def test_a_read_only_database_is_unavailable(carillon: Carillon, database: Database) -> None:
    """It answers every read; and it is ready again once it takes writes."""
    async with database.transaction() as connection:
        name = (await connection.execute(text("SELECT current_database()"))).scalar_one()
        await connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        await connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                 "AND datname = current_database()")
        )  # fmt: skip
    await until_it_says(carillon, "accepts no writes")
    async with database.transaction() as connection:
        await connection.execute(text("SET LOCAL transaction_read_only = off"))
        await connection.execute(text(f"ALTER DATABASE {name} RESET default_transaction_read_only"))
        await connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                 "AND datname = current_database()")
        )  # fmt: skip
    await until_ok(carillon)


async def test_a_write_that_is_refused_for_any_reason_is_no_500(carillon: Carillon, database: Database) -> None:
    """Whatever Postgres calls it."""
    async with database.transaction() as connection:
        await connection.execute(text("ALTER TABLE locks RENAME TO mislaid"))
    await until_it_says(carillon, "refused a write")
    async with database.transaction() as connection:
        await connection.execute(text("ALTER TABLE mislaid RENAME TO locks"))
    await until_ok(carillon)


async def test_probes_share_one_look_a_second(carillon: Carillon, database: Database) -> None:
    """Two hundred at once are a few writes at most, and all are answered."""

    async def transactions() -> int:
        """How many transactions of this server have written so far."""
        async with database.reading() as connection:
            return int((await connection.execute(text(WRITERS))).scalar_one())

    loop = asyncio.get_running_loop()
    began, before = loop.time(), await transactions()
    answers = await asyncio.gather(*(readiness(carillon) for _ in range(200)))
    assert {"ok"} == {answer["status"] for answer in answers}
    assert await transactions() - before <= 2 + loop.time() - began


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "carillon-test", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        leave_untested("a full disk: a file system cannot be mounted here", curable=False)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_is_unavailable(settings: Settings, tmp_path: Path) -> None:
    """It says so while reads work; and it is ready again once there is space."""
    with small_disk(tmp_path / "disk") as disk, EmbeddedPostgres(disk / "pg", durable=False) as server:
        await asyncio.to_thread(migrate_now, server.url)
        full = replace(settings, database_url=server.url.replace("postgresql://", "postgresql+asyncpg://"))
        async with serving(full) as carillon:
            await until_ok(carillon)
            fill(disk)
            await until_it_says(carillon, "disk of the database server is full")
            (disk / "filler").unlink()
            await until_ok(carillon)


def fill(disk: Path) -> None:
    """Leave no space."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while shutil.disk_usage(disk).free:
                filler.write(b"\0" * 65536)
        except OSError:
            pass
