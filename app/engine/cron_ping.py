"""The cron endpoint: one request fires everything that is due, in the process that answers it, without workers."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import msgspec
import structlog

from app.domain.errors import UnavailableError
from app.domain.executions import FAILURES, ExecutionStatus, Outcome, PendingRun
from app.domain.schedules import Status
from app.domain.ticks import FROM_PING, Tick
from app.engine.concurrency import Places
from app.engine.entity_polling import Poller
from app.engine.leases import WorkerLease, held_lock
from app.engine.notifications import PING_SECONDS, NotificationSender
from app.engine.recovery import log_errors
from app.engine.ringing import Ringer
from app.engine.runner import Actions, Runner
from app.engine.sitemap import SitemapPlanner
from app.engine.ticks import TickEngine
from app.observability.tracing import Tracer
from app.persistence import recovery, schedules
from app.persistence.database import Database, database_now
from app.persistence.execution_rows import Claimed, EntityRunSettled, Settled

LOCK = "cron_ping"
LOCK_SECONDS = 60.0
# How long a ping waits for the first answer of the database.
ANSWER_SECONDS = 10.0
RENEW_SECONDS = 20.0
PAGE = 500
# Runs that queue behind each other are started round by round, at most so many in one ping.
MOST_ROUNDS = 200
RENEWALS_PER_LEASE = 3

log = structlog.get_logger(__name__)


class CronPingResult(msgspec.Struct):
    """What one ping did, as counts."""

    # How runs ended.
    ran: int = 0
    skipped: int = 0
    blocked: int = 0
    # Also: jobs of entities that could not be planned, and internal errors.
    errors: int = 0
    dead_lettered: int = 0
    # Slots that got an outcome without a run, and runs that were given up before they began.
    not_fired: int = 0
    # Runs that this ping fired or started and that have not ended: they wait for a time, a callback or their turn.
    waiting: int = 0

    def count(self, outcome: Outcome, settled: Settled | EntityRunSettled) -> None:
        """Add the outcome of a run."""
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
        elif outcome.status is ExecutionStatus.CANCELLED:
            self.not_fired += 1


class _PingEngine:
    """The engine of one ping, with the counts of what it does."""

    def __init__(self, engine: TickEngine) -> None:
        self.engine = engine
        self.result = CronPingResult()
        self._started: set[UUID] = set()
        engine.on_settled = self.result.count
        engine.on_claim_failed = self.count_error

    def count_error(self, number: int = 1) -> None:
        self.result.errors += number

    async def run_claimed(self, claimed: Sequence[Claimed]) -> None:
        for tick in claimed:
            self.result.not_fired += tick.not_fired
            self._started.update(tick.queued)
            self._started.update(run.execution_id for run in tick.pending)
            if tick.execution is not None:
                self._started.add(tick.execution.id)
        await self._run_all(self.engine.run_claimed(tick) for tick in claimed)

    async def run_pending(self, runs: Sequence[PendingRun]) -> None:
        self._started.update(run.execution_id for run in runs)
        await self._run_all(self.engine.run_execution(run.execution_id, run.token) for run in runs)

    async def count_waiting(self, database: Database) -> None:
        async with database.transaction() as connection:
            self.result.waiting = await recovery.count_active(connection, list(self._started))

    async def _run_all(self, coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run these at the same time. One that fails does not stop the others."""
        self.count_error(sum(await asyncio.gather(*map(log_errors, coroutines))))


class CronPing:
    """Fires what is due, and runs it in this process."""

    def __init__(  # noqa: PLR0913 - the parts of a worker
        self,
        database: Database,
        ringer: Ringer,
        actions: Actions,
        poller: Poller,
        lease_seconds: float,
        *,
        concurrency: int,
        enabled: bool,
        tracer: Tracer | None = None,
        sitemap: SitemapPlanner | None = None,
    ) -> None:
        """Prepare pings; each of them takes a worker lease of its own."""
        self._database = database
        self._ringer = ringer
        self._actions = actions
        self._poller = poller
        self._notification_sender = NotificationSender(database, actions.http)
        self._lease_seconds = lease_seconds
        # A page is claimed at once and runs at once.
        self._page = min(PAGE, concurrency)
        self._enabled = enabled
        self._tracer = tracer
        self._sitemap = sitemap

    async def ping(self) -> CronPingResult:
        """Fire what is due, wait for it, and count. Raise ``LockBusyError`` while another ping is under way."""
        await self._require_answer()
        lock = held_lock(self._database, LOCK, lease_seconds=LOCK_SECONDS, renew_seconds=RENEW_SECONDS)
        async with lock, self._engine() as ping:
            await self._settle_lost(ping.engine)
            await self._fire_due(ping)
            await self._poll_entities(ping)
            await self._run_waiting(ping)
            await ping.count_waiting(self._database)
            await self._notification_sender.run_all(PING_SECONDS)
        log.info("cron_ping_finished", **msgspec.structs.asdict(ping.result))
        return ping.result

    async def _require_answer(self) -> None:
        """Raise ``UnavailableError`` unless the database answers soon.

        A server that hangs keeps its connections open, and the pool gives up on each of them after 40 seconds only.
        This is a query of its own: a lock whose answer is not awaited could be taken and block the next pings.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._database.ping()
        except TimeoutError:
            raise UnavailableError("The database does not answer. Try again later.") from None

    async def _settle_lost(self, engine: TickEngine) -> None:
        async with self._database.transaction() as connection:
            lost = [*await recovery.lost(connection, PAGE), *await recovery.timed_out(connection, PAGE)]
        await engine.settle_all(lost)

    async def _fire_due(self, ping: _PingEngine) -> None:
        """Fire what was due when the ping began, page by page. What comes due meanwhile is left to the next ping."""
        async with self._database.transaction() as connection:
            moment = await database_now(connection)
        after = None
        while True:
            async with self._database.transaction() as connection:
                page = await schedules.overdue(connection, moment, self._page, after)
            if not page:
                return
            after = page[-1]
            source = msgspec.structs.replace(FROM_PING, switched_off=not self._enabled)
            ticks = [Tick(job.id, job.generation) for job in page]
            await ping.run_claimed(await ping.engine.claim_directly(ticks, source))

    async def _poll_entities(self, ping: _PingEngine) -> None:
        """Poll entities. Whatever fails there must not stop the schedules."""
        try:
            ping.count_error((await self._poller.poll_now()).errors)
        except Exception:
            ping.count_error()
            log.exception("poll_failed", entity_type="all")

    async def _run_waiting(self, ping: _PingEngine) -> None:
        """Run executions that wait to be started, and those that may start once these have ended."""
        tried: set[tuple[Any, int]] = set()
        for _ in range(MOST_ROUNDS):
            await ping.engine.limits.look_at_all()
            async with self._database.transaction() as connection:
                pending = await recovery.pending(connection, self._page)
            untried = [run for run in pending if (run.execution_id, run.token) not in tried]
            if not untried:
                return
            tried.update((run.execution_id, run.token) for run in untried)
            await ping.run_pending(untried)

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[_PingEngine]:
        """Yield an engine under a lease that is renewed until the block ends."""
        lease = WorkerLease(self._database, self._lease_seconds)
        await lease.begin()
        runner = Runner(self._database, self._actions, lease)
        await runner.limits.read_quotas()
        engine = TickEngine(
            self._database,
            self._ringer,
            runner,
            lease,
            places=Places(self._page),
            enabled=self._enabled,
            tracer=self._tracer,
            sitemap=self._sitemap,
        )
        ended = asyncio.Event()
        renewals = asyncio.create_task(_renew(lease, self._lease_seconds / RENEWALS_PER_LEASE, ended))
        try:
            yield _PingEngine(engine)
        finally:
            ended.set()
            await renewals
            await lease.release()


async def _renew(lease: WorkerLease, seconds: float, ended: asyncio.Event) -> None:
    while not ended.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
            return
        try:
            await lease.renew()
        except UnavailableError:
            log.warning("database_unreachable", loop="lease of a ping")
