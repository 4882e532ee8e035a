"""The worker's loop, on a real Redis, with functions of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from structlog.testing import capture_logs

from app import clock
from app.engine.queue_port import Delivered, OnEnd, Redeliver, Wake
from app.queue.bell import Bell, RedisPool
from app.queue.message_format import QUEUE, body_of
from app.queue.worker import QueueWorker
from tests.support.carillon import until


class Deliveries:
    """Remembers what was delivered."""

    redis: RedisPool

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.cancelled: list[str] = []
        self.release = asyncio.Event()

    async def note(self, _delivered: Delivered, name: str) -> None:
        """A function that remembers its argument."""
        self.seen.append(name)

    async def put_back_once(self, _delivered: Delivered, name: str) -> None:
        """A function that wants its first delivery again."""
        self.seen.append(name)
        if self.seen.count(name) == 1:
            raise Redeliver(0.05)

    async def crash(self, _delivered: Delivered, name: str) -> None:
        """A function with a defect."""
        self.seen.append(name)
        raise RuntimeError(name)

    async def hold(self, _delivered: Delivered, name: str) -> None:
        """A function that takes its time."""
        self.seen.append(name)
        await self.release.wait()

    async def replace(self, delivered: Delivered, name: str) -> None:
        """A function whose message another one takes the place of."""
        delivered.is_replaced = True
        follower = Wake("follower", "note", (name,), clock.now() + timedelta(hours=1), delivered.id)
        await Bell(self.redis).ring([follower], clock.now())
        self.seen.append(name)
        await self.release.wait()

    async def wait_for(self, count: int) -> list[str]:
        """Until so many deliveries were made."""

        async def enough() -> list[str] | None:
            return self.seen if len(self.seen) >= count else None

        return await until(enough)


@asynccontextmanager
async def worker(redis: RedisPool, deliveries: Deliveries, **options: Any) -> AsyncIterator[QueueWorker]:
    """A worker that runs as long as the block lasts."""
    deliveries.redis = redis
    functions = {name: getattr(deliveries, name) for name in ("note", "put_back_once", "crash", "hold", "replace")}
    settings = {"concurrency": 100, "lease_seconds": 30, "on_cancel": deliveries.cancelled.append, **options}
    made = QueueWorker(redis, functions, **settings)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.stop()
        deliveries.release.set()
        await task
        await made.finished()


def wake(name: str, function: str = "note", seconds: float = 0) -> Wake:
    """A message."""
    return Wake(name, function, (name,), clock.now() + timedelta(seconds=seconds))


async def nothing_queued(redis: RedisPool) -> bool:
    """Whether every trace of every message is gone."""
    return not await redis.keys("arq:*")


async def test_messages_are_delivered_when_due_and_leave_nothing_behind(redis: RedisPool) -> None:
    """In the order of their times, each once."""
    deliveries = Deliveries()
    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("late", seconds=0.4), wake("soon", seconds=0.1), wake("now")], clock.now())
        assert ["now", "soon", "late"] == await deliveries.wait_for(3)
        await until(lambda: nothing_queued(redis))


async def test_a_publish_wakes_a_sleeping_worker(redis: RedisPool) -> None:
    """Something earlier than what it sleeps for is delivered at its time."""
    deliveries = Deliveries()
    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("far", seconds=3600)], clock.now())
        await Bell(redis).ring([wake("near")], clock.now())
        assert ["near"] == await deliveries.wait_for(1)


async def test_a_message_that_is_put_back_comes_again(redis: RedisPool) -> None:
    """After its delay, and then it is finished."""
    deliveries = Deliveries()
    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("again", "put_back_once")], clock.now())
        assert ["again", "again"] == await deliveries.wait_for(2)
        await until(lambda: nothing_queued(redis))


async def test_a_crash_in_a_function_is_survived(redis: RedisPool) -> None:
    """The message ends, the worker goes on."""
    deliveries = Deliveries()
    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("bad", "crash")], clock.now())
        await deliveries.wait_for(1)
        await Bell(redis).ring([wake("good")], clock.now())
        assert ["bad", "good"] == await deliveries.wait_for(2)
        await until(lambda: nothing_queued(redis))


async def test_a_function_with_a_starter_needs_no_task(redis: RedisPool) -> None:
    """Its messages are finished, put back or logged by what it reports at the end."""
    deliveries = Deliveries()
    waiting: list[OnEnd] = []

    def begin(_delivered: Delivered, args: Sequence[Any], on_end: OnEnd) -> None:
        deliveries.seen.append(args[0])
        if args[0] == "held":
            waiting.append(on_end)
        elif args[0] == "again" and deliveries.seen.count("again") == 1:
            on_end(Redeliver(0.05))
        else:
            on_end(RuntimeError("a defect") if args[0] == "bad" else None)

    async with worker(redis, deliveries, starters={"note": begin}, concurrency=4) as made:
        with capture_logs() as events:
            await Bell(redis).ring([wake("good"), wake("again"), wake("bad"), wake("held")], clock.now())
            await deliveries.wait_for(5)
        assert ["again", "again", "bad", "good", "held"] == sorted(deliveries.seen)
        assert ["message_failed"] == [event["event"] for event in events]
        await until(lambda: is_alone(redis, "held"))
        made.stop()
        waiting.pop()(None)
        await made.finished()
        assert await nothing_queued(redis)


async def is_alone(redis: RedisPool, name: str) -> bool:
    """Whether a message is the only one in the queue."""
    queued: list[bytes] = await redis.zrange(QUEUE, 0, -1)
    return [name.encode()] == queued


async def test_garbage_is_removed_and_survived(redis: RedisPool) -> None:
    """Bytes, other types, unknown functions, missing bodies, keys of the wrong kind."""
    deliveries = Deliveries()
    await redis.set("arq:job:noise", b"\xff\x00garbage")
    await redis.set("arq:job:list", msgspec.msgpack.encode([1, 2, 3]))
    await redis.set("arq:job:args", msgspec.msgpack.encode({"f": "note", "a": 5, "k": 5, "t": 1, "et": 1}))
    await redis.set("arq:job:unknown", body_of(Wake("u", "no_such", (), clock.now())))
    await redis.zadd("arq:job:zset", {"a": 1})
    members = [b"noise", b"list", b"args", b"unknown", b"zset", b"orphan", b"\xfe\xff"]
    await redis.zadd(QUEUE, dict.fromkeys(members, 1))
    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("good")], clock.now())
        assert ["good"] == await deliveries.wait_for(1)

        async def gone() -> bool:
            return bool(await redis.zcard(QUEUE) == 0)

        await until(gone)


async def test_the_next_message_takes_the_place_of_the_one_that_is_handled(redis: RedisPool) -> None:
    """In one call, while its function goes on; nothing of it is left, then and afterwards."""
    deliveries = Deliveries()

    async def left() -> set[bytes]:
        return {QUEUE.encode(), *await redis.zrange(QUEUE, 0, -1)} ^ set(await redis.keys("arq:*"))

    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("m", "replace")], clock.now())
        await deliveries.wait_for(1)
        assert {b"follower", b"arq:job:follower"} == await left()
    assert {b"follower", b"arq:job:follower"} == await left()


async def test_long_runs_starve_nobody(redis: RedisPool) -> None:
    """What runs is out of the head of the queue."""
    deliveries = Deliveries()
    async with worker(redis, deliveries, concurrency=1000):
        await Bell(redis).ring([wake(f"long{k}", "hold") for k in range(600)], clock.now())
        await deliveries.wait_for(600)
        await Bell(redis).ring([wake("short")], clock.now())
        assert "short" == (await deliveries.wait_for(601))[-1]


async def test_a_dead_workers_message_comes_back_after_its_lease(redis: RedisPool) -> None:
    """And the dead one's late finish takes nothing away from its new owner."""
    first, second = Deliveries(), Deliveries()
    async with worker(redis, first, lease_seconds=0.3):
        await Bell(redis).ring([wake("m", "hold")], clock.now())
        await first.wait_for(1)
        async with worker(redis, second, lease_seconds=30) as other:
            assert ["m"] == (await until(lambda: _either(first, second)))[:1]
            first.release.set()
            assert await redis.exists("arq:job:m")
            assert other is not None


async def _either(first: Deliveries, second: Deliveries) -> list[str] | None:
    return second.seen or (first.seen[1:] or None)


async def test_what_a_stock_worker_has_in_progress_is_left_to_it(redis: RedisPool) -> None:
    """It is moved out of the head of the queue, and what is behind it is delivered."""
    deliveries = Deliveries()
    await Bell(redis).ring([wake("theirs")], clock.now())
    await redis.set("arq:in-progress:theirs", b"1")
    async with worker(redis, deliveries):
        await Bell(redis).ring([wake("ours")], clock.now())
        assert ["ours"] == await deliveries.wait_for(1)
        assert await redis.zscore(QUEUE, "theirs") > clock.now().timestamp() * 1000


async def test_word_of_a_cancellation_is_heard(redis: RedisPool) -> None:
    """By publish."""
    deliveries = Deliveries()
    async with worker(redis, deliveries):

        async def heard() -> bool:
            await redis.publish("carillon:cancel", "some-id")
            return "some-id" in deliveries.cancelled

        await until(heard)
