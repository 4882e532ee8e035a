"""Ringing after the commit. A silent bell loses nothing: the reconciler rings again for what Postgres expects."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import structlog

from app import clock
from app.domain.executions import PendingRun
from app.domain.schedules import PlannedTick, ScheduledJob
from app.micro_batcher import MicroBatcher
from app.observability.logs import LogThrottle
from app.queue.bell import Bell, BellHealth, BellUnreachableError
from app.queue.wire import Wake, execution_wake, tick_wake

log = structlog.get_logger(__name__)


class Ringer:
    """Rings for schedules and executions, and never raises for want of Redis."""

    def __init__(self, bell: Bell, health: BellHealth | None = None) -> None:
        """Ring this bell; its health is told when messages could not be queued, and asked before it is tried."""
        self._bell = bell
        self._health = health
        self._throttle = LogThrottle()
        self._rings = MicroBatcher("ring", self._ring_all)

    async def ticks(self, jobs: Iterable[ScheduledJob | PlannedTick]) -> int:
        """Ring for the pending ticks of these schedules; how many were not queued yet."""
        return await self._ring([tick_wake(job) for job in jobs if job.next_run_at is not None])

    def tick(self, job: ScheduledJob, not_before: datetime | None = None) -> asyncio.Future[bool] | None:
        """The same for one schedule, not before a moment: begun now, to be awaited when it suits."""
        if job.next_run_at is None:
            return None
        wake = tick_wake(job)
        if not_before is not None and wake.due < not_before:
            wake = msgspec.structs.replace(wake, due=not_before)
        return self._rings.ask(wake)

    async def ticks_spread(self, jobs: Sequence[PlannedTick], start: datetime, gap: timedelta) -> int:
        """The same, one after the other from a moment on, so that overdue ones do not all come at once."""
        wakes = [msgspec.structs.replace(tick_wake(job), due=start + k * gap) for k, job in enumerate(jobs)]
        return await self._ring(wakes)

    async def executions(self, pending: Iterable[PendingRun]) -> int:
        """Ring for executions that wait to be started, each at its time."""
        return await self._ring([execution_wake(run) for run in pending])

    async def call_off(self, execution_ids: Sequence[UUID]) -> None:
        """Tell whoever runs these to drop them; else they learn it when they renew their lease."""
        if not execution_ids:
            return
        try:
            await self._bell.call_off(execution_ids)
        except BellUnreachableError as error:
            if self._throttle.should_log("call_off_unheard"):
                log.warning("call_off_unheard", executions=len(execution_ids), error=str(error))

    async def _ring(self, wakes: Sequence[Wake]) -> int:
        if not wakes:
            return 0
        if len(wakes) == 1:
            return int(await self._rings.ask(wakes[0]))
        return sum(await self._ring_all(wakes))

    async def _ring_all(self, wakes: Sequence[Wake]) -> list[bool]:
        if self._health is not None and self._health.sick.is_set():
            # Nobody waits for a Redis that hangs: what is due is found in Postgres, and all is queued again later.
            self._health.rings_failed = True
            return [False] * len(wakes)
        try:
            return await self._bell.ring(wakes, clock.now())
        except BellUnreachableError as error:
            if self._health is not None:
                self._health.ring_failed(error)
            if self._throttle.should_log("ring_unheard"):
                log.warning("ring_unheard", messages=len(wakes), error=str(error))
            return [False] * len(wakes)
