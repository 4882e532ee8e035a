"""Leases: the worker's right to run executions, and locks for what only one process may do at a time."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import structlog

from app import clock
from app.domain.errors import UnavailableError
from app.persistence import executions, leases
from app.persistence.database import Database

# Given up by our own clock a little before the database's would.
SAFE_PART = 0.8

log = structlog.get_logger(__name__)


class WorkerLease:
    """One lease for all executions of this process. A lease that ran out is never renewed: a new one begins."""

    def __init__(self, database: Database, seconds: float) -> None:
        """Hold nothing until ``begin``."""
        self._database = database
        self._seconds = seconds
        self._safe_until = 0.0
        self.worker_id: UUID = uuid4()
        self.name = f"{socket.gethostname()}/{os.getpid()}"

    def holds(self) -> bool:
        """Whether the lease holds for sure, by this process's own clock."""
        return clock.monotonic() < self._safe_until

    async def begin(self) -> None:
        """Register a new worker."""
        asked = clock.monotonic()
        worker_id = uuid4()
        async with self._database.transaction("begin_lease") as connection:
            await leases.register_worker(connection, worker_id, self.name, self._seconds)
        self.worker_id = worker_id
        self._safe_until = asked + self._seconds * SAFE_PART
        log.info("lease_begun", worker=str(worker_id))

    async def renew(self) -> dict[UUID, int] | None:
        """Renew, and read what is still ours, with the tokens; None if the lease had run out."""
        asked = clock.monotonic()
        async with self._database.transaction("renew_lease") as connection:
            if not await leases.renew_worker(connection, self.worker_id, self._seconds):
                return None
            held = await executions.still_held(connection, self.worker_id)
        self._safe_until = asked + self._seconds * SAFE_PART
        return held

    async def release(self) -> None:
        """End in peace."""
        self._safe_until = 0.0
        async with self._database.transaction("release_lease") as connection:
            await leases.release_worker(connection, self.worker_id)


class LockBusyError(Exception):
    """Someone else is doing it."""

    code = "lock_busy"


@asynccontextmanager
async def held_lock(
    database: Database, name: str, *, lease_seconds: float, renew_seconds: float
) -> AsyncIterator[None]:
    """Hold a lock, or raise ``LockBusyError``. What is done under it has to bear its loss, which is said."""
    owner, done = uuid4(), asyncio.Event()
    async with database.transaction() as connection:
        if not await leases.take_lock(connection, name, owner, lease_seconds):
            raise LockBusyError

    async def keep() -> None:
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
                log.warning("database_away", loop=f"lock {name}")

    keeper = asyncio.create_task(keep())
    try:
        yield
    finally:
        done.set()
        await keeper
        with suppress(UnavailableError):
            async with database.transaction() as connection:
                await leases.release_lock(connection, name, owner)
