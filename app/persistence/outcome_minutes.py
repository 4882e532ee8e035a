"""Figures by minute: derived from executions and ledger entries by housekeeping, and read for charts.

The ids of executions begin with the time of their slots, so those of a minute are a range of the primary key.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.domain.figures import AGES, BUCKETS_PER_DOUBLING, MINUTE, earlier_minutes, new_minutes
from app.domain.run_ids import first_id_at
from app.persistence.sql_batches import fetch

# A process that looks sooner than this after another one derives nothing.
FRESH_SECONDS = 30
# How many older minutes are derived again in one go.
MOST_AGAIN = 10
MOST_DELETED = 10_000

_IS_TOTAL = "user_profile_id = 0 AND workflow_id = 0"
_NEWEST = (
    "SELECT minute, derived_at, clock_timestamp() AS now FROM outcome_minutes "  # noqa: S608 - made of constants
    f"WHERE {_IS_TOTAL} ORDER BY minute DESC LIMIT 1"
)
_OLDEST = f"SELECT minute FROM outcome_minutes WHERE {_IS_TOTAL} ORDER BY minute LIMIT 1"  # noqa: S608
_DUE_AGAIN = (
    f"SELECT minute FROM outcome_minutes WHERE {_IS_TOTAL} AND minute > $1 AND EXISTS (SELECT "  # noqa: S608
    "FROM unnest($2::interval[]) AS ages(age) WHERE minute + age <= $3 AND derived_at < minute + age) "
    "ORDER BY minute LIMIT $4"
)
# One process at a time: two that derive the same minute would insert its rows twice.
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('outcome_minutes', 1))")
_CLEAR = "DELETE FROM outcome_minutes WHERE minute = $1"
_LEVELS = (
    "GROUPING SETS (({0}), (owner, {0}), (owner, workflow, {0})) HAVING GROUPING(workflow) = 1 OR workflow IS NOT NULL"
)
# Lateness is that of first attempts by the clock. The due times of schedules with jitter are not stored.
_DERIVE = f"""
WITH runs AS (
    SELECT e.user_profile_id AS owner, e.workflow_id AS workflow, coalesce(e.unrun_outcome, e.status) AS outcome,
        CASE WHEN e.retry_attempt = 0 AND e.trigger IN ('schedule', 'cron', 'entity') AND coalesce(j.jitter_seconds, 0) = 0
        THEN greatest(extract(epoch FROM e.started_at - e.scheduled_for) * 1000, 0)::float END AS late
    FROM workflow_executions AS e LEFT JOIN scheduled_jobs AS j ON j.id = e.scheduled_job_id
    WHERE e.id >= $2 AND e.id < $3 AND e.finished_at IS NOT NULL
), counted AS (
    SELECT owner, workflow, outcome, count(*) AS number FROM runs GROUP BY 1, 2, 3
    UNION ALL
    SELECT j.user_profile_id, j.workflow_id, l.outcome, sum(l.slot_count) FROM ledger_entries AS l
    JOIN scheduled_jobs AS j ON j.id = l.scheduled_job_id
    WHERE l.first_slot >= $1 AND l.first_slot < $1 + interval '1 minute' GROUP BY 1, 2, 3
), bucketed AS (
    SELECT owner, workflow, CASE WHEN late < 1 THEN 0 ELSE floor({BUCKETS_PER_DOUBLING} * ln(late) / ln(2))::int + 1 END
        AS bucket FROM runs WHERE late IS NOT NULL
), summed AS (
    SELECT 'outcome' AS kind, owner, workflow, outcome AS name, sum(number)::bigint AS number FROM counted
    GROUP BY {_LEVELS.format("outcome")}
    UNION ALL
    SELECT 'late', owner, workflow, bucket::text, count(*) FROM bucketed GROUP BY {_LEVELS.format("bucket")}
    UNION ALL
    SELECT 'none', NULL, NULL, '', 0
)
INSERT INTO outcome_minutes (user_profile_id, workflow_id, minute, outcomes, lateness)
SELECT coalesce(owner, 0), coalesce(workflow, 0), $1,
    coalesce(jsonb_object_agg(name, number) FILTER (WHERE kind = 'outcome'), '{{}}'),
    coalesce(jsonb_object_agg(name, number) FILTER (WHERE kind = 'late'), '{{}}')
FROM summed GROUP BY 1, 2
"""  # noqa: E501, S608 - made of constants
_DELETE_OLD = (
    "DELETE FROM outcome_minutes WHERE (user_profile_id, workflow_id, minute) IN "
    "(SELECT user_profile_id, workflow_id, minute FROM outcome_minutes WHERE minute < $1 ORDER BY minute LIMIT $2) "
    "RETURNING minute"
)


class Figures(msgspec.Struct, frozen=True):
    """The counts of a step of time: what became of its slots, or how late its runs were, by bucket."""

    at: datetime
    counts: dict[str, int]


async def due_minutes(connection: AsyncConnection, now: datetime) -> list[datetime]:
    """Return the minutes that have to be derived now, oldest first; none if another process has just done so."""
    rows = await fetch(connection, _NEWEST)
    if not rows:
        return new_minutes(None, now)
    newest = rows[0]
    if newest["now"] - newest["derived_at"] < timedelta(seconds=FRESH_SECONDS) and newest["minute"] + MINUTE > now:
        return []
    again = await fetch(connection, _DUE_AGAIN, now - AGES[-1] * 2, list(AGES), now, MOST_AGAIN)
    earlier = earlier_minutes((await fetch(connection, _OLDEST))[0]["minute"], now)
    return sorted({row["minute"] for row in again} | set(new_minutes(newest["minute"], now)) | set(earlier))


async def derive(connection: AsyncConnection, minute: datetime) -> None:
    """Replace the figures of a minute by what executions and ledger say now."""
    await connection.execute(_LOCK)
    await fetch(connection, _CLEAR, minute)
    await fetch(connection, _DERIVE, minute, first_id_at(minute), first_id_at(minute + MINUTE))


async def delete_before(connection: AsyncConnection, moment: datetime) -> int:
    """Delete some of the figures from before a moment. Return how many."""
    return len(await fetch(connection, _DELETE_OLD, moment, MOST_DELETED))


async def outcomes(
    connection: AsyncConnection, reach: Reach, since: datetime, until: datetime, step_seconds: int
) -> list[Figures]:
    """Return what became of slots within reach, by steps of time, oldest first."""
    return await _read(connection, "outcomes", reach, (since, until, step_seconds))


async def lateness(
    connection: AsyncConnection, reach: Reach, since: datetime, until: datetime, step_seconds: int
) -> list[Figures]:
    """Return how many runs within reach were how late, by steps of time, oldest first."""
    return await _read(connection, "lateness", reach, (since, until, step_seconds))


async def _read(
    connection: AsyncConnection, column: str, reach: Reach, span: tuple[datetime, datetime, int]
) -> list[Figures]:
    condition, values = _within(reach)
    rows = await fetch(
        connection,
        "SELECT to_timestamp(floor(extract(epoch FROM minute) / $3) * $3) AS at, name, sum(number::bigint)::bigint AS number "  # noqa: E501, S608
        f"FROM outcome_minutes CROSS JOIN LATERAL jsonb_each_text({column}) AS one(name, number) "
        f"WHERE minute >= $1 AND minute < $2 AND {condition} GROUP BY 1, 2 ORDER BY 1",
        *span,
        *values,
    )
    found: dict[datetime, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["at"], {})[row["name"]] = row["number"]
    return [Figures(at, counts) for at, counts in found.items()]


def _within(reach: Reach) -> tuple[str, list[Any]]:
    """Return the condition for the rows that hold the figures of what is within reach."""
    if reach.owners is None and reach.workflow_ids is None:
        return _IS_TOTAL, []
    if reach.workflow_ids is None:
        return "workflow_id = 0 AND user_profile_id = ANY($4::int[])", [list(reach.owners or ())]
    if reach.owners is None:
        return "workflow_id = ANY($4::int[])", [list(reach.workflow_ids)]
    condition = "workflow_id = ANY($4::int[]) AND user_profile_id = ANY($5::int[])"
    return condition, [list(reach.workflow_ids), list(reach.owners)]
