"""Ringing: a true answer for each message, and none queued twice.

Covers app.engine.ringing.
"""

from datetime import timedelta
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from app import clock
from app.domain.executions import PendingRun
from app.engine.queue_port import PROBLEMS, QueueUnavailableError, Wake
from app.engine.ringing import BellHealth, Ringer
from app.queue.bell import RING_BATCH, Bell, RedisPool, open_pool
from app.queue.message_format import BODY_EXTRA_MS, EPOCH_KEY, QUEUE
from app.queue.rate_counter import RedisCounter
from tests.support.redis_refusals import REFUSALS, healed


def wake(name: str, seconds: float = 0) -> Wake:
    """A message that is due so many seconds from now."""
    return Wake(name, "execute_scheduled_job", ("x", 1), clock.now() + timedelta(seconds=seconds))


async def test_the_answers_are_true(redis: RedisPool) -> None:
    """Queued now, or there already."""
    bell = Bell(redis)
    assert [True, True] == await bell.ring([wake("a"), wake("b")], clock.now())
    assert [False, True] == await bell.ring([wake("a"), wake("c")], clock.now())
    assert 3 == await redis.zcard(QUEUE)


async def test_many_messages_are_rung_in_batches(redis: RedisPool) -> None:
    """Each is answered."""
    count = RING_BATCH * 2 + 1
    answers = await Bell(redis).ring([wake(f"j{k}") for k in range(count)], clock.now())
    assert [True] * count == answers


@pytest.mark.parametrize("missing", ["body", "entry"])
async def test_a_half_message_is_made_whole(redis: RedisPool, missing: str) -> None:
    """A body without a queue entry, or the other way round, wakes nobody."""
    bell = Bell(redis)
    await bell.ring([wake("a")], clock.now())
    if missing == "body":
        await redis.delete("arq:job:a")
    else:
        await redis.zrem(QUEUE, "a")
    assert [True] == await bell.ring([wake("a")], clock.now())
    assert await redis.exists("arq:job:a")
    assert await redis.zscore(QUEUE, "a")


async def test_a_body_outlives_a_far_deferral(redis: RedisPool) -> None:
    """A monthly tick's body is still there when its time comes."""
    month = 31 * 86_400
    await Bell(redis).ring([wake("a", month)], clock.now())
    assert await redis.pttl("arq:job:a") > month * 1000 + BODY_EXTRA_MS - 60_000


async def test_a_flush_takes_the_epoch_along(redis: RedisPool) -> None:
    """That is how it is noticed."""
    bell = Bell(redis)
    assert not await bell.is_intact()
    await bell.begin_refill()
    assert await bell.finish_refill()
    assert await bell.is_intact()
    await redis.flushall()
    assert not await bell.is_intact()
    assert not await redis.exists(EPOCH_KEY)


async def test_a_redis_that_is_away_is_one_kind_of_error() -> None:
    """Whatever redis-py calls it."""
    pool = open_pool("unix:///nowhere/valkey.sock")
    bell = Bell(pool)
    with pytest.raises(QueueUnavailableError):
        await bell.ring([wake("a")], clock.now())
    with pytest.raises(QueueUnavailableError):
        await bell.ping()
    with pytest.raises(QueueUnavailableError):
        await RedisCounter(pool).count("x", 1, 60)
    await pool.aclose()


async def test_a_counter_has_a_limit_for_each_key(redis: RedisPool) -> None:
    """Over the limit there is a time to wait, at most the window; other keys are not concerned."""
    counter = RedisCounter(redis)
    assert [0, 0] == [await counter.count("a", 2, 60) for _ in range(2)]
    assert 0 < await counter.count("a", 2, 60) <= 60
    assert 0 == await counter.count("b", 2, 60)


async def test_a_counter_without_a_time_to_live_is_given_one(redis: RedisPool) -> None:
    """Else it would refuse requests for ever."""
    await redis.set("a", 5)
    assert 0 < await RedisCounter(redis).count("a", 2, 60) <= 60
    assert 0 < await redis.pttl("a") <= 60_000


async def test_a_flush_while_it_is_filled_is_noticed(redis: RedisPool) -> None:
    """What was queued before the flush is gone: the epoch does not begin."""
    bell = Bell(redis)
    await bell.begin_refill()
    await redis.flushdb()
    assert not await bell.finish_refill()
    assert not await bell.is_intact()


@pytest.mark.parametrize("kind", REFUSALS)
async def test_health_is_judged_by_a_write(redis: RedisPool, kind: str) -> None:
    """A Redis that answers reads and refuses writes is sick, and the kind of it is said; then it is well again."""
    health = BellHealth(Bell(redis))
    try:
        await REFUSALS[kind](redis)
        assert 0 == await redis.exists("any key")
        await health.probe()
        assert (True, PROBLEMS[kind]) == (health.down.is_set(), health.problem)
        assert 1.0 == REGISTRY.get_sample_value("carillon_bell_problem", {"kind": kind})
    finally:
        await healed(redis)
    await health.probe()
    assert (False, "") == (health.down.is_set(), health.problem)
    assert 0.0 == REGISTRY.get_sample_value("carillon_bell_problem", {"kind": kind})


async def test_after_failed_rings_messages_may_be_missing(redis: RedisPool) -> None:
    """However short it was: what could not be queued is not there."""
    health = BellHealth(Bell(redis))
    health.ring_failed(QueueUnavailableError("gone"))
    assert not health.may_lack_messages
    await health.probe()
    assert health.may_lack_messages


async def test_nobody_waits_for_a_redis_that_is_known_to_be_sick() -> None:
    """A ring answers at once without asking it, and everything is queued again later."""
    pool = open_pool("unix:///nowhere/valkey.sock")
    health = BellHealth(Bell(pool))
    ringer = Ringer(Bell(pool), health)
    health.failed(QueueUnavailableError("gone"))
    before = REGISTRY.get_sample_value("carillon_bell_errors_total")
    run = PendingRun(UUID(int=1), 1, clock.now())
    assert 0 == await ringer.executions([run])
    assert before == REGISTRY.get_sample_value("carillon_bell_errors_total")
    assert health.rings_failed
    await pool.aclose()
