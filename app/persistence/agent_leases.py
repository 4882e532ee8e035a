"""Leases of agents: stored, locked, and what of them is used.

The lock of a lease comes last, after workflows, schedules and executions: ticks take none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.agent_leases import Lease, Usage
from app.persistence.pagination import Page, Part, read_all, read_one, read_page
from app.persistence.sql_batches import fetch
from app.persistence.tables import AgentLeaseRow, UserProfile

_TABLE = AgentLeaseRow.__table__
_USERS = UserProfile.__table__
_SHOWN = (*(column for column in _TABLE.c if column.name != "exhausted_at"), _USERS.c.username.label("owner"))
# What ``app.domain.agent_leases.charge`` says of each schedule, added up.
_USAGE = """
SELECT count(*) FILTER (WHERE j.status IN ('active', 'paused')) AS schedules, coalesce(sum(CASE
  WHEN j.status NOT IN ('active', 'paused') THEN j.lease_runs
  WHEN num_nonnulls(j.at, j.after) = 1
    THEN j.lease_runs + CASE WHEN coalesce(j.last_slot >= j.anchor_at, false) THEN 0 ELSE 1 END
  ELSE greatest(j.total_repeats, j.lease_runs) END), 0) AS runs
FROM scheduled_jobs AS j WHERE j.lease_id = $1 AND NOT j.id = ANY($2::uuid[])
"""


def _selected() -> Select[Any]:
    return select(*_SHOWN).join_from(_TABLE, _USERS, _USERS.c.id == _TABLE.c.user_profile_id)


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> int:
    """Store a new lease; return its id."""
    inserted = await connection.execute(insert(AgentLeaseRow).values(values).returning(_TABLE.c.id))
    lease_id: int = inserted.scalar_one()
    return lease_id


async def get(connection: AsyncConnection, lease_id: int) -> Lease | None:
    """Return a lease, or None."""
    return await read_one(connection, _selected().where(_TABLE.c.id == lease_id), Lease)


async def lock(connection: AsyncConnection, lease_id: int) -> Lease | None:
    """Lock a lease and return it, or None: nothing is reserved beside this transaction until it ends."""
    query = _selected().where(_TABLE.c.id == lease_id)
    return await read_one(connection, query.with_for_update(of=_TABLE, key_share=True), Lease)


async def lock_many(connection: AsyncConnection, ids: Iterable[int]) -> dict[int, Lease]:
    """Lock leases in the order of their ids."""
    locked = [await lock(connection, lease_id) for lease_id in sorted(set(ids))]
    return {lease.id: lease for lease in locked if lease is not None}


async def usage(connection: AsyncConnection, lease: Lease, without: Collection[UUID] = ()) -> Usage:
    """Return what of a lease is used, but for some schedules."""
    (row,) = await fetch(connection, _USAGE, lease.id, list(without))
    return Usage(schedules=row["schedules"], runs=int(row["runs"]) + lease.spent_runs, writes=lease.writes)


async def spend(connection: AsyncConnection, lease_id: int, *, runs: int = 0, writes: int = 0) -> None:
    """Note runs and changes that no schedule of the lease accounts for."""
    spent = {"spent_runs": _TABLE.c.spent_runs + runs, "writes": _TABLE.c.writes + writes}
    await connection.execute(update(AgentLeaseRow).where(_TABLE.c.id == lease_id).values(spent))


_TELL = (
    "UPDATE agent_leases SET exhausted_at = clock_timestamp() WHERE id = $1 "
    "AND coalesce(exhausted_at < clock_timestamp() - interval '1 hour', true) RETURNING id"
)


async def note_exhausted(connection: AsyncConnection, lease_id: int) -> bool:
    """Note that the owner of a lease is told that it is used up; return False if that was said within the hour."""
    return bool(await fetch(connection, _TELL, lease_id))


async def change(connection: AsyncConnection, lease_id: int, values: Mapping[str, Any]) -> None:
    """Give a lease other values."""
    stored = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    await connection.execute(update(AgentLeaseRow).where(_TABLE.c.id == lease_id).values(stored))


async def page(connection: AsyncConnection, viewer: Actor, part: Part) -> Page[Lease]:
    """Return a page of the leases that a user has granted, for admins of all, newest first; an agent sees its own."""
    query = _selected()
    if viewer.grant is not None:
        query = query.where(_TABLE.c.id == viewer.grant.lease_id)
    elif not viewer.sees_all:
        query = query.where(_TABLE.c.user_profile_id == viewer.user_id)
    return await read_page(connection, query, Lease, (_TABLE.c.id,), part)


async def to_end(connection: AsyncConnection, limit: int) -> list[Lease]:
    """Return leases that have expired or were revoked, and whose schedules are not all ended yet."""
    due = text("agent_leases.ended_at IS NULL AND (expires_at <= clock_timestamp() OR revoked_at IS NOT NULL)")
    return await read_all(connection, _selected().where(due).order_by(_TABLE.c.id).limit(limit), Lease)


_SCHEDULES = "SELECT j.id FROM scheduled_jobs AS j WHERE j.lease_id = $1 AND j.id > $2 {} ORDER BY j.id LIMIT $3"
_ALL = _SCHEDULES.format("")
_ALIVE = _SCHEDULES.format("AND j.status IN ('active', 'paused')")
_WAITING = _SCHEDULES.format("AND j.status_reason = 'awaiting_review' AND ($4::uuid[] IS NULL OR j.id = ANY($4))")
FIRST = UUID(int=0)


async def schedules_of(
    connection: AsyncConnection, lease_id: int, after: UUID = FIRST, limit: int = 500, *, alive: bool = False
) -> list[UUID]:
    """Return the ids of schedules that were made with a lease, in their order."""
    rows = await fetch(connection, _ALIVE if alive else _ALL, lease_id, after, limit)
    return [row["id"] for row in rows]


async def awaiting_review(
    connection: AsyncConnection, lease_id: int, limit: int = 500, among: Sequence[UUID] | None = None
) -> list[UUID]:
    """Return the ids of schedules of a lease that await review, all or those of them that are named."""
    return [row["id"] for row in await fetch(connection, _WAITING, lease_id, FIRST, limit, among)]


_NODE_TYPES = (
    "SELECT w.id, ARRAY(SELECT DISTINCT n ->> 'type' FROM jsonb_array_elements(w.nodes) AS n) AS types "
    "FROM workflows AS w WHERE w.id = ANY($1::int[])"
)


async def node_types(connection: AsyncConnection, workflow_ids: Sequence[int]) -> dict[int, frozenset[str]]:
    """Return the types of the nodes of workflows."""
    rows = await fetch(connection, _NODE_TYPES, list(workflow_ids))
    return {row["id"]: frozenset(row["types"]) for row in rows}


def stored_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a lease in the form of the columns."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in terms.items()}


def as_json(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a lease as JSON values, for the audit log."""
    values: dict[str, Any] = msgspec.to_builtins(dict(terms))
    return values
