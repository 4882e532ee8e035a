"""Answers that many ask for at once and that are looked up once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app import clock

T = TypeVar("T")


class SharedResult(Generic[T]):
    """The result of a look-up, kept for some seconds; callers at the same time wait for the same look-up."""

    def __init__(self, look: Callable[[], Awaitable[T]], fresh_seconds: float) -> None:
        """Call ``look`` when there is no fresh result."""
        self._look = look
        self._fresh_seconds = fresh_seconds
        self._found: tuple[float, T] | None = None
        self._looking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the fresh result, or that of the look-up under way. A caller that gives up stops nobody else's."""
        if self._found is not None and clock.monotonic() - self._found[0] < self._fresh_seconds:
            return self._found[1]
        if self._looking is None:
            self._looking = asyncio.create_task(self._run())
        return await asyncio.shield(self._looking)

    async def _run(self) -> T:
        try:
            found = await self._look()
        finally:
            self._looking = None
        self._found = (clock.monotonic(), found)
        return found
