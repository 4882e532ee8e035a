"""Search over schedules and workflows: by parts of names, keys and target hosts, and by beginnings of ids."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.persistence.schedule_filters import SHORT, TEXTS, containing, escaped, is_rare, is_short
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
# Each way to match is a query of its own, answered by its index: a plan for all of them would read every schedule.
_SCHEDULE = "SELECT j.id::text AS id, j.name, j.status, {match} AS match, j.created_at FROM scheduled_jobs AS j WHERE "
_IN_REACH = """
    AND ($2::int[] IS NULL OR j.user_profile_id = ANY($2)) AND ($3::int[] IS NULL OR j.workflow_id = ANY($3))
    AND ($5::text = '{}' OR j.labels @> $5::text::jsonb) AND $6::text IS NOT NULL
ORDER BY j.created_at DESC, j.id DESC LIMIT $4
"""
_BY_NAME = _SCHEDULE.format(match="'name'") + 'lower(j.name) COLLATE "C" = lower($1::text) COLLATE "C"' + _IN_REACH
_BY_TEXT = (
    _SCHEDULE.format(match="CASE WHEN j.name ILIKE $1 THEN 'name' ELSE 'key' END").replace("scheduled_jobs AS j", TEXTS)
    + "t.searched LIKE lower($1::text) AND (j.name ILIKE $1 OR j.key ILIKE $1)"
    + _IN_REACH
)
# All that contain a text that few contain, found before anything else: no plan then looks for it in order.
_RARE = (
    f"(SELECT t.id FROM schedule_texts AS t WHERE {SHORT.format('$1')} "  # noqa: S608
    "AND ($2::int[] IS NULL OR t.user_profile_id = ANY($2)) OFFSET 0) AS t JOIN scheduled_jobs AS j ON j.id = t.id"
)
_BY_RARE_TEXT = (
    _SCHEDULE.format(match="CASE WHEN strpos(lower(j.name), lower($1::text)) > 0 THEN 'name' ELSE 'key' END").replace(
        "scheduled_jobs AS j", _RARE
    )
    + "TRUE"
    + _IN_REACH
)
_BY_ID = _SCHEDULE.format(match="'id'") + "j.id BETWEEN ($1::uuid[])[1] AND ($1::uuid[])[2]" + _IN_REACH
_BY_WORKFLOW = _SCHEDULE.format(match="'target_host'") + "j.workflow_id = ANY($1::int[])" + _IN_REACH
# Not as one of two alternatives in each query: then the namespace would be looked up for every schedule.
_OF_NAMESPACE = (
    "AND j.id IN (SELECT m.scheduled_job_id FROM managed_schedules AS m WHERE m.namespace = $6::text) ORDER BY"
)
# So many workflows that call a host are looked at, the newest.
MOST_WORKFLOWS = 1000
_CALLING = (
    "SELECT w.id FROM workflows AS w WHERE w.target_hosts ILIKE $1 "
    "AND ($2::int[] IS NULL OR w.user_profile_id = ANY($2)) "
    "AND ($3::int[] IS NULL OR w.id = ANY($3)) ORDER BY w.id DESC LIMIT $4"
)
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
    schedules = await _schedules(connection, wanted, common)
    # Whole names by themselves: among many newer objects that contain the text they would be left out.
    workflows = [
        *await fetch(connection, _WORKFLOWS, escaped(wanted), _number(wanted), *common),
        *await fetch(connection, _WORKFLOWS, containing(wanted), _number(wanted), *common),
    ]
    found = {(one.type, one.id): one for one in (*_found("schedule", schedules), *_found("workflow", workflows))}
    lowered = wanted.lower()
    # Stable: the newest stay first among equals.
    return sorted(found.values(), key=lambda one: _rank(one, lowered))[:limit]


async def _schedules(connection: AsyncConnection, wanted: str, common: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return the schedules that match in one way or another, newest first, each with the first way."""
    pattern, ids = containing(wanted), id_range(wanted)

    async def matching(sql: str, value: Any) -> list[Any]:
        return await fetch(connection, sql.replace("ORDER BY", _OF_NAMESPACE) if common[-1] else sql, value, *common)

    rows = [] if ids is None else await matching(_BY_ID, list(ids))
    rows += await matching(_BY_NAME, wanted)
    if is_short(wanted) and await is_rare(connection, wanted):
        rows += await matching(_BY_RARE_TEXT, wanted)
    else:
        rows += await matching(_BY_TEXT, pattern)
    calling = [row["id"] for row in await fetch(connection, _CALLING, pattern, *common[:2], MOST_WORKFLOWS)]
    if calling:
        rows += await matching(_BY_WORKFLOW, calling)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["id"], dict(row))
    newest = sorted(found.values(), key=lambda one: one["created_at"], reverse=True)
    return [{name: value for name, value in one.items() if name != "created_at"} for one in newest]


def _rank(found: Found, lowered: str) -> int:
    """Return how well an object fits: by its id or whole name, by the beginning of its name, or otherwise."""
    name = found.name.lower()
    if found.match == "id" or name == lowered:
        return 0
    return 1 if name.startswith(lowered) else 2


def _found(kind: str, rows: Sequence[Any]) -> list[Found]:
    return [Found(type=kind, **dict(row)) for row in rows]


def id_range(wanted: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last id that begin with a text, or None if it is not the beginning of an id."""
    digits = wanted.strip().lower().replace("-", "")
    if not _ID_BEGINNING.fullmatch(digits):
        return None
    return UUID(digits.ljust(_ID_DIGITS, "0")), UUID(digits.ljust(_ID_DIGITS, "f"))


def _number(wanted: str) -> int | None:
    return int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else None  # noqa: PLR2004
