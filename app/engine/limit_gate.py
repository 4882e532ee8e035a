"""The gate of limits: gives permits to waiting runs and calls, rings for those that may start, and looks again in time.

A permit is given in Postgres by whoever looks at its bucket: after a run was claimed, has ended, or at the time that
the rate allows the next start. Recovery looks at all buckets, in case that nobody else did.
"""

import asyncio
from collections.abc import Iterable, Sequence

from app.domain.errors import UnavailableError
from app.engine.ringing import Ringer
from app.micro_batcher import MicroBatcher
from app.persistence import permits
from app.persistence.database import Database
from app.persistence.quotas import QuotaBook

# Buckets that one transaction looks at.
PAGE = 100
MOST_TIMERS = 10_000
# How soon a worker knows that a quota was set.
QUOTA_SECONDS = 2.0


class LimitGate:
    """Gives permits of limits, in one transaction for all buckets that are named at the same time."""

    def __init__(self, database: Database, ringer: Ringer, quotas: QuotaBook | None = None) -> None:
        """Ring for the runs that get their permits."""
        self._database = database
        self.quotas = quotas or QuotaBook()
        self._ringer = ringer
        # One at a time: a second transaction of this process would wait for the locks of the first.
        self._looks = MicroBatcher("limits", self._look, shared=(UnavailableError,), at_once=1)
        # The buckets to look at again, each with its timer.
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def look(self, buckets: Iterable[int]) -> None:
        """Give the free permits of these buckets soon."""
        for bucket in set(buckets):
            self._looks.tell(bucket)

    async def look_at(self, buckets: Iterable[int]) -> None:
        """Give the free permits of these buckets now."""
        asked = [self._looks.ask(bucket) for bucket in set(buckets)]
        if asked:
            await asyncio.gather(*asked)

    async def look_at_all(self) -> None:
        """Give the free permits of all buckets that something waits for."""
        async with self._database.reading("find_waited_for") as connection:
            buckets = await permits.waited_for(connection)
        await self.look_at(buckets)

    async def read_quotas(self) -> float:
        """Read the quotas that admins have set. Return the seconds until they should be read again."""
        async with self._database.reading("read_quotas") as connection:
            await self.quotas.refreshed(connection)
        return QUOTA_SECONDS

    async def _look(self, asked: Sequence[int]) -> Sequence[None]:
        buckets = sorted(set(asked))
        for start in range(0, len(buckets), PAGE):
            page = buckets[start : start + PAGE]
            async with self._database.transaction("give_permits") as connection:
                advanced = await permits.advance(connection, page, await self.quotas.refreshed(connection))
            if advanced.ask_again_seconds is not None:
                self._look_again(page, advanced.ask_again_seconds)
            await self._ringer.executions(advanced.runs)
        return [None] * len(asked)

    def _look_again(self, buckets: Iterable[int], seconds: float) -> None:
        """Look at buckets again later. If this process ends before, recovery looks."""
        loop = asyncio.get_running_loop()
        for bucket in buckets:
            planned = self._timers.get(bucket)
            if planned is not None:
                planned.cancel()
            elif len(self._timers) >= MOST_TIMERS:
                return
            self._timers[bucket] = loop.call_later(seconds, self._timer_ended, bucket)

    def _timer_ended(self, bucket: int) -> None:
        self._timers.pop(bucket, None)
        self._looks.tell(bucket)
