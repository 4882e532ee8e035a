"""The bell: wake-ups into Redis with a true answer for each, and word of what was cancelled."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from app.observability.metrics import BELL_ERRORS
from app.queue.scripts import RING
from app.queue.wire import (
    BODY_EXTRA_MS,
    CANCEL_CHANNEL,
    EPOCH_KEY,
    FILLING_KEY,
    QUEUE,
    WAKE_CHANNEL,
    Wake,
    serialize,
)

RING_BATCH = 500
# A Redis that does not answer within this is away.
CALL_SECONDS = 2.0


class BellAwayError(Exception):
    """Redis cannot be reached, or does not take what it is given."""

    code = "redis_unavailable"


@asynccontextmanager
async def bell_errors() -> AsyncIterator[None]:
    """Everything that goes wrong with Redis, a hang too, is the same to us: the bell does not ring now."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except (RedisError, OSError) as error:
        BELL_ERRORS.inc()
        raise BellAwayError(f"{type(error).__name__}: {error}") from error


class Bell:
    """Rings for ticks and executions. Ringing twice for the same state is one message."""

    def __init__(self, redis: ArqRedis) -> None:
        """Use the connections of a pool that someone else closes."""
        self._redis = redis
        self._ring = redis.register_script(RING)

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
        """Raise ``BellAwayError`` unless Redis answers."""
        async with bell_errors():
            await self._redis.ping()
