"""The claim of due ticks, decided and written in one transaction, and the start of pending executions."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.breakers import Gate
from app.domain.errors import LeaseExpiredError
from app.domain.executions import BESIDE_CADENCE, ActiveRun, Execution, ExecutionStatus, Outcome, PendingRun, Trigger
from app.domain.ledger import LedgerEntry, LedgerOutcome, slots_in
from app.domain.limits import NO_QUOTAS, OwnerQuotas, Quota
from app.domain.notifications import Notice, missed_notices
from app.domain.permits import LimitUse, PermitHolder, QuotaUse
from app.domain.planning import with_started_run
from app.domain.revisions import automatic_revision
from app.domain.run_ids import execution_id
from app.domain.schedules import ScheduledJob
from app.domain.skips import Skip, still_ahead
from app.domain.starting import NEWER_RELEASE_WAIT, Candidate, GiveUp, Wait, entity_run_may_start, may_start
from app.domain.ticks import FROM_WORKER, Decided, Fire, LeftToNewer, Stale, Start, Tick, TickSource, decide
from app.domain.trigger_event import rfc3339
from app.persistence import (
    breakers,
    entity_runs,
    executions,
    leases,
    ledger,
    notifications,
    permits,
    revisions,
    schedules,
    skips,
)
from app.persistence.breakers import OPEN_GATE, WorkflowOf
from app.persistence.database import Database, database_now
from app.persistence.execution_rows import (
    Busy,
    Claimed,
    ClaimResult,
    FirstAttempt,
    NewExecution,
    PendingExecution,
    RunAheadOf,
    new_execution,
    to_run,
)
from app.persistence.fast_path import claim_fast
from app.persistence.permits import Entered, Entry
from app.persistence.revisions import ScheduleChange
from app.persistence.row_cache import ScheduleCache

# A message about a value of a newer release is redelivered after this, until one of its workers gets it.
NEWER_RELEASE_SECONDS = NEWER_RELEASE_WAIT.total_seconds()


async def claim(
    database: Database,
    ticks: Sequence[Tick],
    worker_id: UUID,
    source: TickSource = FROM_WORKER,
    cache: ScheduleCache | None = None,
    run_ahead: RunAheadOf | None = None,
) -> list[ClaimResult]:
    """Decide and write what these ticks do. Each result stands at the place of its tick.

    Plain ticks go by the fast path, all others by the locked path. What ``run_ahead`` runs is claimed with its end.
    """
    fast = await claim_fast(database, ticks, worker_id, source, cache or ScheduleCache(), run_ahead)
    rest = [tick for tick, result in zip(ticks, fast, strict=True) if result is None]
    locked = iter(await claim_locked(database, rest, worker_id, source) if rest else [])
    return [next(locked) if result is None else result for result in fast]


async def claim_locked(
    database: Database, ticks: Sequence[Tick], worker_id: UUID, source: TickSource
) -> list[ClaimResult]:
    """Decide and write with workflows, schedules and executions locked. Rows that others hold are not waited for."""
    async with database.transaction("claim_locked") as connection:
        batch = await _lock_and_read(connection, ticks, worker_id, source)
        results = [batch.handle(tick) for tick in ticks]
        released = await batch.write(connection)
        entered = await permits.enter(connection, batch.entries) if batch.entries else NONE_ENTERED
    return [_with_released(_with_buckets(result, entered), released) for result in results]


async def read_back(connection: AsyncConnection, tick: Tick, worker_id: UUID) -> Claimed | None:
    """Return what a claim whose answer was lost did; None if it was not written, or the schedule changed since."""
    job = await schedules.get(connection, tick.job_id)
    if job is None or job.generation != tick.generation + 1:
        return None
    return Claimed(job, await executions.begun_by_claim(connection, job, worker_id))


async def _lock_and_read(
    connection: AsyncConnection, ticks: Sequence[Tick], worker_id: UUID, source: TickSource
) -> "_ClaimBatch":
    """Lock in the order of workflows, schedules, executions, then read.

    Everything that locks several kinds of rows keeps this order: a claim and a settle that took them in different
    orders would wait for each other until Postgres ended one of them.
    """
    job_ids = {tick.job_id for tick in ticks}
    jobs = await schedules.try_lock_ungated(connection, list(job_ids))
    workflow_of: dict[UUID, WorkflowOf] = {}
    gates: dict[int, Gate] = {}
    if len(jobs) < len(job_ids):
        # The rest: rows that another transaction holds, schedules whose workflow has a gate, deleted schedules.
        workflow_of = await breakers.workflows_of(connection, job_ids - jobs.keys())
        limited = {workflow.workflow_id for workflow in workflow_of.values() if workflow.limited}
        gates = await breakers.try_lock(connection, limited)
        free = [job_id for job_id, workflow in workflow_of.items() if workflow.workflow_id in gates]
        gated = await schedules.try_lock(connection, free)
        # A schedule that has just moved to another workflow is claimed later.
        jobs |= {job_id: job for job_id, job in gated.items() if job.workflow_id == workflow_of[job_id].workflow_id}
    situation = await executions.situation(connection, jobs, worker_id)
    if not situation.lease_holds:
        raise LeaseExpiredError
    return _ClaimBatch(
        jobs=jobs,
        active=situation.active,
        first=await executions.first_attempts(connection, _first_attempts(jobs.values())),
        existing=workflow_of.keys(),
        gates=gates,
        worker_id=worker_id,
        source=source if situation.enabled else replace(source, switched_off=True),
        now=situation.now,
        skips=await skips.of(connection, [job.id for job in jobs.values() if job.has_skips]),
    )


class _ClaimBatch:
    """The state that the ticks of one claim share: each sees what those before it did."""

    def __init__(  # noqa: PLR0913 - all that was read
        self,
        *,
        jobs: dict[UUID, ScheduledJob],
        active: dict[UUID, tuple[ActiveRun, ...]],
        first: dict[UUID, FirstAttempt],
        existing: Collection[UUID],
        gates: dict[int, Gate],
        worker_id: UUID,
        source: TickSource,
        now: datetime,
        skips: dict[UUID, tuple[Skip, ...]],
    ) -> None:
        self.jobs = jobs
        self.skips = skips
        self.used_skips: list[tuple[UUID, datetime]] = []
        self.active = active
        self.first = first
        self.existing = existing
        self.gates_before = gates
        self.gates = dict(gates)
        self.worker_id = worker_id
        self.source = source
        self.now = now
        self.changed: dict[UUID, ScheduledJob] = {}
        self.new_executions: list[NewExecution] = []
        self.new_entries: list[tuple[UUID, LedgerEntry]] = []
        self.cancelled: dict[UUID, str] = {}
        self.revisions: list[ScheduleChange] = []
        self.notices: list[Notice] = []
        # The runs that need permits of limits.
        self.entries: list[Entry] = []

    def handle(self, tick: Tick) -> ClaimResult:
        job = self.jobs.get(tick.job_id)
        if job is None:
            return Busy() if tick.job_id in self.existing else Stale()
        gate = self.gates.get(job.workflow_id, OPEN_GATE)
        decision = decide(
            job, tick, self.active.get(job.id, ()), gate, self.now, self.source, self.skips.get(job.id, ())
        )
        if not isinstance(decision, Decided):
            return decision
        for fire in decision.fires:
            first = self._first_attempt(job, fire)
            if first is not None and type(first.trigger) is not Trigger:
                return LeftToNewer(f"trigger={first.trigger}")
        return self._carry_out(job, decision)

    def _first_attempt(self, job: ScheduledJob, fire: Fire) -> FirstAttempt | None:
        """Return the first attempt of the slot that a retry fires again; None if this is the first attempt."""
        return self.first.get(execution_id(job.id, fire.slot, 0)) if fire.attempt else None

    def _carry_out(self, job: ScheduledJob, decision: Decided) -> Claimed:
        self.jobs[job.id] = self.changed[job.id] = decision.job
        if job.has_skips:
            self._use_skips(job, decision)
        self.new_entries.extend((job.id, entry) for entry in decision.ledger)
        self.notices += missed_notices(decision.job, decision.ledger)
        revision = automatic_revision(job, decision.job, self.now)
        if revision is not None:
            self.revisions.append(ScheduleChange(revision, decision.job))
        self._cancel(job, decision)
        made = [self._execution(job, fire) for fire in decision.fires]
        here = next((to_run(job, new) for new in made if new.status is ExecutionStatus.RUNNING), None)
        waiting = [new for new in made if new.status is ExecutionStatus.PENDING and not new.queued]
        pending = tuple(PendingRun(new.id, new.token, new.due_at) for new in waiting)
        return Claimed(
            decision.job,
            here,
            pending,
            decision.cancels,
            queued=tuple(new.id for new in made if new.queued),
            not_fired=slots_in(decision.ledger),
        )

    def _use_skips(self, job: ScheduledJob, decision: Decided) -> None:
        skips = self.skips.get(job.id, ())
        self.skips[job.id] = ahead = still_ahead(decision.job, skips, self.now)
        self.used_skips += [(job.id, skip.slot) for skip in skips if skip not in ahead]

    def _cancel(self, job: ScheduledJob, decision: Decided) -> None:
        if not decision.cancels:
            return
        (fire,) = decision.fires
        reason = f"Cancelled by the slot {rfc3339(fire.slot)} (execution {fire.execution_id}): if_running is 'cancel'."
        self.cancelled.update(dict.fromkeys(decision.cancels, reason))
        left = (run for run in self.active.get(job.id, ()) if run.execution_id not in decision.cancels)
        self.active[job.id] = tuple(left)

    def _execution(self, job: ScheduledJob, fire: Fire) -> NewExecution:
        new = new_execution(job, fire, self.now, self.worker_id, self._first_attempt(job, fire))
        if fire.start is Start.NOW and job.workflow_id in self.gates:
            self.gates[job.workflow_id] = self.gates[job.workflow_id].entered(new.id, self.now)
        if fire.start is Start.PERMITTED:
            gate = self.gates.get(job.workflow_id, OPEN_GATE)
            self.entries.append(_entry(new, limit_uses(job, gate.limit, self.source.quotas)))
        self.new_executions.append(new)
        run = ActiveRun(new.id, new.trigger, new.queued, new.exclusive, new.started_at is None, new.retry_attempt)
        self.active[job.id] = (*self.active.get(job.id, ()), run)
        return new

    async def write(self, connection: AsyncConnection) -> dict[UUID, PendingRun]:
        """Write all changes. Return the queued executions that may start now, by schedule."""
        await executions.cancel(connection, self.cancelled, self.now, LedgerOutcome.SKIPPED_OVERLAP)
        await executions.begin_runs(connection, self.new_executions, list(self.changed.values()))
        await ledger.add(connection, self.new_entries)
        await skips.delete(connection, self.used_skips)
        await breakers.save(connection, self.gates_before, self.gates)
        await revisions.add_schedule_revisions(connection, self.revisions)
        await notifications.enqueue(connection, self.notices)
        return await executions.release_next(connection, self.changed.values(), self.active, self.now)


def _first_attempts(jobs: Iterable[ScheduledJob]) -> list[UUID]:
    return [execution_id(job.id, job.next_slot, 0) for job in jobs if job.next_attempt and job.next_slot]


def _with_released(result: ClaimResult, released: dict[UUID, PendingRun]) -> ClaimResult:
    if not isinstance(result, Claimed) or result.job.id not in released:
        return result
    return replace(result, pending=(*result.pending, released[result.job.id]))


NONE_ENTERED = Entered({}, {})


def _with_buckets(result: ClaimResult, entered: Entered) -> ClaimResult:
    """Return a result without the runs that wait for permits: the gate of limits rings for them."""
    if not isinstance(result, Claimed) or not result.pending or not entered.buckets:
        return result
    waiting = {run: entered.buckets.get(PermitHolder(run.execution_id), ()) for run in result.pending}
    return replace(
        result,
        pending=tuple(run for run, buckets in waiting.items() if not buckets),
        buckets=tuple(bucket for buckets in waiting.values() for bucket in buckets),
    )


def limit_uses(job: ScheduledJob, of_workflow: LimitUse | None, quotas: OwnerQuotas) -> tuple[LimitUse | QuotaUse, ...]:
    """Return the limits, and the quota of the owner, that runs of a schedule need permits of."""
    uses: list[LimitUse | QuotaUse] = []
    if job.limit is not None:
        uses.append(LimitUse(job.user_profile_id, job.limit))
    if of_workflow is not None:
        uses.append(of_workflow)
    if quotas.limit_of(Quota.RUNS_AT_ONCE, job.user_profile_id):
        uses.append(QuotaUse(job.user_profile_id, Quota.RUNS_AT_ONCE))
    return tuple(uses)


def _entry(new: NewExecution, uses: tuple[LimitUse | QuotaUse, ...]) -> Entry:
    return Entry(
        holder=PermitHolder(new.id),
        source=str(new.scheduled_job_id),
        slot=new.scheduled_for,
        token=new.token,
        uses=uses,
    )


class TooEarly(msgspec.Struct, frozen=True):
    """The execution may not start yet; its message has to be redelivered after so many seconds."""

    seconds: float


class GivenUp(msgspec.Struct, frozen=True):
    """The execution may not start any more: this is its outcome."""

    outcome: Outcome


class WaitsForLimit(msgspec.Struct, frozen=True):
    """The execution waits for permits of these buckets; once it has them, it is rung for."""

    buckets: tuple[int, ...]


StartResult = Execution | TooEarly | GivenUp | WaitsForLimit | None


class _StartRequest(msgspec.Struct, frozen=True):
    """A worker that wants to start a pending execution."""

    execution_id: UUID
    token: int
    worker_id: UUID
    waiting: PendingExecution
    quotas: OwnerQuotas


async def start(
    database: Database,
    execution_id: UUID,
    token: int,
    worker_id: UUID,
    *,
    enabled: bool = True,
    quotas: OwnerQuotas = NO_QUOTAS,
) -> StartResult:
    """Start a pending execution. Return None if another worker has started it, or it is gone."""
    async with database.transaction("start") as connection:
        waiting = await executions.waiting(connection, execution_id, token)
        if waiting is None:
            return None
        if not await leases.worker_holds(connection, worker_id):
            raise LeaseExpiredError
        if type(waiting.trigger) is not Trigger:
            # Written by a newer release, and left to its workers.
            return TooEarly(NEWER_RELEASE_SECONDS)
        request = _StartRequest(execution_id, token, worker_id, waiting, quotas)
        return await _start(connection, request, enabled=enabled)


async def _start(connection: AsyncConnection, request: _StartRequest, *, enabled: bool) -> StartResult:
    if request.waiting.scheduled_job_id is None:
        return await _start_entity_run(connection, request, enabled=enabled)
    return await _start_run(connection, request, request.waiting.scheduled_job_id, enabled=enabled)


async def _start_entity_run(connection: AsyncConnection, request: _StartRequest, *, enabled: bool) -> StartResult:
    """Start a run of an entity if it is due and no other run of the entity is active."""
    kind, entity_id = request.waiting.entity_type or "", request.waiting.entity_id or ""
    conflict = await entity_runs.conflict_of(connection, request.execution_id, kind, entity_id)
    now = await database_now(connection)
    switched_off = not enabled or not await leases.schedules_enabled(connection)
    decision = entity_run_may_start(_candidate(request), now, conflict, switched_off=switched_off)
    if decision is None:
        return await entity_runs.start(connection, request.execution_id, request.token, request.worker_id)
    if isinstance(decision, Wait):
        return TooEarly(decision.time.total_seconds())
    return GivenUp(_not_run(request, decision))


async def _start_run(
    connection: AsyncConnection, request: _StartRequest, job_id: UUID, *, enabled: bool
) -> StartResult:
    """Start a run of a schedule: lock workflows, schedules, executions in this order, then decide and write."""
    is_manual = request.waiting.trigger is Trigger.MANUAL
    workflow_id = request.waiting.workflow_id or 0
    before = await breakers.lock(connection, () if is_manual else {workflow_id})
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        return None
    now = await database_now(connection)
    switched_off = not enabled or not await leases.schedules_enabled(connection)
    gate = before.get(workflow_id, OPEN_GATE)
    decision = may_start(_candidate(request), job, gate, now, switched_off=switched_off)
    if isinstance(decision, GiveUp):
        return GivenUp(_not_run(request, decision))
    if isinstance(decision, Wait):
        return TooEarly(decision.time.total_seconds())
    admitted = await _admitted(connection, request, job, now)
    if not isinstance(admitted, _Admitted):
        return admitted
    execution = await executions.start(connection, request.execution_id, request.token, request.worker_id, now)
    if execution is not None and (admitted.buckets or admitted.problem):
        execution = replace(execution, buckets=admitted.buckets, problem=admitted.problem)
    if execution is not None and request.waiting.trigger not in BESIDE_CADENCE:
        if not request.waiting.was_parked:
            started = with_started_run(job, execution.id, execution.scheduled_for, now)
            await schedules.save_started_run(connection, started)
        await breakers.save(connection, before, dict.fromkeys(before, decision.gate))
    return execution


class _Admitted(msgspec.Struct, frozen=True):
    """A run that has the permits of all limits that it needs, or names a limit that does not exist."""

    buckets: tuple[int, ...] = ()
    problem: str = ""


async def _admitted(
    connection: AsyncConnection, request: _StartRequest, job: ScheduledJob, now: datetime
) -> _Admitted | TooEarly | WaitsForLimit:
    """Return whether a run has the permits that it needs. One that has not entered its limits does so now."""
    waiting = request.waiting
    uses = limit_uses(job, waiting.workflow_limit, request.quotas)
    if not uses:
        return _Admitted()
    own = await permits.of_run(connection, request.execution_id)
    if own is None:
        holder = PermitHolder(request.execution_id)
        entry = Entry(holder=holder, source=str(job.id), slot=waiting.scheduled_for, token=request.token, uses=uses)
        entered = await permits.enter(connection, [entry])
        if holder in entered.missing:
            return _Admitted(problem=f"There is no limit '{entered.missing[holder]}' that its owner may use.")
        return WaitsForLimit(entered.buckets[holder])
    if own.starts_at is None:
        return WaitsForLimit(own.buckets)
    return TooEarly((own.starts_at - now).total_seconds()) if own.starts_at > now else _Admitted(own.buckets)


def _candidate(request: _StartRequest) -> Candidate:
    return Candidate(
        execution_id=request.execution_id,
        trigger=request.waiting.trigger,
        attempt=request.waiting.retry_attempt,
        due_at=request.waiting.due_at,
        handed_back=request.waiting.handed_back,
        was_parked=request.waiting.was_parked,
    )


def _not_run(request: _StartRequest, decision: GiveUp) -> Outcome:
    return Outcome(
        execution_id=request.execution_id,
        scheduled_job_id=request.waiting.scheduled_job_id,
        token=request.token,
        status=ExecutionStatus.CANCELLED,
        error=f"Cancelled before it ran: {decision.reason}.",
        unrun=decision.outcome,
    )
