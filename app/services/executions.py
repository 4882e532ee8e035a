"""Runs that somebody asks for."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.errors import ConflictError, NotFoundError
from app.domain.executions import ExecutionStatus, Outcome, PendingRun, Trigger
from app.domain.identities import manual_execution_id
from app.domain.manual_runs import ManualStart, manual_start
from app.domain.schedules import IfRunning, ScheduledJob
from app.engine.ringing import Ringer
from app.observability.tracing import current_context
from app.persistence import execution_queries, executions, schedules
from app.persistence.database import Database
from app.persistence.execution_rows import NewExecution
from app.persistence.results import Settled
from app.persistence.settle import settle_within
from app.services.inputs import RunInput
from app.services.schedules import owned_schedule
from app.services.views import ExecutionView, execution_fields


class ManualRunService:
    """Starts runs beside the cadence and the counters."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring after the commit."""
        self._database = database
        self._ringer = ringer

    async def run(self, actor: Actor, job_id: UUID, wanted: RunInput) -> ExecutionView:
        """A run now, as far as ``if_running`` allows it."""
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, job_id)
            policy = wanted.if_running or job.if_running
            stopped: list[Settled] = []
            if policy is IfRunning.CANCEL:
                stopped = await _make_room(connection, job_id, actor)
            new = await _add(connection, job_id, policy)
            row = await execution_queries.get(connection, new.id)
        if row is None:
            raise AssertionError("an execution vanished in its own transaction")
        await self._ringer.call_off([one.execution_id for one in stopped])
        await self._ringer.ticks([one.job for one in stopped[-1:]])
        if not new.queued:
            await self._ringer.executions([PendingRun(new.id, new.token, new.due_at)])
        return ExecutionView(**execution_fields(row))


async def _make_room(connection: AsyncConnection, job_id: UUID, actor: Actor) -> list[Settled]:
    """Cancel what is under way; whatever starts meanwhile is met by the policy itself."""
    reason = f"Cancelled by a manual run of {actor.username}."
    outcomes = [
        Outcome(
            execution_id=execution_id,
            scheduled_job_id=job_id,
            token=token,
            status=ExecutionStatus.CANCELLED,
            error=reason,
        )
        for execution_id, token in await executions.active_tokens(connection, job_id)
    ]
    results = await settle_within(connection, outcomes) if outcomes else []
    return [result for result in results if isinstance(result, Settled)]


async def _add(connection: AsyncConnection, job_id: UUID, policy: IfRunning) -> NewExecution:
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        raise NotFoundError("There is no such schedule.")
    active, now = await executions.active_and_now(connection, [job_id])
    start = manual_start(policy, active.get(job_id, ()), job.max_queued)
    if start.cancels:
        raise ConflictError("Another run started in the same moment; ask again.")
    new = _manual_run(job, now, policy, start)
    await executions.add(connection, [new])
    await schedules.touch(connection, job_id)
    return new


def _manual_run(job: ScheduledJob, now: datetime, policy: IfRunning, start: ManualStart) -> NewExecution:
    return NewExecution(
        id=manual_execution_id(job.id, now, uuid4().hex),
        user_profile_id=job.user_profile_id,
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=Trigger.MANUAL,
        status=ExecutionStatus.PENDING,
        exclusive=policy is not IfRunning.ALLOW,
        queued=start.queued,
        repeat_number=job.current_repeat,
        retry_attempt=0,
        scheduled_for=now,
        payload=job.trigger_payload,
        timeout_seconds=job.timeout_seconds,
        created_at=now,
        due_at=now,
        trace_context=current_context(),
    )
