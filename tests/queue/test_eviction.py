"""A Redis that evicts keys: warned of, and survived."""

import itertools
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from app.queue.message_format import QUEUE
from tests.support.api_server import serving
from tests.support.carillon import settings_on, until, working
from tests.support.redis_servers import RedisServer

POLICY = "allkeys-random"
FILLER = b"x" * 20_000


async def evict_the_queue(server: RedisServer) -> None:
    """Let other keys take the memory until the queue is gone."""
    async with server.client() as client:
        used = (await client.info("memory"))["used_memory"]
        await client.config_set("maxmemory", used + 50 * len(FILLER))
        numbers = itertools.count()

        async def is_gone() -> bool:
            for number in itertools.islice(numbers, 100):
                with suppress(OutOfMemoryError):
                    await client.set(f"other:{number}", FILLER)
                if not await client.exists(QUEUE):
                    return True
            return False

        await until(is_gone)


async def test_slots_fire_although_their_messages_are_evicted(database_url: str, tmp_path: Path) -> None:
    """Overdue ticks are found in Postgres. The log, readiness and so ``carillon doctor`` name the policy."""
    async with RedisServer(tmp_path, maxmemory_policy=POLICY) as server:
        settings = settings_on(database_url, server.url, tmp_path)
        with capture_logs() as events:
            async with serving(settings) as carillon, working(settings):
                schedule = await carillon.schedule(interval_seconds=1, catch_up="run_all", if_running="allow")
                before = len(await carillon.until_succeeded(schedule, 1))
                await evict_the_queue(server)
                await carillon.until_succeeded(schedule, before + 3)
                outcomes = await carillon.outcomes(schedule, timedelta(seconds=1))
                ready = (await carillon.raw("GET", "/health/ready")).json()
    assert {"fired"} == set(outcomes.values())
    assert f"maxmemory-policy is {POLICY}" in ready["detail"]
    assert {POLICY} == {event["policy"] for event in events if event["event"] == "redis_evicts"}
