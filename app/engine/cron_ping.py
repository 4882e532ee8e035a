"""One ping of the cron endpoint: whatever is due is fired here and now, with or without workers."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import structlog

from app.domain.errors import UnavailableError
from app.domain.executions import FAILURES, ExecutionStatus, Outcome
from app.domain.schedules import Status
from app.domain.ticks import FROM_PING, Tick
from app.engine.entities import Poller
from app.engine.leases import WorkerLease, held_lock
from app.engine.notifications import PING_SECONDS, NotificationSender
from app.engine.places import Places
from app.engine.recovery import survived
from app.engine.ringing import Ringer
from app.engine.runner import Actions, Runner
from app.engine.ticks import TickEngine
from app.observability.tracing import Tracer
from app.persistence import executions, schedules
from app.persistence.database import Database, database_now
from app.persistence.execution_rows import EntityRunSettled, Settled

LOCK = "cron_ping"
LOCK_SECONDS = 60.0
RENEW_SECONDS = 20.0
PAGE = 500
# A chain of runs that wait for each other goes on as long as this ping has time for it.
MOST_ROUNDS = 200
RENEWALS_PER_LEASE = 3

log = structlog.get_logger(__name__)


class CronPingResult(msgspec.Struct):
    """What one ping did."""

    ran: int = 0
    skipped: int = 0
    blocked: int = 0
    errors: int = 0
    dead_lettered: int = 0

    def count(self, outcome: Outcome, settled: Settled | EntityRunSettled) -> None:
        """Note how a run ended."""
        if outcome.status is ExecutionStatus.SUCCESS:
            self.ran += 1
        elif outcome.status is ExecutionStatus.SKIPPED:
            self.skipped += 1
        elif outcome.status is ExecutionStatus.BLOCKED:
            self.blocked += 1
        elif outcome.status in FAILURES and isinstance(settled, Settled) and settled.job.status is Status.DEAD:
            self.dead_lettered += 1
        elif outcome.status in FAILURES:
            self.errors += 1


class CronPing:
    """Carries pings out, in the process that is asked."""

    def __init__(  # noqa: PLR0913 - what else a worker has
        self,
        database: Database,
        ringer: Ringer,
        actions: Actions,
        poller: Poller,
        lease_seconds: float,
        *,
        concurrency: int,
        parked_quota: int,
        enabled: bool,
        tracer: Tracer | None = None,
    ) -> None:
        """Each ping works under a lease of its own."""
        self._database = database
        self._ringer = ringer
        self._actions = actions
        self._poller = poller
        self._postman = NotificationSender(database, actions.http)
        self._lease_seconds = lease_seconds
        # So many run at once.
        self._page = min(PAGE, concurrency)
        self._parked_quota = parked_quota
        self._enabled = enabled
        self._tracer = tracer

    async def ping(self) -> CronPingResult:
        """Fire what is due, wait for it, and count; ``LockBusyError`` while another ping is at it."""
        done = CronPingResult()
        lock = held_lock(self._database, LOCK, lease_seconds=LOCK_SECONDS, renew_seconds=RENEW_SECONDS)
        async with lock, self._engine(done) as engine:
            await self._settle_lost(engine)
            await self._fire_due(engine)
            await self._poll_entities()
            await self._run_waiting(engine)
            await self._postman.run_all(PING_SECONDS)
        log.info("cron_ping_finished", **msgspec.structs.asdict(done))
        return done

    async def _settle_lost(self, engine: TickEngine) -> None:
        async with self._database.transaction() as connection:
            lost = [*await executions.lost(connection, PAGE), *await executions.overdue(connection, PAGE)]
        await engine.settle_all(lost)

    async def _fire_due(self, engine: TickEngine) -> None:
        """What was due when the ping came, page by page; what comes due meanwhile is the next ping's."""
        async with self._database.transaction() as connection:
            moment = await database_now(connection)
        after = None
        while True:
            async with self._database.transaction() as connection:
                page = await schedules.overdue(connection, moment, self._page, after)
            if not page:
                return
            after = page[-1]
            occasion = msgspec.structs.replace(FROM_PING, switched_off=not self._enabled)
            claimed = await engine.claim_directly([Tick(job.id, job.generation) for job in page], occasion)
            await _all(engine.run_claimed(result) for result in claimed)

    async def _poll_entities(self) -> None:
        """Whatever is wrong with entities, schedules go on."""
        try:
            await self._poller.poll_now()
        except Exception:
            log.exception("poll_failed", entity_type="all")

    async def _run_waiting(self, engine: TickEngine) -> None:
        """What waits to be started, and what has its turn after that."""
        tried: set[tuple[Any, int]] = set()
        for _ in range(MOST_ROUNDS):
            async with self._database.transaction() as connection:
                pending = await executions.pending(connection, self._page)
            fresh = [run for run in pending if (run.execution_id, run.token) not in tried]
            if not fresh:
                return
            tried.update((run.execution_id, run.token) for run in fresh)
            await _all(engine.run_execution(run.execution_id, run.token) for run in fresh)

    @asynccontextmanager
    async def _engine(self, done: CronPingResult) -> AsyncIterator[TickEngine]:
        """An engine with a lease that is renewed while this lasts."""
        lease = WorkerLease(self._database, self._lease_seconds)
        await lease.begin()
        runner = Runner(self._database, self._actions, lease, self._parked_quota)
        engine = TickEngine(
            self._database,
            self._ringer,
            runner,
            lease,
            places=Places(self._page),
            enabled=self._enabled,
            tracer=self._tracer,
        )
        engine.on_settled = done.count
        ended = asyncio.Event()
        keeper = asyncio.create_task(_keep(lease, self._lease_seconds / RENEWALS_PER_LEASE, ended))
        try:
            yield engine
        finally:
            ended.set()
            await keeper
            await lease.release()


async def _keep(lease: WorkerLease, seconds: float, ended: asyncio.Event) -> None:
    while not ended.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
            return
        try:
            await lease.renew()
        except UnavailableError:
            log.warning("database_unreachable", loop="lease of a ping")


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Side by side; one that fails does not stop the others."""
    await asyncio.gather(*(survived(one) for one in work))
