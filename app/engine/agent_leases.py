"""The end of agents' leases: what they made is paused or deleted, and after a revocation runs are called off."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

import structlog

from app.domain.agent_leases import AtEnd, Lease, ended_with_lease
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.notifications import lease_notice
from app.domain.revisions import CARILLON
from app.domain.schedules import Reason, ScheduledJob
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import agent_leases, audit, notifications, schedules
from app.persistence.database import Database, database_now
from app.persistence.settle import cancel_runs

# Schedules that are stopped in one transaction, and leases that are looked at in one pass.
BATCH = 200
MOST_LEASES = 50
REVOKED = "Cancelled: the lease of its schedule was revoked."

log = structlog.get_logger(__name__)


async def end_due(database: Database, ringer: Ringer) -> int:
    """Stop the schedules of leases that have expired or were revoked; return how many leases there were."""
    async with database.transaction("find_ended_leases") as connection:
        due = await agent_leases.to_end(connection, MOST_LEASES)
    for lease in due:
        await end(database, ringer, lease)
    return len(due)


async def end(database: Database, ringer: Ringer, lease: Lease) -> None:
    """Stop all schedules of a lease: paused, or deleted if the lease says so and expired by itself.

    A revocation also calls off what runs.
    """
    if lease.revoked_at is None and lease.at_end is AtEnd.DELETE:
        await _in_batches(database, lease, partial(_delete, ringer=ringer, lease=lease), alive=False)
    else:
        await _in_batches(database, lease, partial(_stop, ringer=ringer, lease=lease), alive=True)
    async with database.transaction("end_lease") as connection:
        current = await agent_leases.lock(connection, lease.id)
        now = await database_now(connection)
        if current is None or current.ended_at is not None or (current.revoked_at is None and current.expires_at > now):
            return
        await agent_leases.change(connection, lease.id, {"ended_at": now})
        if current.revoked_at is None:
            await audit.record_by(connection, CARILLON, AuditAction.LEASE_EXPIRED, [subject_of(current)])
            await notifications.enqueue(connection, [lease_notice(current)])
    log.info("agent_lease_ended", lease=lease.id, revoked=lease.revoked_at is not None)


def subject_of(lease: Lease) -> Subject:
    """Return a lease as what an event of the audit log is about."""
    return Subject(ObjectType.LEASE, str(lease.id), lease.agent, lease.user_profile_id)


Stop = Callable[[Database, Sequence[UUID]], Awaitable[None]]


async def _in_batches(database: Database, lease: Lease, stop: Stop, *, alive: bool) -> None:
    after = agent_leases.FIRST
    while True:
        async with database.transaction("schedules_of_lease") as connection:
            ids = await agent_leases.schedules_of(connection, lease.id, after, BATCH, alive=alive)
        if ids:
            await stop(database, ids)
            after = ids[-1]
        if len(ids) < BATCH:
            return


async def _stop(database: Database, ids: Sequence[UUID], *, ringer: Ringer, lease: Lease) -> None:
    revoked_at = lease.revoked_at
    reason = Reason.LEASE_EXPIRED if revoked_at is None else Reason.LEASE_REVOKED

    def change(job: ScheduledJob, _active: int, _now: datetime) -> ScheduledJob:
        if job.lease_id != lease.id:
            return job
        return ended_with_lease(job, reason, revoked_at or job.lease_ends_at or lease.expires_at)

    note = f"The lease {lease.id} has ended."
    async with database.transaction("stop_leased_schedules") as connection:
        jobs = await schedules.lock(connection, ids)
        mine = [job_id for job_id, job in jobs.items() if job.lease_id == lease.id]
        done = await schedule_changes.change_many(connection, jobs, change, CARILLON, note, by_lease=True)
    await ringer.executions(done.pending)
    if revoked_at is not None:
        # After they are paused, so that no run begins beside it.
        async with database.transaction("cancel_leased_runs") as connection:
            cancelled = await cancel_runs(connection, mine, REVOKED)
        await ringer.call_off([settled.execution_id for settled in cancelled])


async def _delete(database: Database, ids: Sequence[UUID], *, ringer: Ringer, lease: Lease) -> None:
    async with database.transaction("delete_leased_schedules") as connection:
        jobs = await schedules.lock(connection, ids)
        mine = [job_id for job_id, job in jobs.items() if job.lease_id == lease.id]
        running = await schedule_changes.delete_scheduled_jobs(connection, mine, CARILLON)
    await ringer.call_off(running)
