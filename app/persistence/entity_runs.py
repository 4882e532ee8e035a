"""The runs of entities: written before they are due, started one at a time for each entity."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.entity_jobs import ScheduledJobConfig
from app.domain.executions import FIRST_TOKEN, Execution, ExecutionStatus, PendingRun, Trigger
from app.domain.run_ids import execution_id
from app.domain.starting import EntityConflict
from app.persistence.execution_rows import STARTED, to_execution
from app.persistence.pagination import to_struct
from app.persistence.sql_batches import insert_many, run_batch
from app.persistence.tables import WorkflowExecutionRow

# The id is computed from the entity and the slot, so that two pollers that find the same slot write one execution.
_ADD = insert_many(
    WorkflowExecutionRow,
    (
        *("id", "user_profile_id", "entity_type", "entity_id", "work", "trigger", "status", "exclusive"),
        *("repeat_number", "retry_attempt", "scheduled_for", "payload", "timeout_seconds", "token", "error", "due_at"),
    ),
    "ON CONFLICT (id) DO NOTHING RETURNING id, token, due_at",
)
# Held until the transaction ends: transactions that start, end or remove runs of one entity wait for each other.
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended(:source, 0))")
_ENTITIES_OF = text(
    "SELECT DISTINCT entity_type, entity_id FROM workflow_executions WHERE id = ANY(:ids) "
    "AND entity_type IS NOT NULL ORDER BY entity_type, entity_id"
).bindparams(bindparam("ids", type_=ARRAY(PG_UUID(as_uuid=True))))
_CONFLICT = text(
    "SELECT bool_or(e.status = 'running' OR e.started_at IS NOT NULL) AS runs, count(*) > 0 AS any "
    "FROM active_executions AS e WHERE e.entity_type = :type AND e.entity_id = :entity_id AND e.id <> :id "
    "AND (e.status = 'running' OR e.retry_attempt > 0 OR e.started_at IS NOT NULL)"
)
_START = text(
    "UPDATE workflow_executions AS e SET status = 'running', worker_id = :worker_id, "  # noqa: S608
    "started_at = CASE WHEN e.deadline_at IS NULL THEN clock_timestamp() ELSE e.started_at END "
    "WHERE e.id = :id AND e.token = :token AND e.status = 'pending' "
    f"RETURNING {STARTED}, e.work ->> 'name' AS job_name, CAST(NULL AS text) AS trigger_node_id, "
    "CAST(extract(epoch FROM e.deadline_at - clock_timestamp()) AS float) AS seconds_left, "
    "clock_timestamp() AS resumed_at"
)
_OF_ENTITY = "SELECT e.id FROM active_executions AS e WHERE e.entity_type = :type AND e.entity_id = :entity_id"
_NOT_BEGUN = f"{_OF_ENTITY} AND e.status = 'pending' AND e.started_at IS NULL"
_ACTIVE = text(_OF_ENTITY)
# Neither begun nor due: it leaves no trace.
_DELETE_NOT_DUE = text(
    f"DELETE FROM workflow_executions WHERE id IN ({_NOT_BEGUN} "  # noqa: S608
    "AND e.retry_attempt = 0 AND e.due_at > clock_timestamp())"
)
_CANCEL = text(
    "UPDATE workflow_executions SET status = 'cancelled', error = :reason, finished_at = clock_timestamp(), "  # noqa: S608
    f"token = token + 1, unrun_outcome = 'missed' WHERE id IN ({_NOT_BEGUN})"
)
# A run that has begun may end. If it fails, it is not retried.
_LAST_ATTEMPT = text(
    """UPDATE workflow_executions SET work = work || '{"max_retries": 0}' """  # noqa: S608
    f"WHERE id IN ({_OF_ENTITY})"
)
_NEW_WORK = text(
    "UPDATE workflow_executions SET work = CAST(:work AS jsonb), timeout_seconds = :timeout_seconds "  # noqa: S608
    f"WHERE id IN ({_NOT_BEGUN})"
)
_LATEST = text(
    "SELECT e.* FROM unnest(CAST(:ids AS text[])) AS entities(id) CROSS JOIN LATERAL ("
    "SELECT entity_id, scheduled_for, status, started_at, retry_attempt, error FROM workflow_executions "
    "WHERE entity_type = :type AND entity_id = entities.id ORDER BY id DESC LIMIT 5) AS e"
)
# Counting stops here: a larger backlog need not be known exactly.
MOST_COUNTED = 10_000
_ACTIVE_BY_TYPE = text(
    "SELECT types.name, count(*) FILTER (WHERE e.status = 'pending') AS pending, "  # noqa: S608
    "count(*) FILTER (WHERE e.status = 'running') AS running FROM unnest(CAST(:types AS text[])) AS types(name) "
    "CROSS JOIN LATERAL (SELECT a.status FROM active_executions AS a WHERE a.entity_type = types.name "
    f"LIMIT {MOST_COUNTED}) AS e GROUP BY types.name"
)
_REMOVE = text("DELETE FROM workflow_executions WHERE entity_type = :type AND entity_id = :entity_id")


class Due(msgspec.Struct, frozen=True):
    """A job of an entity with the slot at which it is due, and its owner."""

    job: ScheduledJobConfig
    slot: datetime
    user_profile_id: int


class EntityRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of an entity, with what its owner is shown."""

    scheduled_for: datetime
    # Text: a newer release may have stored a status that this one does not know.
    status: str
    started_at: datetime | None
    error: str


async def add(connection: AsyncConnection, due: Sequence[Due]) -> list[PendingRun]:
    """Write pending executions. Return those that did not exist yet."""
    written = await run_batch(connection, _ADD, [_row(one) for one in due])
    return [PendingRun(row["id"], row["token"], row["due_at"]) for row in written]


async def lock_of_executions(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Lock the entities of these executions until this transaction ends."""
    for row in list(await connection.execute(_ENTITIES_OF, {"ids": list(ids)})):
        await _lock(connection, row.entity_type, row.entity_id)


async def conflict_of(
    connection: AsyncConnection, run_id: UUID, entity_type: str, entity_id: str
) -> EntityConflict | None:
    """Lock an entity and return which other run of it keeps this one from starting, or None."""
    await _lock(connection, entity_type, entity_id)
    values = {"type": entity_type, "entity_id": entity_id, "id": run_id}
    row = (await connection.execute(_CONFLICT, values)).one()
    if not row.any:
        return None
    return EntityConflict.RUN if row.runs else EntityConflict.RETRY


async def start(connection: AsyncConnection, run_id: UUID, token: int, worker_id: UUID) -> Execution | None:
    """Mark a pending execution as running on this worker and return it; None if another worker has, or it is gone."""
    values = {"id": run_id, "token": token, "worker_id": worker_id}
    row = (await connection.execute(_START, values)).one_or_none()
    return to_execution(row) if row else None


async def remove(connection: AsyncConnection, entity_type: str, entity_id: str) -> list[UUID]:
    """Delete all runs of an entity that is being deleted. Return the ids of those that were active."""
    await _lock(connection, entity_type, entity_id)
    values = {"type": entity_type, "entity_id": entity_id}
    active = list((await connection.execute(_ACTIVE, values)).scalars())
    await connection.execute(_REMOVE, values)
    return active


async def withdraw(connection: AsyncConnection, entity_type: str, entity_id: str, reason: str) -> bool:
    """Remove the runs of an entity that have not begun, and retry no run that has: its times have changed.

    Return whether there was a run to remove.
    """
    await _lock(connection, entity_type, entity_id)
    values = {"type": entity_type, "entity_id": entity_id}
    deleted = await connection.execute(_DELETE_NOT_DUE, values)
    cancelled = await connection.execute(_CANCEL, {**values, "reason": reason})
    await connection.execute(_LAST_ATTEMPT, values)
    return bool(deleted.rowcount or cancelled.rowcount)


async def replace_work(connection: AsyncConnection, job: ScheduledJobConfig) -> None:
    """Let the runs that have not begun do what the entity says now."""
    entity = job.entity
    await _lock(connection, entity.type, entity.id)
    work = msgspec.json.encode(entity.work).decode()
    values = {"type": entity.type, "entity_id": entity.id, "work": work, "timeout_seconds": job.timeout_seconds}
    await connection.execute(_NEW_WORK, values)


async def latest(connection: AsyncConnection, entity_type: str, ids: Sequence[str]) -> dict[str, list[EntityRun]]:
    """Return the last few runs of each of these entities, newest first."""
    runs: dict[str, list[EntityRun]] = {}
    for row in await connection.execute(_LATEST, {"type": entity_type, "ids": list(ids)}):
        runs.setdefault(row.entity_id, []).append(to_struct(row, EntityRun))
    return runs


class ActiveRuns(msgspec.Struct, frozen=True):
    """How many runs of an entity type wait to be started, and how many run."""

    pending: int = 0
    running: int = 0


async def active_by_type(connection: AsyncConnection, types: Sequence[str]) -> dict[str, ActiveRuns]:
    """Return how many runs of each of these entity types are active, where there are any."""
    rows = await connection.execute(_ACTIVE_BY_TYPE, {"types": list(types)})
    return {row.name: ActiveRuns(row.pending, row.running) for row in rows}


async def _lock(connection: AsyncConnection, entity_type: str, entity_id: str) -> None:
    await connection.execute(_ONE_AT_A_TIME, {"source": f"{entity_type}/{entity_id}"})


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
