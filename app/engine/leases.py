"""Leases in Postgres: a worker's right to run executions, and locks for work that one process does at a time."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import structlog

from app import clock
from app.domain.errors import UnavailableError
from app.persistence import leases, recovery
from app.persistence.database import Database

# A worker gives its lease up by its own clock after this part of it, before it expires by the database's clock: clocks
# and answers differ, and two workers must never run the same execution.
SAFE_PART = 0.8

log = structlog.get_logger(__name__)


class WorkerLease:
    """One lease for all executions of this process.

    A lease that has expired is never renewed, because others may have taken its executions. A new one begins instead.
    """

    def __init__(self, database: Database, seconds: float) -> None:
        """Prepare a lease; it begins with ``begin``."""
        self._database = database
        self._seconds = seconds
        self._safe_until = 0.0
        self.worker_id: UUID = uuid4()
        self.name = f"{socket.gethostname()}/{os.getpid()}"

    def holds(self) -> bool:
        """Return whether the lease certainly holds, by this process's own clock."""
        return clock.monotonic() < self._safe_until

    async def begin(self) -> None:
        """Register this process as a new worker."""
        # The lease counts from before the request: the answer may take any time.
        asked_at = clock.monotonic()
        worker_id = uuid4()
        async with self._database.transaction("begin_lease") as connection:
            await leases.register_worker(connection, worker_id, self.name, self._seconds)
        self.worker_id = worker_id
        self._safe_until = asked_at + self._seconds * SAFE_PART
        log.info("lease_begun", worker=str(worker_id))

    async def renew(self) -> dict[UUID, int] | None:
        """Renew the lease. Return the executions that this worker holds, with their tokens; None if it had expired."""
        asked_at = clock.monotonic()
        async with self._database.transaction("renew_lease") as connection:
            if not await leases.renew_worker(connection, self.worker_id, self._seconds):
                return None
            held = await recovery.all_held(connection, self.worker_id)
        self._safe_until = asked_at + self._seconds * SAFE_PART
        return held

    async def release(self) -> None:
        """Release the lease, so that its executions can be taken at once."""
        self._safe_until = 0.0
        async with self._database.transaction("release_lease") as connection:
            await leases.release_worker(connection, self.worker_id)


class LockBusyError(Exception):
    """Another process holds the lock."""

    code = "lock_busy"


@asynccontextmanager
async def held_lock(
    database: Database, name: str, *, lease_seconds: float, renew_seconds: float
) -> AsyncIterator[None]:
    """Hold a lock until the block ends, or raise ``LockBusyError``.

    The lock can be lost while the block runs, which is only logged: what is done under it must stay correct then.
    """
    owner, done = uuid4(), asyncio.Event()
    async with database.transaction() as connection:
        if not await leases.take_lock(connection, name, owner, lease_seconds):
            raise LockBusyError

    async def renew() -> None:
        while not done.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), renew_seconds)
                return
            try:
                async with database.transaction() as connection:
                    if not await leases.renew_lock(connection, name, owner, lease_seconds):
                        log.warning("lock_lost", lock=name)
                        return
            except UnavailableError:
                log.warning("database_unreachable", loop=f"lock {name}")

    renewals = asyncio.create_task(renew())
    try:
        yield
    finally:
        done.set()
        await renewals
        with suppress(UnavailableError):
            async with database.transaction() as connection:
                await leases.release_lock(connection, name, owner)
