"""Request counting in Redis, so that all API processes share one limit."""

import math
from hashlib import sha256

from arq.connections import ArqRedis

from app.engine.queue_port import QueueUnavailableError
from app.queue.bell import bell_errors
from app.queue.scripts import LIMIT

WINDOW_MS = 60_000


class RateLimits:
    """So many requests a minute for each token, and so many failed attempts for each address."""

    def __init__(self, redis: ArqRedis, per_minute: int, failures_per_minute: int = 0) -> None:
        """A limit of 0 switches the counting off; failures are counted by the smaller of both."""
        self._per_minute = per_minute
        self._failures_per_minute = min(per_minute, failures_per_minute or per_minute)
        self._limit = redis.register_script(LIMIT)

    async def count_request(self, token: str) -> int | None:
        """Count a request with a token that was found valid; the seconds to wait if there were too many.

        Only valid tokens get here, so that nobody can fill Redis with made-up ones.
        """
        digest = sha256(token.encode()).hexdigest()[:32]
        return await self._count(f"carillon:limit:token:{digest}", self._per_minute)

    async def count_failure(self, address: str) -> int | None:
        """Count a failed attempt to authenticate; the seconds to wait if there were too many."""
        return await self._count(f"carillon:limit:address:{address}", self._failures_per_minute)

    async def _count(self, key: str, per_minute: int) -> int | None:
        """Without Redis nobody is limited."""
        if not per_minute:
            return None
        try:
            async with bell_errors():
                wait_ms = await self._limit(keys=[key], args=[per_minute, WINDOW_MS])
        except QueueUnavailableError:
            return None
        return math.ceil(wait_ms / 1000) if wait_ms else None
