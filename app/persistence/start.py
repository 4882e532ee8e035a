"""Starting an execution that exists already: its turn has come, and its schedule and workflow let it through or not."""

from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import LeaseExpiredError
from app.domain.executions import Execution, ExecutionStatus, Outcome, Trigger
from app.domain.starting import Candidate, GiveUp, Wait, entity_run_may_start, may_start
from app.persistence import breakers, entity_runs, executions, leases, schedules, switches
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Database, database_now
from app.persistence.execution_rows import Waiting


class TooEarly(msgspec.Struct, frozen=True):
    """Its time, or a place for it, is still to come; the message has to come back after so many seconds."""

    seconds: float


class GivenUp(msgspec.Struct, frozen=True):
    """It may not run any more: this is how it is to end."""

    outcome: Outcome


StartResult = Execution | TooEarly | GivenUp | None


class _Asked(msgspec.Struct, frozen=True):
    """Who wants to start what."""

    execution_id: UUID
    token: int
    worker_id: UUID
    waiting: Waiting


async def start(
    database: Database, execution_id: UUID, token: int, worker_id: UUID, *, enabled: bool = True
) -> StartResult:
    """Take a pending execution to run it; None if someone else has, or it is gone."""
    async with database.transaction() as connection:
        waiting = await executions.waiting(connection, execution_id, token)
        if waiting is None:
            return None
        if not await leases.holds(connection, worker_id):
            raise LeaseExpiredError
        return await _start(connection, _Asked(execution_id, token, worker_id, waiting), enabled=enabled)


async def _start(connection: AsyncConnection, asked: _Asked, *, enabled: bool) -> StartResult:
    if asked.waiting.scheduled_job_id is None:
        return await _start_entity_run(connection, asked, enabled=enabled)
    return await _start_run(connection, asked, asked.waiting.scheduled_job_id, enabled=enabled)


async def _start_entity_run(connection: AsyncConnection, asked: _Asked, *, enabled: bool) -> StartResult:
    """At its time, unless another run of the entity is under way."""
    kind, entity_id = asked.waiting.entity_type or "", asked.waiting.entity_id or ""
    beside = await entity_runs.in_the_way(connection, asked.execution_id, kind, entity_id)
    now = await database_now(connection)
    switched_off = not enabled or not await switches.schedules_enabled(connection)
    decision = entity_run_may_start(_candidate(asked), now, beside, switched_off=switched_off)
    if decision is None:
        return await entity_runs.start(connection, asked.execution_id, asked.token, asked.worker_id)
    if isinstance(decision, Wait):
        return TooEarly(decision.time.total_seconds())
    return GivenUp(_not_run(asked, decision))


async def _start_run(connection: AsyncConnection, asked: _Asked, job_id: UUID, *, enabled: bool) -> StartResult:
    """Lock, in the order of workflows, schedules, executions; then decide and write."""
    is_manual = asked.waiting.trigger is Trigger.MANUAL
    workflow_id = asked.waiting.workflow_id or 0
    before = await breakers.lock(connection, () if is_manual else {workflow_id})
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        return None
    now = await database_now(connection)
    switched_off = not enabled or not await switches.schedules_enabled(connection)
    gate = before.get(workflow_id, OPEN_GATE)
    decision = may_start(_candidate(asked), job, gate, now, switched_off=switched_off)
    if isinstance(decision, GiveUp):
        return GivenUp(_not_run(asked, decision))
    if isinstance(decision, Wait):
        return TooEarly(decision.time.total_seconds())
    execution = await executions.start(connection, asked.execution_id, asked.token, asked.worker_id, now)
    if execution is not None and not is_manual:
        if not asked.waiting.was_parked:
            await schedules.started_run(connection, job.id, now)
        await breakers.save(connection, before, dict.fromkeys(before, decision.gate))
    return execution


def _candidate(asked: _Asked) -> Candidate:
    return Candidate(
        execution_id=asked.execution_id,
        trigger=asked.waiting.trigger,
        attempt=asked.waiting.retry_attempt,
        due_at=asked.waiting.due_at,
        handed_back=asked.waiting.handed_back,
        was_parked=asked.waiting.was_parked,
    )


def _not_run(asked: _Asked, decision: GiveUp) -> Outcome:
    return Outcome(
        execution_id=asked.execution_id,
        scheduled_job_id=asked.waiting.scheduled_job_id,
        token=asked.token,
        status=ExecutionStatus.CANCELLED,
        error=f"Cancelled before it ran: {decision.reason}.",
        unrun=decision.outcome,
    )
