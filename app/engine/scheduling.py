"""What people do to schedules, inside a transaction that the caller opens. Ringing comes after its commit."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain import lifecycle
from app.domain.accounting import dropped
from app.domain.errors import NotFoundError
from app.domain.executions import counting
from app.domain.schedules import ScheduledJob
from app.persistence import executions, ledger, schedules
from app.persistence.database import database_now

Change = Callable[[ScheduledJob, int, datetime], ScheduledJob]


async def start_scheduled_jobs(connection: AsyncConnection, drafts: Sequence[ScheduledJob]) -> list[ScheduledJob]:
    """Write new schedules, each with its first slot planned."""
    now = await database_now(connection)
    stamped = [_stamped(draft, now) for draft in drafts]
    started = [lifecycle.created(draft, now) for draft in stamped]
    await schedules.add(connection, started)
    return started


async def start_scheduled_job(connection: AsyncConnection, draft: ScheduledJob) -> ScheduledJob:
    """One of them."""
    (started,) = await start_scheduled_jobs(connection, [draft])
    return started


async def pause_scheduled_job(connection: AsyncConnection, job_id: UUID) -> ScheduledJob:
    """Nothing fires until it is resumed; a message on its way will match nothing."""
    return await _change(connection, job_id, lambda job, _active, _now: lifecycle.paused(job))


async def resume_scheduled_job(connection: AsyncConnection, job_id: UUID) -> ScheduledJob:
    """Fire again, one interval from now."""
    return await _change(connection, job_id, lifecycle.resumed)


async def revive_scheduled_job(connection: AsyncConnection, job_id: UUID) -> ScheduledJob:
    """Bring a dead one back."""
    return await _change(connection, job_id, lifecycle.revived)


async def edit_scheduled_job(connection: AsyncConnection, job_id: UUID, changes: dict[str, Any]) -> ScheduledJob:
    """Give it new values."""
    return await _change(connection, job_id, lambda job, active, now: lifecycle.edited(job, changes, active, now))


async def _change(connection: AsyncConnection, job_id: UUID, change: Change) -> ScheduledJob:
    """Lock, read what runs, decide, write."""
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        raise NotFoundError("There is no such schedule.")
    active, now = await executions.active_and_now(connection, [job_id])
    changed = change(job, counting(active.get(job_id, ())), now)
    if changed is job:
        return job
    await schedules.save(connection, [changed])
    await ledger.add(connection, [(job_id, entry) for entry in dropped(job, changed, now)])
    saved = await schedules.get(connection, job_id)
    if saved is None:
        raise AssertionError(f"schedule {job_id} vanished under lock")
    return saved


def _stamped(draft: ScheduledJob, now: datetime) -> ScheduledJob:
    return replace(draft, created_at=now, updated_at=now, anchor_at=now)
