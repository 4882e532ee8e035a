"""The life of a worker process beside its queue: its lease, its reconciler, its end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import uniform
from uuid import UUID

import structlog

from app.domain.errors import CarillonError, UnavailableError
from app.engine.entities import Poller
from app.engine.housekeeping import Housekeeper
from app.engine.leases import WorkerLease
from app.engine.notifications import NotificationSender
from app.engine.recovery import Reconciler
from app.engine.ringing import BellHealth
from app.engine.runner import Runner
from app.engine.ticks import TickEngine
from app.observability.logs import LogThrottle, Outage
from app.persistence.database import unreachable_reason

# Renewed three times within its life.
RENEWALS_PER_LEASE = 3
OUTAGE_PAUSE_SECONDS = 1.0
# While the bell is silent, due schedules are claimed from Postgres at this pace.
SWEEP_SECONDS = 0.2
# How often is looked for notices to deliver.
DELIVER_SECONDS = 1.0
HAND_BACK_SECONDS = 3.0
LOOP_SECONDS = 2.0

log = structlog.get_logger(__name__)


class WorkerRuntime:
    """Begins, is kept up by its loops, and ends by handing back what is unfinished."""

    def __init__(  # noqa: PLR0913 - what a worker is made of
        self,
        lease: WorkerLease,
        reconciler: Reconciler,
        runner: Runner,
        engine: TickEngine,
        postman: NotificationSender,
        poller: Poller,
        housekeeper: Housekeeper,
        bell_health: BellHealth,
        *,
        lease_seconds: float,
        reconcile_seconds: float,
    ) -> None:
        """Nothing runs until ``begin``."""
        self._lease = lease
        self._reconciler = reconciler
        self._runner = runner
        self._engine = engine
        self._postman = postman
        self._poller = poller
        self._housekeeper = housekeeper
        self._bell_health = bell_health
        self._lease_seconds = lease_seconds
        self._reconcile_seconds = reconcile_seconds
        self._registered = False
        self._suspects: set[UUID] = set()
        self._ending = asyncio.Event()
        self._loops: set[asyncio.Task[None]] = set()
        self._outage = Outage(log, away="database_unreachable", back="database_recovered")
        self._throttle = LogThrottle()
        # Why the lease could not be kept, in words.
        self._lacking = ""

    async def begin(self) -> None:
        """Take a lease, recover what was missed, and keep going. Postgres being away delays this, no more."""
        await self._survived("lease", self._recover)
        self._loops = {
            asyncio.create_task(self._repeat("lease", self._keep_lease)),
            asyncio.create_task(self._repeat("bell", self._bell_health.probe)),
            asyncio.create_task(self._repeat("reconcile", self._reconcile, self._bell_health.down)),
            asyncio.create_task(self._repeat("share out", self._reconciler.share_out)),
            asyncio.create_task(self._repeat("deliver", self._deliver)),
            asyncio.create_task(self._repeat("poll", self._poller.step)),
            asyncio.create_task(self._repeat("keep house", self._housekeeper.step)),
        }

    async def end(self, drain_seconds: float) -> None:
        """Take on nothing more, give running work its time, hand the rest back, release the lease."""
        self._engine.close()
        await self._idle_within(drain_seconds)
        await asyncio.wait({asyncio.create_task(self._hand_everything_back())}, timeout=HAND_BACK_SECONDS)
        await self._loops_ended()
        for release in (self._lease.release, self._poller.release):
            with suppress(UnavailableError):
                await release()

    def lacks(self) -> str:
        """Why this worker cannot work, in words; nothing while its lease holds."""
        return "" if self._lease.holds() else self._lacking or "No answer came in time to keep this worker's lease."

    def call_off(self, execution_id: str) -> None:
        """Word from Redis that an execution is no longer to be run."""
        with suppress(ValueError):
            self._engine.cancellation_heard(UUID(execution_id))

    async def _recover(self) -> float:
        await self._keep_lease()
        recovered = await self._reconciler.recover_scheduled_jobs()
        log.info("schedules_recovered", schedules=recovered)
        return 0.0

    async def _keep_lease(self) -> float:
        """Register or renew, and remember why if that fails. The pause until the next time."""
        try:
            pause = await self._registered_or_renewed()
        except Exception as error:
            self._lacking = error.detail if isinstance(error, CarillonError) else f"{type(error).__name__}."
            raise
        self._lacking = ""
        return pause

    async def _registered_or_renewed(self) -> float:
        """What was taken from this worker meanwhile is dropped."""
        if not self._registered:
            await self._lease.begin()
            self._registered = True
            return self._lease_seconds / RENEWALS_PER_LEASE
        # Read before the renewal: what is claimed while that is under way is missing from its answer.
        running = self._runner.running()
        held = await self._lease.renew()
        if held is None:
            log.warning("lease_lost")
            self._registered = False
        else:
            await self._return_orphans(held)
        for execution_id, token in running.items():
            if held is None or held.get(execution_id) != token:
                self._runner.call_off(execution_id)
        return self._lease_seconds / RENEWALS_PER_LEASE if self._registered else 0.0

    async def _return_orphans(self, held: dict[UUID, int]) -> None:
        """A claim whose answer was lost left an execution that nobody here knows of: seen twice, it is handed back."""
        orphans = held.keys() - self._engine.owned
        twice = orphans & self._suspects
        if twice:
            await self._engine.hand_back({execution_id: held[execution_id] for execution_id in twice})
        self._suspects = orphans

    async def _reconcile(self) -> float:
        found = await self._reconciler.run_once()
        some = {kind: number for kind, number in found.counts.items() if number}
        if some:
            log.info("work_reconciled", **some)
        if found.bell_away or self._bell_health.down.is_set():
            return SWEEP_SECONDS
        # Staggered, so that many workers do not all ask at once.
        return self._reconcile_seconds * uniform(0.8, 1.2)  # noqa: S311 - no secret

    async def _deliver(self) -> float:
        return 0.0 if await self._postman.run_once() else DELIVER_SECONDS

    async def _repeat(
        self, name: str, step: Callable[[], Awaitable[float]], at_once: asyncio.Event | None = None
    ) -> None:
        """Step after step until the end; a bad one is said and survived. A pause ends when ``at_once`` becomes set."""
        while not self._ending.is_set():
            pause = await self._survived(name, step)
            hurry = () if at_once is None or at_once.is_set() else (at_once,)
            await _set_within(pause, self._ending, *hurry)

    async def _survived(self, name: str, step: Callable[[], Awaitable[float]]) -> float:
        """One step; the pause until the next one."""
        try:
            pause = await step()
        except UnavailableError as error:
            self._outage.report(name, unreachable_reason(error))
            return OUTAGE_PAUSE_SECONDS
        except Exception:
            if self._throttle.should_log(name):
                log.exception("loop_failed", loop=name)
            return OUTAGE_PAUSE_SECONDS
        self._outage.clear(name)
        return pause

    async def _loops_ended(self) -> None:
        """By being told; a cancellation can get lost inside a driver, so it is only the second means."""
        self._ending.set()
        _, late = await asyncio.wait(self._loops, timeout=LOOP_SECONDS) if self._loops else (set(), set())
        for loop in late:
            loop.cancel()

    async def _idle_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._engine.idle(), seconds)

    async def _hand_everything_back(self) -> None:
        held = dict(self._engine.owned)
        if held:
            await self._engine.hand_back(held)
        await self._engine.idle()


async def _set_within(seconds: float, *events: asyncio.Event) -> None:
    """Wait until one of the events is set, for so long at the most."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
