"""Looking up the names of targets: by c-ares, within a deadline, and with a bound for each owner."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import AsyncResolver

from app import clock

# For one lookup in all: every name server, every search domain, A and AAAA.
LOOKUP_SECONDS = 3.0
# For the first of these tries at most, less where the name servers are known to be quick; each further one waits twice
# as long. With fewer tries a quick server that is slow this time would be given up before the deadline.
FIRST_TRY_SECONDS = 1.0
TRIES = 4
LOOKUPS_PER_OWNER = 4
# How long a lookup may wait for one of these places. One owner's calls wait for that owner's lookups only.
PLACE_SECONDS = 12.0
CACHE_SECONDS = 10.0
CACHED_NAMES = 2000
# More addresses are not tried: an answer can hold thousands.
ADDRESSES_PER_NAME = 16

# Whose call is being connected. A plain variable of the caller would be lost inside aiohttp.
current_owner: ContextVar[int] = ContextVar("current_owner", default=0)


class NameNotResolvedError(OSError):
    """The name of a target could not be resolved."""

    code = "name_not_resolved"


class _Places(msgspec.Struct):
    """The lookups that one owner may have under way."""

    free: asyncio.Semaphore
    users: int = 0


class TargetResolver(AbstractResolver):
    """Resolves names for the HTTP client. To be made inside the running loop."""

    def __init__(self, **channel: Any) -> None:
        """``channel`` holds options of c-ares; by default it reads the system's resolv.conf and hosts file."""
        self._library = AsyncResolver(timeout=FIRST_TRY_SECONDS, tries=TRIES, **channel)
        self._owners: dict[int, _Places] = {}
        self._cache: dict[tuple[str, int, int], tuple[float, list[ResolveResult]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; ``NameNotResolvedError`` if there are none in time."""
        key = (host, port, family)
        found = self._cached(key)
        if found is None:
            async with self._place(host):
                # Another call of this owner may have asked for the same name meanwhile.
                found = self._cached(key) or await self._look_up(host, port, family)
            self._keep(key, found)
        return found

    async def close(self) -> None:
        """Drop the lookups that are under way."""
        await self._library.close()

    async def _look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = await self._library.resolve(host, port, family)
        except TimeoutError:
            raise NameNotResolvedError(f"The name {host} could not be resolved within {LOOKUP_SECONDS:g} s.") from None
        except OSError as error:
            reason = error.strerror or "the lookup failed"
            raise NameNotResolvedError(f"The name {host} could not be resolved: {reason}.") from error
        return found[:ADDRESSES_PER_NAME]

    @asynccontextmanager
    async def _place(self, host: str) -> AsyncIterator[None]:
        """Hold one of the owner's places for lookups."""
        owner = current_owner.get()
        places = self._owners.setdefault(owner, _Places(asyncio.Semaphore(LOOKUPS_PER_OWNER)))
        places.users += 1
        try:
            await self._acquire(places, host)
            try:
                yield
            finally:
                places.free.release()
        finally:
            places.users -= 1
            if not places.users:
                del self._owners[owner]

    async def _acquire(self, places: _Places, host: str) -> None:
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await places.free.acquire()
        except TimeoutError:
            raise NameNotResolvedError(
                f"The name {host} was not looked up: {LOOKUPS_PER_OWNER} other lookups of the same owner are under way."
            ) from None

    def _cached(self, key: tuple[str, int, int]) -> list[ResolveResult] | None:
        kept = self._cache.get(key)
        return kept[1] if kept is not None and kept[0] > clock.monotonic() else None

    def _keep(self, key: tuple[str, int, int], found: list[ResolveResult]) -> None:
        """Remember an answer; the oldest are forgotten."""
        if self._cached(key) is not None:
            return
        self._cache.pop(key, None)
        while len(self._cache) >= CACHED_NAMES:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = (clock.monotonic() + CACHE_SECONDS, found)
