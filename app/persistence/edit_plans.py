"""Plans of edits: for which version of which schedule each was made, and for which change."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.persistence import schedule_selections
from app.persistence.calendars import StoredCalendar, version_prefix
from app.persistence.schedule_filters import NO_FILTERS
from app.persistence.schedule_selections import Selection
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


async def some_using(connection: AsyncConnection, reach: Reach, calendar: StoredCalendar, limit: int) -> list[UUID]:
    """Return some of the schedules that use a calendar, in no order."""
    ids: list[UUID] = []
    for selection in await schedule_selections.selections(connection, reach, NO_FILTERS):
        uses, values = _uses(calendar, selection)
        # Those that fire first: a change of a calendar does nothing to the others.
        order = "ORDER BY j.status = 'active' DESC"
        sql = f"SELECT j.id FROM {selection.source} WHERE {selection.condition} AND {uses} {order} LIMIT {limit:d}"  # noqa: S608
        ids += [row["id"] for row in await fetch(connection, sql, *values)]
    return ids[:limit]


async def count_using(connection: AsyncConnection, reach: Reach, calendar: StoredCalendar) -> int:
    """Return how many schedules use a calendar, of those within reach."""
    number = 0
    for selection in await schedule_selections.selections(connection, reach, NO_FILTERS):
        uses, values = _uses(calendar, selection)
        sql = f"SELECT count(*) FROM {selection.source} WHERE {selection.condition} AND {uses}"  # noqa: S608
        number += (await fetch(connection, sql, *values))[0]["count"]
    return number


def _uses(calendar: StoredCalendar, selection: Selection) -> tuple[str, tuple[Any, ...]]:
    """Return the condition that a schedule of a selection uses a calendar, and the values of both."""
    name, version = (f"${len(selection.values) + number}" for number in (1, 2))
    versions = "j.calendar_versions"
    uses = f"{versions} <> '{{}}' AND {versions} ? {name} AND starts_with({versions} ->> {name}, {version})"
    return uses, (*selection.values, calendar.name, version_prefix(calendar))
