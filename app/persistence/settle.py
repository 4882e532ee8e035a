"""The settle: in one transaction, executions end and their schedules move on. A list in, a list out."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.breakers import Gate
from app.domain.entities import retry_at
from app.domain.executions import ACTIVE, ActiveRun, Entity, ExecutionStatus, Outcome, PendingRun, Trigger, counting
from app.domain.identities import execution_id
from app.domain.ledger import LedgerEntry, accounted, dropped
from app.domain.notifications import Notice, of_breaker, of_entries, of_run
from app.domain.revisions import Revision, automatic_revision
from app.domain.schedules import ScheduledJob
from app.domain.settling import EndedRun, Settlement
from app.domain.settling import settle as settle_schedule
from app.persistence import breakers, entity_runs, executions, fast_path, ledger, notifications, revisions, schedules
from app.persistence.database import Database
from app.persistence.execution_rows import (
    EntityRunSettled,
    FreeResult,
    LockedExecution,
    RowLocked,
    Settled,
    SettleResult,
    Superseded,
)
from app.persistence.fast_path import RunResult
from app.persistence.row_cache import ScheduleCache


async def settle(database: Database, outcomes: Sequence[Outcome]) -> list[SettleResult]:
    """Write these outcomes, each fenced by its token. Each result stands at the place of its outcome."""
    async with database.transaction("settle") as connection:
        return await settle_within(connection, outcomes)


async def settle_free(database: Database, endings: Sequence[RunResult], memory: ScheduleCache) -> list[FreeResult]:
    """The same without waiting for rows that someone holds: one of them delays no other."""
    written = await fast_path.settle(database, endings, memory)
    rest = [ending.outcome for ending in endings if ending.outcome.execution_id not in written]
    carefully = iter(await _settle_free(database, rest) if rest else [])
    return [written.get(ending.outcome.execution_id) or next(carefully) for ending in endings]


async def _settle_free(database: Database, outcomes: Sequence[Outcome]) -> list[FreeResult]:
    async with database.transaction("settle_locked") as connection:
        ids = await _with_entities_locked(connection, outcomes)
        jobs, held = await schedules.lock_free_with_runs(connection, ids)
        before: dict[int, Gate] = {}
        held_up: set[UUID] = set()
        rest = [outcome for outcome in outcomes if outcome.execution_id not in held]
        if rest:
            # Those that someone holds, those with a breaker to tell, the runs of entities, and those that are gone.
            before, held_up = await breakers.lock_free_of_executions(connection, [one.execution_id for one in rest])
            wanted = {one.scheduled_job_id for one in rest if one.scheduled_job_id is not None} - jobs.keys()
            more = await schedules.lock_free(connection, wanted)
            busy = await schedules.existing(connection, wanted - more.keys()) if len(more) < len(wanted) else set()
            held_up |= {one.execution_id for one in rest if one.scheduled_job_id in busy}
            free = [one.execution_id for one in rest if one.execution_id not in held_up]
            held |= await executions.lock(connection, free)
            jobs |= more
        free_ones = [outcome for outcome in outcomes if outcome.execution_id not in held_up]
        settled = iter(await _settled(connection, free_ones, jobs, held, before))
        return [RowLocked() if outcome.execution_id in held_up else next(settled) for outcome in outcomes]


async def settle_within(connection: AsyncConnection, outcomes: Sequence[Outcome]) -> list[SettleResult]:
    """The same in a transaction that the caller has opened and has locked nothing in."""
    ids = await _with_entities_locked(connection, outcomes)
    # Lock, in the order of workflows, schedules, executions; then read.
    before = await breakers.lock_of_executions(connection, ids)
    jobs = await schedules.lock(connection, [one.scheduled_job_id for one in outcomes if one.scheduled_job_id])
    held = await executions.lock(connection, ids)
    return await _settled(connection, outcomes, jobs, held, before)


async def _with_entities_locked(connection: AsyncConnection, outcomes: Sequence[Outcome]) -> list[UUID]:
    """The executions that end, with nobody else at the runs of their entities."""
    ids = [outcome.execution_id for outcome in outcomes]
    if any(outcome.scheduled_job_id is None for outcome in outcomes):
        await entity_runs.lock_of_executions(connection, ids)
    return ids


async def _settled(
    connection: AsyncConnection,
    outcomes: Sequence[Outcome],
    jobs: dict[UUID, ScheduledJob],
    held: dict[UUID, LockedExecution],
    before: dict[int, Gate],
) -> list[SettleResult]:
    """Decide and write, with workflows, schedules and executions locked."""
    active, now = await executions.active_and_now(connection, jobs)
    lost_runs = [held[one.execution_id] for one in outcomes if _is_lost(one) and one.execution_id in held]
    times_lost = await executions.times_lost(connection, lost_runs)
    batch = _Batch(jobs, held, active, before, now, times_lost)
    results = [batch.handle(outcome) for outcome in outcomes]
    released = await batch.write(connection)
    return [_with_turn(result, released) for result in results]


class _Batch:
    """The state that the outcomes of one settle share: each sees what those before it did."""

    def __init__(
        self,
        jobs: dict[UUID, ScheduledJob],
        held: dict[UUID, LockedExecution],
        active: dict[UUID, tuple[ActiveRun, ...]],
        before: dict[int, Gate],
        now: datetime,
        times_lost: dict[UUID, int],
    ) -> None:
        self.jobs = jobs
        self.held = held
        # Of those that are lost now, how many of their slot were lost before.
        self.times_lost = times_lost
        self.active = active
        self.before = before
        self.gates = dict(before)
        self.now = now
        self.changed: dict[UUID, ScheduledJob] = {}
        self.accepted: list[Outcome] = []
        self.retries: dict[UUID, PendingRun] = {}
        self.new_entries: list[tuple[UUID, LedgerEntry]] = []
        self.revisions: list[Revision] = []
        self.notices: list[Notice] = []

    def handle(self, outcome: Outcome) -> SettleResult:
        run = self.held.pop(outcome.execution_id, None)
        if run is None or not _may_end(run, outcome):
            return Superseded()
        if run.entity is not None:
            return self._end_entity_run(run, run.entity, outcome)
        job = None if run.scheduled_job_id is None else self.jobs.get(run.scheduled_job_id)
        return Superseded() if job is None else self._end_run(job, run, outcome)

    def _end_entity_run(self, run: LockedExecution, entity: Entity, outcome: Outcome) -> EntityRunSettled:
        self.accepted.append(outcome)
        due = retry_at(entity, outcome.status, run.retry_attempt, self.now, self._times_lost(run, outcome))
        if due is None:
            return EntityRunSettled(run.id)
        retry = PendingRun(execution_id(entity.source, run.scheduled_for, run.retry_attempt + 1), 1, due)
        self.retries[run.id] = retry
        return EntityRunSettled(run.id, (retry,))

    def _end_run(self, job: ScheduledJob, run: LockedExecution, outcome: Outcome) -> Settled:
        others = tuple(one for one in self.active.get(job.id, ()) if one.execution_id != run.id)
        ended = _ended(run, outcome, self._times_lost(run, outcome))
        settlement = settle_schedule(job, ended, counting(others), self.now)
        entries = dropped(job, settlement.job, self.now)
        after = accounted(settlement.job, entries)
        self.active[job.id] = others
        self.accepted.append(outcome)
        if after is not job:
            self.jobs[job.id] = self.changed[job.id] = after
        self.new_entries.extend((job.id, entry) for entry in entries)
        revision = automatic_revision(job, after, self.now)
        if revision is not None:
            self.revisions.append(revision)
        self.notices += [*of_run(job, after, ended), *of_entries(after, entries)]
        self._tell_breaker(run, outcome)
        return Settled(run.id, job, after, self._retry(job, run, settlement))

    def _times_lost(self, run: LockedExecution, outcome: Outcome) -> int:
        return self.times_lost.get(run.id, 0) + 1 if _is_lost(outcome) else 0

    def _tell_breaker(self, run: LockedExecution, outcome: Outcome) -> None:
        gate = None if run.workflow_id is None else self.gates.get(run.workflow_id)
        if gate is not None and gate.breaker is not None and run.trigger is not Trigger.MANUAL:
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
        """All of it; the queued executions whose turn has come, by schedule."""
        await executions.end_runs(connection, self.accepted, list(self.changed.values()), self.now)
        await executions.add_retries(connection, self.retries)
        await ledger.add(connection, self.new_entries)
        await breakers.save(connection, self.before, self.gates)
        await revisions.add_schedule_revisions(connection, self.revisions)
        opened = [one for gate in self.gates.values() if gate.breaker for one in of_breaker(gate.breaker)]
        await notifications.enqueue(connection, [*self.notices, *opened])
        return await executions.release_next(connection, self.jobs.values(), self.active, self.now)


def _may_end(run: LockedExecution, outcome: Outcome) -> bool:
    return run.status in ACTIVE and run.token == outcome.token


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
        times_lost=times_lost,
    )


def _with_turn(result: SettleResult, released: dict[UUID, PendingRun]) -> SettleResult:
    if not isinstance(result, Settled) or result.job.id not in released:
        return result
    return replace(result, pending=(*result.pending, released[result.job.id]))
