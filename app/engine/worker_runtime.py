"""What a worker process does beside the queue: its lease, its loops, and handing runs back when it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from random import uniform
from typing import Any
from uuid import UUID

import structlog

from app.domain.errors import CarillonError, UnavailableError
from app.engine.bulk_operations import OperationRunner
from app.engine.entity_polling import Poller
from app.engine.housekeeping import Housekeeper
from app.engine.leases import WorkerLease
from app.engine.notifications import NotificationSender
from app.engine.recovery import Reconciler
from app.engine.ringing import BellHealth
from app.engine.runner import Runner
from app.engine.ticks import TickEngine
from app.observability.logs import LogThrottle, Outage
from app.persistence.database import unreachable_reason

# A lease is renewed after this part of its time, so that a renewal that fails can be repeated before it expires.
RENEWALS_PER_LEASE = 3
OUTAGE_PAUSE_SECONDS = 1.0
# While the queue is down, due schedules are claimed from Postgres at this interval.
SWEEP_SECONDS = 0.2
# How often it looks for notifications to deliver.
DELIVER_SECONDS = 1.0
RELEASE_SECONDS = 2.0
HAND_BACK_SECONDS = 3.0
LOOP_SECONDS = 2.0

log = structlog.get_logger(__name__)


class WorkerRuntime:
    """Takes a lease, repeats its loops, and at the end hands back what is unfinished."""

    def __init__(  # noqa: PLR0913 - the parts of a worker
        self,
        lease: WorkerLease,
        reconciler: Reconciler,
        runner: Runner,
        engine: TickEngine,
        notification_sender: NotificationSender,
        poller: Poller,
        housekeeper: Housekeeper,
        operation_runner: OperationRunner,
        bell_health: BellHealth,
        *,
        lease_seconds: float,
        reconcile_seconds: float,
        other_loops: Mapping[str, Callable[[], Awaitable[float]]] | None = None,
    ) -> None:
        """Prepare the loops; they start with ``begin``. ``other_loops`` are steps that no other part asks for."""
        self._other_loops = other_loops or {}
        self._lease = lease
        self._reconciler = reconciler
        self._runner = runner
        self._engine = engine
        self._notification_sender = notification_sender
        self._poller = poller
        self._housekeeper = housekeeper
        self._operation_runner = operation_runner
        self._bell_health = bell_health
        self._lease_seconds = lease_seconds
        self._reconcile_seconds = reconcile_seconds
        self._registered = False
        # Executions that this worker held at the last renewal although it did not know them.
        self._suspects: set[UUID] = set()
        self._ending = asyncio.Event()
        self._loops: set[asyncio.Task[None]] = set()
        self._outage = Outage(log, away="database_unreachable", back="database_recovered")
        self._throttle = LogThrottle()
        # Why the lease could not be renewed, as a sentence; empty if it was.
        self._lease_problem = ""

    async def begin(self) -> None:
        """Take a lease, ring for what was missed, and start the loops. Without Postgres the loops do that later."""
        await self._run_step("lease", self._recover)
        self._loops = {
            asyncio.create_task(self._repeat("lease", self._keep_lease)),
            asyncio.create_task(self._repeat("queue health", self._bell_health.probe)),
            asyncio.create_task(self._repeat("reconcile", self._reconcile, self._bell_health.down)),
            asyncio.create_task(self._repeat("pauses", self._reconciler.end_pauses)),
            asyncio.create_task(self._repeat("other owners", self._reconciler.serve_other_owners)),
            asyncio.create_task(self._repeat("notifications", self._deliver)),
            asyncio.create_task(self._repeat("entities", self._poller.step)),
            asyncio.create_task(self._repeat("housekeeping", self._housekeeper.step)),
            asyncio.create_task(self._repeat("operations", self._operation_runner.step)),
            *(asyncio.create_task(self._repeat(name, step)) for name, step in self._other_loops.items()),
        }

    async def end(self, drain_seconds: float) -> None:
        """Start no more runs, wait for running ones, hand the rest back, and release the lease."""
        await _bounded(self._engine.close(), RELEASE_SECONDS)
        await self._wait_until_idle(drain_seconds)
        await _bounded(self._hand_everything_back(), HAND_BACK_SECONDS)
        await _bounded(self._engine.rung(), RELEASE_SECONDS)
        await self._end_loops()
        for release in (self._lease.release, self._poller.release):
            with suppress(UnavailableError):
                await release()

    def problem(self) -> str:
        """Return why this worker cannot work, as a sentence; empty while its lease holds."""
        if self._lease.holds():
            return ""
        return self._lease_problem or "Postgres did not answer in time to renew this worker's lease."

    @property
    def reaches_database(self) -> bool:
        """Whether the last step of every loop reached Postgres."""
        return not self._outage.is_ongoing

    def call_off(self, execution_id: str) -> None:
        """Handle a message that an execution was cancelled. Anyone who reaches Redis can send one."""
        with suppress(ValueError):
            self._engine.cancellation_heard(UUID(execution_id))

    async def _recover(self) -> float:
        await self._keep_lease()
        recovered = await self._reconciler.recover_scheduled_jobs()
        log.info("schedules_recovered", schedules=recovered)
        return 0.0

    async def _keep_lease(self) -> float:
        """Register or renew the lease, and note why if that fails. Return the seconds until the next renewal."""
        try:
            pause = await self._registered_or_renewed()
        except Exception as error:
            self._lease_problem = error.detail if isinstance(error, CarillonError) else f"{type(error).__name__}."
            raise
        self._lease_problem = ""
        return pause

    async def _registered_or_renewed(self) -> float:
        """Take a lease, or renew it and cancel the runs that this worker no longer holds."""
        if not self._registered:
            # Before the first claim, which needs the lease: its run may need a permit of a quota.
            await self._runner.limits.read_quotas()
            await self._lease.begin()
            self._registered = True
            return self._lease_seconds / RENEWALS_PER_LEASE
        # Read before the renewal: a run that is claimed while it is under way is missing from its answer.
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
        """Hand back executions that this worker holds in Postgres and does not know.

        They come from claims whose answer was lost. One that is seen at two renewals was not just being claimed.
        """
        orphans = held.keys() - self._engine.owned
        twice = orphans & self._suspects
        if twice:
            await self._engine.hand_back({execution_id: held[execution_id] for execution_id in twice})
        self._suspects = orphans

    async def _reconcile(self) -> float:
        recovered = await self._reconciler.run_once()
        counts = {kind: number for kind, number in recovered.counts.items() if number}
        if counts:
            log.info("work_reconciled", **counts)
        if recovered.queue_down or self._bell_health.down.is_set():
            return SWEEP_SECONDS
        # With some chance in it, so that many workers do not all query at once.
        return self._reconcile_seconds * uniform(0.8, 1.2)  # noqa: S311 - no secret

    async def _deliver(self) -> float:
        return 0.0 if await self._notification_sender.run_once() else DELIVER_SECONDS

    async def _repeat(
        self, name: str, step: Callable[[], Awaitable[float]], hurry: asyncio.Event | None = None
    ) -> None:
        """Repeat a step until the worker ends. A pause is cut short when ``hurry`` becomes set."""
        while not self._ending.is_set():
            pause = await self._run_step(name, step)
            signals = () if hurry is None or hurry.is_set() else (hurry,)
            await _wait_for_any(pause, self._ending, *signals)

    async def _run_step(self, name: str, step: Callable[[], Awaitable[float]]) -> float:
        """Run one step of a loop. An error is logged and the loop goes on. Return the seconds until the next step."""
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

    async def _end_loops(self) -> None:
        """Ask the loops to end, then cancel those that have not: a driver can swallow a cancellation."""
        self._ending.set()
        _, late = await asyncio.wait(self._loops, timeout=LOOP_SECONDS) if self._loops else (set(), set())
        for loop in late:
            loop.cancel()

    async def _wait_until_idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._engine.idle(), seconds)

    async def _hand_everything_back(self) -> None:
        held = dict(self._engine.owned)
        if held:
            await self._engine.hand_back(held)
        await self._engine.idle()


async def _bounded(work: Coroutine[Any, Any, None], seconds: float) -> None:
    """Wait for a piece of work, at most ``seconds``. It is not cancelled: a driver can swallow a cancellation."""
    await asyncio.wait({asyncio.create_task(work)}, timeout=seconds)


async def _wait_for_any(seconds: float, *events: asyncio.Event) -> None:
    """Wait until one of the events is set, at most ``seconds``."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
