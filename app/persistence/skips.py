"""Slots that people asked to leave out, until the tick that accounts for them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.schedules import ScheduledJob
from app.domain.skips import Skip
from app.persistence.sql_batches import fetch

_READ = (
    "SELECT scheduled_job_id, slot, author, at, note FROM slot_skips WHERE scheduled_job_id = ANY($1::uuid[]) "
    "ORDER BY scheduled_job_id, slot"
)
_ADD = (
    "INSERT INTO slot_skips (scheduled_job_id, slot, author, at, note) "
    "SELECT $1, r.slot, $3, $4, $5 FROM unnest($2::timestamptz[]) AS r(slot) "
    "ON CONFLICT (scheduled_job_id, slot) "
    "DO UPDATE SET author = excluded.author, at = excluded.at, note = excluded.note"
)
_DELETE = (
    "DELETE FROM slot_skips AS s USING unnest($1::uuid[], $2::timestamptz[]) AS r(id, slot) "
    "WHERE s.scheduled_job_id = r.id AND s.slot = r.slot"
)
_MARK = "UPDATE scheduled_jobs SET has_skips = $2 WHERE id = $1"


async def of(connection: AsyncConnection, job_ids: Sequence[UUID]) -> dict[UUID, tuple[Skip, ...]]:
    """Return the skips of schedules, earliest first."""
    skips: dict[UUID, tuple[Skip, ...]] = {}
    for job_id, *values in await fetch(connection, _READ, job_ids) if job_ids else []:
        skips[job_id] = (*skips.get(job_id, ()), Skip(*values))
    return skips


async def slots_of(connection: AsyncConnection, jobs: Iterable[ScheduledJob]) -> dict[UUID, frozenset[datetime]]:
    """Return the slots to leave out of those schedules that have some."""
    found = await of(connection, [job.id for job in jobs if job.has_skips])
    return {job_id: frozenset(skip.slot for skip in skips) for job_id, skips in found.items()}


async def add(connection: AsyncConnection, job_id: UUID, slots: Sequence[datetime], skip: Skip) -> None:
    """Store skips of a locked schedule, all with the author, time and note of ``skip``."""
    await fetch(connection, _ADD, job_id, list(slots), skip.author, skip.at, skip.note)
    await fetch(connection, _MARK, job_id, True)


async def take_back(connection: AsyncConnection, job_id: UUID, slots: Iterable[datetime], *, are_left: bool) -> None:
    """Delete skips of a locked schedule, and note whether others are left."""
    await delete(connection, [(job_id, slot) for slot in slots])
    await fetch(connection, _MARK, job_id, are_left)


async def delete(connection: AsyncConnection, used: Sequence[tuple[UUID, datetime]]) -> None:
    """Delete skips by schedule and slot."""
    if used:
        await fetch(connection, _DELETE, [job_id for job_id, _ in used], [slot for _, slot in used])
