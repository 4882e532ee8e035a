"""Whoever writes to Redis decides nothing: forged messages and cancellations change no run and no schedule."""

import asyncio
from typing import Any

from app import clock
from app.config import Settings
from app.engine.queue_port import EXECUTE, RUN, Wake
from app.persistence.database import Database
from app.queue.bell import Bell, RedisPool
from app.queue.message_format import CANCEL_CHANNEL, QUEUE, body_of
from tests.support.carillon import Carillon, Json, http_node, until, working
from tests.support.http_sink import Sink


def forged(name: str, function: str, *args: Any) -> Wake:
    """A message that Carillon would not write."""
    return Wake(name, function, args, clock.now())


async def asked_for(carillon: Carillon, sink: Sink) -> tuple[Json, Json]:
    """A schedule that calls the sink, and a run of it that somebody has asked for."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    return schedule, await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)


async def all_taken(redis: RedisPool) -> bool:
    """Whether every forged message has had its end."""
    return not [name for name in await redis.zrange(QUEUE, 0, -1) if not name.startswith((b"sched-", b"exec-"))]


async def test_arguments_that_nothing_has_are_dropped(
    carillon: Carillon, settings: Settings, redis: RedisPool, sink: Sink
) -> None:
    """They neither fail the run that they name nor count against its schedule; and the worker goes on."""
    released = asyncio.Event()
    sink.hold_until(released)
    schedule, execution = await asked_for(carillon, sink)
    async with working(settings):
        await sink.wait_for_calls(1)
        for number in (2**31, 2**63, 2**64 - 1, -1, True, 1.5, "1", None):
            await Bell(redis).ring(
                [
                    *(forged(f"{number}-{k}", RUN, execution["id"], number) for k in range(4)),
                    *(forged(f"{number}-{k}", EXECUTE, schedule["id"], number) for k in range(4, 8)),
                    forged(f"{number}-8", RUN, "no id", 1),
                    forged(f"{number}-9", RUN, execution["id"], 1, 2),
                    forged(f"{number}-10", EXECUTE, schedule["id"]),
                ],
                clock.now(),
            )
        await until(lambda: all_taken(redis))
        released.set()
        await until(lambda: ended(carillon, execution))
    shown = await carillon.get(schedule)
    assert ("active", "", 0) == (shown["status"], shown["status_reason"], shown["error_count"])
    run = await carillon.call("GET", f"/executions/{execution['id']}/")
    assert ("success", 1) == (run["status"], len(sink.calls))


async def ended(carillon: Carillon, execution: Json) -> Any:
    """When it ended, if it has."""
    return (await carillon.call("GET", f"/executions/{execution['id']}/"))["finished_at"]


async def test_a_wrong_token_fails_no_run(
    carillon: Carillon, settings: Settings, redis: RedisPool, sink: Sink, database: Database
) -> None:
    """A run that waits to be started is started by its own token, however many others were tried."""
    _, execution = await asked_for(carillon, sink)
    await redis.flushall()
    async with working(settings):
        tokens = (2, 3, 2**31 - 1)
        await Bell(redis).ring([forged(f"f{one}", RUN, execution["id"], one) for one in tokens], clock.now())
        await until(lambda: ended(carillon, execution))
    assert 1 == len(sink.calls)


async def test_a_forged_cancellation_drops_no_run(
    carillon: Carillon, settings: Settings, redis: RedisPool, sink: Sink
) -> None:
    """The target is called once, and the run ends as it does."""
    released = asyncio.Event()
    sink.hold_until(released)
    _, execution = await asked_for(carillon, sink)
    async with working(settings):
        await sink.wait_for_calls(1)
        for _ in range(20):
            await redis.publish(CANCEL_CHANNEL, execution["id"])
        # Something that is delivered after them: they have been heard by then.
        other = await carillon.schedule()
        await carillon.call("POST", f"/schedules/{other['id']}/run/", 202)
        await until(lambda: carillon.runs(other))
        released.set()
        await until(lambda: ended(carillon, execution))
    shown = await carillon.call("GET", f"/executions/{execution['id']}/")
    assert ("success", 1) == (shown["status"], len(sink.calls))


async def test_a_true_cancellation_is_still_believed(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """The call is dropped at once, not when the lease is renewed."""
    released, dropped = asyncio.Event(), asyncio.Event()

    async def hold(_request: Any) -> Any:
        try:
            await released.wait()
        except asyncio.CancelledError:
            dropped.set()
            raise

    sink.answer = hold
    _, execution = await asked_for(carillon, sink)
    async with working(settings):
        await sink.wait_for_calls(1)
        await carillon.call("POST", f"/executions/{execution['id']}/cancel/")
        async with asyncio.timeout(60):
            await dropped.wait()


async def test_an_id_that_is_no_text_has_an_end(carillon: Carillon, settings: Settings, redis: RedisPool) -> None:
    """Whatever its body: it is delivered once, and taken out of the queue."""
    schedule = await carillon.schedule()
    body = body_of(forged("x", EXECUTE, schedule["id"], 99))
    names = [b"\xff\xfe\x00id", b"\xc3("]
    for name in names:
        await redis.set(b"arq:job:" + name, body)
    await redis.zadd(QUEUE, dict.fromkeys(names, 1))
    async with working(settings):

        async def gone() -> bool:
            return all([await redis.zscore(QUEUE, name) is None for name in names])

        await until(gone)
    shown = await carillon.get(schedule)
    assert ("active", "") == (shown["status"], shown["status_reason"])
