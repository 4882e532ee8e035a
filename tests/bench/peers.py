"""Others at the same work, in the same run, on the same servers: chains of one-second jobs that do nothing."""

import asyncio
import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from arq import Worker
from arq.connections import ArqRedis
from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool

from tests.bench.stand import Stand

CHAIN_QUEUE = "bench:arq"


async def arq_chain(stand: Stand, per_second: int, seconds: float) -> float:
    """A plain arq chain, tuned as far as its settings go: each job enqueues its successor. Nothing is durable."""
    fired = 0

    async def tick(ctx: dict[str, Any], chain: str, number: int, due: float) -> None:
        nonlocal fired
        fired += 1
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
        [tick],
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
    await asyncio.sleep(seconds)
    rate = (fired - before) / (time.monotonic() - began)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pool.flushdb()
    await pool.aclose()
    return rate


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def bullmq(stand: Stand, per_second: int, seconds: float) -> dict[str, float] | str:
    """BullMQ's job schedulers, where Node is present; its history is in memory only."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "not measured: there is no Node here"
    folder = stand.folder / "bullmq"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("bullmq.mjs"), folder / "bench.mjs")
    install = await asyncio.create_subprocess_exec(
        npm, "install", "--silent", "--no-audit", "--no-fund", "bullmq", cwd=folder, stdout=asyncio.subprocess.DEVNULL
    )
    if await install.wait():
        return "not measured: it could not be installed"
    socket = str(stand.valkey.socket_folder / "valkey.sock")
    process = await asyncio.create_subprocess_exec(
        node, "bench.mjs", socket, str(per_second), str(seconds), cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    async with Redis.from_url(stand.valkey.url) as redis:
        await redis.flushall()
    figures: dict[str, float] = json.loads(said.splitlines()[-1]) if process.returncode == 0 else {}
    return figures or "not measured: it failed"
