"""Carries out operations on many schedules, a batch at a time.

Each batch is one transaction: it changes schedules, stores what they were before, and counts. It holds the lock of the
operation's row meanwhile, so that a worker that dies loses one batch at most, and any other goes on.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from app.domain.access import Actor, require_owner, require_workflow_owner
from app.domain.audit import AuditAction
from app.domain.audited_changes import schedule_subject
from app.domain.bulk_operations import (
    CHANGED_SINCE,
    NOT_FOUND,
    RUNNING,
    UNCHANGED,
    BulkAction,
    Former,
    OperationStatus,
    RowState,
    changes_of,
    former_of,
    restored,
    skip_reason,
    undeleted,
    with_new_status,
)
from app.domain.calendars import NO_CALENDARS
from app.domain.errors import CarillonError, NotFoundError, UnavailableError
from app.domain.executions import PendingRun
from app.domain.limits import Caps
from app.domain.overlap import Arrival, Refuse, overlap
from app.domain.revisions import Action, Author, revision
from app.domain.schedule_lifecycle import edited
from app.domain.schedules import IfRunning, ScheduledJob
from app.engine import lease_bounds, schedule_changes
from app.engine.manual_runs import manual_run
from app.engine.ringing import Ringer
from app.engine.schedule_changes import Change
from app.persistence import (
    audit,
    calendars,
    executions,
    operations,
    restrictions,
    revisions,
    schedules,
    users,
    workflows,
)
from app.persistence.audit import ORIGIN, current_origin
from app.persistence.database import Connection, Database, database_now
from app.persistence.operations import Batch, Item, Operation
from app.persistence.revisions import ScheduleChange

# More rows make an operation faster, and hold the rows' locks and the event loop for longer.
BATCH_ROWS = 500
# How often it looks for operations.
LOOK_SECONDS = 1.0
USER_GONE = "The user who started the operation is disabled or gone."
WORKFLOW_GONE = "The former workflow does not exist any more."
MADE_WITH_LEASE = "The schedule was made with the lease of an agent, and is not restored."
INTERNAL_ERROR = "An internal error occurred. The log of the worker has the details."

log = structlog.get_logger(__name__)


class Handled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a batch, and what is to be rung for after its commit."""

    batch: Batch
    ticks: tuple[ScheduledJob, ...] = ()
    pending: tuple[PendingRun, ...] = ()
    called_off: tuple[UUID, ...] = ()


class OperationRunner:
    """Takes operations and carries them out."""

    def __init__(self, database: Database, ringer: Ringer, caps: Caps) -> None:
        """Ring after each batch; ``caps`` bound the values of edits."""
        self._database = database
        self._ringer = ringer
        self._caps = caps

    async def step(self) -> float:
        """Carry out one batch of an operation. Return the seconds until the next one."""
        try:
            is_busy = await self.run_batch(BATCH_ROWS)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again and then logged as a whole
            # One of the rows: they are handled one by one, so that only the bad one fails.
            log.warning("operation_batch_failed", error=type(error).__name__)
            is_busy = await self._one_by_one()
        return 0.0 if is_busy else LOOK_SECONDS

    async def _one_by_one(self) -> bool:
        is_busy = True
        for _ in range(BATCH_ROWS):
            try:
                is_busy = await self.run_batch(1)
            except UnavailableError:
                raise
            except CarillonError as error:
                is_busy = await self.run_batch(1, error.detail)
            except Exception as error:
                log.exception("operation_row_failed", error=type(error).__name__)
                is_busy = await self.run_batch(1, INTERNAL_ERROR)
            if not is_busy:
                break
        return is_busy

    async def run_batch(self, limit: int, problem: str = "") -> bool:
        """Handle the next schedules of one operation; with a problem, they fail because of it.

        Return whether there was an operation.
        """
        async with self._database.transaction("operation") as connection:
            operation = await operations.take(connection)
            if operation is None:
                return False
            before = ORIGIN.set(operation.warrant.origin)
            try:
                handled = await self._handle(connection, operation, limit, problem)
            finally:
                ORIGIN.reset(before)
        if handled is not None:
            await self._ringer.ticks(handled.ticks)
            await self._ringer.executions(handled.pending)
            await self._ringer.call_off(handled.called_off)
        return True

    async def _handle(self, connection: Connection, operation: Operation, limit: int, problem: str) -> Handled | None:
        actor = await _actor_of(connection, operation)
        if actor is None:
            await operations.end(connection, operation.id, OperationStatus.FAILED, USER_GONE)
            return None
        items = await operations.next_items(connection, operation, limit)
        if problem:
            now = await database_now(connection)
            handled = Handled(batch=Batch(at=now, failed={item.job_id: problem for item in items}))
        else:
            handled = await self._carry_out(connection, operation, actor, items)
        await operations.store(connection, operation, handled.batch, items[-1].job_id if items else None)
        if len(items) < limit:
            await _finish(connection, operation, handled.batch)
        return handled

    async def _carry_out(
        self, connection: Connection, operation: Operation, actor: Actor, items: Sequence[Item]
    ) -> Handled:
        match operation.action:
            case BulkAction.RUN:
                return await _run(connection, actor, items)
            case BulkAction.DELETE:
                return await _delete(connection, actor, items)
            case BulkAction.UNDO if operation.selection.get("action") == BulkAction.DELETE:
                return await _add_again(connection, actor, items, operation.note)
            case BulkAction.UNDO:
                return await self._restore(connection, actor, items, operation.note)
            case BulkAction.MOVE:
                return await self._move(connection, operation, actor, items)
            case _:
                return await self._change(connection, operation, actor, items)

    async def _move(self, connection: Connection, operation: Operation, actor: Actor, items: Sequence[Item]) -> Handled:
        target = operation.terms.workflow_id or 0
        # Before the schedules are locked: the order of locks.
        owner = (await workflows.owners(connection, {target})).get(target)
        try:
            require_owner(actor, owner, "workflow", is_within=await _is_within(connection, actor, target))
        except CarillonError as error:
            now = await database_now(connection)
            return Handled(batch=Batch(at=now, failed={item.job_id: error.detail for item in items}))
        return await self._change(connection, operation, actor, items, workflow_owner=owner)

    async def _change(
        self,
        connection: Connection,
        operation: Operation,
        actor: Actor,
        items: Sequence[Item],
        workflow_owner: int | None = None,
    ) -> Handled:
        action, terms = operation.action, operation.terms

        found = await _locked(connection, actor, items)
        skipped = found.skipped | _skipped_by_state(action, found.jobs)
        jobs = {job_id: job for job_id, job in found.jobs.items() if job_id not in skipped}
        edits = action not in {BulkAction.PAUSE, BulkAction.RESUME, BulkAction.REVIVE}
        values, refused = _values(operation, jobs if edits else {})

        def change(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
            if not edits:
                return with_new_status(action, job, active_runs, now, terms.until)
            if workflow_owner is not None:
                require_workflow_owner(job.user_profile_id, workflow_owner, None)
            if job.id in refused:
                raise refused[job.id]
            return edited(job, values[job.id], active_runs, now, self._caps)

        ready = await calendars.prepared(connection, jobs, values) if edits else jobs
        return await _change_all(connection, _Ready(jobs, ready), skipped, change, actor, operation.note)

    async def _restore(self, connection: Connection, actor: Actor, items: Sequence[Item], note: str) -> Handled:
        formers = {item.job_id: msgspec.convert(item.before, Former) for item in items}
        targets = {former.values["workflow_id"] for former in formers.values() if "workflow_id" in former.values}
        missing = targets - (await workflows.owners(connection, targets)).keys() if targets else set()
        found = await _locked(connection, actor, items)
        since = await operations.changed_since(connection, items)
        skipped = {**dict.fromkeys(since & found.jobs.keys(), CHANGED_SINCE), **found.skipped}

        jobs = {job_id: job for job_id, job in found.jobs.items() if job_id not in skipped}
        values = {job_id: typed_values(job, formers[job_id].values) for job_id, job in jobs.items()}

        def change(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
            former = formers[job.id]
            if former.values.get("workflow_id") in missing:
                raise NotFoundError(WORKFLOW_GONE)
            return restored(job, former, values[job.id], active_runs, now, self._caps)

        ready = await calendars.prepared(connection, jobs, values)
        return await _change_all(connection, _Ready(jobs, ready), skipped, change, actor, note)


class _Ready(msgspec.Struct, frozen=True):
    """Locked schedules as they are, and with the calendars that they have after a change."""

    jobs: dict[UUID, ScheduledJob]
    ready: dict[UUID, ScheduledJob]


def author_of(actor: Actor) -> Author:
    """Return the author of what a worker does for the user who started an operation, by the origin of the request."""
    return Author(actor.user_id, actor.username, actor, current_origin(), on_behalf_of=actor.username)


class _Locked(msgspec.Struct, frozen=True):
    jobs: dict[UUID, ScheduledJob]
    skipped: dict[UUID, str]


async def _actor_of(connection: Connection, operation: Operation) -> Actor | None:
    """Return who started an operation, with the rights of now, but no more than the token allowed then."""
    user = await users.acting(connection, operation.user_profile_id)
    if user is None:
        return None
    warrant = operation.warrant
    undone = operation.selection.get("action")
    action = BulkAction(undone) if operation.action is BulkAction.UNDO and undone else operation.action
    return replace(user, token_scope=warrant.scope, restriction=warrant.restriction, needs=action.needs)


async def _finish(connection: Connection, operation: Operation, last: Batch) -> None:
    """End an operation after its last batch: it has failed if nothing was changed and something failed."""
    changed, failed = operation.done + len(last.changed), operation.failed + len(last.failed)
    status = OperationStatus.FAILED if failed and not changed else OperationStatus.DONE
    await operations.end(
        connection, operation.id, status, "No schedule could be changed." if failed and not changed else ""
    )
    log.info("operation_ended", operation=str(operation.id), action=operation.action, changed=changed, failed=failed)


async def _locked(connection: Connection, actor: Actor, items: Sequence[Item]) -> _Locked:
    """Lock the schedules that still exist and that the actor may change."""
    jobs = await schedules.lock(connection, [item.job_id for item in items])
    within = await restrictions.admitted_schedules(connection, actor.restriction, jobs)
    usable = {
        job_id: job for job_id, job in jobs.items() if actor.may_use(job.user_profile_id, is_within=job_id in within)
    }
    return _Locked(usable, {item.job_id: NOT_FOUND for item in items if item.job_id not in usable})


def _skipped_by_state(action: BulkAction, jobs: dict[UUID, ScheduledJob]) -> dict[UUID, str]:
    reasons = {job_id: skip_reason(action, _state_of(job)) for job_id, job in jobs.items()}
    return {job_id: reason for job_id, reason in reasons.items() if reason}


def _state_of(job: ScheduledJob) -> RowState:
    return RowState(
        status=job.status,
        status_reason=job.status_reason,
        if_running=job.if_running,
        has_active_run=False,
        is_same=False,
    )


def typed_values(job: ScheduledJob, values: dict[str, Any]) -> dict[str, Any]:
    """Return values that were stored as JSON in the types of the fields."""
    typed = schedules.with_stored_values(job, values)
    return {name: getattr(typed, name) for name in values}


def _values(
    operation: Operation, jobs: dict[UUID, ScheduledJob]
) -> tuple[dict[UUID, dict[str, Any]], dict[UUID, CarillonError]]:
    """Return the new values of each schedule, and why some of them cannot have any."""
    values: dict[UUID, dict[str, Any]] = {}
    refused: dict[UUID, CarillonError] = {}
    for job in jobs.values():
        try:
            values[job.id] = typed_values(job, changes_of(operation.action, operation.terms, job))
        except CarillonError as error:
            refused[job.id], values[job.id] = error, {}
    return values, refused


async def _change_all(
    connection: Connection,
    locked: _Ready,
    skipped: dict[UUID, str],
    change: Change,
    actor: Actor,
    note: str,
) -> Handled:
    jobs, author = locked.jobs, author_of(actor)
    done = await schedule_changes.change_many(connection, jobs, change, author, note, ready=locked.ready)
    same = dict.fromkeys(jobs.keys() - done.changed.keys() - done.refused.keys(), UNCHANGED)
    return Handled(
        batch=Batch(
            at=done.now,
            changed={job_id: former_of(before, after) for job_id, (before, after) in done.changed.items()},
            skipped={**skipped, **same},
            failed={job_id: str(error) for job_id, error in done.refused.items()},
        ),
        ticks=tuple(after for _, after in done.changed.values()),
        pending=done.pending,
    )


async def _run(connection: Connection, actor: Actor, items: Sequence[Item]) -> Handled:
    """Start a run of each schedule, unless ``if_running`` forbids it or would cancel an active run."""
    found = await _locked(connection, actor, items)
    active, now = await executions.active_and_now(connection, found.jobs)
    skipped = dict(found.skipped)
    new = {}
    for job_id, job in found.jobs.items():
        policy = job.if_running
        is_known = type(policy) is IfRunning
        decision = overlap(policy, Arrival.MANUAL, active.get(job_id, ()), job.max_queued) if is_known else None
        if decision is None or isinstance(decision, Refuse) or decision.cancels:
            skipped[job_id] = RUNNING
        else:
            new[job_id] = manual_run(job, now, policy, decision)
    failed = await _debit(connection, actor, [found.jobs[job_id] for job_id in new], now)
    new = {job_id: run for job_id, run in new.items() if job_id not in failed}
    await executions.add(connection, list(new.values()))
    await schedules.touch_many(connection, list(new))
    subjects = [schedule_subject(found.jobs[job_id]) for job_id in new]
    await audit.record_by(connection, author_of(actor), AuditAction.SCHEDULE_RUN, subjects)
    pending = tuple(PendingRun(run.id, run.token, run.due_at) for run in new.values() if not run.queued)
    return Handled(batch=Batch(at=now, changed=dict.fromkeys(new), skipped=skipped, failed=failed), pending=pending)


async def _debit(connection: Connection, actor: Actor, jobs: Sequence[ScheduledJob], now: datetime) -> dict[UUID, str]:
    """Charge a run of each schedule to its lease, if it has one; return why some are refused."""
    failed: dict[UUID, str] = {}
    for job in sorted((job for job in jobs if job.lease_id is not None), key=lambda job: job.lease_id or 0):
        try:
            await lease_bounds.debit_runs(connection, job, Author(actor.user_id, actor.username), now)
        except CarillonError as error:
            failed[job.id] = error.detail
    return failed


async def _delete(connection: Connection, actor: Actor, items: Sequence[Item]) -> Handled:
    found = await _locked(connection, actor, items)
    now = await database_now(connection)
    author = author_of(actor)
    running = await schedule_changes.delete_scheduled_jobs(connection, list(found.jobs), author)
    # Calendars are large, and are looked up again.
    stored = {job_id: replace(job, calendars=NO_CALENDARS) for job_id, job in found.jobs.items()}
    return Handled(batch=Batch(at=now, changed=stored, skipped=found.skipped), called_off=tuple(running))


async def _is_within(connection: Connection, actor: Actor, workflow_id: int) -> bool:
    return actor.restriction is None or await restrictions.admits_workflow(connection, actor.restriction, workflow_id)


def _may_add_again(actor: Actor, job: ScheduledJob) -> bool:
    is_within = actor.restriction is None or actor.restriction.leaves(job.workflow_id, job.labels)
    return actor.may_use(job.user_profile_id, is_within=is_within)


async def _add_again(connection: Connection, actor: Actor, items: Sequence[Item], note: str) -> Handled:
    """Store deleted schedules again, under their ids, if their workflows are still there."""
    now = await database_now(connection)
    deleted = {item.job_id: schedules.from_stored(item.before or {}) for item in items}
    owners = await workflows.owners(connection, {job.workflow_id for job in deleted.values()})
    existing = await schedules.existing(connection, deleted)
    skipped = dict.fromkeys(existing, CHANGED_SINCE)
    skipped |= {job.id: NOT_FOUND for job in deleted.values() if not _may_add_again(actor, job)}
    left = await calendars.bound(connection, [job for job in deleted.values() if job.id not in skipped])
    # The runs of a deleted schedule went back to its lease, and may be used by others.
    jobs = [undeleted(job, now) for job in left if job.workflow_id in owners and job.lease_id is None]
    await schedules.add_again(connection, jobs)
    author = author_of(actor)
    made = partial(revision, None, action=Action.CREATED, author=author, now=now, note=note)
    await revisions.add_schedule_revisions(connection, [ScheduleChange(made(job), job, author) for job in jobs])
    failed = {job.id: WORKFLOW_GONE for job in left if job.workflow_id not in owners}
    failed |= {job.id: MADE_WITH_LEASE for job in left if job.lease_id is not None}
    batch = Batch(at=now, changed={job.id: None for job in jobs}, skipped=skipped, failed=failed)
    return Handled(batch=batch, ticks=tuple(jobs))
