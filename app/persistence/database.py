"""The connection pool and the unit of work: the only place that commits."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from app.domain.errors import (
    DatabaseRefusesError,
    DiskFullError,
    InDoubtError,
    NoSuchDatabaseError,
    QueryTimeoutError,
    ReadOnlyDatabaseError,
    UnavailableError,
)
from app.persistence.connection_pool import DRIVER_ERRORS, ConnectionPool, NoConnectionError, driver_of
from app.persistence.row_cache import ServerIdentity
from app.persistence.schema_version import require_schema

# What the engine and the services are handed, under names of our own: only this package knows the driver.
Connection = AsyncConnection
Session = AsyncSession

CONNECT_TIMEOUT_SECONDS = 5
# Somewhat longer than Postgres itself gives a statement: a host that has vanished never says that it is too late.
CALL_SECONDS = 40.0
STATEMENT_SECONDS = 30.0
# No statement of ours takes long; these bound what a stuck peer can cost us.
SERVER_SETTINGS = {
    "lock_timeout": "5000",
    "statement_timeout": f"{STATEMENT_SECONDS * 1000:.0f}",
    "idle_in_transaction_session_timeout": "30000",
    "jit": "off",
    # We look rows up by their keys, and plan once: a plan that was made while a table was small stays good.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_SETTINGS = "; ".join(f"SET {name} = '{value}'" for name, value in SERVER_SETTINGS.items())
_IN_TRANSACTIONS = f"SET LOCAL statement_timeout = {STATEMENT_SECONDS * 1000:.0f}"
_AFTER_COMMIT = "carillon_after_commit"
_TOO_LONG_STATE = "57014"
# Who we say we are is not known there, or the database is not: it may have to be made yet.
_REFUSED_STATES, _UNKNOWN_STATES = ("28",), ("3D",)
_READ_ONLY_STATES, _FULL_STATES = ("25006",), ("53100",)
# Shutting down, starting up, crashed, too many connections, out of disk or memory, failing disk, read-only after a
# failover, timed out, deadlocked.
_AWAY_STATES = ("08", "53", "57", "58", "25P03", "55P03", "40", *_REFUSED_STATES, *_UNKNOWN_STATES, *_READ_ONLY_STATES)
# A write that commits, and a temporary file of some 200 kB: a full disk still has room for the first, as it changes a
# row that is there already. One round trip, in a transaction of its own.
_TRY_WRITING = """
SELECT set_config('work_mem', '64kB', true);
SELECT count(*) FROM generate_series(1, 8000);
INSERT INTO locks (name, owner, expires_at) VALUES ('readiness', gen_random_uuid(), clock_timestamp())
ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at
"""

_DATABASE_ERRORS = (SQLAlchemyError, OSError, *DRIVER_ERRORS, NoConnectionError)

# Opens a unit of work.
Unit = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

_encode_json = msgspec.json.Encoder().encode


def _to_json(value: object) -> str:
    return _encode_json(value).decode()


class _TakenBackError(Exception):
    """A rehearsal is over."""

    code = "taken_back"


class Database:
    """A pool of connections to Postgres. ``transaction`` commits when its block ends well, else it rolls back."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        call_seconds: float = CALL_SECONDS,
        reading_seconds: float = STATEMENT_SECONDS,
    ) -> None:
        """Open nothing yet: connections are made when first needed. A call that takes so long is given up.

        Postgres itself ends a statement after 30 seconds, and one outside of a transaction after ``reading_seconds``.
        """
        self.history = ServerIdentity()
        self._reading_timeout = f"SET statement_timeout = {reading_seconds * 1000:.0f}"
        self._opening = "BEGIN" if reading_seconds == STATEMENT_SECONDS else f"BEGIN; {_IN_TRANSACTIONS}"
        self.engine = create_async_engine(
            url,
            # Connections stay open in the lanes below, which say themselves where a transaction begins and ends.
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            # An error's text shall not carry payloads into the log.
            hide_parameters=True,
            json_serializer=_to_json,
            json_deserializer=msgspec.json.decode,
            connect_args={
                "timeout": CONNECT_TIMEOUT_SECONDS,
                "command_timeout": call_seconds,
                "server_settings": {"application_name": "carillon"},
            },
        )
        self.pool = ConnectionPool(self.engine, pool_size * 2, self._set_up, self.history.check)

    @asynccontextmanager
    async def transaction(self, _name: str = "transaction") -> AsyncIterator[AsyncConnection]:
        """One unit of work. A database that is away is an ``UnavailableError``, whatever the driver called it.

        The name says what is done; the simulation stops processes by it, here as in ``reading`` and ``autocommit``.
        """
        with translate_db_errors():
            async with self.pool.acquire(self._opening) as connection:
                # What an earlier transaction of this connection left, which was rolled back.
                connection.info.pop(_AFTER_COMMIT, None)
                yield connection
                await _commit(connection)
                for act in connection.info.pop(_AFTER_COMMIT, ()):
                    act()

    @asynccontextmanager
    async def reading(self, _name: str = "reading") -> AsyncIterator[AsyncConnection]:
        """Questions that each stand for themselves: there is no transaction around them."""
        with translate_db_errors():
            async with self.pool.acquire("") as connection:
                yield connection

    @asynccontextmanager
    async def autocommit(self, _name: str = "autocommit") -> AsyncIterator[AsyncConnection]:
        """Statements that are each a transaction of their own: of the last one nobody knows whether it was done."""
        try:
            async with self.reading() as connection:
                yield connection
        except UnavailableError as error:
            raise InDoubtError from error

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[Unit]:
        """Units of work that see each other, and that are all taken back in the end."""
        with suppress(_TakenBackError):
            async with self.transaction() as connection:

                @asynccontextmanager
                async def unit() -> AsyncIterator[AsyncConnection]:
                    async with connection.begin_nested():
                        yield connection

                yield unit
                raise _TakenBackError

    async def ping(self) -> None:
        """Raise ``UnavailableError`` unless the database answers, and has the schema that this release needs."""
        async with self.reading() as connection:
            await driver_of(connection).execute("SELECT 1")

    async def try_writing(self) -> None:
        """Raise ``UnavailableError`` unless the database takes writes, whatever the reason."""
        try:
            async with self.reading() as connection:
                await driver_of(connection).execute(_TRY_WRITING)
        except _DATABASE_ERRORS as error:
            raise UnavailableError("The database refused a write.") from error

    async def _set_up(self, driver: Any) -> None:
        """Prepare a connection. Settings come now and not while connecting: PgBouncer refuses those that bring any."""
        await driver.execute(f"{_SETTINGS}; {self._reading_timeout}")
        await require_schema(driver)
        await self.history.check(driver)

    async def close(self) -> None:
        """Close all connections."""
        await self.pool.close()
        await self.engine.dispose()


@contextmanager
def translate_db_errors() -> Iterator[None]:
    """What the driver says of a database that is away becomes an ``UnavailableError``."""
    try:
        yield
    except _DATABASE_ERRORS as error:
        if is_unreachable(error):
            raise _kind_of_absence(error) from error
        raise


_ABSENCES: dict[tuple[str, ...], type[UnavailableError]] = {
    _REFUSED_STATES: DatabaseRefusesError,
    _UNKNOWN_STATES: NoSuchDatabaseError,
    _READ_ONLY_STATES: ReadOnlyDatabaseError,
    _FULL_STATES: DiskFullError,
    (_TOO_LONG_STATE,): QueryTimeoutError,
}


def _kind_of_absence(error: Exception) -> UnavailableError:
    state = state_of(error)
    return next((kind() for states, kind in _ABSENCES.items() if state.startswith(states)), UnavailableError())


async def _commit(connection: AsyncConnection) -> None:
    try:
        await driver_of(connection).execute("COMMIT")
    except _DATABASE_ERRORS as error:
        if is_unreachable(error):
            raise InDoubtError from error
        raise


def after_commit(connection: AsyncConnection, act: Callable[[], None]) -> None:
    """Call this once the transaction is committed, and not at all if it is rolled back."""
    connection.info.setdefault(_AFTER_COMMIT, []).append(act)


async def database_now(connection: AsyncConnection) -> datetime:
    """The database's clock, which decides what is due; it goes on within a transaction."""
    moment: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
    return moment


async def read_one_moment(connection: AsyncConnection) -> None:
    """Let all that this transaction reads be of one moment; nothing may have been asked yet."""
    await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


def session_within(connection: AsyncConnection) -> AsyncSession:
    """A session within a transaction: its commit keeps what it did, its failure takes back no more than that."""
    return AsyncSession(bind=connection, join_transaction_mode="create_savepoint", expire_on_commit=False)


def is_unreachable(error: BaseException) -> bool:
    """Whether trying again later may help, as nothing is wrong with what was asked."""
    if not isinstance(error, _DATABASE_ERRORS):
        return False
    state = state_of(error)
    if isinstance(error, DBAPIError):
        unsaid = not state and isinstance(error, (OperationalError, InterfaceError))
        return error.connection_invalidated or unsaid or state.startswith(_AWAY_STATES)
    if isinstance(error, SQLAlchemyError):
        return False
    return not state or state.startswith(_AWAY_STATES)


def unreachable_reason(error: UnavailableError) -> str:
    """The driver's words for the log: their first line, as the others may quote rows."""
    cause = error.__cause__
    if cause is None:
        return error.detail
    told = cause.orig if isinstance(cause, DBAPIError) and cause.orig else cause
    # SQLAlchemy puts the driver's error into one of its own, and that one's type into the words.
    told = told.__cause__ or told
    return f"{type(told).__name__}: {next(iter(str(told).splitlines()), '')}"


def state_of(error: BaseException | None) -> str:
    """The SQLSTATE that Postgres gave; nothing if it had no say."""
    told = error.orig if isinstance(error, DBAPIError) else error
    return getattr(told, "sqlstate", None) or ""
