"""A pod whose stores are not there waits for them: it says so, and goes on by itself when they come.

Covers app.worker.
"""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
import pytest
from msgspec.structs import replace

from app.config import Settings
from app.embedded import EmbeddedPostgres, EmbeddedValkey
from app.observability.logs import LOG_AGAIN_SECONDS
from app.persistence.migrations import migrate
from app.persistence.schema_version import newest_revision
from app.worker import run_worker
from tests.support.api_server import serving
from tests.support.carillon import Carillon, until
from tests.support.watched_process import Json, Watched, free_port

PROCESSES = 2


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder where the stores are going to be found; short, as the paths of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="carillon-") as folder:
        yield Path(folder)


@pytest.fixture
async def empty_database(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The name of a database without a single table."""
    name = f"empty_{uuid4().hex}"
    connection = await asyncpg.connect(host=str(postgres.socket_folder), user="carillon", database="postgres")
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY WAL_LOG")
    yield name
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


def seconds_between(lines: list[Json]) -> list[float]:
    """How long after each other these were said."""
    moments = [datetime.fromisoformat(line["timestamp"]) for line in lines]
    return [(b - a).total_seconds() for a, b in pairwise(moments)]


async def test_workers_wait_for_what_is_missing_and_fire_when_it_comes(
    postgres: EmbeddedPostgres, redis_url: str, settings: Settings, sockets: Path, empty_database: str, tmp_path: Path
) -> None:
    """Nothing is there; then Postgres without tables; then with them, and it fires; then Redis. No process ends."""
    url = f"postgresql://carillon@/{empty_database}?host={sockets}"
    stores = {"database_url": url, "redis_url": f"unix://{sockets}/valkey.sock"}
    worker = Watched(tmp_path / "log", "worker", "--processes", str(PROCESSES), log_format="json", **stores)

    async def is_ready(status: int, name: str, words: str) -> bool:
        """Whether all processes say so."""
        found = await worker.readiness()
        if found is None or (status, name) != (found[0], found[1]["status"]):
            return False
        return all(words in process["detail"] for process in found[1]["processes"])

    async def is_said_again() -> bool:
        return all(len(worker.said(event)) >= 2 * PROCESSES for event in ("database_unreachable", "redis_unreachable"))

    async with worker:
        away = "Postgres: The database cannot be reached. Try again later. Redis: It cannot be reached."
        await until(lambda: is_ready(503, "unavailable", away))
        live = await worker.get("/health/live")
        assert live is not None
        assert 200 == live.status_code
        await until(is_said_again)
        (sockets / ".s.PGSQL.5432").symlink_to(postgres.socket_folder / ".s.PGSQL.5432")
        await until(lambda: is_ready(503, "unavailable", "is not migrated yet: its schema is none"))
        assert [] == worker.said("database_recovered")
        real_url = postgres.url.replace("/carillon?", f"/{empty_database}?")
        steps: list[str] = []
        await migrate(real_url, report=steps.append)
        assert f"applied revision {newest_revision()}" in steps
        await until(lambda: is_ready(200, "degraded", "Redis: It cannot be reached."))
        async with serving(replace(settings, database_url=real_url)) as carillon:
            schedule = await carillon.schedule(interval_seconds=1)
            await until(lambda: carillon.runs(schedule))
            (sockets / "valkey.sock").symlink_to(redis_url.removeprefix("unix://"))
            await until(lambda: is_ready(200, "ok", ""))
            known = len(await carillon.runs(schedule))

            async def fires_on() -> bool:
                return len(await carillon.runs(schedule)) > known

            await until(fires_on)
        assert 0 == await worker.stopped()
    assert [] == [line for line in worker.lines if line["level"] == "error" or "exception" in line]
    for process in map(str, range(PROCESSES)):
        said = [line for line in worker.lines if line.get("process") == process]
        once = ("worker_started", "lease_begun", "redis_recovered", "worker_stopped")
        assert once == tuple(line["event"] for line in said if line["event"] in once)
        assert 1 == len([line for line in said if line["event"] == "database_recovered"])
        for event in ("database_unreachable", "redis_unreachable"):
            assert min(seconds_between([line for line in said if line["event"] == event])) > LOG_AGAIN_SECONDS - 1


@pytest.mark.parametrize(
    ("database", "role", "words"),
    [
        ("nowhere", "carillon", "The server has no database of that name."),
        ("postgres", "nobody", "The database refuses the user or the password."),
        ("postgres", "carillon", "The database is not migrated yet"),
    ],
)
async def test_a_database_that_is_of_no_use_is_waited_for(
    postgres: EmbeddedPostgres, settings: Settings, database: str, role: str, words: str
) -> None:
    """The worker does not end, the API answers 503, and both say what is wrong."""
    url = f"postgresql+asyncpg://{role}@/{database}?host={postgres.socket_folder}"
    waiting = replace(settings, database_url=url, metrics_port=free_port())
    stopping = asyncio.Event()
    worker = asyncio.create_task(run_worker(waiting, stopping))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{waiting.metrics_port}", trust_env=False) as client:

        async def says_so() -> bool:
            assert not worker.done()
            with suppress(httpx.TransportError):
                answer = await client.get("/health/ready")
                return answer.status_code == 503 and words in answer.json()["detail"]
            return False

        await until(says_so)
    async with serving(waiting) as api:
        refused = await api.request("GET", "/schedules/")
        ready = await api.raw("GET", "/health/ready")
    assert (503, "database_unavailable") == (refused.status_code, refused.json()["code"])
    assert words in refused.json()["detail"]
    assert (503, "away") == (ready.status_code, ready.json()["postgres"])
    assert words in ready.json()["detail"]
    stopping.set()
    await worker


async def test_a_worker_begins_while_redis_hangs(
    carillon: Carillon, settings: Settings, tmp_path: Path, postgres: EmbeddedPostgres
) -> None:
    """One that takes connections and answers nothing is as good as none: it fires, and says so."""
    schedule = await carillon.schedule(interval_seconds=1)
    with EmbeddedValkey(tmp_path / "valkey") as valkey:
        valkey.process.send_signal(signal.SIGSTOP)
        stores = {"database_url": settings.database_url, "redis_url": valkey.url}
        try:
            async with Watched(tmp_path / "log", "worker", log_format="json", **stores) as worker:
                await until(lambda: carillon.runs(schedule))

                async def is_degraded() -> bool:
                    found = await worker.readiness()
                    return found is not None and (200, "away") == (found[0], found[1]["redis"])

                await until(is_degraded)
        finally:
            valkey.process.send_signal(signal.SIGCONT)
    assert [] == [line for line in worker.lines if line["level"] == "error" or "exception" in line]
