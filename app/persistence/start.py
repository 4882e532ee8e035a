"""Starting an execution that exists already: its turn has come, and its workflow lets it through or not."""

from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import Execution, ExecutionStatus, Outcome, Trigger
from app.domain.starting import Candidate, GiveUp, Go, may_start
from app.persistence import executions, gates, schedules
from app.persistence.database import Database, database_now
from app.persistence.executions import Waiting
from app.persistence.gates import OPEN_GATE


class TooEarly(msgspec.Struct, frozen=True):
    """Its time, or a place for it, is still to come; the message has to come back after so many seconds."""

    seconds: float


class GivenUp(msgspec.Struct, frozen=True):
    """It may not run any more: this is how it is to end."""

    outcome: Outcome


StartResult = Execution | TooEarly | GivenUp | None

GUARD_PAUSE_SECONDS = 1.0
_FIRST_TOKEN = 1


async def start(database: Database, execution_id: UUID, token: int, worker_id: UUID) -> StartResult:
    """Take a pending execution to run it; None if someone else has, or it is gone."""
    async with database.transaction() as connection:
        waiting = await executions.waiting(connection, execution_id, token)
        if waiting is None:
            return None
        return await _start(connection, waiting, execution_id, token, worker_id)


async def _start(
    connection: AsyncConnection, waiting: Waiting, execution_id: UUID, token: int, worker_id: UUID
) -> StartResult:
    before = await gates.lock(connection, {waiting.workflow_id} if waiting.trigger is not Trigger.MANUAL else ())
    await schedules.lock(connection, [waiting.scheduled_job_id])
    now = await database_now(connection)
    if waiting.due_at > now:
        return TooEarly((waiting.due_at - now).total_seconds())
    candidate = Candidate(
        execution_id=execution_id,
        trigger=waiting.trigger,
        attempt=waiting.retry_attempt,
        handed_back=token > _FIRST_TOKEN,
    )
    decision = may_start(candidate, before.get(waiting.workflow_id, OPEN_GATE), now)
    if isinstance(decision, GiveUp):
        return GivenUp(_not_run(waiting, execution_id, token, decision.reason))
    if not isinstance(decision, Go):
        return TooEarly(GUARD_PAUSE_SECONDS)
    execution = await executions.start(connection, execution_id, token, worker_id, now)
    if execution is not None and waiting.trigger is not Trigger.MANUAL:
        await schedules.started_run(connection, waiting.scheduled_job_id, now)
        await gates.save(connection, before, dict.fromkeys(before, decision.gate))
    return execution


def _not_run(waiting: Waiting, execution_id: UUID, token: int, reason: str) -> Outcome:
    return Outcome(
        execution_id=execution_id,
        scheduled_job_id=waiting.scheduled_job_id,
        token=token,
        status=ExecutionStatus.CANCELLED,
        error=f"Cancelled before it ran: {reason}.",
    )
