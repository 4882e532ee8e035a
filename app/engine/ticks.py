"""One run of a schedule, top to bottom: claim, ring for the next, run, settle."""

import asyncio
from uuid import UUID

import structlog

from app.domain.errors import UnavailableError
from app.domain.executions import Execution, Outcome
from app.domain.ticks import NotDue, Tick
from app.engine.lease import WorkerLease
from app.engine.ringing import Ringer
from app.engine.runner import Runner
from app.persistence import executions
from app.persistence.claim import Busy, Claimed, ClaimResult, claim
from app.persistence.database import Database
from app.persistence.settle import Settled, SettleResult, settle
from app.queue.worker import PutBack

BUSY_PAUSE_SECONDS = 0.2
OUTAGE_PAUSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


class TickEngine:
    """Carries ticks and executions out."""

    def __init__(self, database: Database, ringer: Ringer, runner: Runner, lease: WorkerLease) -> None:
        """Work under this lease."""
        self._database = database
        self._ringer = ringer
        self._runner = runner
        self._lease = lease
        # What Postgres says that this worker holds and what is not in here has nobody who works on it.
        self.owned: set[UUID] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def execute_scheduled_job(self, job_id: UUID, generation: int) -> None:
        """What a tick's message starts."""
        claimed = await self._claim(Tick(job_id, generation))
        if claimed is None:
            return
        await self._ringer.ticks([claimed.job])
        if claimed.execution is not None:
            await self.finish(claimed.execution)

    async def run_execution(self, execution_id: UUID, token: int) -> None:
        """What the message of an execution starts that exists already."""
        execution = await self._start(execution_id, token)
        if execution is not None:
            await self.finish(execution)

    async def finish(self, execution: Execution) -> None:
        """Run an execution that this worker holds, and settle it."""
        self._hold(execution)
        try:
            outcome = await self._runner.run(execution)
            if outcome is not None:
                await self.settle(outcome)
        except asyncio.CancelledError:
            # Stopped from outside, as the stock worker does at SIGTERM: somebody else shall go on with it.
            await asyncio.shield(self.hand_back(execution.id, execution.token))
            raise
        finally:
            self._let_go(execution)

    async def idle(self) -> None:
        """Wait until nothing is held any more."""
        await self._idle.wait()

    async def claim_directly(self, ticks: list[Tick]) -> list[Claimed]:
        """Claim ticks without their messages, straight from Postgres."""
        results = await self._claim_all(ticks)
        return [self._own(result) for result in results if isinstance(result, Claimed)]

    async def settle(self, outcome: Outcome) -> None:
        """Write the outcome, however long Postgres is away: only the token decides whether it still counts."""
        while True:
            try:
                (result,) = await settle(self._database, [outcome])
                break
            except UnavailableError:
                log.warning("settle_waits", execution=str(outcome.execution_id))
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
        await self._after_settle(outcome, result)

    async def hand_back(self, execution_id: UUID, token: int) -> None:
        """Let another worker run what this one cannot; no retry is spent. Without Postgres the lease runs out."""
        try:
            async with self._database.transaction() as connection:
                fresh = await executions.hand_back(connection, execution_id, token)
        except UnavailableError:
            return
        if fresh is not None:
            log.info("run_handed_back", execution=str(execution_id))
            await self._ringer.executions([(execution_id, fresh)])

    async def _claim(self, tick: Tick) -> Claimed | None:
        if not self._lease.holds():
            raise PutBack(OUTAGE_PAUSE_SECONDS)
        try:
            (result,) = await claim(self._database, [tick], self._lease.worker_id)
        except UnavailableError:
            raise PutBack(OUTAGE_PAUSE_SECONDS) from None
        if isinstance(result, NotDue):
            raise PutBack(result.wait.total_seconds())
        if isinstance(result, Busy):
            raise PutBack(BUSY_PAUSE_SECONDS)
        return self._own(result) if isinstance(result, Claimed) else None

    def _own(self, claimed: Claimed) -> Claimed:
        if claimed.execution is not None:
            self._hold(claimed.execution)
        return claimed

    def _hold(self, execution: Execution) -> None:
        self.owned.add(execution.id)
        self._idle.clear()

    def _let_go(self, execution: Execution) -> None:
        self.owned.discard(execution.id)
        if not self.owned:
            self._idle.set()

    async def _claim_all(self, ticks: list[Tick]) -> list[ClaimResult]:
        """All at once; if one of them spoils the transaction, each alone, so that it fails alone."""
        try:
            return await claim(self._database, ticks, self._lease.worker_id)
        except UnavailableError:
            raise
        except Exception:
            log.exception("claim_batch_failed", ticks=len(ticks))
        results: list[ClaimResult] = []
        for tick in ticks:
            try:
                results += await claim(self._database, [tick], self._lease.worker_id)
            except Exception:
                log.exception("claim_failed", schedule=str(tick.job_id))
        return results

    async def _start(self, execution_id: UUID, token: int) -> Execution | None:
        if not self._lease.holds():
            raise PutBack(OUTAGE_PAUSE_SECONDS)
        try:
            async with self._database.transaction() as connection:
                return await executions.start(connection, execution_id, token, self._lease.worker_id)
        except UnavailableError:
            raise PutBack(OUTAGE_PAUSE_SECONDS) from None

    async def _after_settle(self, outcome: Outcome, result: SettleResult) -> None:
        if not isinstance(result, Settled):
            log.info("settle_superseded", execution=str(outcome.execution_id))
            return
        log.info(
            "run_ended",
            schedule=str(outcome.scheduled_job_id),
            execution=str(outcome.execution_id),
            outcome=outcome.status,
            error=outcome.error or None,
            state=result.job.status,
        )
        if result.job.generation != result.before.generation:
            await self._ringer.ticks([result.job])
