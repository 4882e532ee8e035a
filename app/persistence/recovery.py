"""Rows that cannot be handled: counted, and after the third time put where they block nobody.

All of it is plain SQL on single columns: what is wrong with such a row may be that nobody can read it.
"""

from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.identities import execution_id
from app.domain.ledger import LedgerOutcome
from app.domain.revisions import CARILLON, REMEMBERED
from app.persistence import ledger
from app.persistence.executions import ENDS_A_SLOT
from app.persistence.tables import IS_ACTIVE_EXECUTION

MOST_MISHAPS = 3
ERROR_CHARACTERS = 2000

# A mishap counts only against the state that is there now: a message with another generation or token has nothing to do
# with it, and neither has one of an older state.
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
_FORGET = text("DELETE FROM mishaps WHERE subject_id = :id")
_POISON = text(
    "UPDATE scheduled_jobs AS j SET status = 'paused', status_reason = 'poisoned', last_error = :error, "
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
    f"RETURNING e.scheduled_job_id, {ENDS_A_SLOT.format('e')} AS ends_a_slot"
)


async def count_tick(connection: AsyncConnection, job_id: UUID, generation: int, error: str) -> int:
    """Count a mishap of a schedule's pending tick; how many there have been, 0 if that tick is not pending."""
    return await _counted(connection, _COUNT_TICK, job_id, generation, error)


async def count_execution(connection: AsyncConnection, run_id: UUID, token: int, error: str) -> int:
    """Count a mishap of an active execution under its token; how many there have been, 0 if the token has moved."""
    return await _counted(connection, _COUNT_EXECUTION, run_id, token, error)


async def _counted(connection: AsyncConnection, statement: TextClause, subject_id: UUID, state: int, error: str) -> int:
    values = {"id": subject_id, "state": state, "error": error[:ERROR_CHARACTERS]}
    times: int | None = (await connection.execute(statement, values)).scalar_one_or_none()
    return times or 0


async def poison_schedule(connection: AsyncConnection, job_id: UUID, error: str) -> bool:
    """Pause a schedule that cannot be handled; whether it was active."""
    words = f"It could not be handled {MOST_MISHAPS} times: {error}"[:ERROR_CHARACTERS]
    row = (await connection.execute(_POISON, {"id": job_id, "error": words})).one_or_none()
    await connection.execute(_FORGET, {"id": job_id})
    if row is None:
        return False
    if row.next_slot is not None and not row.next_attempt:
        first_attempt = execution_id(job_id, row.next_slot, 0)
        values = {"id": job_id, "slot": row.next_slot, "first_attempt": first_attempt}
        written = (await connection.execute(_ACCOUNT, values)).rowcount
        ledger.count_unrun(connection, [LedgerOutcome.MISSED] * written)
    values = {"id": job_id, "author": CARILLON.name, "error": words, "remembered": list(REMEMBERED)}
    await connection.execute(_REVISE, values)
    return True


async def end_execution(connection: AsyncConnection, run_id: UUID, error: str) -> UUID | None:
    """End an execution that cannot be handled, and pause its schedule; that schedule's id, if it has one."""
    words = f"It could not be handled {MOST_MISHAPS} times: {error}"[:ERROR_CHARACTERS]
    row = (await connection.execute(_END, {"id": run_id, "error": words})).one_or_none()
    await connection.execute(_FORGET, {"id": run_id})
    if row is None or row.scheduled_job_id is None:
        return None
    ledger.count_unrun(connection, [LedgerOutcome.MISSED] * row.ends_a_slot)
    await poison_schedule(connection, row.scheduled_job_id, error)
    job_id: UUID = row.scheduled_job_id
    return job_id
