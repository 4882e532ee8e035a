"""Request counting in Redis, so that all API processes share one limit."""

import math

from arq.connections import ArqRedis

from app.queue.bell import BellAwayError, bell_errors
from app.queue.scripts import LIMIT

WINDOW_MS = 60_000


class RateLimits:
    """So many requests a minute for each party: a token, an address."""

    def __init__(self, redis: ArqRedis, per_minute: int) -> None:
        """A limit of 0 switches the counting off."""
        self._per_minute = per_minute
        self._limit = redis.register_script(LIMIT)

    @property
    def are_on(self) -> bool:
        """Whether anything is counted."""
        return bool(self._per_minute)

    async def retry_after(self, parties: list[str]) -> int | None:
        """The seconds to wait if one of the parties is over the limit. Without Redis nobody is limited."""
        if not self._per_minute:
            return None
        keys = [f"carillon:limit:{party}" for party in parties]
        try:
            async with bell_errors():
                wait_ms = await self._limit(keys=keys, args=[self._per_minute, WINDOW_MS])
        except BellAwayError:
            return None
        return math.ceil(wait_ms / 1000) if wait_ms else None
