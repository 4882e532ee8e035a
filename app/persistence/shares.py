"""Shares of the connections: those who ask on behalf of one user never hold all of them."""

import asyncio
from collections.abc import Hashable
from contextvars import ContextVar

from app.domain.errors import ShareUsedUpError

WAIT_SECONDS = 5.0

# On whose behalf this task asks; None is Carillon itself, which has no share to keep to.
PARTY: ContextVar[Hashable | None] = ContextVar("party", default=None)


class Shares:
    """How many connections each party holds, and who waits for one of its own to come back."""

    def __init__(self, most: int) -> None:
        """A party may hold so many at once."""
        self._most = most
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, list[asyncio.Future[None]]] = {}

    async def take(self, party: Hashable) -> None:
        """Wait for a place in the party's share; ``ShareUsedUpError`` if none becomes free in time."""
        if self._held.get(party, 0) >= self._most:
            await self._turn(party)
        else:
            self._held[party] = self._held.get(party, 0) + 1

    def give_back(self, party: Hashable) -> None:
        """Hand the place to whoever has waited longest, or leave it free."""
        queue = self._waiting.get(party, [])
        while queue:
            turn = queue.pop(0)
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(party, None)
        self._held[party] -= 1
        if not self._held[party]:
            del self._held[party]

    async def _turn(self, party: Hashable) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, []).append(turn)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except TimeoutError:
            if turn.done() and not turn.cancelled():
                # The place has come in the very moment in which the time was over: it is ours.
                return
            raise ShareUsedUpError from None
        except BaseException:
            if turn.done() and not turn.cancelled():
                # The place had come in the moment in which the one who waited was stopped.
                self.give_back(party)
            raise
