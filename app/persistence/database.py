"""The unit of work, which is the only place that commits, and what the driver's errors mean."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.pool import NullPool

from app.domain.errors import (
    ConflictError,
    DatabaseRefusesError,
    DiskFullError,
    InDoubtError,
    NoSuchDatabaseError,
    QueryTimeoutError,
    ReadOnlyDatabaseError,
    SessionRefusedError,
    UnavailableError,
)
from app.persistence.connection_pool import DRIVER_ERRORS, ConnectionPool, NoConnectionError, driver_of
from app.persistence.engines import create_engine
from app.persistence.row_cache import ServerIdentity
from app.persistence.schema_version import require_schema

# The types that the engine and the services use: only this package knows the driver.
Connection = AsyncConnection
Session = AsyncSession

# Longer than Postgres gives a statement: it ends the calls to a host that has vanished and sends no timeout error.
CALL_SECONDS = 40.0
STATEMENT_SECONDS = 30.0
# No statement of ours takes long. These bound how long a stuck transaction can hold up others.
SERVER_SETTINGS = {
    "lock_timeout": "5000",
    "statement_timeout": f"{STATEMENT_SECONDS * 1000:.0f}",
    "idle_in_transaction_session_timeout": "30000",
    "jit": "off",
    # Rows are looked up by their keys, and statements are planned without their values. With scans and hash joins off,
    # a plan that was made while a table was small uses the same index as one for a large table.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_SETTINGS = "; ".join(f"SET {name} = '{value}'" for name, value in SERVER_SETTINGS.items())
_IN_TRANSACTIONS = f"SET LOCAL statement_timeout = {STATEMENT_SECONDS * 1000:.0f}"
_AFTER_COMMIT = "carillon_after_commit"
# SQLSTATEs: query_canceled (a statement took too long); the login was refused; the database does not exist, perhaps
# not yet; a standby; disk full.
_TOO_LONG_STATE = "57014"
_REFUSED_STATES, _UNKNOWN_STATES = ("28",), ("3D",)
_READ_ONLY_STATES, _FULL_STATES = ("25006",), ("53100",)
# The connector's code for a session that the server refuses.
_SESSION_STATES = ("08004",)
# Shutting down, starting up, crashed, too many connections, out of disk or memory, failing disk, read-only after a
# failover, timed out, deadlocked.
_AWAY_STATES = ("08", "53", "57", "58", "25P03", "55P03", "40", *_REFUSED_STATES, *_UNKNOWN_STATES, *_READ_ONLY_STATES)
# foreign_key_violation: the owner, or another object that a row names, was deleted after the request had looked it up.
_GONE_STATE = "23503"
_GONE = (
    "Something that this request refers to, such as its owner, was deleted at the same moment. Read it again and retry."
)
# Writes a temporary file of some 200 kB, then a row. The row alone proves too little: it exists already, and a full
# disk often has room for another version of it. One round trip, in a transaction of its own.
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


class _RehearsalOverError(Exception):
    """Rolls a rehearsal back."""

    code = "rehearsal_over"


class Database:
    """A pool of connections to Postgres. ``transaction`` commits unless its block raises; then it rolls back."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        call_seconds: float = CALL_SECONDS,
        reading_seconds: float = STATEMENT_SECONDS,
    ) -> None:
        """Open no connection before it is needed. A call that takes ``call_seconds`` is given up.

        Postgres itself ends a statement after 30 seconds, and one outside of a transaction after ``reading_seconds``.
        """
        self.history = ServerIdentity()
        self._reading_timeout = f"SET statement_timeout = {reading_seconds * 1000:.0f}"
        self._opening = "BEGIN" if reading_seconds == STATEMENT_SECONDS else f"BEGIN; {_IN_TRANSACTIONS}"
        self.url = url
        self.engine = create_engine(
            url,
            call_seconds=call_seconds,
            # ConnectionPool keeps connections open, and sends BEGIN, COMMIT and ROLLBACK itself.
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            # The text of an error must not carry payloads into the log.
            hide_parameters=True,
            json_serializer=_to_json,
            json_deserializer=msgspec.json.decode,
        )
        self.pool = ConnectionPool(self.engine, pool_size * 2, self._set_up, self.history.check)

    @asynccontextmanager
    async def transaction(self, _name: str = "transaction") -> AsyncIterator[AsyncConnection]:
        """Open a unit of work and commit it. An unreachable database raises ``UnavailableError``.

        The name says what is done; the simulation stops processes by it, here as in ``reading`` and ``autocommit``.
        """
        with translate_db_errors():
            async with self.pool.acquire(self._opening) as connection:
                # An earlier transaction of this connection may have left some, and was rolled back.
                connection.info.pop(_AFTER_COMMIT, None)
                yield connection
                await _commit(connection)
                for act in connection.info.pop(_AFTER_COMMIT, ()):
                    act()

    @asynccontextmanager
    async def reading(self, _name: str = "reading") -> AsyncIterator[AsyncConnection]:
        """Lend a connection for single queries, without a transaction around them."""
        with translate_db_errors():
            async with self.pool.acquire("") as connection:
                yield connection

    @asynccontextmanager
    async def autocommit(self, _name: str = "autocommit") -> AsyncIterator[AsyncConnection]:
        """Lend a connection on which each statement commits by itself; ``InDoubtError`` if the last one may have."""
        try:
            with translate_db_errors():
                async with self.pool.acquire("") as connection:
                    yield connection
        except UnavailableError as error:
            raise InDoubtError from error

    @asynccontextmanager
    async def together(self) -> AsyncIterator[Unit]:
        """Offer units of work that see each other's changes, and that are all committed at the end, or none."""
        async with self.transaction() as connection:

            @asynccontextmanager
            async def unit() -> AsyncIterator[AsyncConnection]:
                async with connection.begin_nested():
                    yield connection

            yield unit

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[Unit]:
        """Offer units of work that see each other's changes, and that are all rolled back at the end."""
        with suppress(_RehearsalOverError):
            async with self.together() as unit:
                yield unit
                raise _RehearsalOverError

    async def ping(self) -> None:
        """Raise ``UnavailableError`` unless the database answers, and has the schema that this release needs."""
        async with self.reading() as connection:
            await driver_of(connection).execute("SELECT 1")

    async def try_writing(self) -> None:
        """Raise ``UnavailableError`` unless the database accepts a write."""
        try:
            async with self.reading() as connection:
                await driver_of(connection).execute(_TRY_WRITING)
        except _DATABASE_ERRORS as error:
            raise UnavailableError("The database refused a write.") from error

    async def _set_up(self, driver: Any) -> None:
        """Prepare a new connection. PgBouncer refuses connections that bring settings along, so they are set here."""
        await driver.execute(f"{_SETTINGS}; {self._reading_timeout}")
        await require_schema(driver)
        await self.history.check(driver)

    async def close(self) -> None:
        """Close all connections."""
        await self.pool.close()
        await self.engine.dispose()


@contextmanager
def translate_db_errors() -> Iterator[None]:
    """Raise ``UnavailableError`` or ``ConflictError`` for a driver's error that says so."""
    try:
        yield
    except _DATABASE_ERRORS as error:
        if state_of(error) == _GONE_STATE:
            raise ConflictError(_GONE) from error
        if is_unreachable(error):
            raise _unavailable(error) from error
        raise


_UNAVAILABLE: dict[tuple[str, ...], type[UnavailableError]] = {
    _REFUSED_STATES: DatabaseRefusesError,
    _UNKNOWN_STATES: NoSuchDatabaseError,
    _SESSION_STATES: SessionRefusedError,
    _READ_ONLY_STATES: ReadOnlyDatabaseError,
    _FULL_STATES: DiskFullError,
    (_TOO_LONG_STATE,): QueryTimeoutError,
}


def _unavailable(error: Exception) -> UnavailableError:
    state = state_of(error)
    return next((kind() for states, kind in _UNAVAILABLE.items() if state.startswith(states)), UnavailableError())


async def _commit(connection: AsyncConnection) -> None:
    try:
        await driver_of(connection).execute("COMMIT")
    except _DATABASE_ERRORS as error:
        if is_unreachable(error):
            raise InDoubtError from error
        raise


def after_commit(connection: AsyncConnection, act: Callable[[], None]) -> None:
    """Call ``act`` once the transaction is committed, and not at all if it is rolled back."""
    connection.info.setdefault(_AFTER_COMMIT, []).append(act)


async def database_now(connection: AsyncConnection) -> datetime:
    """Return the time of the database's clock, which decides what is due. It moves on within a transaction."""
    moment: datetime = await driver_of(connection).fetchval("SELECT clock_timestamp()")
    return moment


async def read_one_moment(connection: AsyncConnection) -> None:
    """Let this transaction read everything as of one moment. It must be the transaction's first statement."""
    await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


def session_within(connection: AsyncConnection) -> AsyncSession:
    """Return a session on a savepoint of the transaction: its rollback undoes only what was done in the session."""
    return AsyncSession(bind=connection, join_transaction_mode="create_savepoint", expire_on_commit=False)


def is_unreachable(error: BaseException) -> bool:
    """Return whether the server is the problem, not the statement, so that trying again later may help."""
    if not isinstance(error, _DATABASE_ERRORS):
        return False
    state = state_of(error)
    if isinstance(error, DBAPIError):
        never_answered = not state and isinstance(error, (OperationalError, InterfaceError))
        return error.connection_invalidated or never_answered or state.startswith(_AWAY_STATES)
    if isinstance(error, SQLAlchemyError):
        return False
    return not state or state.startswith(_AWAY_STATES)


def unreachable_reason(error: UnavailableError) -> str:
    """Return the driver's message for the log: only its first line, as the others may quote rows."""
    cause = error.__cause__
    if cause is None:
        return error.detail
    original = cause.orig if isinstance(cause, DBAPIError) and cause.orig else cause
    # SQLAlchemy wraps the driver's error in one of its own, and puts the wrapper's type into the text.
    original = original.__cause__ or original
    return f"{type(original).__name__}: {next(iter(str(original).splitlines()), '')}"


def unreachable_fields(error: UnavailableError) -> dict[str, str]:
    """Return the fields of a log line: the kind of the problem, what it means, and the driver's message."""
    kind = _kind_of_problem(error.__cause__)
    return {"problem": kind, "detail": _PROBLEMS.get(kind, error.detail), "error": unreachable_reason(error)}


_PROBLEMS = {
    "dns": "The name of the database host cannot be resolved.",
    "refused": "Nothing accepts connections at the address of the database.",
    "timeout": "The database host does not answer: a network policy, a firewall or a wrong address.",
    "tls": "The TLS connection to the database failed: check sslmode and sslrootcert.",
}
_KINDS_OF_STATES = {
    "28": "login",
    "3D": "no_database",
    "57P03": "starting",
    "08004": "session",
    "25006": "read_only",
    "42501": "rights",
    "42704": "no_role",
}


def _kind_of_problem(cause: BaseException | None) -> str:
    original = cause.__cause__ if isinstance(cause, DBAPIError) and cause.__cause__ else cause
    state = state_of(cause)
    if state:
        return next((kind for start, kind in _KINDS_OF_STATES.items() if state.startswith(start)), "other")
    if isinstance(original, socket.gaierror):
        return "dns"
    # The driver has no error of its own for a server that refuses TLS.
    if isinstance(original, ssl.SSLError) or "SSL" in str(original):
        return "tls"
    if isinstance(original, TimeoutError):
        return "timeout"
    # Where a name has several addresses there is one error for all of them.
    if isinstance(original, ConnectionRefusedError | FileNotFoundError) or "Connect call failed" in str(original):
        return "refused"
    return "other"


def state_of(error: BaseException | None) -> str:
    """Return the SQLSTATE that Postgres gave, or "" if the error is not from Postgres."""
    original = error.orig if isinstance(error, DBAPIError) else error
    return getattr(original, "sqlstate", None) or ""
