"""How things grow with the number of schedules: lists, reads, a flush, and doing nothing."""

import asyncio
import time

import msgspec
from redis.asyncio import Redis

from tests.bench.stand import Running, Stand
from tests.bench.web import free_port, ready_caller, request

FAR_SECONDS = 7 * 86_400.0
IDLE_SECONDS = 20.0


class Size(msgspec.Struct):
    """What was measured with so many schedules, none of them due."""

    schedules: int
    get_p99_ms: float
    list_p99_ms: float
    replan_seconds: float
    idle_cpu_percent: float
    idle_megabytes: float


async def measure_size(stand: Stand, count: int, seconds: float) -> Size:
    """So many schedules that are due in days."""
    await stand.forget()
    workflow = await stand.workflow({"id": "work", "type": "core.noop"})
    await stand.schedules(workflow, count, interval_seconds=FAR_SECONDS, begin=FAR_SECONDS)
    await stand.put_in_order()
    get, listing = await _reads(stand, seconds)
    async with stand.running("worker") as worker:
        await _planned(stand, count)
        replanned = await _replanned(stand, count)
        cpu, megabytes = await _idle(worker)
    return Size(count, get, listing, replanned, cpu, megabytes)


async def _reads(stand: Stand, seconds: float) -> tuple[float, float]:
    port = free_port()
    async with stand.running("api", CARILLON_PORT=str(port)):
        caller = await ready_caller(port)
        some = await caller.call("GET", "/api/v1/schedules/?limit=50&offset=500")
        one = request("GET", f"/api/v1/schedules/{some['items'][0]['id']}/")
        listing = request("GET", "/api/v1/schedules/?limit=50")
        # One at a time: what a request takes, not how they wait for each other.
        for warm in (one, listing):
            await caller.rate(lambda: warm, 1, at_once=1)  # noqa: B023 - used at once
        got = await caller.rate(lambda: one, seconds, at_once=1)
        listed = await caller.rate(lambda: listing, seconds, at_once=1)
        return got.p99_ms, listed.p99_ms


async def _planned(stand: Stand, count: int) -> None:
    """Until every tick is in the queue."""
    async with Redis.from_url(stand.valkey.url) as redis:
        deadline = time.monotonic() + 600
        while await redis.zcard("arq:queue") < count:
            assert time.monotonic() < deadline, "the queue is not filled"
            await asyncio.sleep(0.05)


async def _replanned(stand: Stand, count: int) -> float:
    """From a flush until every tick is in the queue again, with the time until the flush is noticed."""
    async with Redis.from_url(stand.valkey.url) as redis:
        await redis.flushall()
    began = time.monotonic()
    await _planned(stand, count)
    return time.monotonic() - began


async def _idle(worker: Running) -> tuple[float, float]:
    await asyncio.sleep(5)
    before = worker.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    return 100 * (worker.cpu_seconds() - before) / IDLE_SECONDS, worker.megabytes()
