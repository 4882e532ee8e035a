"""Permits of limits: runs and calls enter buckets and wait; whoever holds the lock of a bucket gives permits.

The order of locks is buckets, permits, executions. A claim enters new runs without a lock of the bucket.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import PendingRun
from app.domain.limits import NO_QUOTAS, OwnerQuotas, Quota
from app.domain.permits import (
    Bounds,
    Bucket,
    Grants,
    LimitUse,
    PermitHolder,
    QuotaUse,
    Waiter,
    grant,
    in_turn,
    parse_rate,
    quota_bounds,
)
from app.persistence.database import database_now
from app.persistence.sql_batches import fetch

# Waiting runs of a bucket that are looked at, those with the earliest slots: turns are taken among these.
MOST_WAITING = 1000
# How often those are looked at who come after others that wait for a full bucket too.
MOST_LOOKS = 4
# Before another look at a waiting run that needs a bucket which another transaction holds.
LOCKED_SECONDS = 0.05


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A run or a call that needs permits of limits."""

    holder: PermitHolder
    source: str
    slot: datetime
    token: int
    uses: tuple[LimitUse | QuotaUse, ...]


class Entered(msgspec.Struct, frozen=True):
    """The buckets that runs and calls have entered, and the names of limits that were not found."""

    buckets: dict[PermitHolder, tuple[int, ...]]
    missing: dict[PermitHolder, str]


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a look at buckets: which runs to ring for, and when to look again."""

    runs: tuple[PendingRun, ...]
    ask_again_seconds: float | None = None


# Shown.


def waited_limit(runs: str) -> str:
    """Return the SQL of the limit that a row of ``runs`` waits for; NULL if it waits for none."""
    return (
        f"CASE WHEN {runs}.status = 'pending' THEN (SELECT coalesce(l.name, 'quota.' || b.key) FROM limit_permits AS p "  # noqa: S608
        "JOIN limit_buckets AS b ON b.id = p.bucket_id LEFT JOIN limits AS l ON l.id = b.limit_id "
        f"WHERE p.execution_id = {runs}.id AND (p.node_id = '' OR p.token = {runs}.token) AND p.starts_at IS NULL "
        "ORDER BY p.node_id, p.bucket_id LIMIT 1) END"
    )


# Found.

# The owner's own limit comes before one of a team of the owner, and that before a public one.
_RANKED = (
    "SELECT DISTINCT ON (w.owner_id, w.name) w.owner_id, w.name, l.id "
    "FROM unnest($1::int[], $2::text[]) AS w(owner_id, name) JOIN limits AS l ON l.name = w.name "
    "LEFT JOIN team_members AS m ON m.team_id = l.user_profile_id AND m.user_profile_id = w.owner_id "
    "WHERE l.user_profile_id = w.owner_id OR m.team_id IS NOT NULL OR l.public "
    "ORDER BY w.owner_id, w.name, l.user_profile_id = w.owner_id DESC, m.team_id IS NOT NULL DESC, l.id"
)
# Held until the transaction ends, so that the limit is not deleted while something begins to use it.
_KEEP = "SELECT id FROM limits WHERE id = ANY($1::int[]) ORDER BY id FOR KEY SHARE"


async def find(connection: AsyncConnection, wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return the limits that these owners mean by these names; names of no limit are left out."""
    if not wanted:
        return {}
    owners, names = zip(*wanted, strict=True)
    rows = await fetch(connection, _RANKED, list(owners), list(names))
    return {(row["owner_id"], row["name"]): row["id"] for row in rows}


async def find_and_keep(connection: AsyncConnection, wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return the limits that these owners mean; none of them can be deleted before the transaction ends."""
    found = await find(connection, wanted)
    if found:
        kept = {row["id"] for row in await fetch(connection, _KEEP, sorted(set(found.values())))}
        return {key: limit_id for key, limit_id in found.items() if limit_id in kept}
    return {}


# Entered.

_BUCKETS = (
    "SELECT b.id, b.limit_id, b.key FROM unnest($1::int[], $2::text[]) AS w(limit_id, key) "
    # Not forgotten by housekeeping before the permit is written.
    "JOIN limit_buckets AS b ON b.limit_id = w.limit_id AND b.key = w.key FOR KEY SHARE OF b"
)
_ADD_BUCKETS = (
    "INSERT INTO limit_buckets (limit_id, key) SELECT w.limit_id, w.key FROM unnest($1::int[], $2::text[]) "
    "AS w(limit_id, key) ORDER BY 1, 2 ON CONFLICT (limit_id, key) WHERE limit_id IS NOT NULL DO NOTHING"
)
_QUOTA_BUCKETS = (
    "SELECT b.id, b.owner_id, b.key FROM unnest($1::int[], $2::text[]) AS w(owner_id, key) "
    "JOIN limit_buckets AS b ON b.owner_id = w.owner_id AND b.key = w.key"
)
_ADD_QUOTA_BUCKETS = (
    "INSERT INTO limit_buckets (owner_id, key) SELECT w.owner_id, w.key FROM unnest($1::int[], $2::text[]) "
    "AS w(owner_id, key) ORDER BY 1, 2 ON CONFLICT (owner_id, key) WHERE owner_id IS NOT NULL DO NOTHING"
)
# A call that is made again under another token waits again; one that was parked has its permit already.
_ENTER = (
    "INSERT INTO limit_permits AS p (execution_id, node_id, bucket_id, source, slot, token) "
    "SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::timestamptz[], $6::int[]) "
    "ON CONFLICT (execution_id, node_id, bucket_id) DO UPDATE SET token = EXCLUDED.token, "
    "starts_at = CASE WHEN p.token = EXCLUDED.token OR p.node_id = '' THEN p.starts_at END"
)


async def enter(connection: AsyncConnection, entries: Sequence[Entry]) -> Entered:
    """Note that runs and calls need permits. They wait until a look at their buckets gives them."""
    bucket_of = await _buckets_of(connection, {use for entry in entries for use in entry.uses})
    buckets: dict[PermitHolder, tuple[int, ...]] = {}
    missing: dict[PermitHolder, str] = {}
    rows: list[tuple[Any, ...]] = []
    for entry in entries:
        lacking = next((use.name for use in entry.uses if isinstance(use, LimitUse) and use not in bucket_of), None)
        if lacking is not None:
            missing[entry.holder] = lacking
            continue
        own = tuple(dict.fromkeys(bucket_of[use] for use in entry.uses))
        buckets[entry.holder] = own
        holder = entry.holder
        rows += [(holder.execution_id, holder.node_id, one, entry.source, entry.slot, entry.token) for one in own]
    if rows:
        await fetch(connection, _ENTER, *map(list, zip(*rows, strict=True)))
    return Entered(buckets, missing)


async def _buckets_of(
    connection: AsyncConnection, uses: Collection[LimitUse | QuotaUse]
) -> dict[LimitUse | QuotaUse, int]:
    """Return the buckets of these limits and quotas; those of names of no limit are left out."""
    named = [use for use in uses if isinstance(use, LimitUse)]
    found = await find(connection, {(use.owner_id, use.name) for use in named})
    limit_of = {use: found[at] for use in named if (at := (use.owner_id, use.name)) in found}
    buckets = await _buckets(connection, {(limit_id, use.key) for use, limit_id in limit_of.items()})
    of_limits = {use: buckets[limit_id, use.key] for use, limit_id in limit_of.items()}
    of_quotas = await _quota_buckets(connection, [use for use in uses if isinstance(use, QuotaUse)])
    return dict([*of_limits.items(), *of_quotas.items()])


async def _quota_buckets(connection: AsyncConnection, uses: Sequence[QuotaUse]) -> dict[QuotaUse, int]:
    if not uses:
        return {}
    owners, keys = [use.owner_id for use in uses], [str(use.quota) for use in uses]
    found = await fetch(connection, _QUOTA_BUCKETS, owners, keys)
    if len(found) < len(uses):
        await fetch(connection, _ADD_QUOTA_BUCKETS, owners, keys)
        found = await fetch(connection, _QUOTA_BUCKETS, owners, keys)
    return {QuotaUse(row["owner_id"], Quota(row["key"])): row["id"] for row in found}


async def _buckets(connection: AsyncConnection, wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Return the buckets of these limits and keys; create those that do not exist yet."""
    if not wanted:
        return {}
    limit_ids, keys = (list(column) for column in zip(*wanted, strict=True))
    found = await _existing_buckets(connection, limit_ids, keys)
    if len(found) < len(wanted):
        await fetch(connection, _ADD_BUCKETS, limit_ids, keys)
        found = await _existing_buckets(connection, limit_ids, keys)
    return found


async def _existing_buckets(
    connection: AsyncConnection, limit_ids: list[int], keys: list[str]
) -> dict[tuple[int, str], int]:
    rows = await fetch(connection, _BUCKETS, limit_ids, keys)
    return {(row["limit_id"], row["key"]): row["id"] for row in rows}


# Given.

_LOCK = "SELECT id FROM limit_buckets WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE"
_TRY_LOCK = f"{_LOCK} SKIP LOCKED"
# The run that holds or wants a permit: it has not ended, and a call is made under the token that it has now.
IS_CURRENT = (
    "EXISTS (SELECT FROM active_executions AS a WHERE a.id = p.execution_id AND (p.node_id = '' OR a.token = p.token))"
)
# Those that their node enters again at this moment are left alone: waiting for them could end in a deadlock.
_FORGET = (
    "DELETE FROM limit_permits WHERE (execution_id, node_id, bucket_id) IN ("  # noqa: S608
    "SELECT p.execution_id, p.node_id, p.bucket_id FROM limit_permits AS p "
    f"WHERE p.bucket_id = ANY($1::bigint[]) AND NOT {IS_CURRENT} FOR UPDATE OF p SKIP LOCKED)"
)
_STATES = (
    "SELECT b.id, b.owner_id, b.key, b.next_at, l.max_concurrent, l.rate, l.burst, "
    "(SELECT count(*) FROM limit_permits AS p WHERE p.bucket_id = b.id AND p.starts_at IS NOT NULL) AS held "
    "FROM limit_buckets AS b LEFT JOIN limits AS l ON l.id = b.limit_id WHERE b.id = ANY($1::bigint[])"
)
_WAITING = (
    "SELECT w.execution_id, w.node_id, w.source, w.slot, a.token, "
    "(SELECT array_agg(o.bucket_id) FROM limit_permits AS o "
    "WHERE o.execution_id = w.execution_id AND o.node_id = w.node_id AND o.starts_at IS NULL) AS buckets "
    "FROM unnest($1::bigint[]) AS ids(id) CROSS JOIN LATERAL ("
    "SELECT p.execution_id, p.node_id, p.source, p.slot, p.token FROM limit_permits AS p "
    "WHERE p.bucket_id = ids.id AND p.starts_at IS NULL AND NOT EXISTS (SELECT FROM limit_permits AS o "
    "WHERE o.execution_id = p.execution_id AND o.node_id = p.node_id AND o.bucket_id = ANY($3::bigint[]) "
    "AND o.starts_at IS NULL) ORDER BY p.slot LIMIT $2) AS w "
    "JOIN active_executions AS a ON a.id = w.execution_id AND (w.node_id = '' OR a.token = w.token)"
)
_HELD = (
    "SELECT p.source, count(*) FROM limit_permits AS p WHERE p.bucket_id = ANY($1::bigint[]) "
    "AND p.starts_at IS NOT NULL AND p.source = ANY($2::text[]) GROUP BY 1"
)
_GIVE = (
    "UPDATE limit_permits AS p SET starts_at = g.starts_at "
    "FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS g(execution_id, node_id, starts_at) "
    "WHERE p.execution_id = g.execution_id AND p.node_id = g.node_id AND p.starts_at IS NULL"
)
_MOVE = (
    "UPDATE limit_buckets AS b SET next_at = n.next_at FROM unnest($1::bigint[], $2::timestamptz[]) AS n(id, next_at) "
    "WHERE b.id = n.id"
)
# A call whose run was parked goes on; one whose run is running is told by the answer.
_WAKE = (
    "UPDATE workflow_executions AS e SET due_at = g.starts_at "
    "FROM unnest($1::uuid[], $2::timestamptz[]) AS g(id, starts_at) "
    "WHERE e.id = g.id AND e.status = 'pending' AND e.deadline_at IS NOT NULL AND e.due_at > g.starts_at "
    "RETURNING e.id, e.token, e.due_at"
)
_WAITED_FOR = "SELECT DISTINCT bucket_id FROM limit_permits WHERE starts_at IS NULL"


async def advance(connection: AsyncConnection, bucket_ids: Iterable[int], quotas: OwnerQuotas = NO_QUOTAS) -> Advanced:
    """Give the permits of these buckets that are free, in the order of the waiting runs and calls."""
    locked = await _locked(connection, _LOCK, bucket_ids)
    buckets = await _states(connection, locked, quotas)
    if not buckets:
        return Advanced(runs=())
    now = await database_now(connection)
    free = [bucket.id for bucket in buckets.values() if not bucket.is_full]
    passed_over: set[int] = set()
    for _ in range(MOST_LOOKS):
        waiting = await _waiting(connection, free, passed_over)
        # Runs may need permits of other buckets too. These are not waited for: whoever holds them may wait for ours.
        others = {bucket_id for waiter in waiting for bucket_id in waiter.buckets} - locked
        unknown = others - buckets.keys()
        if unknown:
            buckets |= await _states(connection, await _locked(connection, _TRY_LOCK, unknown), quotas)
        full = {bucket_id for bucket_id in others & buckets.keys() if buckets[bucket_id].is_full}
        # Whoever waits for a full bucket too must not keep those behind it from being looked at.
        if len(waiting) < MOST_WAITING or full <= passed_over:
            break
        passed_over |= full
    held = await _held(connection, buckets, {waiter.source for waiter in waiting}) if waiting else {}
    grants = grant(buckets, in_turn(waiting, held), now)
    runs = await _give(connection, buckets, grants) if grants.permits else []
    return Advanced(
        runs=tuple(runs),
        ask_again_seconds=_ask_again(grants, now, is_passed_over=not others <= buckets.keys()),
    )


def _ask_again(grants: Grants, now: datetime, *, is_passed_over: bool) -> float | None:
    by_rate = None if grants.ask_again_at is None else max(0.0, (grants.ask_again_at - now).total_seconds())
    if not is_passed_over:
        return by_rate
    return LOCKED_SECONDS if by_rate is None else min(by_rate, LOCKED_SECONDS)


async def _locked(connection: AsyncConnection, statement: str, bucket_ids: Iterable[int]) -> set[int]:
    return {row["id"] for row in await fetch(connection, statement, sorted(set(bucket_ids)))}


async def _states(connection: AsyncConnection, locked: Collection[int], quotas: OwnerQuotas) -> dict[int, Bucket]:
    """Return locked buckets, without the permits of runs that have ended.

    They are read by a statement that begins after the locks are held.
    """
    await fetch(connection, _FORGET, list(locked))
    rows = await fetch(connection, _STATES, list(locked))
    return {row["id"]: _bucket(row, quotas) for row in rows}


def _bucket(row: Any, quotas: OwnerQuotas) -> Bucket:
    if row["owner_id"] is not None:
        bounds = quota_bounds(quotas, QuotaUse(row["owner_id"], Quota(row["key"])))
    else:
        rate = None if row["rate"] is None else parse_rate(row["rate"])
        bounds = Bounds(max_concurrent=row["max_concurrent"], rate=rate, burst=row["burst"])
    return Bucket(id=row["id"], bounds=bounds, held=row["held"], next_at=row["next_at"])


async def _waiting(connection: AsyncConnection, bucket_ids: list[int], passed_over: Collection[int]) -> list[Waiter]:
    """Return who waits for these buckets, without those who wait for one that is ``passed_over`` too."""
    if not bucket_ids:
        return []
    waiters: dict[PermitHolder, Waiter] = {}
    for row in await fetch(connection, _WAITING, bucket_ids, MOST_WAITING, list(passed_over)):
        holder = PermitHolder(row["execution_id"], row["node_id"])
        waiters[holder] = Waiter(
            holder=holder,
            buckets=tuple(row["buckets"]),
            source=row["source"],
            slot=row["slot"],
            token=row["token"],
        )
    return list(waiters.values())


async def _held(connection: AsyncConnection, buckets: Collection[int], sources: Collection[str]) -> Mapping[str, int]:
    rows = await fetch(connection, _HELD, list(buckets), list(sources))
    return Counter({row["source"]: row["count"] for row in rows})


async def _give(connection: AsyncConnection, before: Mapping[int, Bucket], grants: Grants) -> list[PendingRun]:
    """Write the permits. Return the runs that may start or go on."""
    permits = grants.permits
    holders = [permit.waiter.holder for permit in permits]
    ids, nodes = [holder.execution_id for holder in holders], [holder.node_id for holder in holders]
    await fetch(connection, _GIVE, ids, nodes, [permit.starts_at for permit in permits])
    moved = {key: bucket for key, bucket in grants.buckets.items() if bucket.next_at != before[key].next_at}
    if moved:
        await fetch(connection, _MOVE, list(moved), [bucket.next_at for bucket in moved.values()])
    whole = [permit for permit in permits if not permit.waiter.holder.node_id]
    runs = [PendingRun(one.waiter.holder.execution_id, one.waiter.token, one.starts_at) for one in whole]
    # By run: when the first of its calls may be made. The permits are in the order of their times.
    calls = {one.waiter.holder.execution_id: one.starts_at for one in reversed(permits) if one.waiter.holder.node_id}
    if calls:
        woken = await fetch(connection, _WAKE, list(calls), list(calls.values()))
        runs += [PendingRun(row["id"], row["token"], row["due_at"]) for row in woken]
    return [msgspec.structs.replace(run, is_granted=True) for run in runs]


async def waited_for(connection: AsyncConnection) -> list[int]:
    """Return the buckets for which something waits."""
    return [row["bucket_id"] for row in await fetch(connection, _WAITED_FOR)]


# Used and returned.

_FREE = (
    "WITH freed AS (DELETE FROM limit_permits AS p USING active_executions AS a "
    "WHERE p.execution_id = a.id AND p.node_id = '' AND p.starts_at IS NULL AND a.{} = ANY($1) RETURNING a.id) "
    "SELECT a.id, a.token, a.due_at FROM active_executions AS a WHERE a.id IN (SELECT id FROM freed)"
)
_FREE_OF_SCHEDULES = _FREE.format("scheduled_job_id")
_FREE_OF_WORKFLOW = _FREE.format("workflow_id")

_OF_RUN = "SELECT bucket_id, starts_at FROM limit_permits WHERE execution_id = $1 AND node_id = ''"
_OF_CALLS = (
    "SELECT p.execution_id, p.node_id, array_agg(p.bucket_id) AS buckets, "
    "CASE WHEN bool_and(p.starts_at IS NOT NULL) "
    "THEN CAST(extract(epoch FROM max(p.starts_at) - clock_timestamp()) AS float) END AS wait_seconds "
    "FROM unnest($1::uuid[], $2::text[], $3::int[]) AS h(execution_id, node_id, token) JOIN limit_permits AS p "
    "ON p.execution_id = h.execution_id AND p.node_id = h.node_id AND p.token = h.token GROUP BY 1, 2"
)
_LEAVE = (
    "DELETE FROM limit_permits AS p USING unnest($1::uuid[], $2::text[], $3::int[]) AS h(execution_id, node_id, token) "
    "WHERE p.execution_id = h.execution_id AND p.node_id = h.node_id AND p.token = h.token RETURNING p.bucket_id"
)
_LOCK_CALLS = (
    "SELECT node_id, starts_at FROM limit_permits WHERE execution_id = $1 AND node_id <> '' AND token = $2 "
    "ORDER BY node_id, bucket_id FOR UPDATE"
)
_PARK = (
    "UPDATE limit_permits SET token = token + 1 WHERE execution_id = $1 AND node_id = ANY($2::text[]) AND token = $3"
)


class RunPermits(msgspec.Struct, frozen=True):
    """The buckets that a run has entered, and when it may start; None while it waits for one of them."""

    buckets: tuple[int, ...]
    starts_at: datetime | None


async def of_run(connection: AsyncConnection, execution_id: UUID) -> RunPermits | None:
    """Return the permits of a run; None if it has entered no bucket."""
    rows = await fetch(connection, _OF_RUN, execution_id)
    if not rows:
        return None
    times = [row["starts_at"] for row in rows]
    return RunPermits(tuple(row["bucket_id"] for row in rows), None if None in times else max(times))


class Call(msgspec.Struct, frozen=True):
    """A call in a run, under the token that the run has."""

    execution_id: UUID
    node_id: str
    token: int


class CallPermits(msgspec.Struct, frozen=True):
    """The buckets that a call has entered, and after how many seconds it may be made; None while it waits."""

    buckets: tuple[int, ...]
    wait_seconds: float | None


async def of_calls(connection: AsyncConnection, calls: Sequence[Call]) -> dict[PermitHolder, CallPermits]:
    """Return the permits of calls; those that have entered no bucket are left out."""
    rows = await fetch(connection, _OF_CALLS, *_columns(calls))
    return {
        PermitHolder(row["execution_id"], row["node_id"]): CallPermits(tuple(row["buckets"]), row["wait_seconds"])
        for row in rows
    }


async def lock_calls(connection: AsyncConnection, execution_id: UUID, token: int) -> dict[str, datetime | None]:
    """Lock the permits of a run's calls. Return when each may be made, by node; None for those that wait.

    To be called before the run is locked: see the order of locks above.
    """
    rows = await fetch(connection, _LOCK_CALLS, execution_id, token)
    return {row["node_id"]: row["starts_at"] for row in rows}


async def park_calls(connection: AsyncConnection, execution_id: UUID, node_ids: Iterable[str], token: int) -> None:
    """Keep the permits of these calls for the next token of their run, which is parked."""
    await fetch(connection, _PARK, execution_id, list(node_ids), token)


def _columns(calls: Sequence[Call]) -> tuple[list[UUID], list[str], list[int]]:
    return [one.execution_id for one in calls], [one.node_id for one in calls], [one.token for one in calls]


async def free_waiting(connection: AsyncConnection, job_ids: Sequence[UUID]) -> list[PendingRun]:
    """Let the waiting runs of schedules that name another limit now ask again. Return them, to be rung for."""
    rows = await fetch(connection, _FREE_OF_SCHEDULES, list(job_ids))
    return [PendingRun(row["id"], row["token"], row["due_at"], is_granted=True) for row in rows]


async def free_waiting_of_workflow(connection: AsyncConnection, workflow_id: int) -> list[PendingRun]:
    """Do the same for the runs of a workflow."""
    rows = await fetch(connection, _FREE_OF_WORKFLOW, [workflow_id])
    return [PendingRun(row["id"], row["token"], row["due_at"], is_granted=True) for row in rows]


async def leave(connection: AsyncConnection, calls: Sequence[Call]) -> set[int]:
    """Return the permits of calls that have ended. Return the buckets that they had entered."""
    return {row["bucket_id"] for row in await fetch(connection, _LEAVE, *_columns(calls))}
