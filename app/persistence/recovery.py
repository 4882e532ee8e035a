"""What recovery looks for (lost, timed out and pending runs), and the quarantine of rows that cannot be handled.

``app.engine.recovery`` decides what happens to what is found here; ``app.engine.quarantine`` counts by what is here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, TextClause, exists, func, or_, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.audit import AuditAction
from app.domain.executions import ExecutionStatus, Outcome, PendingRun, Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.revisions import CARILLON, REMEMBERED
from app.domain.run_ids import execution_id
from app.persistence import audit, ledger, schedules
from app.persistence.execution_rows import LockedExecution
from app.persistence.executions import ENDS_A_SLOT
from app.persistence.sql_batches import fetch
from app.persistence.tables import IS_ACTIVE_EXECUTION, ActiveExecutionRow, LimitPermitRow, WorkflowExecutionRow

_TABLE = WorkflowExecutionRow.__table__
_ACTIVE = ActiveExecutionRow.__table__
_PERMITS = LimitPermitRow.__table__

# Lost runs: a run is lost when its worker's lease has expired by the database's clock. No worker decides that about
# itself or another one: clocks of hosts differ, and a worker that was paused believes that its lease is still valid.

# Attempts at one slot that are looked at, the newest ones: there may be a thousand.
MOST_LOOKED_BACK = 100

_LOST = text(
    "SELECT e.id, e.scheduled_job_id, e.token, coalesce(w.name, 'unknown') AS worker "  # noqa: S608 - our own names
    "FROM active_executions AS e LEFT JOIN workers AS w ON w.id = e.worker_id "
    "WHERE e.status = 'running' AND NOT e.awaiting "
    # Runs of a newer release's triggers are left to its workers, and do not fill the page.
    f"AND e.trigger IN ({', '.join(repr(trigger.value) for trigger in Trigger)}) "
    "AND (w.id IS NULL OR w.lease_expires_at < clock_timestamp()) LIMIT :limit"
)
_LOST_EARLIER = (
    "SELECT e.id FROM unnest($1::uuid[]) AS ids(id) JOIN workflow_executions AS e ON e.id = ids.id "
    "WHERE e.status = 'lost'"
)
_PAST_DEADLINE = text(
    "SELECT e.id, e.scheduled_job_id, e.token, e.timeout_seconds FROM active_executions AS e "
    "WHERE e.awaiting AND e.deadline_at < clock_timestamp() LIMIT :limit"
)


async def lost(connection: AsyncConnection, limit: int) -> list[Outcome]:
    """Return running executions whose worker's lease has expired, as outcomes to settle."""
    return [
        Outcome(
            execution_id=row.id,
            scheduled_job_id=row.scheduled_job_id,
            token=row.token,
            status=ExecutionStatus.LOST,
            error=f"The worker {row.worker} stopped renewing its lease while it ran this.",
        )
        for row in await connection.execute(_LOST, {"limit": limit})
    ]


async def times_lost(connection: AsyncConnection, runs: Sequence[LockedExecution]) -> dict[UUID, int]:
    """Return how many earlier attempts at the same slot lost their worker, by run; runs with none are left out."""
    if not runs:
        return {}
    attempts = {
        execution_id(run.source, run.scheduled_for, attempt): run.id
        for run in runs
        for attempt in range(max(0, run.retry_attempt - MOST_LOOKED_BACK), run.retry_attempt)
    }
    counts: dict[UUID, int] = {}
    for row in await fetch(connection, _LOST_EARLIER, list(attempts)):
        run_id = attempts[row["id"]]
        counts[run_id] = counts.get(run_id, 0) + 1
    return counts


async def timed_out(connection: AsyncConnection, limit: int) -> list[Outcome]:
    """Return executions that await a callback and are past their deadline, as outcomes to settle."""
    return [
        Outcome(
            execution_id=row.id,
            scheduled_job_id=row.scheduled_job_id,
            token=row.token,
            status=ExecutionStatus.TIMED_OUT,
            error=f"No callback came within timeout_seconds ({row.timeout_seconds} s).",
        )
        for row in await connection.execute(_PAST_DEADLINE, {"limit": limit})
    ]


# Pending runs: their messages may be gone.


async def pending(
    connection: AsyncConnection, limit: int, ahead: timedelta = timedelta(0), after: PendingRun | None = None
) -> list[PendingRun]:
    """Return a page of the executions that may start now, or within ``ahead``, the longest due first."""
    query = _pending(ahead)
    if after is not None:
        query = query.where(tuple_(_ACTIVE.c.due_at, _ACTIVE.c.id) > (after.due_at, after.execution_id))
    # A run that sleeps and waits for a limit has a message for the end of its sleep, which may come much later.
    is_granted = exists().where(_PERMITS.c.execution_id == _ACTIVE.c.id, _PERMITS.c.node_id != "")
    query = query.add_columns(is_granted.label("is_granted"))
    rows = await connection.execute(query.order_by(_ACTIVE.c.due_at, _ACTIVE.c.id).limit(limit))
    return [PendingRun(row.id, row.token, row.due_at, is_granted=row.is_granted) for row in rows]


async def pending_in_turn(connection: AsyncConnection, limit: int, but: Sequence[int] = ()) -> list[PendingRun]:
    """Return executions that may start now in turns of the owners: the longest due of each, then the second of each.

    The owners in ``but`` are left out.
    """
    owner = _TABLE.c.user_profile_id
    turn = func.row_number().over(partition_by=owner, order_by=(_ACTIVE.c.due_at, _ACTIVE.c.id)).label("turn")
    runs = _pending(timedelta(0)).add_columns(owner, turn).join(_TABLE, _TABLE.c.id == _ACTIVE.c.id)
    due = runs.where(owner.not_in(list(but))).subquery()
    query = select(due).order_by(due.c.turn, due.c.due_at, due.c.id).limit(limit)
    return [PendingRun(*row[:-1]) for row in await connection.execute(query)]


def _pending(ahead: timedelta) -> Select[Any]:
    due = _ACTIVE.c.due_at <= func.clock_timestamp() + ahead
    # A run that waits for a permit is rung for when it gets it.
    waits = exists().where(
        _PERMITS.c.execution_id == _ACTIVE.c.id,
        _PERMITS.c.node_id == "",
        or_(_PERMITS.c.starts_at.is_(None), _PERMITS.c.starts_at > func.clock_timestamp() + ahead),
    )
    return select(_ACTIVE.c.id, _ACTIVE.c.token, _ACTIVE.c.due_at).where(
        _ACTIVE.c.status == ExecutionStatus.PENDING, ~_ACTIVE.c.queued, due, ~waits
    )


_AMONG_ACTIVE = "SELECT a.id FROM unnest($1::uuid[]) AS ids(id) JOIN active_executions AS a ON a.id = ids.id"


async def count_active(connection: AsyncConnection, ids: Sequence[UUID]) -> int:
    """Return how many of these executions have not ended."""
    return len(await fetch(connection, _AMONG_ACTIVE, list(ids)))


# Runs that a worker holds. Everything else that it runs was taken from it: cancelled, or lost and settled.

_HELD_TOKENS = (
    "SELECT a.id, a.token FROM unnest($1::uuid[]) AS ids(id) JOIN active_executions AS a ON a.id = ids.id "
    "WHERE a.worker_id = $2 AND a.status = 'running'"
)
_HAND_BACK = text(
    "UPDATE workflow_executions AS e SET status = 'pending', worker_id = NULL, token = e.token + 1 "
    "FROM jsonb_to_recordset(CAST(:held AS jsonb)) AS h(id uuid, token int) "
    "WHERE e.id = h.id AND e.token = h.token AND e.status = 'running' RETURNING e.id, e.token, e.due_at"
)


async def all_held(connection: AsyncConnection, worker_id: UUID) -> dict[UUID, int]:
    """Return the tokens of all executions that a worker holds, by id."""
    query = select(_ACTIVE.c.id, _ACTIVE.c.token)
    rows = await connection.execute(query.where(_ACTIVE.c.worker_id == worker_id, _ACTIVE.c.status == "running"))
    return {row.id: row.token for row in rows}


async def held_among(connection: AsyncConnection, worker_id: UUID, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return the tokens of those of these executions that a worker holds, by id."""
    rows = await fetch(connection, _HELD_TOKENS, list(ids), worker_id)
    return {row["id"]: row["token"] for row in rows}


async def hand_back(connection: AsyncConnection, held: Mapping[UUID, int]) -> list[PendingRun]:
    """Make running executions pending again for other workers, unless their tokens (by id) have moved.

    Return those that became pending, with their new tokens.
    """
    rows = [{"id": execution_id, "token": token} for execution_id, token in held.items()]
    returned = await connection.execute(_HAND_BACK, {"held": msgspec.json.encode(rows).decode()})
    return [PendingRun(row.id, row.token, row.due_at) for row in returned]


# The quarantine. It is SQL on single columns: a row often cannot be handled because it cannot be read as a struct.

MOST_MISHAPS = 3
ERROR_CHARACTERS = 2000

# A mishap counts only against the state that the row has now. A message with another generation or token, or from an
# older state, says nothing about it.
_COUNT = (
    "INSERT INTO mishaps AS m (subject_id, state, count, error) "
    "SELECT id, CAST(:state AS bigint), 1, :error FROM {subject} "
    "ON CONFLICT (subject_id) DO UPDATE SET state = EXCLUDED.state, error = EXCLUDED.error, at = clock_timestamp(), "
    "count = CASE WHEN m.state = EXCLUDED.state THEN m.count + 1 ELSE 1 END RETURNING m.count"
)
_COUNT_TICK = text(_COUNT.format(subject="scheduled_jobs WHERE id = :id AND generation = CAST(:state AS bigint)"))
_COUNT_EXECUTION = text(
    _COUNT.format(
        subject=f"workflow_executions WHERE id = :id AND token = CAST(:state AS bigint) AND {IS_ACTIVE_EXECUTION}"
    )
)
_FORGET_MISHAPS = text("DELETE FROM mishaps WHERE subject_id = :id")
_POISON = text(
    "UPDATE scheduled_jobs AS j SET status = 'paused', status_reason = 'poisoned', last_error = :error, "
    "last_error_at = clock_timestamp(), "
    "next_slot = NULL, next_run_at = NULL, next_attempt = 0, cadence_slot = NULL, generation = j.generation + 1, "
    "updated_at = clock_timestamp() FROM scheduled_jobs AS before "
    "WHERE j.id = :id AND before.id = j.id AND j.status = 'active' RETURNING before.next_slot, before.next_attempt"
)
# A slot that was due is accounted for, unless it is already: by an entry, or by an attempt that was made.
_ACCOUNT = text(
    "INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason) "
    "SELECT s.id, s.slot, s.slot, 1, 'missed', 'poisoned' "
    "FROM (SELECT CAST(:id AS uuid) AS id, CAST(:slot AS timestamptz) AS slot) AS s WHERE s.slot <= clock_timestamp() "
    "AND NOT EXISTS (SELECT FROM workflow_executions AS e WHERE e.id = :first_attempt) "
    "AND NOT EXISTS (SELECT FROM ledger_entries AS l WHERE l.scheduled_job_id = s.id "
    "AND s.slot BETWEEN l.first_slot AND l.last_slot)"
)
_LAST_MISSED = text(
    "UPDATE scheduled_jobs SET last_slot = :slot, last_outcome = 'missed', last_attempt_at = clock_timestamp() "
    "WHERE id = :id"
)
_LAST_OUTCOME = text("UPDATE scheduled_jobs SET last_outcome = :outcome WHERE id = :id AND last_slot = :slot")
_REVISE = text(
    "INSERT INTO schedule_revisions (scheduled_job_id, at, author, action, changes, note, snapshot) "
    "SELECT j.id, clock_timestamp(), :author, 'paused', "
    """'{"status": {"from": "active", "to": "paused"}}', :error, """
    "(SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(j)) WHERE key = ANY(:remembered)) "
    "FROM scheduled_jobs AS j WHERE j.id = :id"
)
_END = text(
    "UPDATE workflow_executions AS e SET status = 'failed', error = :error, finished_at = clock_timestamp(), "  # noqa: S608
    "token = e.token + 1, worker_id = NULL, queued = false, awaiting = false, graph = NULL, "
    "unrun_outcome = CASE WHEN e.started_at IS NULL THEN 'missed' END "
    f"WHERE e.id = :id AND e.{IS_ACTIVE_EXECUTION} "
    "RETURNING e.scheduled_job_id, e.scheduled_for, e.trigger IN ('manual', 'backfill') AS is_beside_cadence, "
    f"{ENDS_A_SLOT.format('e')} AS ends_a_slot"
)


_PUBLISHING = text(
    "SELECT e.id FROM workflow_executions AS e LEFT JOIN workflows AS w ON w.id = e.workflow_id "
    "WHERE e.id = ANY(CAST(:ids AS uuid[])) AND (e.work ->> 'action' = ANY(CAST(:names AS text[])) "
    "OR EXISTS (SELECT FROM jsonb_array_elements(w.nodes) AS n WHERE n ->> 'type' = ANY(CAST(:names AS text[]))))"
)


async def with_actions(connection: AsyncConnection, ids: Sequence[UUID], names: Iterable[str]) -> set[UUID]:
    """Return those of these executions whose workflow or entity has one of these actions."""
    values = {"ids": list(ids), "names": list(names)}
    return set((await connection.execute(_PUBLISHING, values)).scalars())


async def count_tick(connection: AsyncConnection, job_id: UUID, generation: int, error: str) -> int:
    """Count a mishap of a schedule's pending tick. Return the count, or 0 if the generation has moved."""
    return await _count(connection, _COUNT_TICK, job_id, generation, error)


async def count_execution(connection: AsyncConnection, run_id: UUID, token: int, error: str) -> int:
    """Count a mishap of an active execution. Return the count, or 0 if the token has moved."""
    return await _count(connection, _COUNT_EXECUTION, run_id, token, error)


async def _count(connection: AsyncConnection, statement: TextClause, subject_id: UUID, state: int, error: str) -> int:
    values = {"id": subject_id, "state": state, "error": error[:ERROR_CHARACTERS]}
    times: int | None = (await connection.execute(statement, values)).scalar_one_or_none()
    return times or 0


async def poison_schedule(connection: AsyncConnection, job_id: UUID, error: str) -> bool:
    """Pause a schedule that cannot be handled. Return whether it was active."""
    message = _message(error)
    row = (await connection.execute(_POISON, {"id": job_id, "error": message})).one_or_none()
    await connection.execute(_FORGET_MISHAPS, {"id": job_id})
    if row is None:
        return False
    if row.next_slot is not None and not row.next_attempt:
        first_attempt = execution_id(job_id, row.next_slot, 0)
        values = {"id": job_id, "slot": row.next_slot, "first_attempt": first_attempt}
        written = (await connection.execute(_ACCOUNT, values)).rowcount
        if written:
            await connection.execute(_LAST_MISSED, {"id": job_id, "slot": row.next_slot})
            ledger.count_unrun(connection, [LedgerOutcome.MISSED])
    values = {"id": job_id, "author": CARILLON.name, "error": message, "remembered": list(REMEMBERED)}
    await connection.execute(_REVISE, values)
    subjects = await schedules.subjects(connection, [job_id])
    await audit.record_by(connection, CARILLON, AuditAction.SCHEDULE_PAUSED, subjects, note=message)
    return True


async def end_execution(connection: AsyncConnection, run_id: UUID, error: str) -> UUID | None:
    """End an execution that cannot be handled as failed, and pause its schedule. Return the schedule's id, if any."""
    row = (await connection.execute(_END, {"id": run_id, "error": _message(error)})).one_or_none()
    await connection.execute(_FORGET_MISHAPS, {"id": run_id})
    if row is None or row.scheduled_job_id is None:
        return None
    ledger.count_unrun(connection, [LedgerOutcome.MISSED] * row.ends_a_slot)
    if not row.is_beside_cadence:
        outcome = LedgerOutcome.MISSED if row.ends_a_slot else ExecutionStatus.FAILED
        values = {"id": row.scheduled_job_id, "slot": row.scheduled_for, "outcome": outcome.value}
        await connection.execute(_LAST_OUTCOME, values)
    await poison_schedule(connection, row.scheduled_job_id, error)
    job_id: UUID = row.scheduled_job_id
    return job_id


def _message(error: str) -> str:
    return f"It could not be handled {MOST_MISHAPS} times: {error}"[:ERROR_CHARACTERS]
