"""Recovery: find lost work in Postgres and start it again, at start-up and every few seconds.

Lost work is: a tick whose message is gone, an execution whose worker died, a callback that never came, everything
while Redis is down.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from app import clock
from app.domain.errors import NotFoundError
from app.domain.executions import Outcome, PendingRun
from app.domain.schedules import PlannedTick
from app.domain.ticks import Tick
from app.engine import agent_leases, schedule_changes
from app.engine.concurrency import UNKNOWN
from app.engine.queue_port import Queue, QueueUnavailableError, Redeliver, execution_wake, tick_wake
from app.engine.ringing import BellHealth, Ringer
from app.engine.ticks import TickEngine
from app.observability.metrics import MODE, RECONCILED
from app.persistence import leases, recovery, schedules
from app.persistence.database import Database, database_now

# A tick this late has probably lost its message. If it only waits for its turn, ringing again changes nothing.
OVERDUE = timedelta(seconds=1)
# Pending executions are rung for this long before they are due, so that one whose message is gone still starts in time.
AHEAD = timedelta(seconds=10)
PAGE = 500
# How often a worker looks for pauses that end by themselves; one that ends sooner is not late for that.
PAUSE_LOOK_SECONDS = 1.0
# While a worker is full: how often it looks for due work of other owners, and how late that must be.
SHARE_SECONDS = 0.2
SHARE_LATE = timedelta(milliseconds=100)
# A log line names at most so many executions.
MOST_NAMED = 20
# At start-up overdue ticks are rung one after the other at this distance, so that they do not all start at once.
SPREAD = timedelta(milliseconds=1)

log = structlog.get_logger(__name__)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass found and started again. The names of the counts are labels of a metric."""

    # Ticks and pending executions whose message was gone.
    rung: int = 0
    # Ticks that were overdue for too long, or due while the queue was down.
    claimed: int = 0
    # Executions whose worker's lease had expired.
    lost: int = 0
    # Executions whose callback did not come in time.
    timed_out: int = 0
    # Pending executions that were started while the queue was down.
    started: int = 0
    # Schedules that were resumed because their spec is valid again.
    taken_up: int = 0
    queue_down: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts by kind."""
        counts = msgspec.structs.asdict(self)
        del counts["queue_down"]
        return counts


class Reconciler:
    """Compares what Postgres expects with what is under way, and starts again what is missing."""

    def __init__(
        self,
        database: Database,
        queue: Queue,
        health: BellHealth,
        ringer: Ringer,
        engine: TickEngine,
        lease_seconds: float,
    ) -> None:
        """Claim from Postgres ticks that are overdue for longer than a lease, and all due ticks while Redis is down."""
        self._database = database
        self._queue = queue
        self._health = health
        self._ringer = ringer
        self._engine = engine
        self._longest_overdue = timedelta(seconds=lease_seconds)
        self._tasks: set[asyncio.Task[bool]] = set()

    async def recover_scheduled_jobs(self) -> int:
        """Ring for every schedule whose due time has passed. Return how many they are."""
        recovered, after = 0, None
        while True:
            async with self._database.transaction("recover_schedules") as connection:
                now = await database_now(connection)
                page = await schedules.overdue(connection, now, PAGE, after)
            if not page:
                return recovered
            await self._ringer.ticks_spread(page, now + recovered * SPREAD, SPREAD)
            recovered += len(page)
            after = page[-1]

    async def run_once(self) -> Recovered:
        """Look once for every kind of lost work, and start it again."""
        recovered = await self._pass()
        for kind, number in recovered.counts.items():
            RECONCILED.labels(kind).inc(number)
        MODE.set(not recovered.queue_down)
        return recovered

    async def _pass(self) -> Recovered:
        lost = await self._engine.settle_all(await self._lost())
        timed_out = await self._engine.settle_all(await self._without_callback())
        taken_up = await self._resume_valid_specs()
        await self._engine.limits.look_at_all()
        await self.end_pauses()
        await agent_leases.end_due(self._database, self._ringer)
        recovered = Recovered(lost=lost, timed_out=timed_out, taken_up=taken_up)
        if self._health.down.is_set():
            return await self._sweep(recovered)
        try:
            rung = await self._ring_missing()
        except QueueUnavailableError as error:
            self._health.ring_failed(error)
            return await self._sweep(recovered)
        claimed = await self._claim_overdue(self._longest_overdue)
        await self._forget_workers()
        return replace(recovered, rung=rung, claimed=claimed)

    async def _sweep(self, recovered: Recovered) -> Recovered:
        """Start what is due straight from Postgres, while the queue takes no messages."""
        claimed = await self._claim_overdue(timedelta(0))
        return replace(recovered, claimed=claimed, started=await self._start_pending(), queue_down=True)

    async def _ring_missing(self) -> int:
        """Ring for overdue ticks and pending executions; after a flush or an outage of the queue, for every tick.

        This does not use ``Ringer``, which hides errors: if a ring fails here, the queue must be marked as down.
        """
        if await self._queue.is_intact() and not self._health.may_lack_messages:
            rung = sum(await self._queue.ring(list(map(tick_wake, await self._overdue(OVERDUE))), clock.now()))
        else:
            rung = await self._refill()
        return rung + await self._ring_pending()

    async def _ring_pending(self) -> int:
        """Ring for all executions that are due or soon will be, page by page.

        With one page only, many executions that wait for a place would hide one whose message is lost.
        """
        rung, after = 0, None
        while True:
            async with self._database.transaction("ring_pending") as connection:
                page = await recovery.pending(connection, PAGE, AHEAD, after)
            rung += sum(await self._queue.ring(list(map(execution_wake, page)), clock.now()))
            if len(page) < PAGE:
                return rung
            after = page[-1]

    async def _refill(self) -> int:
        """Queue everything that is planned. A flush in the middle of it is noticed, and the next pass begins again."""
        await self._queue.begin_refill()
        rung = await self._ring_everything()
        if await self._queue.finish_refill():
            self._health.may_lack_messages = False
            log.info("queue_refilled", rung=rung)
        return rung

    async def _ring_everything(self) -> int:
        rung, after = 0, None
        while True:
            async with self._database.transaction("ring_everything") as connection:
                page = await schedules.planned_after(connection, after, PAGE)
            if not page:
                return rung
            rung += sum(await self._queue.ring([tick_wake(job) for job in page], clock.now()))
            after = page[-1].id

    async def _claim_overdue(self, by: timedelta) -> int:
        """Claim and run overdue ticks without messages. A message that comes later finds a newer generation."""
        return await self._claim(await self._overdue(by))

    async def _claim(self, overdue: Sequence[PlannedTick]) -> int:
        """Claim and run the ticks for which there is a place. The next pass finds the others again."""
        taken = {tick.id: self._engine.places.take_if_fair(tick.user_profile_id) for tick in overdue}
        places = {job_id: place for job_id, place in taken.items() if place is not None}
        ticks = [Tick(tick.id, tick.generation) for tick in overdue if tick.id in places]
        try:
            claimed = await self._engine.claim_directly(ticks) if ticks else []
            for result in claimed:
                self._start_task(self._engine.run_claimed(result, places.pop(result.job.id)))
        finally:
            for place in places.values():
                place.release()
        return len(claimed)

    async def _start_pending(self) -> int:
        async with self._database.transaction("start_pending") as connection:
            pending = await recovery.pending_in_turn(connection, PAGE)
        return self._start(pending)

    def _start(self, pending: Sequence[PendingRun]) -> int:
        """Start the executions for which there is a place. The next pass finds the others again."""
        started = 0
        for run in pending:
            place = self._engine.places.take_if_fair(run.user_profile_id or UNKNOWN)
            if place is not None:
                self._start_task(self._engine.run_execution(run.execution_id, run.token, place))
                started += 1
        return started

    async def serve_other_owners(self) -> float:
        """While a few owners fill the worker, start due work of other owners on the reserved places.

        The work is found in Postgres: in the queue it may stand behind thousands of messages of the others. Return the
        seconds until the next look.
        """
        places, began = self._engine.places, clock.monotonic()
        if not places.is_full:
            places.reserve(len(places.owners), were_short=False)
            return SHARE_SECONDS
        large = places.large_owners
        async with self._database.transaction("serve_other_owners") as connection:
            if len(large) == 1 and not await schedules.has_others(connection, large[0]):
                return SHARE_SECONDS
            now: datetime = await database_now(connection)
            overdue = await schedules.overdue_in_turn(connection, now - SHARE_LATE, PAGE, large)
            pending = await recovery.pending_in_turn(connection, PAGE, large)
        started = await self._claim(overdue) + self._start(pending)
        owners = {*large, *(tick.user_profile_id for tick in overdue), *(run.user_profile_id for run in pending)}
        places.reserve(len(owners), were_short=started < len(overdue) + len(pending))
        # Looking through a long backlog takes long; most of the time must be left to the work itself.
        return max(SHARE_SECONDS, (clock.monotonic() - began) * 4)

    async def _lost(self) -> list[Outcome]:
        async with self._database.transaction("find_lost") as connection:
            lost = await recovery.lost(connection, PAGE)
        if lost:
            named = [str(outcome.execution_id) for outcome in lost[:MOST_NAMED]]
            log.warning("executions_lost", count=len(lost), executions=named)
        return lost

    async def _without_callback(self) -> list[Outcome]:
        async with self._database.transaction("find_without_callback") as connection:
            return await recovery.timed_out(connection, PAGE)

    async def _overdue(self, by: timedelta) -> list[PlannedTick]:
        async with self._database.transaction("find_overdue") as connection:
            now: datetime = await database_now(connection)
            return await schedules.overdue_in_turn(connection, now - by, PAGE)

    async def _resume_valid_specs(self) -> int:
        """Resume schedules that were paused because their spec had become invalid, and whose spec is valid again.

        A spec becomes invalid without an edit when the timezone database no longer has its timezone.
        """
        async with self._database.transaction("find_invalid_specs") as connection:
            waiting = await schedules.invalid(connection, PAGE)
        valid = [job.id for job in waiting if not job.spec.problem]
        for job_id in valid:
            await self._resume_schedule(job_id)
        return len(valid)

    async def end_pauses(self) -> float:
        """Resume schedules whose pause has ended by itself. Return the seconds until the next look."""
        async with self._database.transaction("end_pauses") as connection:
            ended = await schedule_changes.end_pauses(connection, PAGE)
            wait = None if ended.changed else await schedules.seconds_to_pause_end(connection)
        if ended.changed:
            log.info("pauses_ended", schedules=len(ended.changed))
            await self._ringer.ticks([after for _, after in ended.changed.values()])
            await self._ringer.executions(ended.pending)
            return 0.0
        return PAUSE_LOOK_SECONDS if wait is None else min(PAUSE_LOOK_SECONDS, wait)

    async def _resume_schedule(self, job_id: UUID) -> None:
        with suppress(NotFoundError):
            async with self._database.transaction("resume_valid_spec") as connection:
                changed = await schedule_changes.resume_valid_spec(connection, job_id)
            log.info("spec_revalidated", schedule=str(job_id), state=changed.job.status)
            await self._ringer.ticks([changed.job])
            await self._ringer.executions(changed.pending)

    async def _forget_workers(self) -> None:
        async with self._database.transaction("forget_workers") as connection:
            await leases.forget_expired_workers(connection)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(log_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def log_errors(work: Coroutine[Any, Any, None]) -> bool:
    """Do work that was started without a message. Log its error, so that it does not stop the others.

    Return whether it raised one.
    """
    try:
        await work
    except Redeliver:
        # There is no message to deliver again; the next pass finds the work in Postgres.
        return False
    except Exception:
        log.exception("direct_run_failed")
        return True
    return False
