"""One tick, top to bottom: claim it, ring for the next one, run the workflow, settle the result."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import msgspec
import structlog

from app import clock
from app.domain.errors import InDoubtError, LeaseExpiredError, UnavailableError
from app.domain.executions import FIRST_TOKEN, Execution, ExecutionStatus, Outcome, PendingRun, Trigger
from app.domain.overlap import runs_alone
from app.domain.ticks import LeftToNewer, NotDue, Stale, Tick, TickSource
from app.engine.concurrency import Place, Places
from app.engine.fast_ticks import OUTAGE_PAUSE_SECONDS, Background, FastTick
from app.engine.leases import WorkerLease
from app.engine.near_ticks import TAKE_OVER, NearTicks
from app.engine.quarantine import Quarantine
from app.engine.queue_port import Delivered, OnEnd, Redeliver, Wake, tick_wake
from app.engine.ringing import Ringer
from app.engine.runner import RunEnd, Runner, outcome_of
from app.engine.sitemap import SitemapPlanner
from app.engine.spans import in_run, in_tick, note_outcome
from app.failpoints import failpoint
from app.micro_batcher import MicroBatcher, batch_or_alone
from app.observability.logs import LogThrottle, log_fields
from app.observability.metrics import ENDED, IN_FLIGHT, LATENESS, RUN_SECONDS
from app.observability.tracing import Tracer
from app.persistence import recovery, schedules
from app.persistence.claim import NEWER_RELEASE_SECONDS, GivenUp, TooEarly, WaitsForLimit, claim, read_back, start
from app.persistence.database import Database
from app.persistence.execution_rows import (
    Busy,
    Claimed,
    ClaimResult,
    Completed,
    EntityRunSettled,
    RowLocked,
    RunResult,
    Settled,
    SettleResult,
    Superseded,
)
from app.persistence.row_cache import ScheduleCache, report_lost_commits
from app.persistence.settle import settle
from app.persistence.sitemap_pings import ENTITY_TYPE as PING_ENTITY

BUSY_PAUSE_SECONDS = 0.2
# Triggers whose lateness is measured.
_PUNCTUAL = frozenset({Trigger.SCHEDULE, Trigger.CRON})
# Each start is a transaction of its own: many of them at once would leave no connections for the batches of ticks.
STARTS_AT_ONCE = 5
# Errors that no tick or run has caused.
_SHARED = (UnavailableError, LeaseExpiredError)
HEAD_START = timedelta(milliseconds=300)
# The end of a run waits so long for others, to be written with them: no tick depends on it.
SETTLE_LINGER_SECONDS = 0.01

# Looked up once: thousands are counted each second.
_ENDED = {status: ENDED.labels(status) for status in ExecutionStatus}

# The answer to a settle: a result, or why there is none.
SettleAnswer = SettleResult | RowLocked | BaseException

log = structlog.get_logger(__name__)


class TickEngine:
    """Carries out ticks and executions."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        database: Database,
        ringer: Ringer,
        runner: Runner,
        lease: WorkerLease,
        *,
        places: Places,
        enabled: bool = True,
        tracer: Tracer | None = None,
        sitemap: SitemapPlanner | None = None,
    ) -> None:
        """Work under this lease, within these places. Unless ``enabled``, the slots of all schedules are missed.

        After runs that publish, ``sitemap`` plans the ping.
        """
        self.places = places
        self._tracer = tracer
        self._usual_source = TickSource(switched_off=not enabled)
        self._database = database
        self._ringer = ringer
        self.runner = runner
        self._sitemap = sitemap
        self._lease = lease
        self.limits = runner.limits
        self._quarantine = Quarantine(database)
        self._cache = database.history.watch(ScheduleCache())
        self.claims = MicroBatcher("claim", self._claim_batch, shared=_SHARED)
        self._cancellations = MicroBatcher("cancel", self._stop_cancelled)
        self.settles = MicroBatcher(
            "settle", self._settle_batch, shared=(UnavailableError,), linger_seconds=SETTLE_LINGER_SECONDS
        )
        # Called for every run that has been settled here.
        self.on_settled: Callable[[Outcome, Settled | EntityRunSettled], None] = lambda _outcome, _settled: None
        # Called for every tick that could not be claimed.
        self.on_claim_failed: Callable[[], None] = lambda: None
        # The executions that this process works on, with their tokens. One that Postgres says this worker holds and
        # that is missing here was lost, for example with the answer to its claim.
        self.owned: dict[UUID, int] = {}
        IN_FLIGHT.set_function(lambda: len(self.owned))
        self._closing = False
        self._throttle = LogThrottle()
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)
        # None unless this process works on the queue for long.
        self._near: NearTicks | None = None
        self.background = Background()

    def keep_near_ticks(self) -> None:
        """From now on, deliver the next ticks of schedules that were fired here without waiting for their messages."""
        self._near = NearTicks(self.begin_tick, lambda: self.places.room)

    @property
    def room(self) -> int:
        """Return for how many more messages this worker has places, after the ticks that it delivers by itself."""
        return 0 if self._near is not None and self._near.is_behind else self.places.room

    def begin_tick(self, tick: Tick, delivered: Delivered, on_end: OnEnd) -> None:
        """Handle the message of a tick, as ``execute_scheduled_job`` does, and call ``on_end`` when that has ended."""
        if self._tracer is None:
            FastTick(self, tick, delivered, on_end).begin()
        else:
            self.background.start(self.execute_scheduled_job(tick.job_id, tick.generation, delivered), on_end)

    async def execute_scheduled_job(self, job_id: UUID, generation: int, delivered: Delivered | None = None) -> None:
        """Handle the message of a tick. The message of the next one takes its place, as a claimed tick needs none."""
        with self.places.take() as place:
            began = None if self._tracer is None else clock.now()
            claimed = await self._claim(Tick(job_id, generation))
            if claimed is not None:
                place.belongs_to(claimed.job.user_profile_id)
                work = self._run_claimed(claimed, delivered)
                await (work if self._tracer is None else in_tick(self._tracer, claimed, work, began))

    async def after_claim(
        self, tick: Tick, result: ClaimResult | BaseException, delivered: Delivered, place: Place
    ) -> None:
        """Go on with a tick whose claim was answered so. The place is held by the caller."""
        claimed = await self._judged(tick, result)
        if claimed is not None:
            place.belongs_to(claimed.job.user_profile_id)
            await self._run_claimed(claimed, delivered)

    async def run_execution(self, execution_id: UUID, token: int, place: Place | None = None) -> None:
        """Handle the message of an execution that exists already: start it and run it."""
        with place or self.places.take() as taken:
            execution = await self._start(execution_id, token)
            if execution is not None:
                taken.belongs_to(execution.user_profile_id)
                await self._hold_and_run(execution)

    async def run_claimed(self, claimed: Claimed, place: Place | None = None) -> None:
        """Run a tick that was claimed without its message."""
        with place or self.places.take(claimed.job.user_profile_id):
            work = self._run_claimed(claimed)
            await (work if self._tracer is None else in_tick(self._tracer, claimed, work))

    async def claim_directly(self, ticks: Sequence[Tick], source: TickSource | None = None) -> list[Claimed]:
        """Claim ticks that were found in Postgres, without their messages."""
        if self._closing or not self._lease.holds():
            return []

        async def claim_all(batch: Sequence[Tick]) -> list[ClaimResult]:
            return await claim(self._database, batch, self._lease.worker_id, self._source(source))

        failpoint("before_claim")
        try:
            results = await batch_or_alone("claim", claim_all, ticks, _SHARED)
        except LeaseExpiredError:
            return []
        failpoint("after_claim")
        for tick, result in zip(ticks, results, strict=True):
            if isinstance(result, LeftToNewer):
                self._log_left(result, tick.job_id)
            if isinstance(result, Exception) and not isinstance(result, _SHARED):
                log.error("claim_failed", **log_fields(tick.job_id), exc_info=result)
                self.on_claim_failed()
                await self._quarantine.tick_failed(tick, result)
        claimed = [result for result in results if isinstance(result, Claimed)]
        if not claimed:
            _raise_outage(results)
        return claimed

    async def settle_all(self, outcomes: Sequence[Outcome]) -> int:
        """Settle outcomes that were found in Postgres, and ring for what may start. Return how many were settled."""
        if not outcomes:
            return 0
        outcomes = await self._with_publishing(outcomes)

        async def settle_batch(batch: Sequence[Outcome]) -> list[SettleResult]:
            return await settle(self._database, [RunResult(outcome) for outcome in batch], wait=True)

        results = await batch_or_alone("settle", settle_batch, outcomes, _SHARED)
        for outcome, result in zip(outcomes, results, strict=True):
            if isinstance(result, LeftToNewer):
                self._log_left(result, outcome.scheduled_job_id, outcome.execution_id)
            if isinstance(result, Exception) and not isinstance(result, _SHARED):
                log.error("settle_failed", **_fields(outcome), exc_info=result)
                await self._quarantine.execution_failed(outcome.execution_id, outcome.token, result)
        settled = [result for result in results if isinstance(result, Settled | EntityRunSettled)]
        self._quarantine.note(result for result in settled if isinstance(result, Settled))
        await self._ringer.ticks([result.job for result in settled if isinstance(result, Settled)])
        await self._ringer.executions([run for result in settled for run in result.pending])
        await self._plan_ping(outcomes, settled)
        _raise_outage(results)
        return len(settled)

    async def hand_back(self, held: dict[UUID, int]) -> None:
        """Make executions pending again for other workers; no retry is spent.

        Without Postgres nothing is written: the lease expires, and the executions are found as lost.
        """
        for execution_id in held:
            self.runner.call_off(execution_id)
        try:
            async with self._database.transaction("hand_back") as connection:
                returned = await recovery.hand_back(connection, held)
        except UnavailableError:
            return
        if returned:
            log.info("runs_handed_back", count=len(returned))
        await self._ringer.executions(returned)

    def cancellation_heard(self, execution_id: UUID) -> None:
        """Check in Postgres whether an execution was cancelled, as a message in Redis says."""
        if execution_id in self.runner.running():
            self._cancellations.tell(execution_id)

    async def close(self) -> None:
        """Claim and start nothing more, and leave the near ticks to other workers."""
        self._closing = True
        if self._near is not None:
            await self._ringer.release(self._near.close())

    async def idle(self) -> None:
        """Wait until nothing runs here."""
        await self.places.empty.wait()

    async def rung(self) -> None:
        """Wait until the messages of all next ticks are queued: before the connections to Redis are closed."""
        await self._ringer.quiet()

    async def _claim(self, tick: Tick) -> Claimed | None:
        self._require_readiness()
        failpoint("before_claim")
        result: ClaimResult | BaseException
        try:
            result = await self.claims.ask(tick)
        except Exception as error:  # noqa: BLE001 - it is judged as an answer
            result = error
        return await self._judged(tick, result)

    async def _judged(self, tick: Tick, result: ClaimResult | BaseException) -> Claimed | None:
        """Return what was claimed, if this answer says so; ``Redeliver`` if the message has to come again."""
        if isinstance(result, InDoubtError):
            return await self._read_claim_back(tick)
        if isinstance(result, UnavailableError | LeaseExpiredError):
            raise Redeliver(OUTAGE_PAUSE_SECONDS)
        if isinstance(result, Exception):
            await self._quarantine.tick_failed(tick, result)
        if isinstance(result, BaseException):
            raise result
        failpoint("after_claim")
        if isinstance(result, NotDue):
            raise Redeliver(result.wait.total_seconds())
        if isinstance(result, LeftToNewer):
            self._log_left(result, tick.job_id)
            raise Redeliver(NEWER_RELEASE_SECONDS)
        if isinstance(result, Busy):
            raise Redeliver(BUSY_PAUSE_SECONDS)
        if isinstance(result, Stale) and result.is_ahead:
            report_lost_commits([tick.job_id])
        if isinstance(result, Completed):
            self.note_completed(result)
            return result.claimed
        return result if isinstance(result, Claimed) else None

    @property
    def is_ready(self) -> bool:
        """Whether this worker may claim: it is not closing, and its lease holds."""
        return not self._closing and self._lease.holds()

    def _require_readiness(self) -> None:
        """Redeliver the message if this worker is closing or has no lease."""
        if not self.is_ready:
            raise Redeliver(OUTAGE_PAUSE_SECONDS)

    async def _claim_batch(self, ticks: Sequence[Tick]) -> list[ClaimResult]:
        # With a tracer every run has a span, which begins with the claim.
        run_ahead = self.runner.run_ahead if self._tracer is None else None
        return await claim(self._database, ticks, self._lease.worker_id, self._source(), self._cache, run_ahead)

    def _source(self, source: TickSource | None = None) -> TickSource:
        """Return the source of ticks with the quotas of today."""
        source, quotas = source or self._usual_source, self.limits.quotas.current
        return source if quotas is source.quotas else msgspec.structs.replace(source, quotas=quotas)

    async def _read_claim_back(self, tick: Tick) -> Claimed:
        """Read back a claim whose answer was lost: if it was written, this worker has to run it."""
        try:
            async with self._database.transaction("read_claim_back") as connection:
                written = await read_back(connection, tick, self._lease.worker_id)
        except UnavailableError:
            written = None
        if written is None:
            raise Redeliver(OUTAGE_PAUSE_SECONDS)
        log.warning("claim_read_back", schedule=str(tick.job_id), fired=written.execution is not None)
        known = written.execution is not None and written.execution.id in self.owned
        return msgspec.structs.replace(written, execution=None) if known else written

    async def _start(self, execution_id: UUID, token: int) -> Execution | None:
        self._require_readiness()
        try:
            enabled, quotas = not self._usual_source.switched_off, self.limits.quotas.current
            async with self._starts:
                result = await start(
                    self._database, execution_id, token, self._lease.worker_id, enabled=enabled, quotas=quotas
                )
        except (UnavailableError, LeaseExpiredError):
            raise Redeliver(OUTAGE_PAUSE_SECONDS) from None
        except Exception as error:
            await self._quarantine.execution_failed(execution_id, token, error)
            raise
        if isinstance(result, TooEarly):
            raise Redeliver(result.seconds)
        if isinstance(result, GivenUp):
            await self._settle(RunResult(result.outcome))
            return None
        if isinstance(result, WaitsForLimit):
            self.limits.look(result.buckets)
            return None
        return result

    async def _run_claimed(self, claimed: Claimed, delivered: Delivered | None = None) -> None:
        """Ring for the next tick, and meanwhile run the execution that this one fired."""
        failpoint("before_plan")
        wake = self._next_wake(claimed, delivered)
        ringing = None if wake is None else self._ringer.tick(wake)
        if claimed.execution is None:
            await self._ring_others(claimed)
        else:
            await self._hold_and_run(claimed.execution, claimed)
        if ringing is not None:
            await ringing

    def ring_for_next(self, claimed: Claimed, delivered: Delivered) -> None:
        """Ring for the next tick, if there is one, without waiting for that."""
        wake = self._next_wake(claimed, delivered)
        if wake is not None:
            self._ringer.tick_soon(wake)

    def _next_wake(self, claimed: Claimed, delivered: Delivered | None) -> Wake | None:
        """Return the message to ring for the next tick with; None if there is no such tick, or if it is kept here.

        A tick that is due already is delayed: beside this run it would be skipped.
        """
        job, execution = claimed.job, claimed.execution
        if job.next_run_at is None:
            return None
        not_before = None
        if execution is not None and runs_alone(job.if_running):
            not_before = execution.fired_at + HEAD_START
        wake = tick_wake(job, "" if delivered is None else delivered.id, not_before)
        if delivered is not None:
            delivered.is_replaced = True
        now = None if self._near is None else self._cache.now()
        if self._near is None or now is None or not self._near.keep(Tick(job.id, job.generation), wake, now):
            return wake
        self._ringer.near_tick(msgspec.structs.replace(wake, due=wake.due + TAKE_OVER))
        return None

    async def _ring_others(self, claimed: Claimed) -> None:
        """Ring for executions that may start on any worker, and call off those that the claim cancelled."""
        if claimed.cancelled:
            for execution_id in claimed.cancelled:
                self.runner.call_off(execution_id)
            await self._ringer.call_off(claimed.cancelled)
        if claimed.pending:
            await self._ringer.executions(claimed.pending)
        if claimed.buckets:
            self.limits.look(claimed.buckets)
        failpoint("after_plan")

    async def _hold_and_run(self, execution: Execution, claimed: Claimed | None = None) -> None:
        """Run and settle an execution that this worker holds; hand it back if the task is cancelled."""
        self.owned[execution.id] = execution.token
        try:
            if claimed is not None:
                await self._ring_others(claimed)
            work = self._run_and_settle(execution, claimed)
            await (work if self._tracer is None else in_run(self._tracer, execution, work, claimed))
        except asyncio.CancelledError:
            await asyncio.shield(self.hand_back({execution.id: execution.token}))
            raise
        finally:
            self.owned.pop(execution.id, None)
            if execution.buckets:
                self.limits.look(execution.buckets)

    async def _run_and_settle(self, execution: Execution, claimed: Claimed | None = None) -> None:
        """Run an execution and settle its outcome."""
        began = self.note_start(execution)
        result: RunEnd
        try:
            result = await self.runner.run(execution, None if claimed is None else claimed.row_versions)
        except Exception as error:  # noqa: BLE001 - a defect, which ends the run as a failure
            result = error
        await self._end_run(execution, claimed, result, began)

    def note_start(self, execution: Execution) -> float:
        """Measure how late a run begins. Return when it began, by this process's own clock."""
        # A run that was parked or handed back began earlier, and was measured then.
        if execution.token == FIRST_TOKEN and not execution.retry_attempt and execution.trigger in _PUNCTUAL:
            LATENESS.observe((execution.fired_at - execution.scheduled_for).total_seconds())
        return clock.monotonic()

    def note_end(self, outcome: Outcome, began: float) -> None:
        """Measure how long a run took."""
        RUN_SECONDS.observe(clock.monotonic() - began, outcome.status.value)

    def note_completed(self, completed: Completed) -> None:
        """Measure and count a run that ended with its claim."""
        LATENESS.observe((completed.fired_at - completed.slot).total_seconds())
        RUN_SECONDS.observe(0.0, completed.outcome.status.value)
        self.note_settled(completed.outcome, completed.settled)

    async def after_run(self, claimed: Claimed, result: RunEnd, began: float) -> None:
        """Go on with a run that did not end with an outcome; hand it back if its task was cancelled."""
        execution = claimed.execution
        if execution is None:
            raise AssertionError("a run of no execution has ended")
        if isinstance(result, asyncio.CancelledError):
            await self.hand_back({execution.id: execution.token})
        else:
            await self._end_run(execution, claimed, result, began)

    async def _end_run(self, execution: Execution, claimed: Claimed | None, result: RunEnd, began: float) -> None:
        """Settle how a run ended; an outcome that cannot be stored is settled as a failure."""
        outcome: Outcome | None = None
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
        if isinstance(result, Exception):
            log.error("run_crashed", **log_fields(execution.scheduled_job_id, execution.id), exc_info=result)
            outcome = outcome_of(execution, ExecutionStatus.FAILED, f"{type(result).__name__} while running.")
        elif isinstance(result, PendingRun):
            await self._ringer.executions([result])
        else:
            outcome = result
        if self._tracer is not None:
            note_outcome(outcome)
        if outcome is not None:
            self.note_end(outcome, began)
            failpoint("before_settle")
            await self._settle(RunResult(outcome, execution, None if claimed is None else claimed.version))

    async def _settle(self, run_result: RunResult) -> None:
        answer: SettleAnswer
        try:
            answer = await self.settles.ask(run_result)
        except Exception as error:  # noqa: BLE001 - it is judged as an answer
            answer = error
        await self.after_settle(run_result, answer)

    async def after_settle(self, run_result: RunResult, answer: SettleAnswer) -> None:
        """Go on with a run whose settle was answered so."""
        try:
            await self._settled(run_result, answer)
        except Exception as error:
            execution = run_result.execution
            if execution is None:
                raise
            log.exception("settle_failed", **log_fields(execution.scheduled_job_id, execution.id))
            message = f"The outcome could not be stored: {type(error).__name__}."
            await self._settle_or_quarantine(outcome_of(execution, ExecutionStatus.FAILED, message))

    async def _settle_or_quarantine(self, outcome: Outcome) -> None:
        try:
            await self._settle(RunResult(outcome))
        except Exception as error:
            await self._quarantine.execution_failed(outcome.execution_id, outcome.token, error)
            raise

    async def _settled(self, run_result: RunResult, answer: SettleAnswer) -> None:
        """Do what follows the settle; write again for as long as Postgres is away. The token decides if it counts."""
        outcome = run_result.outcome
        in_doubt = False
        while isinstance(answer, UnavailableError | RowLocked):
            try:
                if isinstance(answer, RowLocked):
                    (answer,) = await settle(self._database, [run_result], wait=True)
                else:
                    # It may have been written although the answer was lost; a second write changes nothing.
                    in_doubt = True
                    if self._throttle.should_log("settle_delayed"):
                        log.warning("settle_delayed", in_flight=len(self.owned), **_fields(outcome))
                    await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
                    answer = await self.settles.ask(run_result)
            except UnavailableError as error:
                answer = error
        if isinstance(answer, BaseException):
            raise answer
        failpoint("after_settle")
        await self._after_settle(outcome, answer, in_doubt=in_doubt)

    async def _settle_batch(self, results: Sequence[RunResult]) -> list[SettleResult | RowLocked]:
        return await settle(self._database, results, self._cache)

    async def _after_settle(self, outcome: Outcome, result: SettleResult, *, in_doubt: bool) -> None:
        if isinstance(result, LeftToNewer):
            self._log_left(result, outcome.scheduled_job_id, outcome.execution_id)
            return
        if isinstance(result, Superseded):
            log.info("settle_superseded", **_fields(outcome))
            if in_doubt and outcome.scheduled_job_id is not None:
                await self._ring_again(outcome.scheduled_job_id)
            return
        # Successes are counted, not logged: there may be thousands each second.
        if outcome.status is not ExecutionStatus.SUCCESS:
            log.info(
                "run_ended",
                **_fields(outcome),
                # Without the error, which may quote a target's answer; the execution has it.
                outcome=outcome.status,
                state=result.job.status if isinstance(result, Settled) else None,
            )
        self.note_settled(outcome, result)
        if isinstance(result, Settled) and result.job.generation != result.before.generation:
            await self._ringer.ticks([result.job])
        if result.pending:
            await self._ringer.executions(result.pending)
        if outcome.publishes or isinstance(result, EntityRunSettled):
            await self._plan_ping([outcome], [result])

    def note_settled(self, outcome: Outcome, result: Settled | EntityRunSettled) -> None:
        """Count a run that has been settled."""
        _ENDED[outcome.status].inc()
        self.on_settled(outcome, result)

    async def _with_publishing(self, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return outcomes of runs whose results are not known, marked where the run may have published."""
        if not self.runner.publishing:
            return outcomes
        ids = [outcome.execution_id for outcome in outcomes]
        async with self._database.reading("read_publishing") as connection:
            publishing = await recovery.with_actions(connection, ids, self.runner.publishing)
        return [msgspec.structs.replace(outcome, publishes=outcome.execution_id in publishing) for outcome in outcomes]

    async def _plan_ping(self, outcomes: Sequence[Outcome], settled: Sequence[Settled | EntityRunSettled]) -> None:
        """Plan the ping of the sitemap if a run has published, or if a ping has ended and another may be wanted."""
        pings = (isinstance(result, EntityRunSettled) and result.entity_type == PING_ENTITY for result in settled)
        if self._sitemap is not None and (any(outcome.publishes for outcome in outcomes) or any(pings)):
            await self._sitemap.plan()

    async def _ring_again(self, job_id: UUID) -> None:
        """Ring for a schedule whose run was settled, perhaps by this worker: a lost answer may have planned a retry."""
        with suppress(UnavailableError):
            async with self._database.transaction("ring_again") as connection:
                job = await schedules.get(connection, job_id)
            await self._ringer.ticks([job] if job else [])

    async def _stop_cancelled(self, asked: Sequence[UUID]) -> Sequence[UUID]:
        """Stop the runs that this worker no longer holds. Redis is not believed: any client of it can publish.

        While Postgres is away nothing is stopped; the next renewal of the lease finds what was cancelled.
        """
        running = self.runner.running()
        with suppress(UnavailableError):
            async with self._database.reading("read_cancelled") as connection:
                held = await recovery.held_among(connection, self._lease.worker_id, list(set(asked)))
            for execution_id in asked:
                if execution_id in running and held.get(execution_id) != running[execution_id]:
                    self.runner.call_off(execution_id)
        return asked

    def _log_left(self, left: LeftToNewer, schedule: UUID | None = None, execution: UUID | None = None) -> None:
        """Log that a row is left to workers of a newer release, which know the value that it has."""
        if self._throttle.should_log(left.value):
            log.warning("schedule_left_to_newer_release", value=left.value, **log_fields(schedule, execution))


def _raise_outage(results: Iterable[object]) -> None:
    """Raise the first outage among these results, so that the loop which asked reports it and pauses."""
    for result in results:
        if isinstance(result, UnavailableError):
            raise result


def _fields(outcome: Outcome) -> dict[str, str]:
    return log_fields(outcome.scheduled_job_id, outcome.execution_id)
