"""Recovery: what went astray is found in Postgres and set going again, at start-up and every few seconds."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from app.domain.schedules import ScheduledJob
from app.domain.ticks import Tick
from app.engine.lease import WorkerLease
from app.engine.ringing import Ringer
from app.engine.ticks import TickEngine
from app.persistence import executions, schedules, workers
from app.persistence.database import Database, database_now
from app.persistence.settle import Settled, settle
from app.queue.bell import Bell, BellAwayError

# A tick this late has lost its message; one that is merely waiting its turn rings twice at no cost.
OVERDUE = timedelta(seconds=1)
PAGE = 500

log = structlog.get_logger(__name__)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass found and set going again."""

    rung: int = 0
    claimed: int = 0
    lost: int = 0
    bell_away: bool = False


class Reconciler:
    """Compares what Postgres expects with what is under way."""

    def __init__(
        self,
        database: Database,
        bell: Bell,
        ringer: Ringer,
        engine: TickEngine,
        lease: WorkerLease,
        lease_seconds: float,
    ) -> None:
        """Claim directly whatever has been overdue for longer than a lease."""
        self._database = database
        self._bell = bell
        self._ringer = ringer
        self._engine = engine
        self._lease = lease
        self._patience = timedelta(seconds=lease_seconds)
        self._going: set[asyncio.Task[None]] = set()

    async def recover_scheduled_jobs(self) -> int:
        """Ring for every schedule whose due time has passed; how many that were."""
        overdue = await self._overdue(timedelta(0))
        await self._ringer.ticks(overdue)
        return len(overdue)

    async def run_once(self) -> Recovered:
        """One pass over everything that can go astray."""
        lost = await self._settle_lost()
        try:
            rung = await self._ring_what_is_missing()
        except BellAwayError:
            claimed = await self._claim_overdue(timedelta(0))
            await self._start_pending()
            return Recovered(claimed=claimed, lost=lost, bell_away=True)
        claimed = await self._claim_overdue(self._patience)
        await self._forget_workers()
        return Recovered(rung=rung, claimed=claimed, lost=lost)

    async def finished(self) -> None:
        """Wait for what was claimed directly."""
        while self._going:
            await asyncio.wait(self._going)

    async def _ring_what_is_missing(self) -> int:
        """After a flush everything, else what is overdue, and executions that nobody has started."""
        if await self._bell.remembers():
            rung = await self._ringer.ticks(await self._overdue(OVERDUE))
        else:
            rung = await self._ring_everything()
            await self._bell.begin_epoch()
            log.info("bell_refilled", rung=rung)
        return rung + await self._ringer.executions(await self._pending())

    async def _ring_everything(self) -> int:
        rung, after = 0, None
        while True:
            async with self._database.transaction() as connection:
                page = await schedules.planned_after(connection, after, PAGE)
            if not page:
                return rung
            rung += await self._ringer.ticks(page)
            after = page[-1].id

    async def _claim_overdue(self, by: timedelta) -> int:
        """Claim and run without the bell; the fence makes it harmless if a message comes after all."""
        overdue = await self._overdue(by)
        if not overdue or not self._lease.holds():
            return 0
        claimed = await self._engine.claim_directly([Tick(job.id, job.generation) for job in overdue])
        await self._ringer.ticks([result.job for result in claimed])
        for result in claimed:
            if result.execution is not None:
                self._go(self._engine.finish(result.execution))
        return len(claimed)

    async def _start_pending(self) -> None:
        for execution_id, token in await self._pending():
            self._go(self._engine.run_execution(execution_id, token))

    async def _settle_lost(self) -> int:
        async with self._database.transaction() as connection:
            lost = await executions.lost(connection, PAGE)
        if not lost:
            return 0
        settled = [result for result in await settle(self._database, lost) if isinstance(result, Settled)]
        log.warning("executions_lost", count=len(settled))
        await self._ringer.ticks([result.job for result in settled])
        return len(settled)

    async def _overdue(self, by: timedelta) -> list[ScheduledJob]:
        async with self._database.transaction() as connection:
            now: datetime = await database_now(connection)
            return await schedules.overdue(connection, now - by, PAGE)

    async def _pending(self) -> list[Any]:
        async with self._database.transaction() as connection:
            return await executions.pending(connection, PAGE)

    async def _forget_workers(self) -> None:
        async with self._database.transaction() as connection:
            await workers.forget_expired(connection)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_survived(work))
        self._going.add(task)
        task.add_done_callback(self._going.discard)


async def _survived(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("direct_run_failed")
