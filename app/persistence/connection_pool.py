"""The connection pool: open connections, lent to one unit of work after another, a share for each user."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app import clock
from app.domain.errors import ShareUsedUpError

SHARE_WAIT_SECONDS = 5.0

# On whose behalf this task asks; None is Carillon itself, which has no share to keep to.
PARTY: ContextVar[Hashable | None] = ContextVar("party", default=None)


class PoolShares:
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
            async with asyncio.timeout(SHARE_WAIT_SECONDS):
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


WAIT_SECONDS = 10.0
# Plans are made once and kept; a plan that was made while a table was all but empty is not kept for long.
REPLAN_SECONDS = 5.0

# The last is what the driver says between Postgres's last word on a connection and its end.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_BROKEN = (OSError, *DRIVER_ERRORS)


class NoConnectionError(Exception):
    """All connections were in use for too long."""

    code = "no_connection"


def driver_of(connection: AsyncConnection) -> Any:
    """The driver's own connection beneath SQLAlchemy's."""
    return connection.info["driver"]


class _Lane(msgspec.Struct):
    """A connection as SQLAlchemy and as the driver see it; the first may be lost while the second is not."""

    connection: AsyncConnection
    driver: Any
    planned_at: float

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be asked on it any more."""
        return self.connection.invalidated or self.driver.is_closed()


class ConnectionPool:
    """At most so many connections, the one used last lent out first."""

    def __init__(
        self,
        engine: AsyncEngine,
        most: int,
        greet: Callable[[Any], Awaitable[None]],
        look_again: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Open nothing yet. ``greet`` looks at each new connection, and raises if it is of no use.

        ``look_again`` sees a connection that is in use now and then: behind a pooler the server may have changed.
        """
        self._engine = engine
        self._greet = greet
        self._look_again = look_again
        self._shares = PoolShares(max(1, most // 2))
        self._most = most
        self._room = asyncio.Semaphore(most)
        self._idle: list[_Lane] = []
        self._lent = 0
        self._is_closed = False

    @property
    def counts(self) -> dict[str, int]:
        """How many are in use, and how many wait for work."""
        return {"in_use": self._lent, "idle": len(self._idle)}

    @asynccontextmanager
    async def acquire(self, opening: str) -> AsyncIterator[AsyncConnection]:
        """A connection on which the opening statement was said; whatever is left open at the end is rolled back."""
        party = PARTY.get()
        if party is not None:
            await self._shares.take(party)
        try:
            await self._take_room()
            self._lent += 1
            try:
                lane = await self._opened(opening)
                try:
                    yield lane.connection
                except TimeoutError:
                    # It has not answered, and would not answer a rollback either.
                    _drop(lane)
                    raise
                except Exception:
                    await self._return(lane)
                    raise
                except BaseException:
                    # Stopped from outside in the midst of something: nobody knows in which state it is.
                    _drop(lane)
                    raise
                await self._return(lane)
            finally:
                self._lent -= 1
                self._room.release()
        finally:
            if party is not None:
                self._shares.give_back(party)

    async def close(self) -> None:
        """Close those that nobody uses now, and the others when they are given back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for lane in idle:
            _drop(lane)

    async def _take_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise NoConnectionError(f"all {self._most} connections were in use for {WAIT_SECONDS:.0f} s") from None

    async def _opened(self, opening: str) -> _Lane:
        """One that works: those that a restart of Postgres has cut meanwhile are found here and dropped."""
        while self._idle:
            lane = self._idle.pop()
            if lane.is_lost:
                _drop(lane)
                continue
            with suppress(*_BROKEN):
                return await self._begun(lane, opening)
        lane = _lane_on(await self._engine.connect())
        with _dropped_on_error(lane):
            await self._greet(lane.driver)
        return await self._begun(lane, opening)

    async def _begun(self, lane: _Lane, opening: str) -> _Lane:
        now = clock.monotonic()
        with _dropped_on_error(lane):
            if now - lane.planned_at > REPLAN_SECONDS:
                lane.planned_at = now
                await lane.driver.execute("DISCARD PLANS")
                await self._look_again(lane.driver)
            if opening:
                await lane.driver.execute(opening)
        return lane

    async def _return(self, lane: _Lane) -> None:
        with suppress(*_BROKEN), _dropped_on_error(lane):
            if not lane.is_lost and lane.driver.is_in_transaction():
                await lane.driver.execute("ROLLBACK")
        if lane.is_lost or self._is_closed:
            _drop(lane)
        else:
            self._idle.append(lane)


def _lane_on(connection: AsyncConnection) -> _Lane:
    driver: Any = connection.sync_connection.connection.driver_connection  # type: ignore[union-attr]  # it is open
    connection.info["driver"] = driver
    return _Lane(connection, driver, clock.monotonic())


@contextmanager
def _dropped_on_error(lane: _Lane) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _drop(lane)
        raise


def _drop(lane: _Lane) -> None:
    """Cut it at once: whoever was stopped from outside has no time to say goodbye."""
    if not lane.connection.invalidated:
        lane.connection.sync_connection.invalidate()  # type: ignore[union-attr]  # nobody closes it
    lane.driver.terminate()
