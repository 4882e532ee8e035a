"""Named limits of owners: read, listed and written, who uses them, and how many permits are held and waited for."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Select, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Owner
from app.persistence import permits
from app.persistence.pagination import Page, Part, read_all, read_one, read_page, read_written
from app.persistence.sql_batches import fetch
from app.persistence.tables import LimitRow

_TABLE = LimitRow.__table__


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A stored limit."""

    id: int
    user_profile_id: int
    team_id: int | None
    name: str
    public: bool
    max_concurrent: int | None
    rate: str | None
    burst: int | None
    created_at: datetime
    updated_at: datetime


class LimitState(msgspec.Struct, frozen=True):
    """How many permits of a limit are held, and how many runs and calls wait for one."""

    held: int = 0
    waiting: int = 0


async def page(
    connection: AsyncConnection, owners: Sequence[int] | None, part: Part, *, with_public: bool
) -> Page[Limit]:
    """Return a page of the limits that these owners have, newest first; None stands for all owners."""
    query: Select[Any] = select(_TABLE)
    if owners is not None:
        own = _TABLE.c.user_profile_id.in_(owners)
        query = query.where(or_(own, _TABLE.c.public) if with_public else own)
    return await read_page(connection, query, Limit, (_TABLE.c.id,), part)


async def count_of(connection: AsyncConnection, owner_id: int) -> int:
    """Return the number of an owner's limits."""
    query = select(func.count()).select_from(_TABLE).where(_TABLE.c.user_profile_id == owner_id)
    return int((await connection.execute(query)).scalar_one())


async def add(connection: AsyncConnection, owner: Owner, values: dict[str, Any]) -> Limit | None:
    """Create a limit and return it; None if the owner has one of that name."""
    owned = {"user_profile_id": owner.user_profile_id, "team_id": owner.team_id}
    statement = upsert(LimitRow).values(**owned, **values)
    statement = statement.on_conflict_do_nothing(index_elements=["user_profile_id", "name"])
    return await read_one(connection, statement.returning(*_TABLE.c), Limit)


async def by_ids(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, Limit]:
    """Return limits by their ids."""
    rows = await read_all(connection, select(_TABLE).where(_TABLE.c.id.in_(ids)), Limit) if ids else []
    return {row.id: row for row in rows}


async def of_owner(connection: AsyncConnection, owner_id: int, name: str) -> Limit | None:
    """Return the limit of this name that an owner has itself, or None."""
    query = select(_TABLE).where(_TABLE.c.user_profile_id == owner_id, _TABLE.c.name == name)
    return await read_one(connection, query, Limit)


async def meant_by(connection: AsyncConnection, owner_id: int, name: str) -> Limit | None:
    """Return the limit that an owner means by a name: its own, one of its teams, or a public one; or None."""
    found = await permits.find(connection, [(owner_id, name)])
    limit_id = found.get((owner_id, name))
    return None if limit_id is None else await read_one(connection, _one(limit_id), Limit)


async def lock(connection: AsyncConnection, limit_id: int) -> Limit | None:
    """Lock a limit against other changes and new uses, and return it, or None."""
    return await read_one(connection, _one(limit_id).with_for_update(), Limit)


async def lock_to_change(connection: AsyncConnection, limit_id: int) -> Limit | None:
    """Lock a limit against other changes, and return it, or None. New uses do not wait."""
    return await read_one(connection, _one(limit_id).with_for_update(key_share=True), Limit)


async def save(connection: AsyncConnection, limit_id: int, values: dict[str, Any]) -> Limit:
    """Change a limit that this transaction has locked; ``begin_anew`` is to follow."""
    changed = {**values, "updated_at": func.clock_timestamp()}
    statement = update(LimitRow).where(_TABLE.c.id == limit_id).values(changed)
    return await read_written(connection, statement.returning(*_TABLE.c), Limit)


async def begin_anew(connection: AsyncConnection, limit_ids: Sequence[int]) -> None:
    """Let the rates of limits begin anew. No permit of them is given until the transaction ends: it has to be short."""
    await fetch(connection, _BEGIN_ANEW, list(limit_ids))


async def remove(connection: AsyncConnection, limit_id: int) -> None:
    """Delete a limit with its buckets and permits."""
    await connection.execute(delete(LimitRow).where(_TABLE.c.id == limit_id))


def _one(limit_id: int) -> Select[Any]:
    return select(_TABLE).where(_TABLE.c.id == limit_id)


_BEGIN_ANEW = "UPDATE limit_buckets SET next_at = NULL WHERE limit_id = ANY($1::int[]) AND next_at IS NOT NULL"
_BUCKETS = "SELECT id FROM limit_buckets WHERE limit_id = $1"
_STATES = (
    "SELECT b.limit_id, count(*) FILTER (WHERE p.starts_at IS NOT NULL) AS held, "
    "count(*) FILTER (WHERE p.starts_at IS NULL) AS waiting FROM limit_buckets AS b "
    "JOIN limit_permits AS p ON p.bucket_id = b.id "
    "JOIN active_executions AS a ON a.id = p.execution_id AND (p.node_id = '' OR a.token = p.token) "
    "WHERE b.limit_id = ANY($1::int[]) GROUP BY 1"
)
# Who names a limit: the owners of schedules, of workflows, and of workflows whose nodes name it.
_USERS = (
    'SELECT DISTINCT user_profile_id FROM scheduled_jobs WHERE "limit" = $1 '
    'UNION SELECT user_profile_id FROM workflows WHERE "limit" = $1 '
    "UNION SELECT w.user_profile_id FROM workflows AS w WHERE w.nodes @> $2::jsonb OR w.nodes @> $3::jsonb"
)
# Of runs that have ended, and of calls under an earlier token; usually the next look at the bucket deletes them.
_FORGET_PERMITS = (
    "DELETE FROM limit_permits WHERE (execution_id, node_id, bucket_id) IN ("  # noqa: S608
    "SELECT p.execution_id, p.node_id, p.bucket_id FROM limit_permits AS p "
    f"WHERE p.entered_at < $1 AND NOT {permits.IS_CURRENT} LIMIT $2 FOR UPDATE OF p SKIP LOCKED) RETURNING 1"
)
# A call that enters one of these at this moment holds its lock, or sees that it is gone.
_LOCK_UNUSED = (
    "SELECT b.id FROM limit_buckets AS b WHERE b.key <> '' AND b.limit_id IS NOT NULL "
    "AND (b.next_at IS NULL OR b.next_at < $1) "
    "AND NOT EXISTS (SELECT FROM limit_permits AS p WHERE p.bucket_id = b.id) LIMIT $2 FOR UPDATE OF b SKIP LOCKED"
)
_FORGET_BUCKETS = (
    "DELETE FROM limit_buckets AS b WHERE b.id = ANY($1::bigint[]) "
    "AND NOT EXISTS (SELECT FROM limit_permits AS p WHERE p.bucket_id = b.id)"
)
MOST_FORGOTTEN = 1000


async def buckets_of(connection: AsyncConnection, limit_id: int) -> list[int]:
    """Return the buckets of a limit."""
    return [row["id"] for row in await fetch(connection, _BUCKETS, limit_id)]


async def states(connection: AsyncConnection, limit_ids: Iterable[int]) -> dict[int, LimitState]:
    """Return how many permits of limits are held and waited for; those without any are left out."""
    rows = await fetch(connection, _STATES, list(limit_ids))
    return {row["limit_id"]: LimitState(row["held"], row["waiting"]) for row in rows}


async def is_used(connection: AsyncConnection, limit: Limit) -> bool:
    """Return whether a schedule, a workflow or a node names this limit, and no other one of the same name is meant."""
    nodes = [{"config": {"limit": limit.name}}], [{"config": {"limit": {"name": limit.name}}}]
    texts = [msgspec.json.encode(one).decode() for one in nodes]
    owners = [row["user_profile_id"] for row in await fetch(connection, _USERS, limit.name, *texts)]
    meant = await permits.find(connection, {(owner, limit.name) for owner in owners})
    return limit.id in meant.values()


async def forget_permits(connection: AsyncConnection, before: datetime) -> int:
    """Delete permits from before a moment that nothing holds or waits for any more. Return how many."""
    return len(await fetch(connection, _FORGET_PERMITS, before, MOST_FORGOTTEN))


async def forget_buckets(connection: AsyncConnection, before: datetime) -> int:
    """Delete buckets of keys that are not used and have started nothing since a moment. Return how many were found."""
    unused = [row["id"] for row in await fetch(connection, _LOCK_UNUSED, before, MOST_FORGOTTEN)]
    await fetch(connection, _FORGET_BUCKETS, unused)
    return len(unused)
