"""The bell: wake-ups into Redis with a true answer for each, and word of what was cancelled."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from arq.connections import ArqRedis
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.observability.metrics import BELL_ERRORS
from app.queue.scripts import PROBE, RING
from app.queue.wire import (
    BODY_EXTRA_MS,
    CANCEL_CHANNEL,
    EPOCH_KEY,
    FILLING_KEY,
    PROBE_KEY,
    QUEUE,
    WAKE_CHANNEL,
    Wake,
    serialize,
)

RING_BATCH = 500
# A Redis that does not answer within this is away.
CALL_SECONDS = 2.0


# What can be wrong with Redis, by kind, and how that is said.
PROBLEMS = {
    "unreachable": "It cannot be reached.",
    "timeout": "It does not answer in time, or its writes are paused.",
    "full": "It is full and refuses writes (maxmemory).",
    "read_only": "It is a replica and refuses writes.",
    "wrong_type": "A key that Carillon uses holds a value of another type.",
    "refused": "It refuses writes.",
}
# Redis begins an error with a word for its kind.
_KINDS = {"OOM": "full", "READONLY": "read_only", "WRONGTYPE": "wrong_type"}


class BellAwayError(Exception):
    """Redis cannot be reached, or does not take what it is given."""

    code = "redis_unavailable"

    def __init__(self, detail: str, kind: str = "unreachable") -> None:
        """``kind`` is one of ``PROBLEMS``."""
        self.kind = kind
        super().__init__(detail)

    @property
    def sentence(self) -> str:
        """What is wrong, for people."""
        return PROBLEMS[self.kind]


def _kind_of(error: Exception) -> str:
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "timeout"
    if not isinstance(error, ResponseError):
        return "unreachable"
    # redis-py takes the word off the errors that have a class of their own; scripts put it behind theirs.
    if isinstance(error, ReadOnlyError):
        return "read_only"
    if isinstance(error, OutOfMemoryError):
        return "full"
    return next((kind for word, kind in _KINDS.items() if word in str(error)), "refused")


@asynccontextmanager
async def bell_errors() -> AsyncIterator[None]:
    """Everything that goes wrong with Redis, a hang too, is the same to us: the bell does not ring now."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except (RedisError, OSError) as error:
        BELL_ERRORS.inc()
        raise BellAwayError(f"{type(error).__name__}: {error}", _kind_of(error)) from error


class Bell:
    """Rings for ticks and executions. Ringing twice for the same state is one message."""

    def __init__(self, redis: ArqRedis) -> None:
        """Use the connections of a pool that someone else closes."""
        self._redis = redis
        self._ring = redis.register_script(RING)
        self._probe = redis.register_script(PROBE)

    async def ring(self, wakes: Sequence[Wake], now: datetime) -> list[bool]:
        """Queue these messages; for each, whether it was queued now (False: it was there already)."""
        answers: list[bool] = []
        now_ms = int(now.timestamp() * 1000)
        for start in range(0, len(wakes), RING_BATCH):
            given: list[str | int] = []
            bodies: list[bytes] = []
            for wake in wakes[start : start + RING_BATCH]:
                score, body = wake.score(), wake.body()
                given += (wake.id, score, max(0, score - now_ms) + BODY_EXTRA_MS, len(body))
                bodies.append(body)
            args = [serialize(given), b"".join(bodies)]
            async with bell_errors():
                answers += map(bool, await self._ring(keys=[QUEUE, WAKE_CHANNEL], args=args))
        return answers

    async def call_off(self, execution_ids: Iterable[UUID]) -> None:
        """Tell the workers that these executions are no longer theirs."""
        async with bell_errors():
            for execution_id in execution_ids:
                await self._redis.publish(CANCEL_CHANNEL, str(execution_id))

    async def remembers(self) -> bool:
        """Whether Redis still holds what was queued: a flush or an empty restart takes the epoch along."""
        async with bell_errors():
            return bool(await self._redis.exists(EPOCH_KEY))

    async def begin_filling(self) -> None:
        """Everything that is planned is going to be queued; a flush in the midst of it takes this mark along."""
        async with bell_errors():
            await self._redis.set(FILLING_KEY, "1")

    async def begin_epoch(self) -> bool:
        """Everything that is planned has been queued; False if a flush came in between, and it is not."""
        async with bell_errors():
            if not await self._redis.exists(FILLING_KEY):
                return False
            await self._redis.set(EPOCH_KEY, "1")
            return True

    async def ping(self) -> None:
        """Raise ``BellAwayError`` unless Redis takes a write, as a ring is one."""
        async with bell_errors():
            await self._probe(keys=[QUEUE, PROBE_KEY], args=[])
