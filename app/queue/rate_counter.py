"""A counter in Redis with a window of time, for the rate limits of the API (``app.api.rate_limits``)."""

from app.queue.bell import RedisPool, bell_errors
from app.queue.lua_scripts import COUNT


class RedisCounter:
    """Counts under keys that all processes share."""

    def __init__(self, redis: RedisPool) -> None:
        """Use this pool; the caller closes it."""
        self._redis = redis
        self._count = redis.register_script(COUNT)

    async def count(self, key: str, limit: int, window_seconds: int) -> float:
        """Count one more. Return the seconds until the window ends if that is over the limit, else 0.

        Raise ``QueueUnavailableError`` if Redis cannot count.
        """
        async with bell_errors():
            wait_ms: int = await self._count(keys=[self._redis.key(key)], args=[limit, window_seconds * 1000])
        return wait_ms / 1000
