"""Plans of edits: for which version of which schedule each was made, and for which change."""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence.sql_batches import fetch

# How many old plans are deleted when one is added.
MOST_DELETED = 100

_ADD = (
    "INSERT INTO edit_plans (id, scheduled_job_id, user_profile_id, tag, changes) "
    "VALUES ($1, $2, $3, $4, $5::text::jsonb) RETURNING created_at"
)
_DROP = (
    "DELETE FROM edit_plans WHERE id IN (SELECT id FROM edit_plans WHERE created_at < clock_timestamp() - $1::interval "
    "ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)"
)
_GET = (
    "SELECT tag, changes::text AS changes FROM edit_plans WHERE id = $1 AND scheduled_job_id = $2 "
    "AND created_at >= clock_timestamp() - $3::interval"
)


class StoredPlan(msgspec.Struct, frozen=True):
    """What an edit has to fit: the entity tag of the schedule, and a digest of each new value."""

    tag: str
    # None for a plan that an older release has stored.
    changes: dict[str, str] | None


async def add(
    connection: AsyncConnection, plan_id: UUID, job_id: UUID, user_id: int, plan: StoredPlan, lifetime: timedelta
) -> datetime:
    """Store a plan, and delete some that are older than ``lifetime``. Return when it was stored."""
    await fetch(connection, _DROP, lifetime, MOST_DELETED)
    rows = await fetch(connection, _ADD, plan_id, job_id, user_id, plan.tag, msgspec.json.encode(plan.changes).decode())
    created_at: datetime = rows[0]["created_at"]
    return created_at


async def get(connection: AsyncConnection, plan_id: UUID, job_id: UUID, lifetime: timedelta) -> StoredPlan | None:
    """Return a plan of this schedule that is not older than ``lifetime``, or None."""
    rows = await fetch(connection, _GET, plan_id, job_id, lifetime)
    if not rows:
        return None
    changes = rows[0]["changes"]
    return StoredPlan(rows[0]["tag"], None if changes is None else msgspec.json.decode(changes, type=dict[str, str]))
