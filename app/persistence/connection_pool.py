"""The connection pool: open connections, lent to one unit of work after another, a share of them to each user."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import Connection as SyncConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app import clock
from app.domain.errors import ShareUsedUpError

# How long a unit of work waits for a connection, and for a place in its party's share.
WAIT_SECONDS = 10.0
SHARE_WAIT_SECONDS = 5.0
# The driver keeps prepared statements, and Postgres keeps their plans. A plan that was made while a table was empty
# stays in use while the table grows: one such plan read all active runs at the end of each run, and so made the load
# quadratic. Discarding plans every few seconds bounds how long a bad one lives, and costs almost nothing.
REPLAN_SECONDS = 5.0

# asyncpg raises the last one between the server's last message on a connection and the connection's end.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_BROKEN = (OSError, *DRIVER_ERRORS)

# The user for whom this task works, set by the API. None stands for Carillon itself, which has no share to keep to.
PARTY: ContextVar[Hashable | None] = ContextVar("party", default=None)


class NoConnectionError(Exception):
    """All connections were in use for too long."""

    code = "no_connection"


def driver_of(connection: AsyncConnection) -> Any:
    """Return the driver's own connection beneath SQLAlchemy's."""
    return connection.info["driver"]


class PoolShares:
    """Counts the connections that each party holds, and lets it wait for one of its own to come back."""

    def __init__(self, most: int) -> None:
        """Let a party hold at most this many connections at once."""
        self._most = most
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, list[asyncio.Future[None]]] = {}

    async def take(self, party: Hashable) -> None:
        """Wait for a place in the party's share; ``ShareUsedUpError`` if none becomes free in time."""
        if self._held.get(party, 0) >= self._most:
            await self._wait(party)
        else:
            self._held[party] = self._held.get(party, 0) + 1

    def give_back(self, party: Hashable) -> None:
        """Pass the place on to the task of the party that has waited longest, or free it."""
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

    async def _wait(self, party: Hashable) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, []).append(turn)
        try:
            async with asyncio.timeout(SHARE_WAIT_SECONDS):
                await turn
        except TimeoutError:
            if turn.done() and not turn.cancelled():
                # The place was passed on in the moment in which the time ran out: it is ours.
                return
            raise ShareUsedUpError from None
        except BaseException:
            if turn.done() and not turn.cancelled():
                # The place was passed on in the moment in which this task was cancelled: without this it leaks.
                self.give_back(party)
            raise


class _PooledConnection(msgspec.Struct):
    """A connection as SQLAlchemy and as the driver see it; the first may be invalid while the second is open."""

    connection: AsyncConnection
    # The same one as SQLAlchemy has it beneath: asking it costs a fraction.
    sync_connection: SyncConnection
    driver: Any
    planned_at: float

    @property
    def is_lost(self) -> bool:
        """Whether no statement can be sent on it any more."""
        return self.sync_connection.invalidated or self.driver.is_closed()


class ConnectionPool:
    """A bounded number of connections. The one that was used last is lent first."""

    def __init__(
        self,
        engine: AsyncEngine,
        most: int,
        set_up: Callable[[Any], Awaitable[None]],
        check: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Open no connection yet.

        ``set_up`` prepares each new connection, and raises if it cannot be used. ``check`` is called on connections
        in use every few seconds: behind a pooler they may have got another server.
        """
        self._engine = engine
        self._set_up = set_up
        self._check = check
        self._shares = PoolShares(max(1, most // 2))
        self._most = most
        self._free = asyncio.Semaphore(most)
        self._idle: list[_PooledConnection] = []
        self._lent = 0
        self._is_closed = False

    @property
    def limit(self) -> int:
        """The number of connections that may be open."""
        return self._most

    @property
    def counts(self) -> dict[str, int]:
        """The number of connections in use, and of open ones that are not."""
        return {"in_use": self._lent, "idle": len(self._idle)}

    @asynccontextmanager
    async def acquire(self, opening: str) -> AsyncIterator[AsyncConnection]:
        """Lend a connection on which the opening statement was run. A transaction that is left open is rolled back."""
        party = PARTY.get()
        if party is not None:
            await self._shares.take(party)
        try:
            await self._wait_for_free()
            self._lent += 1
            try:
                pooled = await self._opened(opening)
                try:
                    yield pooled.connection
                except TimeoutError:
                    # The server has not answered, and would not answer a rollback either.
                    _drop(pooled)
                    raise
                except Exception:
                    await self._return(pooled)
                    raise
                except BaseException:
                    # The task was cancelled, perhaps in the middle of a statement: the connection's state is unknown.
                    _drop(pooled)
                    raise
                await self._return(pooled)
            finally:
                self._lent -= 1
                self._free.release()
        finally:
            if party is not None:
                self._shares.give_back(party)

    async def close(self) -> None:
        """Close the idle connections now, and the others when they are given back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for pooled in idle:
            _drop(pooled)

    async def _wait_for_free(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise NoConnectionError(f"all {self._most} connections were in use for {WAIT_SECONDS:.0f} s") from None

    async def _opened(self, opening: str) -> _PooledConnection:
        """Return a connection that works. Those that a restart of Postgres has cut are noticed here and dropped."""
        while self._idle:
            pooled = self._idle.pop()
            if pooled.is_lost:
                _drop(pooled)
                continue
            with suppress(*_BROKEN):
                return await self._begun(pooled, opening)
        pooled = _pooled(await self._engine.connect())
        with _dropped_on_error(pooled):
            await self._set_up(pooled.driver)
        return await self._begun(pooled, opening)

    async def _begun(self, pooled: _PooledConnection, opening: str) -> _PooledConnection:
        now = clock.monotonic()
        if not opening and now - pooled.planned_at <= REPLAN_SECONDS:
            return pooled
        with _dropped_on_error(pooled):
            if now - pooled.planned_at > REPLAN_SECONDS:
                pooled.planned_at = now
                await pooled.driver.execute("DISCARD PLANS")
                await self._check(pooled.driver)
            if opening:
                await pooled.driver.execute(opening)
        return pooled

    async def _return(self, pooled: _PooledConnection) -> None:
        if not pooled.is_lost and pooled.driver.is_in_transaction():
            with suppress(*_BROKEN), _dropped_on_error(pooled):
                await pooled.driver.execute("ROLLBACK")
        if pooled.is_lost or self._is_closed:
            _drop(pooled)
        else:
            self._idle.append(pooled)


def _pooled(connection: AsyncConnection) -> _PooledConnection:
    beneath = connection.sync_connection
    if beneath is None:
        raise AssertionError("the connection is not open")
    driver: Any = beneath.connection.driver_connection
    connection.info["driver"] = driver
    return _PooledConnection(connection, beneath, driver, clock.monotonic())


@contextmanager
def _dropped_on_error(pooled: _PooledConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _drop(pooled)
        raise


def _drop(pooled: _PooledConnection) -> None:
    """Cut the connection without a goodbye to the server: a task that is being cancelled cannot wait for an answer."""
    if not pooled.sync_connection.invalidated:
        pooled.sync_connection.invalidate()
    pooled.driver.terminate()
