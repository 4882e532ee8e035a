"""Executions that did not end well, found without going through those that did.

``unsuccessful_executions`` is kept by a trigger. What had ended before the trigger was there is added in the
background, from the newest on; dropped weeks leave rows behind, which are deleted here.
"""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import ACTIVE, ExecutionStatus
from app.domain.identities import first_id_at

NAME = "unsuccessful_executions"
MOST_ROWS = 10_000
STATUSES = frozenset(ExecutionStatus) - ACTIVE - {ExecutionStatus.SUCCESS}

_POSITION = text("SELECT position FROM backfills WHERE name = :name")
_TAKE = text("SELECT position FROM backfills WHERE name = :name FOR UPDATE SKIP LOCKED")
_FILL = text(
    "WITH part AS MATERIALIZED (SELECT id, user_profile_id, scheduled_job_id, workflow_id, entity_type, entity_id, "
    "status, finished_at FROM workflow_executions WHERE id < :position ORDER BY id DESC LIMIT :limit), "
    "filled AS (INSERT INTO unsuccessful_executions (id, user_profile_id, scheduled_job_id, workflow_id, entity_type, "
    "entity_id, status) SELECT id, user_profile_id, scheduled_job_id, workflow_id, entity_type, entity_id, status "
    "FROM part WHERE finished_at IS NOT NULL AND status <> 'success' ON CONFLICT (id) DO NOTHING) "
    "SELECT count(*) AS number, (array_agg(id ORDER BY id))[1] AS position FROM part"
)
_MOVE = text("UPDATE backfills SET position = :position WHERE name = :name")
_FINISH = text("DELETE FROM backfills WHERE name = :name")
_DROP = text(
    "DELETE FROM unsuccessful_executions WHERE id IN (SELECT u.id FROM unsuccessful_executions AS u "
    "WHERE u.id < :first_kept AND NOT EXISTS (SELECT FROM workflow_executions AS e WHERE e.id = u.id) "
    "ORDER BY u.id LIMIT :limit)"
)


async def is_whole(connection: AsyncConnection) -> bool:
    """Whether all that ended otherwise than well is there."""
    return (await connection.execute(_POSITION, {"name": NAME})).scalar_one_or_none() is None


async def fill(connection: AsyncConnection) -> bool:
    """Add a part of what ended before the trigger was there; whether there is more to add."""
    position = (await connection.execute(_TAKE, {"name": NAME})).scalar_one_or_none()
    if position is None:
        return False
    part = (await connection.execute(_FILL, {"position": position, "limit": MOST_ROWS})).one()
    if part.number < MOST_ROWS:
        await connection.execute(_FINISH, {"name": NAME})
        return False
    await connection.execute(_MOVE, {"name": NAME, "position": part.position})
    return True


async def drop_orphans(connection: AsyncConnection, before: datetime) -> int:
    """Delete a part of the rows from before a moment whose executions went with their week; how many."""
    values = {"first_kept": first_id_at(before), "limit": MOST_ROWS}
    return (await connection.execute(_DROP, values)).rowcount
