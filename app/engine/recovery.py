"""Recovery: what went astray is found in Postgres and set going again, at start-up and every few seconds."""

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
from app.engine import schedule_changes
from app.engine.places import UNKNOWN
from app.engine.ringing import Ringer
from app.engine.ticks import TickEngine
from app.observability.metrics import MODE, RECONCILED
from app.persistence import executions, leases, schedules
from app.persistence.database import Database, database_now
from app.queue.bell import Bell, BellHealth, BellUnreachableError
from app.queue.wire import execution_wake, tick_wake
from app.queue.worker import Redeliver

# A tick this late has lost its message; one that is merely waiting its turn rings twice at no cost.
OVERDUE = timedelta(seconds=1)
# Executions that are due so soon are rung for already: a sleeper whose message is gone shall not oversleep.
AHEAD = timedelta(seconds=10)
PAGE = 500
# How often is looked for what others have due while a worker is full, and how late that has to be.
SHARE_SECONDS = 0.2
SHARE_LATE = timedelta(milliseconds=100)
MOST_NAMED = 20
# What was missed while nobody worked is released at this pace, so that it does not stampede.
SPREAD = timedelta(milliseconds=1)

log = structlog.get_logger(__name__)


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass found and set going again."""

    # Ticks and pending executions whose message was gone.
    rung: int = 0
    # Ticks that were overdue for too long, or while the bell was silent.
    claimed: int = 0
    # Executions whose worker's lease had run out, or whose callback never came.
    lost: int = 0
    timed_out: int = 0
    # Executions that nobody had started, while the bell was silent.
    started: int = 0
    # Schedules whose spec is valid again.
    taken_up: int = 0
    bell_away: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """What was found, by kind."""
        found = msgspec.structs.asdict(self)
        del found["bell_away"]
        return found


class Reconciler:
    """Compares what Postgres expects with what is under way."""

    def __init__(
        self,
        database: Database,
        bell: Bell,
        health: BellHealth,
        ringer: Ringer,
        engine: TickEngine,
        lease_seconds: float,
    ) -> None:
        """Claim directly whatever has been overdue for longer than a lease, and everything due while Redis is sick."""
        self._database = database
        self._bell = bell
        self._health = health
        self._ringer = ringer
        self._engine = engine
        self._patience = timedelta(seconds=lease_seconds)
        self._going: set[asyncio.Task[None]] = set()

    async def recover_scheduled_jobs(self) -> int:
        """Ring for every schedule whose due time has passed; how many that were."""
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
        """One pass over everything that can go astray."""
        found = await self._pass()
        for kind, number in found.counts.items():
            RECONCILED.labels(kind).inc(number)
        MODE.set(not found.bell_away)
        return found

    async def _pass(self) -> Recovered:
        lost = await self._engine.settle_all(await self._lost())
        timed_out = await self._engine.settle_all(await self._without_callback())
        taken_up = await self._take_up_valid_specs()
        found = Recovered(lost=lost, timed_out=timed_out, taken_up=taken_up)
        if self._health.sick.is_set():
            return await self._sweep(found)
        try:
            rung = await self._ring_what_is_missing()
        except BellUnreachableError as error:
            self._health.ring_failed(error)
            return await self._sweep(found)
        claimed = await self._claim_overdue(self._patience)
        await self._forget_workers()
        return replace(found, rung=rung, claimed=claimed)

    async def _sweep(self, found: Recovered) -> Recovered:
        """Fire from Postgres what is due, while Redis does not take messages."""
        claimed = await self._claim_overdue(timedelta(0))
        return replace(found, claimed=claimed, started=await self._start_pending(), bell_away=True)

    async def _ring_what_is_missing(self) -> int:
        """After a flush or a sick Redis everything, else what is overdue, and executions that nobody has started.

        Not through the ringer, which swallows errors: a Redis that fails here must not be taken for a well one.
        """
        if await self._bell.remembers() and not self._health.may_lack_messages:
            rung = sum(await self._bell.ring(list(map(tick_wake, await self._overdue(OVERDUE))), clock.now()))
        else:
            rung = await self._refill()
        return rung + await self._ring_pending()

    async def _ring_pending(self) -> int:
        """All that is due, or soon, page by page: many that only wait must not hide a lost message behind them."""
        rung, after = 0, None
        while True:
            async with self._database.transaction("ring_pending") as connection:
                page = await executions.pending(connection, PAGE, AHEAD, after)
            rung += sum(await self._bell.ring(list(map(execution_wake, page)), clock.now()))
            if len(page) < PAGE:
                return rung
            after = page[-1]

    async def _refill(self) -> int:
        await self._bell.begin_filling()
        rung = await self._ring_everything()
        if await self._bell.begin_epoch():
            self._health.may_lack_messages = False
            log.info("bell_refilled", rung=rung)
        return rung

    async def _ring_everything(self) -> int:
        rung, after = 0, None
        while True:
            async with self._database.transaction("ring_everything") as connection:
                page = await schedules.planned_after(connection, after, PAGE)
            if not page:
                return rung
            rung += sum(await self._bell.ring([tick_wake(job) for job in page], clock.now()))
            after = page[-1].id

    async def _claim_overdue(self, by: timedelta) -> int:
        """Claim and run without the bell; the fence makes it harmless if a message comes after all."""
        return await self._claim(await self._overdue(by))

    async def _claim(self, overdue: Sequence[PlannedTick]) -> int:
        """Claim those for which there is a place, and run them; the others are found again."""
        taken = {tick.id: self._engine.places.take_if_fair(tick.user_profile_id) for tick in overdue}
        places = {job_id: place for job_id, place in taken.items() if place is not None}
        ticks = [Tick(tick.id, tick.generation) for tick in overdue if tick.id in places]
        try:
            claimed = await self._engine.claim_directly(ticks) if ticks else []
            for result in claimed:
                self._go(self._engine.run_claimed(result, places.pop(result.job.id)))
        finally:
            for place in places.values():
                place.leave()
        return len(claimed)

    async def _start_pending(self) -> int:
        async with self._database.transaction("start_pending") as connection:
            pending = await executions.pending_of_owners(connection, PAGE)
        return self._start(pending)

    def _start(self, pending: Sequence[PendingRun]) -> int:
        """Start those for which there is a place; the others are found again."""
        started = 0
        for run in pending:
            place = self._engine.places.take_if_fair(run.user_profile_id or UNKNOWN)
            if place is not None:
                self._go(self._engine.run_execution(run.execution_id, run.token, place))
                started += 1
        return started

    async def share_out(self) -> float:
        """While a few owners fill all places, start what others have due, on those that are kept for them.

        It is found in Postgres: in the queue it may stand behind thousands. The seconds until the next time.
        """
        places, began = self._engine.places, clock.monotonic()
        if not places.is_crowded:
            places.keep(len(places.owners), were_short=False)
            return SHARE_SECONDS
        greedy = places.greedy
        async with self._database.transaction("share_out") as connection:
            if len(greedy) == 1 and not await schedules.has_others(connection, greedy[0]):
                return SHARE_SECONDS
            now: datetime = await database_now(connection)
            overdue = await schedules.overdue_in_turn(connection, now - SHARE_LATE, PAGE, greedy)
            pending = await executions.pending_of_owners(connection, PAGE, greedy)
        started = await self._claim(overdue) + self._start(pending)
        owners = {*greedy, *(tick.user_profile_id for tick in overdue), *(run.user_profile_id for run in pending)}
        places.keep(len(owners), were_short=started < len(overdue) + len(pending))
        # A long backlog takes long to look through: most of the time is left to the work itself.
        return max(SHARE_SECONDS, (clock.monotonic() - began) * 4)

    async def _lost(self) -> list[Outcome]:
        async with self._database.transaction("find_lost") as connection:
            lost = await executions.lost(connection, PAGE)
        if lost:
            shown = [str(outcome.execution_id) for outcome in lost[:MOST_NAMED]]
            log.warning("executions_lost", count=len(lost), executions=shown)
        return lost

    async def _without_callback(self) -> list[Outcome]:
        async with self._database.transaction("find_without_callback") as connection:
            return await executions.overdue(connection, PAGE)

    async def _overdue(self, by: timedelta) -> list[PlannedTick]:
        async with self._database.transaction("find_overdue") as connection:
            now: datetime = await database_now(connection)
            return await schedules.overdue_in_turn(connection, now - by, PAGE)

    async def _take_up_valid_specs(self) -> int:
        """A schedule whose spec had become invalid comes back by itself once it is valid again."""
        async with self._database.transaction("find_invalid_specs") as connection:
            waiting = await schedules.invalid(connection, PAGE)
        valid = [job.id for job in waiting if not job.spec.problem]
        for job_id in valid:
            await self._take_up_again(job_id)
        return len(valid)

    async def _take_up_again(self, job_id: UUID) -> None:
        with suppress(NotFoundError):
            async with self._database.transaction("resume_valid_spec") as connection:
                changed = await schedule_changes.resume_valid_spec(connection, job_id)
            log.info("spec_valid_again", schedule=str(job_id), state=changed.job.status)
            await self._ringer.ticks([changed.job])
            await self._ringer.executions(changed.pending)

    async def _forget_workers(self) -> None:
        async with self._database.transaction("forget_workers") as connection:
            await leases.forget_expired_workers(connection)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(survived(work))
        self._going.add(task)
        task.add_done_callback(self._going.discard)


async def survived(work: Coroutine[Any, Any, None]) -> None:
    """Work that nobody waits for: whatever becomes of it, others go on."""
    try:
        await work
    except Redeliver:
        # There is no message to put back; the next pass finds it again.
        return
    except Exception:
        log.exception("direct_run_failed")
