"""A long past for a schedule, made up by one statement."""

from uuid import UUID

from sqlalchemy import text

from app.persistence.database import Database
from tests.support.carillon import Json

# Ids begin with the milliseconds of their slot, a second apart, up to now.
_RUNS = text(
    "INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive, "
    "repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, error, created_at, started_at, "
    "finished_at) SELECT CAST(lpad(to_hex(CAST(extract(epoch FROM slot) * 1000 AS bigint)), 12, '0') "
    "|| substr(md5(CAST(j.id AS text) || number), 1, 20) AS uuid), j.user_profile_id, j.id, j.workflow_id, 'schedule', "
    ":status, true, 0, 0, slot, '{}', 60, 2, '', slot, slot, slot FROM scheduled_jobs AS j, "
    "generate_series(1, :count) AS number, LATERAL (SELECT now() - number * interval '1 second' AS slot) AS s "
    "WHERE j.id = :job_id"
)
_ENTRIES = text(
    "INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason) "
    "SELECT :job_id, slot, slot, 1, 'missed', '' FROM generate_series(1, :count) AS number, "
    "LATERAL (SELECT now() - number * interval '1 second' - interval '500 milliseconds' AS slot) AS s"
)


async def give_past(database: Database, schedule: Json, count: int, status: str = "success") -> None:
    """So many ended runs, and as many slots that did not fire."""
    async with database.transaction() as connection:
        job_id = UUID(schedule["id"])
        await connection.execute(_RUNS, {"job_id": job_id, "count": count, "status": status})
        await connection.execute(_ENTRIES, {"job_id": job_id, "count": count})
