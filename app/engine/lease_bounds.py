"""The bounds of agents' leases: changes of their schedules and runs on request fit the terms and what is left."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from app.domain.agent_leases import (
    Lease,
    LeaseStatus,
    Usage,
    charge,
    compiled,
    first_slot_errors,
    is_edited,
    require_active,
    require_reviewed,
    require_room,
    require_workflow,
    reviewed_again,
    term_errors,
)
from app.domain.errors import CarillonError, InvalidError, LeaseExhaustedError, UnauthenticatedError
from app.domain.notifications import lease_notice
from app.domain.planning import with_start_anchor
from app.domain.revisions import Author
from app.domain.schedules import ScheduledJob
from app.persistence import agent_leases, notifications
from app.persistence.database import Connection, Database


class LeaseBounds:
    """The leases of schedules that are changed together, locked, and what the changes so far have taken from them."""

    def __init__(self, leases: Mapping[int, Lease]) -> None:
        """Know these leases."""
        self._leases = leases
        self._taken: dict[int, Usage] = {}

    async def bounded(
        self, connection: Connection, before: ScheduledJob, after: ScheduledJob, author: Author, now: datetime
    ) -> ScheduledJob:
        """Return a changed schedule, or refuse the change: it must fit the terms of its lease and what is left."""
        lease = self._leases.get(before.lease_id or 0)
        if lease is None or after.lease_id is None:
            return after
        grant = None if author.actor is None else author.actor.grant
        if is_edited(before, after):
            await _require_terms(connection, lease, before, after, now)
        if grant is not None:
            after = reviewed_again(lease, before, after)
        had, has = charge(before), charge(after)
        added = Usage(
            schedules=max(0, has.schedules - had.schedules),
            runs=max(0, has.runs - had.runs),
            writes=int(grant is not None),
        )
        if added != Usage():
            taken = self._taken.get(lease.id, Usage())
            used = (await agent_leases.usage(connection, lease)).plus(taken)
            await _spend(connection, lease, used, added)
            self._taken[lease.id] = taken.plus(added)
        return after


async def of_schedules(connection: Connection, jobs: Iterable[ScheduledJob]) -> LeaseBounds:
    """Lock the leases of schedules that are locked already. Leases are locked last, in the order of their ids."""
    ids = {job.lease_id for job in jobs if job.lease_id is not None}
    return LeaseBounds(await agent_leases.lock_many(connection, ids) if ids else {})


async def _require_terms(
    connection: Connection, lease: Lease, before: ScheduledJob, after: ScheduledJob, now: datetime
) -> None:
    if after.workflow_id != before.workflow_id:
        types = await agent_leases.node_types(connection, [after.workflow_id])
        require_workflow(lease, after.workflow_id, types.get(after.workflow_id, frozenset()))
    errors = term_errors(lease, after, now)
    if errors:
        raise InvalidError(*errors)


async def _spend(connection: Connection, lease: Lease, used: Usage, added: Usage) -> None:
    """Refuse what a lease has no room for, and note the changes of its agent."""
    require_room(lease, used, added)
    if added.writes:
        await agent_leases.spend(connection, lease.id, writes=added.writes)


async def debit_writes(connection: Connection, author: Author, count: int = 1) -> None:
    """Note that an agent changes something; refuse it if its lease is used up. To be called after all locks."""
    grant = None if author.actor is None else author.actor.grant
    lease = None if grant is None or not count else await agent_leases.lock(connection, grant.lease_id)
    if lease is not None:
        used = await agent_leases.usage(connection, lease)
        await _spend(connection, lease, used, Usage(writes=count))


async def debit_runs(connection: Connection, job: ScheduledJob, author: Author, now: datetime) -> None:
    """Charge a run on request to the lease of its schedule; refuse it if the lease has ended or is used up.

    To be called after all locks.
    """
    lease = None if job.lease_id is None else await agent_leases.lock(connection, job.lease_id)
    if lease is None:
        return
    require_active(lease, now)
    grant = None if author.actor is None else author.actor.grant
    if grant is not None:
        require_reviewed(lease, job)
    used = await agent_leases.usage(connection, lease)
    await _spend(connection, lease, used, Usage(runs=1, writes=int(grant is not None)))
    await agent_leases.spend(connection, lease.id, runs=1)


async def require_runs(connection: Connection, job: ScheduledJob, count: int, now: datetime) -> None:
    """Refuse so many runs of a schedule beside its slots if its lease has ended or has no room. Nothing is charged."""
    lease = None if job.lease_id is None else await agent_leases.get(connection, job.lease_id)
    if lease is not None:
        require_active(lease, now)
        require_room(lease, await agent_leases.usage(connection, lease), Usage(runs=count))


async def runs_left(connection: Connection, job: ScheduledJob, now: datetime) -> int | None:
    """Lock the lease of a schedule and return how many runs it has left, 0 once it has ended; None without a lease.

    To be called after all locks.
    """
    lease = None if job.lease_id is None else await agent_leases.lock(connection, job.lease_id)
    if lease is None:
        return None
    if lease.status(now) is not LeaseStatus.ACTIVE:
        return 0
    return max(0, lease.max_runs - (await agent_leases.usage(connection, lease)).runs)


async def spend_runs(connection: Connection, job: ScheduledJob, count: int) -> None:
    """Charge runs beside the slots of a schedule to its lease, which is locked, if it has one."""
    if job.lease_id is not None and count:
        await agent_leases.spend(connection, job.lease_id, runs=count)


async def tell_exhausted(database: Database, lease_id: int, error: LeaseExhaustedError) -> None:
    """Notify the owner of a lease that something was refused because it is used up; once an hour at most."""
    async with database.transaction("tell_exhausted") as connection:
        lease = await agent_leases.get(connection, lease_id)
        if lease is not None and await agent_leases.note_exhausted(connection, lease_id):
            await notifications.enqueue(connection, [lease_notice(lease, error.detail)])


class Wish(msgspec.Struct, frozen=True):
    """A new schedule that an agent asks for, and the agent's lease."""

    job: ScheduledJob
    lease_id: int


async def admit(connection: Connection, wishes: Sequence[Wish], now: datetime) -> list[ScheduledJob | CarillonError]:
    """Return each new schedule with the bounds of its lease, or why the lease refuses it.

    The leases are locked, so that requests at the same time cannot take more than is left; each wish sees what those
    before it took.
    """
    leases = await agent_leases.lock_many(connection, {wish.lease_id for wish in wishes})
    used = {lease.id: await agent_leases.usage(connection, lease) for lease in leases.values()}
    types = await agent_leases.node_types(connection, [wish.job.workflow_id for wish in wishes])
    admitted: list[ScheduledJob | CarillonError] = []
    for wish in wishes:
        lease = leases.get(wish.lease_id)
        if lease is None or lease.status(now) is not LeaseStatus.ACTIVE:
            admitted.append(UnauthenticatedError("The lease of this token has ended."))
            continue
        try:
            require_workflow(lease, wish.job.workflow_id, types.get(wish.job.workflow_id, frozenset()))
            job = _fitting(lease, wish.job, now)
            added = charge(job).plus(Usage(writes=1))
            require_room(lease, used[lease.id], added)
        except CarillonError as error:
            admitted.append(error)
        else:
            used[lease.id] = used[lease.id].plus(added)
            admitted.append(job)
    for lease in leases.values():
        await agent_leases.spend(connection, lease.id, writes=used[lease.id].writes - lease.writes)
    return admitted


def _fitting(lease: Lease, draft: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return a new schedule with the bounds of its lease; ``InvalidError`` names what does not fit."""
    job = compiled(lease, draft)
    errors = [*term_errors(lease, with_start_anchor(job, now), now), *first_slot_errors(lease, job, now)]
    if errors:
        raise InvalidError(*errors)
    return job
