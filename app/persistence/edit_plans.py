"""Plans of edits: for which version of which schedule each was made."""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence.sql_batches import fetch

# How many old plans are deleted when one is added.
MOST_DELETED = 100

_ADD = (
    "INSERT INTO edit_plans (id, scheduled_job_id, user_profile_id, tag) VALUES ($1, $2, $3, $4) RETURNING created_at"
)
_DROP = (
    "DELETE FROM edit_plans WHERE id IN (SELECT id FROM edit_plans WHERE created_at < clock_timestamp() - $1::interval "
    "ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)"
)
_TAG = (
    "SELECT tag FROM edit_plans WHERE id = $1 AND scheduled_job_id = $2 "
    "AND created_at >= clock_timestamp() - $3::interval"
)


async def add(
    connection: AsyncConnection, plan_id: UUID, job_id: UUID, user_id: int, tag: str, lifetime: timedelta
) -> datetime:
    """Store a plan, and delete some that are older than ``lifetime``. Return when it was stored."""
    await fetch(connection, _DROP, lifetime, MOST_DELETED)
    rows = await fetch(connection, _ADD, plan_id, job_id, user_id, tag)
    created_at: datetime = rows[0]["created_at"]
    return created_at


async def tag_of(connection: AsyncConnection, plan_id: UUID, job_id: UUID, lifetime: timedelta) -> str | None:
    """Return the tag of the schedule for which a plan was made; None if there is no such plan of this schedule."""
    rows = await fetch(connection, _TAG, plan_id, job_id, lifetime)
    return rows[0]["tag"] if rows else None
