"""Others at the same work, in the same run, on the same servers: chains of one-second jobs that do nothing."""

import asyncio
import json
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from arq import Worker
from arq.connections import ArqRedis
from arq.worker import func
from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool

from tests.bench.stand import Stand

CHAIN_QUEUE = "bench:arq"


async def arq_chain(stand: Stand, per_second: int, seconds: float) -> dict[str, float]:
    """A plain arq chain, tuned as far as its settings go: each job enqueues its successor. Nothing is durable."""
    fired = 0
    late: list[float] = []

    async def tick(ctx: dict[str, Any], chain: str, number: int, due: float) -> None:
        nonlocal fired
        fired += 1
        late.append(time.time() - due)
        upcoming = due + 1
        await ctx["redis"].enqueue_job(
            "tick",
            chain,
            number + 1,
            upcoming,
            _job_id=f"{chain}-{number + 1}",
            _defer_until=_moment(upcoming),
            _queue_name=CHAIN_QUEUE,
        )

    pool = ArqRedis(ConnectionPool.from_url(stand.valkey.url))
    begin = time.time() + 2
    for number in range(per_second):
        due = begin + number / per_second
        await pool.enqueue_job(
            "tick", uuid4().hex, 0, due, _job_id=uuid4().hex, _defer_until=_moment(due), _queue_name=CHAIN_QUEUE
        )
    worker = Worker(
        [func(tick, name="tick")],
        redis_pool=pool,
        queue_name=CHAIN_QUEUE,
        poll_delay=0.005,
        max_jobs=1000,
        queue_read_limit=5000,
        keep_result=0,
        handle_signals=False,
        log_results=False,
    )
    running = asyncio.create_task(worker.async_run())
    await asyncio.sleep(max(0.0, begin - time.time()) + 3)
    before, began = fired, time.monotonic()
    late.clear()
    await asyncio.sleep(seconds)
    rate = (fired - before) / (time.monotonic() - began)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pool.flushdb()
    await pool.aclose()
    return _figures(rate, late)


def _figures(rate: float, late: list[float]) -> dict[str, float]:
    late.sort()
    return {"rate": rate, "p50": 1000 * late[len(late) // 2], "p99": 1000 * late[int(len(late) * 0.99)]}


APSCHEDULER = """
import asyncio, json, sys, time
from datetime import datetime, timedelta, timezone
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler

fired = 0

async def tick():
    global fired
    fired += 1

async def main(url, count, seconds):
    global fired
    scheduler = AsyncIOScheduler(
        jobstores={"default": SQLAlchemyJobStore(url=url, tablename="apscheduler_jobs")},
        executors={"default": AsyncIOExecutor()},
        job_defaults={"misfire_grace_time": 60, "coalesce": True},
    )
    scheduler.start(paused=True)
    begin = datetime.now(timezone.utc) + timedelta(seconds=3 + count / 500)
    for k in range(count):
        scheduler.add_job(tick, "interval", seconds=1, start_date=begin + timedelta(seconds=k / count))
    scheduler.resume()
    await asyncio.sleep(max(0, (begin - datetime.now(timezone.utc)).total_seconds()) + 3)
    before, began = fired, time.monotonic()
    await asyncio.sleep(seconds)
    print(json.dumps({"rate": (fired - before) / (time.monotonic() - began)}), flush=True)
    scheduler.shutdown(wait=False)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
"""


async def apscheduler(stand: Stand, per_second: int, seconds: float) -> dict[str, float] | str:
    """APScheduler with its jobs in the same Postgres; it keeps no history. In an environment of its own."""
    python = stand.folder / "apscheduler" / "bin" / "python"
    await _done(sys.executable, "-m", "venv", str(python.parents[1]))
    packages = ("apscheduler<4", "sqlalchemy", "psycopg[binary]")
    if not await _done(str(python), "-m", "pip", "install", "--quiet", *packages):
        return "not measured: it could not be installed"
    url = f"postgresql+psycopg://carillon@/carillon?host={stand.postgres.socket_folder}"
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", APSCHEDULER, url, str(per_second), str(seconds)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    await stand.sql("DROP TABLE IF EXISTS apscheduler_jobs")
    figures: dict[str, float] = json.loads(said.splitlines()[-1]) if said.strip() else {}
    return figures or "not measured: it failed"


async def _done(*command: str, folder: Path | None = None) -> bool:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return not await process.wait()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def bullmq(stand: Stand, per_second: int, seconds: float, url: str = "") -> dict[str, float] | str:
    """BullMQ's job schedulers, where Node is present; its history is in memory only. With ``url``, jobs call it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "not measured: there is no Node here"
    folder = stand.folder / "bullmq"
    if not folder.exists():
        folder.mkdir()
        shutil.copy(Path(__file__).with_name("bullmq.mjs"), folder / "bench.mjs")
        packages = ("bullmq", "ioredis", "undici@7")
        if not await _done(npm, "install", "--silent", "--no-audit", "--no-fund", *packages, folder=folder):
            return "not measured: it could not be installed"
    socket = str(stand.valkey.socket_folder / "valkey.sock")
    process = await asyncio.create_subprocess_exec(
        *(node, "bench.mjs", socket, str(per_second), str(seconds), *([url] if url else [])),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    async with Redis.from_url(stand.valkey.url) as redis:
        await redis.flushall()
    figures: dict[str, float] = json.loads(said.splitlines()[-1]) if process.returncode == 0 else {}
    return figures or "not measured: it failed"
