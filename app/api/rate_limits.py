"""Rate limits: how many requests a user may make in a minute, and how many logins and failed ones an address.

Requests are counted outside of the process, so that all processes of the API share one limit.
"""

import math
from hashlib import sha256
from typing import Protocol

from app.engine.queue_port import QueueUnavailableError

WINDOW_SECONDS = 60


class RequestCounter(Protocol):
    """Counts what happens under a key within a window of time. ``app.queue.rate_counter`` does so in Redis."""

    async def count(self, key: str, limit: int, window_seconds: int) -> float:
        """Count one more. Return the seconds until the window ends if that is over the limit, else 0.

        Raise ``QueueUnavailableError`` if it cannot be counted.
        """
        ...


class RateLimits:
    """The limits of one deployment. A user and an address that logs in or fails to authenticate are counted apart.

    All tokens and sessions of a user count together, because a user makes many of them. An address alone is no reason
    to refuse a request: many clients may share one behind a proxy.
    """

    def __init__(self, counter: RequestCounter, per_minute: int, failures_per_minute: int = 0) -> None:
        """Allow so many requests, logins and failed ones in a minute; a ``per_minute`` of 0 switches all limits off.

        Logins and failed ones are limited by the smaller of both numbers; ``failures_per_minute`` of 0 means
        ``per_minute``.
        """
        self._counter = counter
        self._per_minute = per_minute
        self._failures_per_minute = min(per_minute, failures_per_minute or per_minute)

    async def count_request(self, user_id: int) -> int | None:
        """Count a request of a user. Return the seconds to wait if there were too many, else None."""
        return await self._count(f"carillon:limit:user:{user_id}", self._per_minute)

    async def count_callback(self, token: str) -> int | None:
        """Count a request with a valid callback token. Return the seconds to wait if there were too many, else None.

        Only valid tokens are counted: made-up ones would fill Redis with a key each.
        """
        digest = sha256(token.encode()).hexdigest()[:32]
        return await self._count(f"carillon:limit:token:{digest}", self._per_minute)

    async def count_login(self, address: str) -> int | None:
        """Count an attempt to log in from an address. Return the seconds to wait if there were too many, else None."""
        return await self._count(f"carillon:limit:login:{address}", self._failures_per_minute)

    async def count_failure(self, address: str) -> int | None:
        """Count a failed login from an address. Return the seconds to wait if there were too many, else None."""
        return await self._count(f"carillon:limit:address:{address}", self._failures_per_minute)

    async def _count(self, key: str, per_minute: int) -> int | None:
        """Count under a key. While Redis is unavailable every request is allowed: the API works without Redis."""
        if not per_minute:
            return None
        try:
            wait_seconds = await self._counter.count(key, per_minute, WINDOW_SECONDS)
        except QueueUnavailableError:
            return None
        return math.ceil(wait_seconds) if wait_seconds else None
