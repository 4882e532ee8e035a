"""The runs of entities: written before they are due, started one at a time for each entity."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.entities import ScheduledJobConfig
from app.domain.executions import Entity, Execution, ExecutionStatus, PendingRun, Trigger
from app.domain.identities import execution_id
from app.persistence import executions
from app.persistence.batches import insert_many
from app.persistence.tables import IS_ACTIVE_EXECUTION, WorkflowExecutionRow

FIRST_TOKEN = 1

_INSERT = insert_many(
    WorkflowExecutionRow,
    (
        *("id", "user_profile_id", "entity_type", "entity_id", "work", "trigger", "status", "exclusive"),
        *("repeat_number", "retry_attempt", "scheduled_for", "payload", "timeout_seconds", "token", "error", "due_at"),
    ),
)
# The same time of the same entity is the same execution: whoever writes it twice has written it once.
_ADD = text(f"{_INSERT.text} ON CONFLICT (id) DO NOTHING RETURNING id, token, due_at")
# Held until the transaction ends; two runs of one entity do not start side by side.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended(:source, 0))")
_IN_THE_WAY = text(
    "SELECT 1 FROM workflow_executions AS e WHERE e.entity_type = :type AND e.entity_id = :entity_id AND e.id <> :id "
    "AND (e.status = 'running' OR (e.status = 'pending' AND (e.retry_attempt > 0 OR e.started_at IS NOT NULL))) LIMIT 1"
)
_START = text(
    "UPDATE workflow_executions AS e SET status = 'running', worker_id = :worker_id, "
    "started_at = CASE WHEN e.deadline_at IS NULL THEN clock_timestamp() ELSE e.started_at END "
    "WHERE e.id = :id AND e.token = :token AND e.status = 'pending' "
    "RETURNING e.*, e.work ->> 'name' AS job_name, CAST(NULL AS text) AS trigger_node_id"
)
_ACTIVE = text(
    "SELECT e.id FROM workflow_executions AS e WHERE e.entity_type = :type AND e.entity_id = :entity_id "  # noqa: S608
    f"AND e.{IS_ACTIVE_EXECUTION}"
)
# Not begun, and not due either: as if it had never been written down.
_TAKE_BACK = text(
    "DELETE FROM workflow_executions WHERE entity_type = :type AND entity_id = :entity_id AND status = 'pending' "
    "AND started_at IS NULL AND retry_attempt = 0 AND due_at > clock_timestamp()"
)
_NEW_WORK = text(
    "UPDATE workflow_executions SET work = CAST(:work AS jsonb) WHERE entity_type = :type AND entity_id = :entity_id "
    "AND status = 'pending' AND started_at IS NULL"
)
_REMOVE = text("DELETE FROM workflow_executions WHERE entity_type = :type AND entity_id = :entity_id")


class Due(msgspec.Struct, frozen=True):
    """A job of an entity with the time that it is due, and whose it is."""

    job: ScheduledJobConfig
    slot: datetime
    user_profile_id: int


async def add(connection: AsyncConnection, due: Sequence[Due]) -> list[PendingRun]:
    """Write pending executions; those that had not been written before."""
    if not due:
        return []
    rows = msgspec.json.encode([_row(one) for one in due]).decode()
    written = await connection.execute(_ADD, {"rows": rows})
    return [PendingRun(row.id, row.token, row.due_at) for row in written]


async def is_in_the_way(connection: AsyncConnection, run_id: UUID, entity_type: str, entity_id: str) -> bool:
    """Whether another run of the entity is under way; nobody else starts one until this transaction ends."""
    await connection.execute(_ONE_AT_A_TIME, {"source": f"{entity_type}/{entity_id}"})
    values = {"type": entity_type, "entity_id": entity_id, "id": run_id}
    return (await connection.execute(_IN_THE_WAY, values)).one_or_none() is not None


async def start(connection: AsyncConnection, run_id: UUID, token: int, worker_id: UUID) -> Execution | None:
    """Take a pending execution to run it; None if someone else has, or it is gone."""
    values = {"id": run_id, "token": token, "worker_id": worker_id}
    row = (await connection.execute(_START, values)).one_or_none()
    return executions.to_execution(row) if row else None


async def remove(connection: AsyncConnection, entity_type: str, entity_id: str) -> list[UUID]:
    """Delete the history of an entity that is being deleted; what was under way."""
    values = {"type": entity_type, "entity_id": entity_id}
    active = list((await connection.execute(_ACTIVE, values)).scalars())
    await connection.execute(_REMOVE, values)
    return active


async def take_back(connection: AsyncConnection, entity_type: str, entity_id: str) -> None:
    """Forget the runs that are still to come: the times of the entity have changed."""
    await connection.execute(_TAKE_BACK, {"type": entity_type, "entity_id": entity_id})


async def give_new_work(connection: AsyncConnection, entity: Entity) -> None:
    """Let the runs that have not begun do what the entity wants now."""
    work = msgspec.json.encode(entity.work).decode()
    await connection.execute(_NEW_WORK, {"type": entity.type, "entity_id": entity.id, "work": work})


def _row(due: Due) -> dict[str, object]:
    entity = due.job.entity
    return {
        "id": execution_id(entity.source, due.slot, 0),
        "user_profile_id": due.user_profile_id,
        "entity_type": entity.type,
        "entity_id": entity.id,
        "work": entity.work,
        "trigger": Trigger.ENTITY,
        "status": ExecutionStatus.PENDING,
        "exclusive": True,
        "repeat_number": 0,
        "retry_attempt": 0,
        "scheduled_for": due.slot,
        "payload": {},
        "timeout_seconds": due.job.timeout_seconds,
        "token": FIRST_TOKEN,
        "error": "",
        "due_at": due.slot,
    }
