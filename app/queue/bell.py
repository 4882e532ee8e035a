"""The bell: the engine's queue port on Redis, the connections it uses, and Redis errors by kind."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from arq.connections import ArqRedis
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.engine.queue_port import Queue, QueueUnavailableError, Wake
from app.observability.metrics import BELL_ERRORS
from app.queue.lua_scripts import PROBE, RING
from app.queue.message_format import (
    BODY_EXTRA_MS,
    CANCEL_CHANNEL,
    EPOCH_KEY,
    FILLING_KEY,
    PROBE_KEY,
    QUEUE,
    WAKE_CHANNEL,
    body_of,
    deserialize,
    score_of,
    serialize,
)
from app.queue.redis_nodes import CLUSTER_PREFIX, located_pool
from app.redis_url import Deployment, parse

RING_BATCH = 500
NO_EVICTION = "noeviction"
# A Redis that does not answer a call within this time counts as unreachable.
CALL_SECONDS = 2.0

CONNECT_TIMEOUT_SECONDS = 2.0
SOCKET_TIMEOUT_SECONDS = 5.0
# One more attempt, for a pooled connection that a restart of Redis has cut. redis-py nests its retries, so
# `CALL_SECONDS` is what bounds a call.
QUICK_RETRIES = 1
QUICK_BACKOFF_CAP_SECONDS = 0.1
# arq's own worker exits on the first error that reaches it, so its calls retry through an outage of minutes.
PATIENT_RETRIES = 900
PATIENT_BACKOFF_CAP_SECONDS = 1.0

# Redis begins the text of an error with a word for its kind.
_KINDS = {"OOM": "full", "READONLY": "read_only", "WRONGTYPE": "wrong_type"}


class RedisPool(ArqRedis):
    """A pool of connections to Redis. The rest of the program uses this name, as it must not import arq."""

    # Begins the name of every key and channel; blank unless Redis is a cluster.
    key_prefix = ""

    def key(self, name: str) -> str:
        """Return the name of a key or channel as this Redis has it."""
        return self.key_prefix + name


@asynccontextmanager
async def bell_errors() -> AsyncIterator[None]:
    """Turn every failure of Redis, a call that hangs included, into ``QueueUnavailableError``, and count it."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except (RedisError, OSError) as error:
        BELL_ERRORS.inc()
        raise QueueUnavailableError(f"{type(error).__name__}: {error}", _kind_of(error)) from error


def _kind_of(error: Exception) -> str:
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "timeout"
    if not isinstance(error, ResponseError):
        return "unreachable"
    # redis-py removes the word from errors that have a class of their own. Errors in scripts have it further back.
    if isinstance(error, ReadOnlyError):
        return "read_only"
    if isinstance(error, OutOfMemoryError):
        return "full"
    return next((kind for word, kind in _KINDS.items() if word in str(error)), "refused")


class Bell(Queue):
    """Rings by Lua scripts on arq's queue in Redis."""

    def __init__(self, redis: RedisPool) -> None:
        """Use this pool; the caller closes it."""
        self._redis = redis
        self._queue = redis.key(QUEUE)
        self._wake_channel = redis.key(WAKE_CHANNEL)
        self._ring = redis.register_script(RING)
        self._probe = redis.register_script(PROBE)

    async def ring(self, wakes: Sequence[Wake], now: datetime) -> list[bool]:
        """Queue these messages. Return for each whether it was queued now; False means that it was there already."""
        answers: list[bool] = []
        now_ms = int(now.timestamp() * 1000)
        for start in range(0, len(wakes), RING_BATCH):
            heads: list[str | int] = []
            bodies: list[bytes] = []
            for wake in wakes[start : start + RING_BATCH]:
                score, body = score_of(wake), body_of(wake)
                heads += (wake.id, score, max(0, score - now_ms) + BODY_EXTRA_MS, len(body), wake.replaces)
                bodies.append(body)
            args = [serialize(heads), b"".join(bodies)]
            async with bell_errors():
                answers += map(bool, await self._ring(keys=[self._queue, self._wake_channel], args=args))
        return answers

    async def call_off(self, execution_ids: Iterable[UUID]) -> None:
        """Publish that these executions may have been cancelled."""
        async with bell_errors():
            for execution_id in execution_ids:
                await self._redis.publish(self._redis.key(CANCEL_CHANNEL), str(execution_id))

    async def is_intact(self) -> bool:
        """Return whether the mark of the last refill is there. A flush or a restart without data removes it."""
        async with bell_errors():
            return bool(await self._redis.exists(self._redis.key(EPOCH_KEY)))

    async def begin_refill(self) -> None:
        """Set a mark that a flush during the refill would remove."""
        async with bell_errors():
            await self._redis.set(self._redis.key(FILLING_KEY), "1")

    async def finish_refill(self) -> bool:
        """Mark the queue as intact. Return False, without a mark, if a flush came during the refill."""
        async with bell_errors():
            if not await self._redis.exists(self._redis.key(FILLING_KEY)):
                return False
            await self._redis.set(self._redis.key(EPOCH_KEY), "1")
            return True

    async def evicts_by(self) -> str:
        """Return the eviction policy of Redis, blank if it evicts nothing or does not say."""
        try:
            async with bell_errors():
                memory = await self._redis.info("memory")
        except QueueUnavailableError:
            # A user of Redis may be forbidden to ask.
            return ""
        policy = str(memory.get("maxmemory_policy", NO_EVICTION))
        return "" if policy == NO_EVICTION else policy

    async def ping(self) -> None:
        """Raise ``QueueUnavailableError`` unless Redis takes a write like that of a ring."""
        async with bell_errors():
            await self._probe(keys=[self._queue, self._redis.key(PROBE_KEY)], args=[])


def open_pool(url: str) -> RedisPool:
    """Return a pool for Carillon's own code, which handles errors itself and needs to see them soon."""
    return _open(url, QUICK_RETRIES, QUICK_BACKOFF_CAP_SECONDS)


def open_patient_pool(url: str) -> RedisPool:
    """Return a pool for arq's own worker, which does not survive an error."""
    return _open(url, PATIENT_RETRIES, PATIENT_BACKOFF_CAP_SECONDS)


def _open(url: str, retries: int, backoff_cap: float) -> RedisPool:
    """Make a pool that connects on first use. redis-py parses the URL: percent-encoding and unix sockets work."""
    target = parse(url)
    options: dict[str, Any] = {
        "socket_timeout": SOCKET_TIMEOUT_SECONDS,
        "socket_connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "retry": Retry(ExponentialBackoff(cap=backoff_cap, base=0.02), retries),
        "retry_on_error": [RedisConnectionError, RedisTimeoutError, OSError],
    }
    if target.deployment is Deployment.SERVER:
        pool = ConnectionPool.from_url(target.server_url, **options)
    else:
        pool = located_pool(target, **options)
    redis = RedisPool(pool, job_serializer=serialize, job_deserializer=deserialize)
    redis.key_prefix = CLUSTER_PREFIX if target.deployment is Deployment.CLUSTER else ""
    # Only this client uses the pool, so closing the client closes it too.
    redis.auto_close_connection_pool = True
    return redis
