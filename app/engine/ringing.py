"""Ringing after the commit, and what this process knows about the health of the queue.

A message that is not queued loses nothing: while Redis fails the reconciler claims due ticks from Postgres, and
afterwards it rings again for everything that Postgres expects.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
import structlog

from app import clock
from app.domain.executions import PendingRun
from app.domain.schedules import PlannedTick, ScheduledJob
from app.engine.queue_port import (
    PROBLEMS,
    Queue,
    QueueUnavailableError,
    Wake,
    eviction_sentence,
    execution_wake,
    tick_wake,
)
from app.micro_batcher import MicroBatcher
from app.observability.logs import LogThrottle, Outage
from app.observability.metrics import BELL_PROBLEM

# Together they bound how long a failing queue goes unnoticed.
PROBE_SECONDS = 0.5
PROBE_TIMEOUT_SECONDS = 1.0
# How long the message of a near tick may wait for others, to be queued with them. If the worker dies meanwhile, the
# reconciler of another one queues it.
NEAR_RING_SECONDS = 0.05
# An outage of this length may have cost messages that another process tried to queue, for example an API.
LONG_OUTAGE_SECONDS = 2.0

log = structlog.get_logger(__name__)


class BellHealth:
    """Whether the queue takes messages, as far as this process knows.

    Any failed call marks it as down. Only a successful write marks it as up again: a Redis that is full, or a replica,
    refuses writes and still answers every read.
    """

    def __init__(self, queue: Queue) -> None:
        """Start with the queue up; the first failure says otherwise."""
        self._queue = queue
        self._outage = Outage(log, away="redis_unreachable", back="redis_recovered")
        self._down_since = 0.0
        # Set while the queue is down; the reconciler waits for it.
        self.down = asyncio.Event()
        # What is wrong, as a sentence for people; empty while the queue is up.
        self.problem = ""
        # A warning about the queue, as a sentence for people: it works, and may lose messages.
        self.warning = ""
        self._has_asked_for_policy = False
        # Whether messages of this process were not queued during the outage.
        self.rings_failed = False
        # Whether the queue is up again and may have lost messages: everything has to be queued again.
        self.may_lack_messages = False

    async def probe(self) -> float:
        """Write to the queue once. Return the seconds until the next probe."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                await self._queue.ping()
        except TimeoutError:
            self.failed(QueueUnavailableError(f"no answer to a write within {PROBE_TIMEOUT_SECONDS:.0f} s", "timeout"))
        except QueueUnavailableError as error:
            self.failed(error)
        else:
            self._recovered()
            await self._ask_for_policy()
        return PROBE_SECONDS

    async def _ask_for_policy(self) -> None:
        """Ask once after each start and each outage whether the queue removes messages, and log that it does."""
        if self._has_asked_for_policy:
            return
        self._has_asked_for_policy = True
        policy = await self._queue.evicts_by()
        self.warning = eviction_sentence(policy)
        if policy:
            log.warning("redis_evicts", policy=policy)

    def failed(self, error: QueueUnavailableError) -> None:
        """Note that a call to the queue failed."""
        self._has_asked_for_policy = False
        if not self.down.is_set():
            self._down_since = clock.monotonic()
            self.down.set()
        self.problem = error.sentence
        for kind in PROBLEMS:
            BELL_PROBLEM.labels(kind).set(kind == error.kind)
        self._outage.report("redis", str(error))

    def ring_failed(self, error: QueueUnavailableError) -> None:
        """Note that a call failed and that messages were not queued because of it."""
        self.rings_failed = True
        self.failed(error)

    def _recovered(self) -> None:
        if not self.down.is_set():
            return
        was_long = clock.monotonic() - self._down_since >= LONG_OUTAGE_SECONDS
        self.may_lack_messages = self.may_lack_messages or self.rings_failed or was_long
        self.rings_failed = False
        self.problem = ""
        for kind in PROBLEMS:
            BELL_PROBLEM.labels(kind).set(0)
        self.down.clear()
        self._outage.clear("redis")


class Ringer:
    """Rings for schedules and executions. It never raises because the queue fails."""

    def __init__(self, queue: Queue, health: BellHealth | None = None) -> None:
        """Ring through this queue. With ``health``, failures are noted there, and a queue that is down is not tried."""
        self._queue = queue
        self._health = health
        self._throttle = LogThrottle()
        self._rings = MicroBatcher("ring", self._ring_all)
        self._late_rings = MicroBatcher("ring", self._ring_all, linger_seconds=NEAR_RING_SECONDS)

    async def ticks(self, jobs: Iterable[ScheduledJob | PlannedTick]) -> int:
        """Ring for the pending ticks of these schedules. Return how many messages were not queued before."""
        return await self._ring([tick_wake(job) for job in jobs if job.next_run_at is not None])

    def tick(self, wake: Wake) -> asyncio.Future[bool]:
        """Ring for one tick. The ring starts now, and the returned future can be awaited later."""
        return self._rings.ask(wake)

    def tick_soon(self, wake: Wake) -> None:
        """Ring for one tick without waiting for that."""
        self._rings.tell(wake)

    def near_tick(self, wake: Wake) -> None:
        """Ring soon for a tick that this worker delivers by itself: its message is for the case that it cannot."""
        self._late_rings.tell(wake)

    async def quiet(self) -> None:
        """Wait until all messages that were asked for are queued."""
        await self._late_rings.quiet()
        await self._rings.quiet()

    async def release(self, wakes: Sequence[Wake]) -> None:
        """Ring for near ticks that this worker does not deliver after all: from now on they are due in time."""
        await self.quiet()
        await self._ring([msgspec.structs.replace(wake, replaces=wake.id) for wake in wakes])

    async def ticks_spread(self, jobs: Sequence[PlannedTick], start: datetime, gap: timedelta) -> int:
        """Ring for overdue ticks, one every ``gap`` from ``start`` on, so that they are not delivered all at once."""
        wakes = [msgspec.structs.replace(tick_wake(job), due=start + k * gap) for k, job in enumerate(jobs)]
        return await self._ring(wakes)

    async def executions(self, pending: Iterable[PendingRun]) -> int:
        """Ring for executions that wait to be started. Return how many messages were not queued before."""
        return await self._ring([execution_wake(run) for run in pending])

    async def call_off(self, execution_ids: Sequence[UUID]) -> None:
        """Tell the workers to drop these executions. If that fails, they learn it when they renew their lease."""
        if not execution_ids:
            return
        try:
            await self._queue.call_off(execution_ids)
        except QueueUnavailableError as error:
            if self._throttle.should_log("call_off_failed"):
                log.warning("call_off_failed", executions=len(execution_ids), error=str(error))

    async def _ring(self, wakes: Sequence[Wake]) -> int:
        if not wakes:
            return 0
        if len(wakes) == 1:
            return int(await self._rings.ask(wakes[0]))
        return sum(await self._ring_all(wakes))

    async def _ring_all(self, wakes: Sequence[Wake]) -> list[bool]:
        if self._health is not None and self._health.down.is_set():
            # A Redis that hangs would hold up every tick by its timeout. Due ticks are claimed from Postgres meanwhile,
            # and everything is queued again after the outage.
            self._health.rings_failed = True
            return [False] * len(wakes)
        try:
            return await self._queue.ring(wakes, clock.now())
        except QueueUnavailableError as error:
            if self._health is not None:
                self._health.ring_failed(error)
            if self._throttle.should_log("ring_failed"):
                log.warning("ring_failed", messages=len(wakes), error=str(error))
            return [False] * len(wakes)
