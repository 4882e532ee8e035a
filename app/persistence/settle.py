"""The settle: executions end and their schedules move on, decided and written in one transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, overload
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.breakers import Gate
from app.domain.entity_jobs import retry_at
from app.domain.executions import (
    ACTIVE,
    ANY_TOKEN,
    BESIDE_CADENCE,
    ActiveRun,
    Entity,
    ExecutionStatus,
    Outcome,
    PendingRun,
    count_repeats,
)
from app.domain.ledger import LedgerEntry, LedgerOutcome, accounted, dropped_slots
from app.domain.notifications import Notice, breaker_notices, entity_run_notices, missed_notices, run_notices
from app.domain.revisions import automatic_revision
from app.domain.run_ids import execution_id
from app.domain.schedules import ScheduledJob
from app.domain.settle import EndedRun, Settlement, after_run
from app.domain.ticks import LeftToNewer
from app.persistence import (
    breakers,
    entity_runs,
    executions,
    ledger,
    notifications,
    recovery,
    revisions,
    schedules,
    sitemap_pings,
)
from app.persistence.database import Database
from app.persistence.execution_rows import (
    EntityRunSettled,
    LockedExecution,
    RowLocked,
    RunResult,
    Settled,
    SettleResult,
    Superseded,
)
from app.persistence.fast_path import settle_fast
from app.persistence.revisions import ScheduleChange
from app.persistence.row_cache import ScheduleCache

Results = Sequence[RunResult]


class _Rows(msgspec.Struct, frozen=True):
    """The locked rows of a settle, and the executions that were left out because another transaction holds a row."""

    jobs: dict[UUID, ScheduledJob]
    runs: dict[UUID, LockedExecution]
    gates: dict[int, Gate]
    held_up: frozenset[UUID] = frozenset()


@overload
async def settle(database: Database, results: Results, *, wait: Literal[True]) -> list[SettleResult]: ...
@overload
async def settle(database: Database, results: Results, cache: ScheduleCache) -> list[SettleResult | RowLocked]: ...
async def settle(
    database: Database, results: Results, cache: ScheduleCache | None = None, *, wait: bool = False
) -> list[SettleResult] | list[SettleResult | RowLocked]:
    """Write how runs ended, each fenced by its token. Each answer stands at the place of its result.

    Plain successes go by the fast path, all others by the locked path. Unless told to ``wait``, a result that needs a
    row which another transaction holds is answered with ``RowLocked``: in a batch it would delay all others.
    """
    if wait:
        return await _settle_waiting(database, [result.outcome for result in results])
    fast = {} if cache is None else await settle_fast(database, results, cache)
    rest = [result.outcome for result in results if result.outcome.execution_id not in fast]
    locked = iter(await _settle_free(database, rest) if rest else [])
    return [fast.get(result.outcome.execution_id) or next(locked) for result in results]


async def _settle_waiting(database: Database, outcomes: Sequence[Outcome]) -> list[SettleResult]:
    async with database.transaction("settle") as connection:
        return await settle_locked(connection, outcomes)


async def _settle_free(database: Database, outcomes: Sequence[Outcome]) -> list[SettleResult | RowLocked]:
    """Settle what needs no row that another transaction holds."""
    async with database.transaction("settle_locked") as connection:
        ids = await _with_entities_locked(connection, outcomes)
        rows = await _try_lock(connection, outcomes, ids)
        free = [outcome for outcome in outcomes if outcome.execution_id not in rows.held_up]
        settled = iter(await _decide_and_write(connection, free, rows))
        return [RowLocked() if outcome.execution_id in rows.held_up else next(settled) for outcome in outcomes]


async def settle_locked(connection: AsyncConnection, outcomes: Sequence[Outcome]) -> list[SettleResult]:
    """Settle with workflows, schedules and executions locked, in a transaction that has not locked any row yet."""
    ids = await _with_entities_locked(connection, outcomes)
    rows = _Rows(
        # In this order, as everywhere: see ``claim``.
        gates=await breakers.lock_of_executions(connection, ids),
        jobs=await schedules.lock(connection, [o.scheduled_job_id for o in outcomes if o.scheduled_job_id]),
        runs=await executions.lock(connection, ids),
    )
    return await _decide_and_write(connection, outcomes, rows)


async def cancel_runs(connection: AsyncConnection, job_ids: Sequence[UUID], reason: str) -> list[Settled]:
    """Cancel the active runs of schedules, whichever worker has them, in a transaction that has not locked any row.

    A run that begins before the locks are held goes on.
    """
    outcomes = [
        Outcome(
            execution_id=execution_id,
            scheduled_job_id=job_id,
            token=ANY_TOKEN,
            status=ExecutionStatus.CANCELLED,
            error=reason,
        )
        for execution_id, job_id in await executions.active_of(connection, job_ids)
    ]
    results = await settle_locked(connection, outcomes) if outcomes else []
    return [result for result in results if isinstance(result, Settled)]


async def _try_lock(connection: AsyncConnection, outcomes: Sequence[Outcome], ids: Sequence[UUID]) -> _Rows:
    """Lock the rows that no other transaction holds, without waiting."""
    jobs, runs = await schedules.try_lock_with_runs(connection, ids)
    rest = [outcome for outcome in outcomes if outcome.execution_id not in runs]
    if not rest:
        return _Rows(jobs, runs, {})
    # Rows that are held, runs whose breaker has to be told, runs of entities, and executions that are gone.
    gates, held_up = await breakers.try_lock_of_executions(connection, [outcome.execution_id for outcome in rest])
    missing = {outcome.scheduled_job_id for outcome in rest if outcome.scheduled_job_id is not None} - jobs.keys()
    free_jobs = await schedules.try_lock(connection, missing)
    if len(free_jobs) < len(missing):
        held_jobs = await schedules.existing(connection, missing - free_jobs.keys())
        held_up |= {outcome.execution_id for outcome in rest if outcome.scheduled_job_id in held_jobs}
    free_runs = [outcome.execution_id for outcome in rest if outcome.execution_id not in held_up]
    return _Rows(jobs | free_jobs, runs | await executions.lock(connection, free_runs), gates, frozenset(held_up))


async def _with_entities_locked(connection: AsyncConnection, outcomes: Sequence[Outcome]) -> list[UUID]:
    """Return the ids of the executions, after locking the entities of those that belong to one."""
    ids = [outcome.execution_id for outcome in outcomes]
    if any(outcome.scheduled_job_id is None for outcome in outcomes):
        await entity_runs.lock_of_executions(connection, ids)
    return ids


async def _decide_and_write(
    connection: AsyncConnection, outcomes: Sequence[Outcome], rows: _Rows
) -> list[SettleResult]:
    active, now = await executions.active_and_now(connection, rows.jobs)
    lost_runs = [rows.runs[o.execution_id] for o in outcomes if _is_lost(o) and o.execution_id in rows.runs]
    times_lost = await recovery.times_lost(connection, lost_runs)
    batch = _SettleBatch(rows, active, now, times_lost)
    results = [batch.handle(outcome) for outcome in outcomes]
    released = await batch.write(connection)
    return [_with_released(result, released) for result in results]


class _SettleBatch:
    """The state that the outcomes of one settle share: each sees what those before it did."""

    def __init__(
        self,
        rows: _Rows,
        active: dict[UUID, tuple[ActiveRun, ...]],
        now: datetime,
        times_lost: dict[UUID, int],
    ) -> None:
        self.jobs = rows.jobs
        self.runs = dict(rows.runs)
        # How many earlier runs of the same slot lost their worker, by the run that is lost now.
        self.times_lost = times_lost
        self.active = active
        self.gates_before = rows.gates
        self.gates = dict(rows.gates)
        self.now = now
        self.changed: dict[UUID, ScheduledJob] = {}
        self.accepted: list[Outcome] = []
        self.retries: dict[UUID, PendingRun] = {}
        self.new_entries: list[tuple[UUID, LedgerEntry]] = []
        self.revisions: list[ScheduleChange] = []
        self.notices: list[Notice] = []
        # Whether a ping of the sitemap ends that never started.
        self.unrun_ping = False
        # The outcomes of slots whose only execution ends before it began.
        self.unrun: list[LedgerOutcome] = []

    def handle(self, outcome: Outcome) -> SettleResult:
        run = self.runs.pop(outcome.execution_id, None)
        if run is None or not _may_end(run, outcome):
            return Superseded()
        outcome = replace(outcome, token=run.token)
        if run.unknown_value:
            return LeftToNewer(run.unknown_value)
        if run.entity is not None:
            return self._end_entity_run(run, run.entity, outcome)
        job = None if run.scheduled_job_id is None else self.jobs.get(run.scheduled_job_id)
        return Superseded() if job is None else self._end_run(job, run, outcome)

    def _end_entity_run(self, run: LockedExecution, entity: Entity, outcome: Outcome) -> EntityRunSettled:
        self.accepted.append(outcome)
        times_lost = self._times_lost(run, outcome)
        due = retry_at(entity, outcome.status, run.retry_attempt, self.now, times_lost)
        ended = _ended(run, outcome, times_lost)
        self.notices += entity_run_notices(entity, run.user_profile_id, ended, is_retried=due is not None)
        if due is None:
            # A ping that never started leaves what it was wanted for without one. To end pings, turn them off.
            self.unrun_ping |= entity.type == sitemap_pings.ENTITY_TYPE and not run.has_begun
            return EntityRunSettled(run.id, entity.type)
        retry = PendingRun(execution_id(entity.source, run.scheduled_for, run.retry_attempt + 1), 1, due)
        self.retries[run.id] = retry
        return EntityRunSettled(run.id, entity.type, (retry,))

    def _end_run(self, job: ScheduledJob, run: LockedExecution, outcome: Outcome) -> Settled:
        others = tuple(other for other in self.active.get(job.id, ()) if other.execution_id != run.id)
        ended = _ended(run, outcome, self._times_lost(run, outcome))
        settlement = after_run(job, ended, count_repeats(others), self.now)
        entries = dropped_slots(job, settlement.job, self.now)
        after = accounted(settlement.job, entries, self.now)
        self.active[job.id] = others
        self.accepted.append(outcome)
        if not run.has_begun and not run.retry_attempt and run.trigger not in BESIDE_CADENCE:
            self.unrun.append(outcome.unrun)
        if after is not job:
            self.jobs[job.id] = self.changed[job.id] = after
        self.new_entries.extend((job.id, entry) for entry in entries)
        revision = automatic_revision(job, after, self.now)
        if revision is not None:
            self.revisions.append(ScheduleChange(revision, after))
        self.notices += [*run_notices(job, after, ended), *missed_notices(after, entries)]
        self._tell_breaker(run, outcome)
        return Settled(run.id, job, after, self._retry(job, run, settlement))

    def _times_lost(self, run: LockedExecution, outcome: Outcome) -> int:
        return self.times_lost.get(run.id, 0) + 1 if _is_lost(outcome) else 0

    def _tell_breaker(self, run: LockedExecution, outcome: Outcome) -> None:
        gate = None if run.workflow_id is None else self.gates.get(run.workflow_id)
        if gate is not None and gate.breaker is not None and run.trigger not in BESIDE_CADENCE:
            breaker = gate.breaker.after(run.id, outcome.status, outcome.error, self.now)
            self.gates[breaker.workflow_id] = replace(gate, breaker=breaker)

    def _retry(self, job: ScheduledJob, run: LockedExecution, settlement: Settlement) -> tuple[PendingRun, ...]:
        """The next attempt of a run that had others beside it is an execution of its own."""
        if settlement.retry_at is None:
            return ()
        new_id = execution_id(job.id, run.scheduled_for, run.retry_attempt + 1)
        retry = PendingRun(new_id, 1, settlement.retry_at)
        self.retries[run.id] = retry
        waiting = ActiveRun(new_id, run.trigger, exclusive=False, waiting=True, attempt=run.retry_attempt + 1)
        self.active[job.id] = (*self.active[job.id], waiting)
        return (retry,)

    async def write(self, connection: AsyncConnection) -> dict[UUID, PendingRun]:
        """Write all changes. Return the queued executions that may start now, by schedule."""
        await executions.end_runs(connection, self.accepted, list(self.changed.values()), self.now)
        await executions.add_retries(connection, self.retries)
        await ledger.add(connection, self.new_entries)
        ledger.count_unrun(connection, self.unrun)
        await breakers.save(connection, self.gates_before, self.gates)
        await revisions.add_schedule_revisions(connection, self.revisions)
        opened = [notice for gate in self.gates.values() if gate.breaker for notice in breaker_notices(gate.breaker)]
        await notifications.enqueue(connection, [*self.notices, *opened])
        released = await executions.release_next(connection, self.jobs.values(), self.active, self.now)
        # Last, as the row of pings is shared by the whole deployment.
        if self.unrun_ping:
            await sitemap_pings.want_again(connection)
        elif any(outcome.publishes for outcome in self.accepted):
            await sitemap_pings.want(connection)
        return released


def _may_end(run: LockedExecution, outcome: Outcome) -> bool:
    return run.status in ACTIVE and outcome.token in {run.token, ANY_TOKEN}


def _is_lost(outcome: Outcome) -> bool:
    return outcome.status is ExecutionStatus.LOST


def _ended(run: LockedExecution, outcome: Outcome, times_lost: int) -> EndedRun:
    return EndedRun(
        execution_id=run.id,
        trigger=run.trigger,
        slot=run.scheduled_for,
        attempt=run.retry_attempt,
        status=outcome.status,
        error=outcome.error,
        has_begun=run.has_begun,
        unrun=outcome.unrun,
        times_lost=times_lost,
    )


def _with_released(result: SettleResult, released: dict[UUID, PendingRun]) -> SettleResult:
    if not isinstance(result, Settled) or result.job.id not in released:
        return result
    return replace(result, pending=(*result.pending, released[result.job.id]))
