"""Schedules that fire in equal patterns, counted together, and how long runs took lately."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from math import gcd
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.domain.forecasts import Buckets, GroupBy
from app.domain.run_ids import first_id_at
from app.persistence import schedule_selections
from app.persistence.schedule_filters import Filters
from app.persistence.schedule_selections import Selection
from app.persistence.sql_batches import fetch

# More groups than this take too long: then phases are compared by whole buckets.
MOST_GROUPS = 20_000
# With so many schedules with a jitter, each is forecast by itself; with more, all of them together on average.
MOST_JITTERED = 2_000
# Schedules whose pause ends within a forecast are few, and are forecast one by one.
MOST_RETURNING = 1_000
# Schedules with slots to leave out are forecast one by one, too.
MOST_SKIPPING = 2_000
# Durations are those of the newest runs of so many workflows, and of so many days.
MOST_WORKFLOWS = 1_000
MOST_RUNS = 20
DURATION_DAYS = 7
_MICROSECOND = timedelta(microseconds=1)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules whose fires fall into the same buckets."""

    # The workflow, the owner or the hosts that the forecast is told apart by.
    key: Any
    count: int
    jitter_seconds: int
    # Of all its schedules together, for each time that they fire.
    busy_seconds: float
    # Some of its schedules; the first one stands for all.
    ids: tuple[UUID, ...]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules are counted, and how they are grouped."""

    reach: Reach
    filters: Filters
    buckets: Buckets
    by: GroupBy | None = None
    # Schedules that are not counted.
    without: Collection[UUID] = ()
    # How many ids of each group are returned; of one with a jitter more, as its schedules differ.
    most_ids: int = 1
    # How long the runs of workflows take, in seconds.
    durations: Mapping[int, float] = {}


_KEYS: dict[GroupBy | None, str] = {
    GroupBy.WORKFLOW: "j.workflow_id",
    GroupBy.OWNER: "j.user_profile_id",
    GroupBy.HOST: "(SELECT w.target_hosts FROM workflows AS w WHERE w.id = j.workflow_id)",
}
_NO_KEY = "NULL::int"
# What is read of a schedule. JSON takes long to compare, so that each comparison is made once: OFFSET 0 keeps Postgres
# from repeating it wherever its result is used.
_READ = (
    "SELECT j.id, j.workflow_id, j.user_profile_id, j.interval_seconds, j.every, j.cron, j.rrule, j.at, j.after, "
    "j.timezone, j.only_between, j.not_on, j.exclude_calendars, j.only_calendars, j.calendar_versions, "
    "j.jitter_seconds, j.total_repeats, j.current_repeat, j.end_at, j.cadence_slot, j.anchor_at, "
    "j.not_on <> '[]'::jsonb AS has_days, "
    "(j.exclude_calendars <> '[]'::jsonb OR j.only_calendars <> '[]'::jsonb) AS has_calendars"
)
_HAS_HOURS = "(j.only_between IS NOT NULL OR j.has_days)"
_HAS_CALENDARS = "j.has_calendars"
_IS_ONCE = "(j.at IS NOT NULL OR j.after IS NOT NULL)"
# The excluded weekdays and the calendars; null for most schedules, as their values take long to compare.
_DAYS = (
    f"CASE WHEN j.has_days OR {_HAS_CALENDARS} "
    "THEN ROW(j.not_on, j.exclude_calendars, j.only_calendars, j.calendar_versions)::text END"
)
# How many repeats are left of schedules that end after some.
_LEFT = (
    f"CASE WHEN j.total_repeats > 0 AND NOT {_IS_ONCE} "
    "THEN j.total_repeats - j.current_repeat - coalesce(r.runs, 0) END"
)
_RUNS = (
    "LEFT JOIN (SELECT a.scheduled_job_id, count(*) AS runs FROM active_executions AS a WHERE a.trigger <> 'manual' "
    "GROUP BY a.scheduled_job_id) AS r ON r.scheduled_job_id = j.id"
)
# Until the transaction ends. Almost every row is read once, and few groups come of them: hashed in one pass over the
# table that takes a tenth of the time of a sort of all rows.
_SETTINGS = (
    "enable_seqscan = on",
    "enable_hashjoin = on",
    "enable_sort = off",
    # Rows by workflow or by owner come in order from an index, and would be sorted in parts.
    "enable_incremental_sort = off",
    "work_mem = '64MB'",
)


async def groups(connection: AsyncConnection, wanted: Wanted, *, coarse: bool = False) -> list[Group] | None:
    """Return the active schedules with a slot before the end, in groups of equal patterns.

    Slots of two schedules with the same interval fall into the same buckets if their distances from the beginning,
    divided by the greatest common divisor of interval and bucket, have the same whole part. ``coarse`` divides by the
    bucket instead: fewer groups, and a fire near the end of a bucket may be counted in the next one. Return None if
    there are too many groups.
    """
    for setting in _SETTINGS:
        await connection.execute(text(f"SET LOCAL {setting}"))
    found: list[Group] = []
    for selection in await schedule_selections.selections(connection, wanted.reach, wanted.filters):
        rows = await fetch(connection, *_query(selection, wanted, coarse=coarse))
        found += [_group(row) for row in rows]
        if len(found) > MOST_GROUPS and not coarse:
            return None
    return found


def _group(row: Any) -> Group:
    return Group(
        key=row["key"],
        count=row["count"],
        jitter_seconds=row["jitter_seconds"],
        busy_seconds=row["busy"],
        ids=tuple(row["ids"]),
    )


def _query(selection: Selection, wanted: Wanted, *, coarse: bool) -> tuple[Any, ...]:
    """Return the query, and the values of its parameters."""
    first = len(selection.values) + 1
    since, until, bucket, aligned, without, workflow_ids, seconds = (f"${first + k}" for k in range(7))
    # In whole microseconds, as a float: numbers of any precision would take most of the time.
    offset = f"round(date_part('epoch', j.cadence_slot - {since}) * 1000000)"
    whole = f"gcd((j.interval_seconds * 1000000)::bigint, {bucket}::bigint)"
    # Hours begin at whole minutes: slots of two schedules must be on the same side of them.
    grain = f"CASE WHEN {_HAS_HOURS} THEN gcd({whole}, {aligned}::bigint) ELSE {whole} END"
    # Entries of calendars begin at any moment.
    is_even = f"(j.interval_seconds IS NOT NULL AND (j.end_at IS NULL OR j.end_at >= {until}) AND NOT {_HAS_CALENDARS})"
    # What decides about the buckets: the phase of intervals, the bucket of single slots, the next slot of all others.
    phase = f"CASE WHEN {is_even} THEN floor({offset} / ({grain})) WHEN {_IS_ONCE} THEN floor({offset} / {bucket}) END"
    moment = f"CASE WHEN NOT {is_even} AND NOT {_IS_ONCE} THEN j.cadence_slot END"
    anchor = "CASE WHEN j.every IS NOT NULL THEN j.anchor_at END"
    if coarse:
        phase, moment, anchor = f"floor({offset} / {bucket})", "NULL::timestamptz", "NULL::timestamptz"
    schedules = (
        f"{_READ} FROM {selection.source} WHERE {selection.condition} AND j.status = 'active' "
        f"AND j.cadence_slot < {until} AND j.id <> ALL({without}::uuid[]) OFFSET 0"
    )
    inner = (
        f"SELECT j.id, {_KEYS.get(wanted.by, _NO_KEY)} AS key, j.interval_seconds, j.every, j.cron, j.rrule, "  # noqa: S608
        f"j.timezone, j.only_between, {_DAYS} AS days, j.jitter_seconds, {_IS_ONCE} AS once, {_LEFT} AS repeats, "
        f"CASE WHEN j.end_at < {until} THEN j.end_at END AS ends, {phase} AS phase, {moment} AS moment, "
        f"{anchor} AS anchor, coalesce(d.seconds, 0) AS seconds FROM ({schedules}) AS j {_RUNS} "
        f"LEFT JOIN unnest({workflow_ids}::int[], {seconds}::float8[]) AS d(workflow_id, seconds) "
        "ON d.workflow_id = j.workflow_id"
    )
    # The schedules of a group with a jitter differ: more of them are needed.
    most = f"CASE WHEN jitter_seconds > 0 THEN {MOST_JITTERED:d} ELSE {wanted.most_ids:d} END"
    keys = (
        "key, jitter_seconds, interval_seconds, every, cron, rrule, timezone, only_between, days, once, repeats, "
        "ends, phase, moment, anchor"
    )
    sql = (
        f"SELECT key, jitter_seconds, count(*) AS count, sum(seconds)::float8 AS busy, "  # noqa: S608
        f"(array_agg(id))[1:{most}] AS ids FROM ({inner}) AS q GROUP BY {keys} "
        f"LIMIT {MOST_GROUPS * (10 if coarse else 1) + 1:d}"
    )
    buckets = wanted.buckets
    return (
        sql,
        *selection.values,
        buckets.since,
        buckets.until,
        buckets.length // _MICROSECOND,
        _alignment(buckets.since),
        list(wanted.without),
        list(wanted.durations),
        list(wanted.durations.values()),
    )


async def returning(connection: AsyncConnection, reach: Reach, filters: Filters, until: datetime) -> list[UUID]:
    """Return the paused schedules whose pause ends by itself before a moment, at most ``MOST_RETURNING``."""
    ids: list[UUID] = []
    for selection in await schedule_selections.selections(connection, reach, filters):
        rows = await fetch(
            connection,
            f"SELECT j.id FROM {selection.source} WHERE {selection.condition} AND j.status = 'paused' "  # noqa: S608
            f"AND j.paused_until < ${len(selection.values) + 1} LIMIT {MOST_RETURNING:d}",
            *selection.values,
            until,
        )
        ids += [row["id"] for row in rows]
    return ids[:MOST_RETURNING]


async def skipping(connection: AsyncConnection, reach: Reach, filters: Filters, until: datetime) -> list[UUID]:
    """Return the active schedules with slots to leave out before a moment, at most one more than ``MOST_SKIPPING``."""
    ids: list[UUID] = []
    for selection in await schedule_selections.selections(connection, reach, filters):
        rows = await fetch(
            connection,
            f"SELECT j.id FROM {selection.source} WHERE {selection.condition} AND j.status = 'active' "  # noqa: S608
            "AND j.has_skips AND j.id IN (SELECT s.scheduled_job_id FROM slot_skips AS s "
            f"WHERE s.slot < ${len(selection.values) + 1}) LIMIT {MOST_SKIPPING + 1:d}",
            *selection.values,
            until,
        )
        ids += [row["id"] for row in rows]
    return ids[: MOST_SKIPPING + 1]


def _alignment(since: datetime) -> int:
    """Return a length in microseconds, at most a minute, of which both minutes and the beginning are multiples."""
    return gcd(60_000_000, (since.second * 1_000_000 + since.microsecond))


_DURATIONS = (
    "SELECT w.id, d.seconds FROM (SELECT w.id FROM workflows AS w "  # noqa: S608 - made of constants
    "WHERE $1::int[] IS NULL OR w.user_profile_id = ANY($1) "
    f"ORDER BY w.id DESC LIMIT {MOST_WORKFLOWS}) AS w CROSS JOIN LATERAL (SELECT "
    "avg(extract(epoch FROM r.finished_at - r.started_at))::float8 AS seconds FROM (SELECT e.started_at, e.finished_at "
    "FROM workflow_executions AS e WHERE e.workflow_id = w.id AND e.id >= $2 AND e.started_at IS NOT NULL "
    f"AND e.finished_at IS NOT NULL ORDER BY e.id DESC LIMIT {MOST_RUNS}) AS r) AS d WHERE d.seconds IS NOT NULL"
)


async def durations(connection: AsyncConnection, reach: Reach) -> dict[int, float]:
    """Return how long the newest runs of workflows took on average, in seconds."""
    (now,) = (await fetch(connection, "SELECT clock_timestamp()"))[0]
    owners = None if reach.owners is None else list(reach.owners)
    rows = await fetch(connection, _DURATIONS, owners, first_id_at(now - timedelta(days=DURATION_DAYS)))
    return {row["id"]: row["seconds"] for row in rows}
