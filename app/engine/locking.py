"""Doing what only one process may do at a time, under a lock that is kept up while it lasts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import structlog

from app.domain.errors import UnavailableError
from app.persistence import locks
from app.persistence.database import Database

log = structlog.get_logger(__name__)


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
        if not await locks.take(connection, name, owner, lease_seconds):
            raise LockBusyError

    async def keep() -> None:
        while not done.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), renew_seconds)
                return
            try:
                async with database.transaction() as connection:
                    if not await locks.renew(connection, name, owner, lease_seconds):
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
                await locks.release(connection, name, owner)
