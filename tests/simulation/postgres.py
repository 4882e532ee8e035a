"""The real database under a virtual clock, with a point before and after everything that can be cut off."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import InDoubtError, UnavailableError
from app.persistence.database import Database
from tests.simulation.faults import Fault
from tests.simulation.processes import START, Process, Stage

# The product asks for clock_timestamp() without naming its schema, and finds this one first.
CLOCK = f"""
CREATE SCHEMA sim;
CREATE SEQUENCE sim.microseconds MINVALUE 0 START 0;
CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS $$
  SELECT timestamptz '{START.isoformat()}' + last_value * interval '1 microsecond' FROM sim.microseconds
$$;
DO $$
DECLARE one record;
BEGIN
  EXECUTE format('ALTER DATABASE %I SET search_path = sim, public, pg_catalog', current_database());
  EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
  FOR one IN SELECT c.relname, a.attname FROM pg_attrdef AS d JOIN pg_class AS c ON c.oid = d.adrelid
    JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    WHERE pg_get_expr(d.adbin, d.adrelid) LIKE '%clock_timestamp()%'
  LOOP
    EXECUTE format('ALTER TABLE %I ALTER COLUMN %I SET DEFAULT sim.clock_timestamp()', one.relname, one.attname);
  END LOOP;
  FOR one IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
    EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = false)', one.relname);
  END LOOP;
END $$;
"""
_SET = "SELECT setval('sim.microseconds', $1)"
# Units of work that must not wait for a row that another transaction holds.
NEVER_WAIT = ("claim_fast", "claim_locked", "settle_fast", "settle_locked")
# The point at which all rows may be held: before the first statement of such a unit.
ROWS_HELD = ": asks"
_HAS_LOCKED = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"


class Clock:
    """Keeps the database's clock where the world's is, and holds rows for others to stumble over."""

    def __init__(self, connection: asyncpg.Connection, stage: Stage) -> None:
        self._connection = connection
        self._stage = stage
        self._microseconds = 0
        # Nobody reaches the database.
        self.away = False

    async def go_on(self) -> None:
        """To the world's time, and by a microsecond at the least: no two transactions share a moment."""
        self._microseconds = max(self._microseconds + 1, int(self._stage.loop.time() * 1_000_000))
        await self._connection.fetchval(_SET, self._microseconds)

    @asynccontextmanager
    async def holding_every_schedule(self) -> AsyncIterator[None]:
        """Somebody else is at all rows."""
        async with self._connection.transaction():
            await self._connection.execute("SELECT FROM scheduled_jobs ORDER BY id FOR UPDATE")
            yield


class SimulatedDatabase(Database):
    """The product's database as one process sees it."""

    def __init__(self, database: Database, stage: Stage, clock: Clock, process: Process) -> None:
        self.engine = database.engine
        self.pool = database.pool
        self.history = database.history
        self._opening = "BEGIN"
        self.stage = stage
        self.clock = clock
        self._process = process

    @asynccontextmanager
    async def reading(self, name: str = "reading") -> AsyncIterator[Any]:
        """Statements without a transaction."""
        await self.reach(f"{name}: reads")
        with self.stage.loop.question():
            async with AsyncExitStack() as held, self.pool.acquire("") as connection:
                yield _Connection(connection, self, name, held)

    @asynccontextmanager
    async def autocommit(self, name: str = "autocommit") -> AsyncIterator[Any]:
        """Statements that are each a transaction of their own."""
        await self.reach(f"{name}: begin", InDoubtError)
        with self.stage.loop.question():
            await self.clock.go_on()
            async with AsyncExitStack() as held, self.pool.acquire("") as connection:
                yield _Connection(connection, self, name, held)
        await self.reach(f"{name}: committed", InDoubtError)

    @asynccontextmanager
    async def transaction(self, name: str = "transaction") -> AsyncIterator[Any]:
        """One unit of work."""
        await self.reach(f"{name}: begin")
        with self.stage.loop.question():
            await self.clock.go_on()
            async with AsyncExitStack() as held, super().transaction() as connection:
                yield _Connection(connection, self, name, held)
                # Asked for and not done, or done and not heard of: the process cannot tell these from each other.
                self.pass_by(f"{name}: commit", InDoubtError)
        await self.reach(f"{name}: committed", InDoubtError)

    async def reach(self, where: str, error: type[Exception] = UnavailableError) -> None:
        """A point where others may go first."""
        fault = await self.stage.reach(self._process, where)
        if fault is Fault.AWAY or self.clock.away:
            raise error

    def pass_by(self, where: str, error: type[Exception] = UnavailableError) -> Fault | None:
        """A point where nobody else goes on."""
        fault = self.stage.pass_by(self._process, where)
        if fault is Fault.AWAY:
            raise error
        return fault


class _Connection:
    """A connection on which others go on between two questions, as long as nothing is locked."""

    def __init__(
        self, connection: AsyncConnection, database: SimulatedDatabase, name: str, held: AsyncExitStack
    ) -> None:
        self._connection = connection
        self._database = database
        self._name = name
        self._held = held
        self._has_read = False
        self._are_rows_held = False

    async def execute(self, statement: Executable, *args: Any) -> Any:
        """Run a statement of SQLAlchemy's."""
        await self.before_statement(UnavailableError)
        return await self._connection.execute(statement, *args)

    @property
    def info(self) -> dict[str, Any]:
        """The driver's connection, for statements that bypass SQLAlchemy; these are watched too."""
        return {"driver": _Driver(self._connection.info["driver"], self)}

    async def before_statement(self, error: type[Exception] = InDoubtError) -> None:
        """Let others go on if this connection has read rows and locked none: what it has read may grow old."""
        if not self._has_read:
            await self._hold_rows()
        elif not await self._has_locked():
            with self._database.stage.loop.no_question():
                await self._database.reach(f"{self._name}: has read", error)
            await self._database.clock.go_on()
        self._has_read = True

    async def _has_locked(self) -> bool:
        """Ask Postgres: a lock on a row gives a transaction its id. While rows are held, nobody else may go on."""
        return self._are_rows_held or bool(await self._connection.info["driver"].fetchval(_HAS_LOCKED))

    async def _hold_rows(self) -> None:
        if self._name in NEVER_WAIT and self._database.pass_by(f"{self._name}{ROWS_HELD}") is Fault.HELD:
            self._are_rows_held = True
            await self._held.enter_async_context(self._database.clock.holding_every_schedule())


class _Driver:
    """The driver's connection."""

    def __init__(self, driver: Any, connection: _Connection) -> None:
        self._driver = driver
        self._connection = connection

    async def fetch(self, statement: str, *values: Any) -> Any:
        """Ask."""
        await self._connection.before_statement()
        return await self._driver.fetch(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)
