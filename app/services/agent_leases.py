"""Leases of agents: grant, read, extend, approve, adopt and revoke them."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from msgspec.structs import asdict, replace

from app.domain.access import Actor, Scope, outlives, require_admin
from app.domain.agent_leases import Lease, LeaseStatus, Usage, adopted, approved, changed_terms, with_lease_end
from app.domain.audit import AuditAction
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError, WrongStateError
from app.domain.revisions import Author
from app.domain.schedules import ScheduledJob
from app.engine import schedule_changes
from app.engine.agent_leases import BATCH, end, subject_of
from app.engine.ringing import Ringer
from app.engine.schedule_changes import Change
from app.persistence import agent_leases, audit, schedules, users, workflows
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part
from app.persistence.users import TokenTerms
from app.services.inputs import IDS, AdoptInput, ApproveInput, LeaseChanges, LeaseInput, NoteInput, given
from app.services.listing import read_views
from app.services.preconditions import require_match, tag_of
from app.services.schedules import author_of
from app.services.users import MOST_TOKENS, existing_user
from app.services.views.leases import FreshLeaseView, LeaseList, LeaseView, lease_view, listed_lease

# Of one owner, those that have ended left out.
MOST_LEASES = 200

log = structlog.get_logger(__name__)


class AgentLeaseService:
    """Use cases about leases of agents."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring after each commit that changes a pending tick."""
        self._database = database
        self._ringer = ringer

    async def grant(self, actor: Actor, request: LeaseInput) -> FreshLeaseView:
        """Grant a lease to an agent; only this answer has the agent's token."""
        if request.user_id not in {None, actor.user_id}:
            require_admin(actor)
        owner_id = request.user_id or actor.user_id
        terms = {name: value for name, value in asdict(request).items() if name not in {"agent", "user_id"}}
        terms["workflows"] = list(dict.fromkeys(request.workflows))
        fresh = users.make_token()
        async with self._database.transaction() as connection:
            await existing_user(connection, owner_id)
            _require_future(actor, request.expires_at, await database_now(connection))
            await _require_workflows(connection, actor, request.workflows)
            await users.lock(connection, owner_id)
            if await users.count_live_tokens(connection, owner_id) >= MOST_TOKENS:
                raise ConflictError(f"The user has {MOST_TOKENS} tokens already. Delete one first.")
            values = {"user_profile_id": owner_id, "granted_by": actor.username, "agent": request.agent, **terms}
            lease_id = await agent_leases.add(connection, values)
            token = TokenTerms(
                name=f"agent:{request.agent}",
                scopes=[Scope.WRITE],
                restriction=actor.restriction,
                expires_at=request.expires_at,
                lease_id=lease_id,
            )
            await users.add_token(connection, owner_id, token, fresh)
            lease = await _stored(connection, lease_id)
            details = agent_leases.as_json(terms)
            await audit.record(connection, actor, AuditAction.LEASE_GRANTED, subject_of(lease), details=details)
            view = await _view(connection, lease)
        log.info("agent_lease_granted", lease=lease_id, owner=owner_id, by=actor.user_id)
        return FreshLeaseView(**asdict(view), token=fresh.token)

    async def list(self, actor: Actor, part: Part) -> LeaseList:
        """Return a page of the leases that the actor owns, for admins of all; an agent sees its own."""
        async with self._database.reading() as connection:
            now = await database_now(connection)
            read = partial(agent_leases.page, connection, actor)
            page = await read_views(read, partial(listed_lease, now=now), part)
        return LeaseList(page.items, page.next_cursor)

    async def get(self, actor: Actor, lease_id: int) -> LeaseView:
        """Return a lease with what of it is used."""
        async with self._database.transaction() as connection:
            return await _view(connection, await _visible(connection, actor, lease_id))

    async def change(self, actor: Actor, lease_id: int, changes: LeaseChanges) -> LeaseView:
        """Give a lease other terms. Another end also holds for its schedules; those it had paused go on."""
        values = given(changes)
        if "workflows" in values:
            values["workflows"] = tuple(dict.fromkeys(values["workflows"]))
        async with self._database.transaction() as connection:
            # Before the lease is locked: the order of locks.
            await _require_workflows(connection, actor, values.get("workflows", ()))
            before = await _managed(connection, actor, lease_id)
            differing = changed_terms(before, values)
            if differing:
                _require_not_revoked(before)
            if "expires_at" in differing:
                _require_future(actor, differing["expires_at"], await database_now(connection))
            if differing:
                await self._store(connection, actor, before, differing)
        if "expires_at" in differing:
            move = partial(_with_end, differing["expires_at"])
            await self._change_all(actor, before, move, f"The lease {lease_id} has another end.")
        if differing:
            log.info("agent_lease_changed", lease=lease_id, by=actor.user_id, fields=sorted(differing))
        return await self.get(replace(actor, needs=Scope.READ), lease_id)

    async def _store(self, connection: Connection, actor: Actor, before: Lease, differing: dict[str, Any]) -> None:
        values = dict(differing)
        if "expires_at" in differing:
            values["ended_at"] = None
            await users.end_tokens_of_lease(connection, before.id, differing["expires_at"])
        await agent_leases.change(connection, before.id, values)
        changes = {name: {"from": getattr(before, name), "to": value} for name, value in differing.items()}
        await audit.record(
            connection, actor, AuditAction.LEASE_CHANGED, subject_of(before), changes=agent_leases.as_json(changes)
        )

    async def approve(self, actor: Actor, lease_id: int, request: ApproveInput) -> LeaseView:
        """Approve the schedules that await review, or those of them that are named; those that were paused begin."""
        async with self._database.transaction() as connection:
            lease = await _managed(connection, actor, lease_id)
            _require_not_ended(lease, await database_now(connection))
            if request.schedule_ids is not None:
                await _require_of_lease(connection, lease, request.schedule_ids)
            waiting = await agent_leases.awaiting_review(connection, lease_id, BATCH * 5, request.schedule_ids)
            details = {"schedule_ids": [str(job_id) for job_id in waiting]}
            await audit.record(
                connection, actor, AuditAction.LEASE_APPROVED, subject_of(lease), details=details, note=request.note
            )
        for start in range(0, len(waiting), BATCH):
            await self._change_batch(author_of(actor), waiting[start : start + BATCH], approved, request.note)
        return await self.get(replace(actor, needs=Scope.READ), lease_id)

    async def adopt(self, actor: Actor, lease_id: int, request: AdoptInput) -> LeaseView:
        """Take schedules out of their lease: they are the owner's, without its bounds. Their runs stay spent."""
        async with self._database.transaction() as connection:
            lease = await _managed(connection, actor, lease_id)
        ids = request.schedule_ids
        if ids is None:
            await self._change_all(actor, lease, adopted, request.note, action=AuditAction.LEASE_ADOPTED, alive=False)
        else:
            async with self._database.transaction() as connection:
                await _require_of_lease(connection, lease, ids)
            await self._adopt(actor, lease, list(dict.fromkeys(ids)), request.note)
        return await self.get(replace(actor, needs=Scope.READ), lease_id)

    async def revoke(self, actor: Actor, lease_id: int, note: NoteInput) -> LeaseView:
        """End a lease now: its token is refused, its schedules are paused, and what they run is called off."""
        async with self._database.transaction() as connection:
            lease = await _managed(connection, actor, lease_id)
            _require_not_revoked(lease)
            now = await database_now(connection)
            await users.end_tokens_of_lease(connection, lease_id, None)
            await agent_leases.change(connection, lease_id, {"revoked_at": now, "ended_at": None})
            await audit.record(connection, actor, AuditAction.LEASE_REVOKED, subject_of(lease), note=note.note)
        await end(self._database, self._ringer, replace(lease, revoked_at=now))
        log.info("agent_lease_revoked", lease=lease_id, by=actor.user_id)
        return await self.get(replace(actor, needs=Scope.READ), lease_id)

    async def _change_all(
        self,
        actor: Actor,
        lease: Lease,
        change: Change,
        note: str,
        *,
        action: AuditAction | None = None,
        alive: bool = True,
    ) -> None:
        after = agent_leases.FIRST
        while True:
            async with self._database.transaction() as connection:
                ids = await agent_leases.schedules_of(connection, lease.id, after, BATCH, alive=alive)
            if ids and action is AuditAction.LEASE_ADOPTED:
                await self._adopt(actor, lease, ids, note)
            elif ids:
                await self._change_batch(author_of(actor), ids, change, note)
            if len(ids) < BATCH:
                return
            after = ids[-1]

    async def _adopt(self, actor: Actor, lease: Lease, ids: Sequence[UUID], note: str) -> None:
        async with self._database.transaction() as connection:
            found = await schedules.lock(connection, ids)
            jobs = {job_id: job for job_id, job in found.items() if job.lease_id == lease.id}
            done = await schedule_changes.change_many(connection, jobs, adopted, author_of(actor), note, by_lease=True)
            spent = sum(job.lease_runs for job in jobs.values())
            await agent_leases.spend(connection, lease.id, runs=spent)
            details = {"schedule_ids": [str(job_id) for job_id in jobs]}
            await audit.record(
                connection, actor, AuditAction.LEASE_ADOPTED, subject_of(lease), details=details, note=note
            )
        await self._ringer.ticks([after for _, after in done.changed.values()])
        await self._ringer.executions(done.pending)

    async def _change_batch(self, author: Author, ids: Sequence[UUID], change: Change, note: str) -> None:
        async with self._database.transaction() as connection:
            jobs = await schedules.lock(connection, ids)
            done = await schedule_changes.change_many(connection, jobs, change, author, note, by_lease=True)
        await self._ringer.ticks([after for _, after in done.changed.values()])
        await self._ringer.executions(done.pending)


def _with_end(ends_at: datetime, job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    return with_lease_end(job, ends_at, active_runs, now)


async def _require_of_lease(connection: Connection, lease: Lease, ids: Sequence[UUID]) -> None:
    """Refuse ids that are not of schedules of the lease."""
    found = {job_id: await schedules.get(connection, job_id) for job_id in ids}
    errors = [
        FieldError(f"schedule_ids[{index}]", f"The lease {lease.id} has no such schedule.")
        for index, job_id in enumerate(ids)
        if (job := found[job_id]) is None or job.lease_id != lease.id
    ]
    if errors:
        raise InvalidError(*errors)


async def _stored(connection: Connection, lease_id: int) -> Lease:
    lease = await agent_leases.get(connection, lease_id)
    if lease is None:
        raise AssertionError(f"lease {lease_id} is not visible in the transaction that wrote it")
    return lease


async def _view(connection: Connection, lease: Lease) -> LeaseView:
    used: Usage = await agent_leases.usage(connection, lease)
    ids = await agent_leases.schedules_of(connection, lease.id)
    waiting = await agent_leases.awaiting_review(connection, lease.id)
    return lease_view(lease, await database_now(connection), used, ids, waiting)


async def _visible(connection: Connection, actor: Actor, lease_id: int) -> Lease:
    """Return a lease that the actor may see: its owner, an admin, or the agent that it was granted to."""
    lease = await agent_leases.get(connection, lease_id) if lease_id in IDS else None
    return _required(actor, lease)


async def _managed(connection: Connection, actor: Actor, lease_id: int) -> Lease:
    """Return a lease that the actor may see, locked, in the version that the request names."""
    _required(actor, await agent_leases.get(connection, lease_id) if lease_id in IDS else None)
    lease = _required(actor, await agent_leases.lock(connection, lease_id))
    view = await _view(connection, lease)
    require_match(lambda: tag_of(view))
    return lease


def _required(actor: Actor, lease: Lease | None) -> Lease:
    is_own = lease is not None and (actor.sees_all or lease.user_profile_id == actor.user_id)
    is_agents = actor.grant is None or (lease is not None and actor.grant.lease_id == lease.id)
    if lease is None or not is_own or not is_agents:
        raise NotFoundError("There is no such lease.")
    return lease


def _require_future(actor: Actor, expires_at: datetime, now: datetime) -> None:
    if expires_at <= now:
        raise InvalidError(FieldError("expires_at", "The time is past. Choose a later one."))
    if outlives(expires_at, actor.ends_at):
        raise InvalidError(FieldError("expires_at", "Your own token ends sooner: a lease cannot last longer."))


async def _require_workflows(connection: Connection, actor: Actor, ids: Sequence[int]) -> None:
    """Refuse workflows that do not exist, or that the actor may not see."""
    known = await workflows.owners(connection, set(ids)) if ids else {}
    seen = actor.reach().owners
    errors = [
        FieldError(f"workflows[{index}]", "There is no such workflow.")
        for index, workflow_id in enumerate(ids)
        if workflow_id not in known or (seen is not None and known[workflow_id] not in seen)
    ]
    if errors:
        raise InvalidError(*errors)


def _require_not_revoked(lease: Lease) -> None:
    if lease.revoked_at is not None:
        raise WrongStateError("The lease is revoked. Grant a new one.")


def _require_not_ended(lease: Lease, now: datetime) -> None:
    status = lease.status(now)
    if status is not LeaseStatus.ACTIVE:
        raise WrongStateError(f"The lease is {status}: extend it or adopt its schedules.")
