"""Plans of edits: for which version of which schedule each was made, and for which change."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.domain.schedules import Status
from app.persistence import schedule_selections
from app.persistence.calendars import StoredCalendar, version_prefix
from app.persistence.schedule_filters import NO_FILTERS, Filters
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


async def some_matching(
    connection: AsyncConnection, reach: Reach, filters: Filters, status: Status | None, limit: int
) -> list[UUID]:
    """Return some of the schedules that match, of this status if one is named, in no order."""
    condition = "($1::text IS NULL OR j.status = $1)"
    return await _some(connection, reach, filters, condition, (status,), limit)


_USES = "j.calendar_versions <> '{}' AND j.calendar_versions ? $1 AND starts_with(j.calendar_versions ->> $1, $2)"


async def some_using(connection: AsyncConnection, reach: Reach, calendar: StoredCalendar, limit: int) -> list[UUID]:
    """Return some of the schedules that use a calendar, in no order."""
    return await _some(connection, reach, NO_FILTERS, _USES, (calendar.name, version_prefix(calendar)), limit)


async def count_using(connection: AsyncConnection, reach: Reach, calendar: StoredCalendar) -> int:
    """Return how many schedules use a calendar, of those within reach."""
    number = 0
    for selection in await schedule_selections.selections(connection, reach, NO_FILTERS):
        numbered = _renumbered(_USES, len(selection.values))
        sql = f"SELECT count(*) FROM {selection.source} WHERE {selection.condition} AND {numbered}"  # noqa: S608
        values = (*selection.values, calendar.name, version_prefix(calendar))
        number += (await fetch(connection, sql, *values))[0]["count"]
    return number


async def _some(
    connection: AsyncConnection, reach: Reach, filters: Filters, condition: str, values: Sequence[Any], limit: int
) -> list[UUID]:
    """Return schedules that match and that fulfil a condition, whose parameters are numbered from 1 on."""
    ids: list[UUID] = []
    for selection in await schedule_selections.selections(connection, reach, filters):
        numbered = _renumbered(condition, len(selection.values))
        sql = f"SELECT j.id FROM {selection.source} WHERE {selection.condition} AND {numbered} LIMIT {limit:d}"  # noqa: S608
        ids += [row["id"] for row in await fetch(connection, sql, *selection.values, *values)]
    return ids[:limit]


def _renumbered(condition: str, by: int) -> str:
    return re.sub(r"\$(\d)", lambda number: f"${by + int(number[1])}", condition)
