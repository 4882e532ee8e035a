"""Search over schedules and workflows: by parts of names, keys and target hosts, and by beginnings of ids."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.persistence.schedule_lists import containing, escaped
from app.persistence.sql_batches import fetch

_ID_DIGITS = 32
# Shorter ones are words and numbers more often than ids.
_ID_BEGINNING = re.compile(r"[0-9a-f]{6,32}")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a search has found, and the field that matches."""

    type: str
    id: str
    name: str
    status: str
    match: str


# What begins with the text comes first, then what contains it; newest first among equals.
_SCHEDULES = """
SELECT j.id::text AS id, j.name, j.status, CASE WHEN j.id BETWEEN $2 AND $8 THEN 'id' WHEN j.name ILIKE $1 THEN 'name'
    WHEN j.key ILIKE $1 THEN 'key' ELSE 'target_host' END AS match
FROM scheduled_jobs AS j
WHERE (j.name ILIKE $1 OR j.key ILIKE $1 OR j.id BETWEEN $2 AND $8
    OR j.workflow_id IN (SELECT w.id FROM workflows AS w WHERE w.target_hosts ILIKE $1))
    AND ($3::int[] IS NULL OR j.user_profile_id = ANY($3)) AND ($4::int[] IS NULL OR j.workflow_id = ANY($4))
    AND j.labels @> $6::text::jsonb AND ($7::text = '' OR EXISTS (SELECT FROM managed_schedules AS m
        WHERE m.namespace = $7 AND m.scheduled_job_id = j.id))
ORDER BY j.created_at DESC, j.id DESC LIMIT $5
"""
_WORKFLOWS = """
SELECT w.id::text AS id, w.name, CASE WHEN w.active THEN 'active' ELSE 'inactive' END AS status,
    CASE WHEN w.id = $2 THEN 'id' WHEN w.name ILIKE $1 THEN 'name' WHEN w.key ILIKE $1 THEN 'key'
    ELSE 'target_host' END AS match
FROM workflows AS w
WHERE (w.name ILIKE $1 OR w.key ILIKE $1 OR w.target_hosts ILIKE $1 OR w.id = $2)
    AND ($3::int[] IS NULL OR w.user_profile_id = ANY($3)) AND ($4::int[] IS NULL OR w.id = ANY($4))
    AND w.labels @> $6::text::jsonb AND ($7::text = '' OR EXISTS (SELECT FROM managed_workflows AS m
        WHERE m.namespace = $7 AND m.workflow_id = w.id))
ORDER BY w.id DESC LIMIT $5
"""


async def search(connection: AsyncConnection, reach: Reach, wanted: str, limit: int) -> list[Found]:
    """Return some of the schedules and workflows within reach that match a text."""
    await connection.execute(text("SET LOCAL plan_cache_mode = force_custom_plan"))
    owners = None if reach.owners is None else list(reach.owners)
    flows = None if reach.workflow_ids is None else list(reach.workflow_ids)
    common = (owners, flows, limit, msgspec.json.encode(dict(reach.labels)).decode(), reach.namespace)
    first, last = id_range(wanted)
    found: dict[tuple[str, str], Found] = {}
    # Whole names by themselves: among many newer objects that contain the text they would be left out.
    for pattern in (escaped(wanted), containing(wanted)):
        schedules = await fetch(connection, _SCHEDULES, pattern, first, *common, last)
        workflows = await fetch(connection, _WORKFLOWS, pattern, _number(wanted), *common)
        for one in (*_found("schedule", schedules), *_found("workflow", workflows)):
            found.setdefault((one.type, one.id), one)
    lowered = wanted.lower()
    # Stable: the newest stay first among equals.
    return sorted(found.values(), key=lambda one: _rank(one, lowered))[:limit]


def _rank(found: Found, lowered: str) -> int:
    """Return how well an object fits: by its id or whole name, by the beginning of its name, or otherwise."""
    name = found.name.lower()
    if found.match == "id" or name == lowered:
        return 0
    return 1 if name.startswith(lowered) else 2


def _found(kind: str, rows: Sequence[Any]) -> list[Found]:
    return [Found(type=kind, **dict(row)) for row in rows]


def id_range(wanted: str) -> tuple[UUID | None, UUID | None]:
    """Return the first and the last id that begin with a text, or nothing if it is not the beginning of an id."""
    digits = wanted.strip().lower().replace("-", "")
    if not _ID_BEGINNING.fullmatch(digits):
        return None, None
    return UUID(digits.ljust(_ID_DIGITS, "0")), UUID(digits.ljust(_ID_DIGITS, "f"))


def _number(wanted: str) -> int | None:
    return int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else None  # noqa: PLR2004
