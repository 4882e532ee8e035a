"""``carillon worker --processes`` and ``carillon migrate --wait``.

Covers app.asgi, app.cli.__main__.
"""

import asyncio
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from aiohttp import web
from sqlalchemy import text
from structlog.testing import capture_logs

from app.config import Settings
from app.persistence.database import Database
from app.persistence.migrations import until_migrated
from tests.support.carillon import Carillon, http_node, until
from tests.support.http_sink import Sink
from tests.support.watched_process import Watched
from tests.test_metrics import samples

RUNS = 10
SUCCESSES = 'carillon_executions_ended_total{status="success"}'
# Packages that `carillon up` and the parent of several workers never use.
HEAVY = ("app.wiring", "app.persistence", "app.services", "app.engine", "app.api", "sqlalchemy", "litestar", "uvicorn")


def test_the_commands_of_processes_import_little() -> None:
    """Importing app.cli.processes imports neither the services nor the database, so that parents start fast."""
    code = f"import sys, app.cli.processes; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "" == result.stdout.strip()


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


def fleet_of_two(settings: Settings, tmp_path: Path) -> Watched:
    """Two workers in one process, on the stores of the test."""
    stores = {"database_url": settings.database_url, "redis_url": settings.redis_url, "http_allow": settings.http_allow}
    options = {"log_format": "json", "lease_seconds": "5", "reconcile_seconds": "0.5"}
    return Watched(tmp_path / "log", "worker", "--processes", "2", **stores, **options)


async def counted(fleet: Watched) -> dict[str, float]:
    """What the fleet tells Prometheus."""
    answer = await fleet.get("/metrics")
    return samples(answer.text) if answer else {}


async def test_several_workers_are_kept_up_and_stopped_together(
    carillon: Carillon, settings: Settings, database: Database, tmp_path: Path
) -> None:
    """They share the work; one that is killed is started again; all end at a word."""
    schedule = await carillon.schedule(interval_seconds=1)
    async with fleet_of_two(settings, tmp_path) as fleet:

        async def both_work() -> bool:
            return await workers(database) >= 2

        await until(both_work)
        before = children(fleet.process.pid)
        os.kill(min(before), signal.SIGKILL)

        async def another() -> bool:
            return len(children(fleet.process.pid)) == 2 and children(fleet.process.pid) != before

        await until(another)

        async def fires() -> bool:
            return bool(await carillon.runs(schedule))

        await until(fires)
        last = children(fleet.process.pid)
        assert 0 == await fleet.stopped()
    assert [] == [pid for pid in last if is_running(pid)]
    assert [("warning", -signal.SIGKILL)] == [(one["level"], one["code"]) for one in fleet.said("worker_process_ended")]


async def test_several_workers_answer_as_one(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, tmp_path: Path
) -> None:
    """Sums of what all have counted, also of those that have ended; ready and alive if all are."""
    release = asyncio.Event()

    async def hold(_request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response()

    sink.answer = hold
    workflow = await carillon.workflow(http_node(sink.url))
    async with fleet_of_two(settings, tmp_path) as fleet:

        async def is_ready() -> bool:
            answer = await fleet.get("/health/ready")
            return answer is not None and answer.status_code == 200

        async def is_counted(name: str, value: float) -> bool:
            return (await counted(fleet)).get(name) == value

        await until(is_ready)
        schedules = [await carillon.schedule(workflow) for _ in range(RUNS)]
        for schedule in schedules:
            await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        await until(lambda: is_counted("carillon_runs_in_flight", RUNS))
        release.set()
        await until(lambda: is_counted(SUCCESSES, RUNS))
        found = await counted(fleet)
        assert (0, 1, 1) == (
            found["carillon_runs_in_flight"],
            found["carillon_mode"],
            found[f'carillon_build_info{{version="{version("carillon")}"}}'],
        )
        # Each has at least one for its work and one for its lease.
        assert sum(found[f'carillon_database_connections{{state="{state}"}}'] for state in ("in_use", "idle")) >= 4

        frozen, killed = sorted(children(fleet.process.pid))
        os.kill(frozen, signal.SIGSTOP)
        ready, live = await asyncio.gather(fleet.readiness(), fleet.get("/health/live"))
        os.kill(frozen, signal.SIGCONT)
        assert ready is not None
        assert live is not None
        assert (503, 503) == (ready[0], live.status_code)
        silent = {"status": "unavailable", "detail": "This process does not answer."}
        assert [silent] == [one for one in ready[1]["processes"] if one["status"] != "ok"]
        await until(is_ready)
        os.kill(killed, signal.SIGKILL)

        async def is_replaced() -> bool:
            return killed not in children(fleet.process.pid) and await is_ready()

        await until(is_replaced)
        assert await is_counted(SUCCESSES, RUNS)


async def test_waiting_for_migrations_ends_when_they_are_made(settings: Settings, database: Database) -> None:
    """At once where they are; else as soon as they are, and a later release's will do."""
    await asyncio.wait_for(until_migrated(settings.database_url), 30)
    async with database.transaction() as connection:
        found = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
        await connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    with capture_logs() as events:
        waiting = asyncio.create_task(until_migrated(settings.database_url))

        async def waits() -> bool:
            return "migrations_awaited" in [event["event"] for event in events]

        await until(waits)
    assert not waiting.done()
    for later in (found, "9999"):
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = :later"), {"later": later})
        await asyncio.wait_for(waiting if later == found else until_migrated(settings.database_url), 30)
