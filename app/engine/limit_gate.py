"""The gate of limits: gives permits to waiting runs and calls, rings for those that may start, and looks again in time.

A permit is given in Postgres by whoever looks at its bucket: after a run was claimed, has ended, or at the time that
the rate allows the next start. Recovery looks at all buckets, in case that nobody else did.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from app.actions.context import RefusedError
from app.domain.errors import UnavailableError
from app.domain.permits import LimitOfCall, LimitUse, PermitHolder, no_such_limit
from app.engine.ringing import Ringer
from app.micro_batcher import MicroBatcher
from app.persistence import permits
from app.persistence.database import Database
from app.persistence.permits import Call, CallPermits, Entered, Entry
from app.persistence.quotas import QuotaBook

# Buckets that one transaction looks at.
PAGE = 100
MOST_TIMERS = 10_000
OUTAGE_PAUSE_SECONDS = 1.0
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
        self._calls = MicroBatcher("limited_calls", self._enter, shared=(UnavailableError,))
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

    async def enter(self, call: Entry) -> CallPermits:
        """Ask for the permits of a call. One that has asked before under the same token keeps its place.

        Raise ``RefusedError`` if the limit does not exist.
        """
        answer = await self._calls.ask(call)
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    async def leave(self, calls: Sequence[Call]) -> None:
        """Return the permits of calls that have ended, and give them to others."""
        async with self._database.transaction("return_permits") as connection:
            buckets = await permits.leave(connection, calls)
        self.look(buckets)

    async def _enter(self, asked: Sequence[Entry]) -> Sequence[CallPermits | RefusedError]:
        """Enter calls, look at their buckets, and read what came of it: each in a transaction of its own.

        In one transaction the locks of permits would come before those of buckets.
        """
        known = await self._read(asked)
        entered = await self._enter_new([entry for entry in asked if entry.holder not in known])
        waiting = {holder: call.buckets for holder, call in known.items() if call.wait_seconds is None}
        waiting |= entered.buckets
        await self.look_at(bucket for buckets in waiting.values() for bucket in buckets)
        known |= await self._read([entry for entry in asked if entry.holder in waiting])
        return [_answer(entry.holder, known, entered) for entry in asked]

    async def _enter_new(self, entries: Sequence[Entry]) -> Entered:
        if not entries:
            return Entered({}, {})
        async with self._database.transaction("enter_limits") as connection:
            return await permits.enter(connection, entries)

    async def _read(self, entries: Sequence[Entry]) -> dict[PermitHolder, CallPermits]:
        calls = [Call(entry.holder.execution_id, entry.holder.node_id, entry.token) for entry in entries]
        if not calls:
            return {}
        async with self._database.reading("read_permits") as connection:
            return await permits.of_calls(connection, calls)

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


NOT_CURRENT = CallPermits((), None)


def _answer(
    holder: PermitHolder, known: Mapping[PermitHolder, CallPermits], entered: Entered
) -> CallPermits | RefusedError:
    if holder in entered.missing:
        return RefusedError(no_such_limit(entered.missing[holder]).message)
    # A run that has ended meanwhile has no permits.
    return known.get(holder, NOT_CURRENT)


class CallLimit:
    """The limit that a call in a run names, and the quota of the run's owner, as its action sees them."""

    def __init__(self, gate: LimitGate, entry: Entry, owner_id: int) -> None:
        """Ask by this entry, which has the quota among its uses, if there is one; names are those of the owner's."""
        self._gate = gate
        self._entry = entry
        self._owner_id = owner_id

    @property
    def has_quota(self) -> bool:
        """Return whether the owner of the run may make so many calls in a second."""
        return bool(self._entry.uses)

    async def enter(self, limit: LimitOfCall | None) -> bool:
        """Return whether the call may be made now. If it soon may, wait for that; else it has to be asked again."""
        named = () if limit is None else (LimitUse(self._owner_id, limit.name, limit.text),)
        while True:
            try:
                permits_of_call = await self._gate.enter(replace(self._entry, uses=(*self._entry.uses, *named)))
                break
            except UnavailableError:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
        if permits_of_call.wait_seconds is None:
            return False
        await asyncio.sleep(permits_of_call.wait_seconds)
        return True

    async def leave(self) -> None:
        """Return the permit. If Postgres is away it is returned when the run ends or is parked."""
        holder = self._entry.holder
        with suppress(UnavailableError):
            await self._gate.leave([Call(holder.execution_id, holder.node_id, self._entry.token)])
