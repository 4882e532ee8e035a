"""Changes to schedules, inside a transaction that the caller opens. The caller rings after the commit."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain import schedule_lifecycle
from app.domain.audit import AuditAction
from app.domain.errors import CarillonError, InvalidError, NotFoundError
from app.domain.executions import ActiveRun, PendingRun, count_repeats
from app.domain.ledger import LedgerEntry, LedgerOutcome, accounted, dropped_slots
from app.domain.limits import DEFAULT_CAPS, Caps
from app.domain.overlap import dropped_retries
from app.domain.permits import no_such_limit
from app.domain.planning import with_start_anchor
from app.domain.revisions import CARILLON, Action, Author, action_of, revision
from app.domain.schedules import Reason, ScheduledJob
from app.engine import lease_bounds
from app.observability.tracing import current_context
from app.persistence import audit, calendars, executions, ledger, permits, revisions, schedules, workflows
from app.persistence.database import Connection, database_now
from app.persistence.revisions import ScheduleChange
from app.persistence.workflows import StoredWorkflow

PAUSE_ENDED = "The pause has ended."
DELETED_AFTER = "It was done, and the time after which it is deleted has passed."
CADENCE_CHANGED = "Cancelled before it ran: the cadence was changed."

Change = Callable[[ScheduledJob, int, datetime], ScheduledJob]


class Changed(msgspec.Struct, frozen=True):
    """A schedule after a change, and the queued run that may start because of it, if there is one."""

    job: ScheduledJob
    pending: tuple[PendingRun, ...] = ()


async def start_scheduled_jobs(
    connection: Connection, drafts: Sequence[tuple[ScheduledJob, Author]], note: str = ""
) -> list[ScheduledJob]:
    """Create schedules from drafts and their authors, each with its first slot planned."""
    now = await database_now(connection)
    bound = await calendars.bound(connection, [draft for draft, _ in drafts])
    started = [schedule_lifecycle.created(_stamped(draft, now), now) for draft in bound]
    await schedules.add(connection, started)
    authors = (author for _, author in drafts)
    pairs = zip(started, authors, strict=True)
    created = [
        ScheduleChange(revision(None, job, Action.CREATED, author, now, note), job, author) for job, author in pairs
    ]
    await revisions.add_schedule_revisions(connection, created)
    return started


async def calendar_refusals(connection: Connection, drafts: Sequence[ScheduledJob]) -> dict[UUID, InvalidError]:
    """Return which new schedules name a calendar that they cannot use, or one that leaves them no slot."""
    naming = [draft for draft in drafts if draft.names_calendars]
    if not naming:
        return {}
    now = await database_now(connection)
    found = {
        draft.id: schedule_lifecycle.problems(with_start_anchor(_stamped(draft, now), now), now)
        for draft in await calendars.bound(connection, naming)
    }
    return {draft_id: InvalidError(*errors) for draft_id, errors in found.items() if errors}


async def limit_refusals(connection: Connection, drafts: Sequence[ScheduledJob]) -> dict[UUID, InvalidError]:
    """Return which new schedules name a limit that their owners may not use. The others cannot be deleted meanwhile."""
    named = {(draft.user_profile_id, draft.limit) for draft in drafts if draft.limit is not None}
    found = await permits.find_and_keep(connection, named) if named else {}
    return {
        draft.id: InvalidError(no_such_limit(draft.limit))
        for draft in drafts
        if draft.limit is not None and (draft.user_profile_id, draft.limit) not in found
    }


async def start_scheduled_job(
    connection: Connection, draft: ScheduledJob, author: Author, note: str = ""
) -> ScheduledJob:
    """Create one schedule with its first slot planned."""
    (started,) = await start_scheduled_jobs(connection, [(draft, author)], note)
    return started


async def pause_scheduled_job(
    connection: Connection, job_id: UUID, author: Author, note: str = "", until: datetime | None = None
) -> Changed:
    """Pause a schedule, with ``until`` for a time only.

    A message that is under way no longer matches it, and queued runs are cancelled.
    """

    def pause(job: ScheduledJob, _active: int, now: datetime) -> ScheduledJob:
        return schedule_lifecycle.paused_until(job, until, now)

    return await _change(connection, job_id, pause, Action.PAUSED, author, note)


async def resume_scheduled_job(connection: Connection, job_id: UUID, author: Author, note: str = "") -> Changed:
    """Resume a schedule, with the next slot planned from now."""
    return await _change(connection, job_id, schedule_lifecycle.resumed, Action.RESUMED, author, note)


async def revive_scheduled_job(connection: Connection, job_id: UUID, author: Author) -> Changed:
    """Make a dead schedule active again."""
    return await _change(connection, job_id, schedule_lifecycle.revived, Action.REVIVED, author)


async def edit_scheduled_job(
    connection: Connection,
    job_id: UUID,
    changes: dict[str, Any],
    author: Author,
    caps: Caps = DEFAULT_CAPS,
    note: str = "",
) -> Changed:
    """Change fields of a schedule."""

    def edit(job: ScheduledJob, active: int, now: datetime) -> ScheduledJob:
        return schedule_lifecycle.edited(job, changes, active, now, caps)

    return await _change(connection, job_id, edit, Action.CHANGED, author, note, changes)


async def delete_scheduled_jobs(
    connection: Connection, ids: Sequence[UUID], author: Author, note: str = ""
) -> list[UUID]:
    """Delete schedules that this transaction has locked, with their history; return their active executions."""
    running = await executions.active_ids(connection, ids)
    await record_deletions(connection, ids, author, note)
    await schedules.remove(connection, ids)
    return running


async def delete_expired(connection: Connection, default_seconds: int, limit: int) -> int:
    """Delete schedules that have been done for as long as they, or the default, say. Return how many."""
    ids = await schedules.lock_expired(connection, default_seconds, limit)
    if ids:
        await delete_scheduled_jobs(connection, ids, CARILLON, DELETED_AFTER)
    return len(ids)


async def delete_workflow(
    connection: Connection, workflow: StoredWorkflow, job_ids: Sequence[UUID], author: Author
) -> list[UUID]:
    """Delete a workflow and its schedules, which this transaction has locked; return their active executions."""
    running = await executions.active_ids(connection, job_ids)
    await record_deletions(connection, job_ids, author, f"Its workflow {workflow.id} was deleted.")
    subject, details = workflows.subject_of(workflow), {"schedules": len(job_ids)}
    await audit.record_by(connection, author, AuditAction.WORKFLOW_DELETED, [subject], details=details)
    await workflows.remove(connection, workflow.id)
    return running


async def record_deletions(connection: Connection, ids: Sequence[UUID], author: Author, note: str = "") -> None:
    """Add an event for each of these schedules, which are about to be deleted."""
    subjects = await schedules.subjects(connection, ids)
    await audit.record_by(connection, author, AuditAction.SCHEDULE_DELETED, subjects, note=note)


async def resume_valid_spec(connection: Connection, job_id: UUID) -> Changed:
    """Resume a schedule that Carillon paused because its spec had become invalid, if it is valid again."""

    def resume(job: ScheduledJob, active: int, now: datetime) -> ScheduledJob:
        waits = job.status_reason is Reason.INVALID_SPEC and not job.spec.problem
        return schedule_lifecycle.resumed(job, active, now) if waits else job

    return await _change(connection, job_id, resume, Action.RESUMED, CARILLON)


async def _change(  # noqa: PLR0913 - what is changed, how, by whom and why
    connection: Connection,
    job_id: UUID,
    change: Change,
    action: Action,
    author: Author,
    note: str = "",
    values: Mapping[str, Any] | None = None,
) -> Changed:
    """Lock the schedule, read its active runs, decide, and write. A change that changes nothing writes nothing.

    ``values`` are the fields that the change sets, of which some name calendars.
    """
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        raise NotFoundError("There is no such schedule.")
    ready = (await calendars.prepared(connection, {job_id: job}, {job_id: values}))[job_id] if values else job
    active, now = await executions.active_and_now(connection, [job_id])
    changed = change(ready, count_repeats(active.get(job_id, ())), now)
    if changed is ready:
        return Changed(job)
    freed = await _change_limits(connection, [(job, changed)])
    if job.lease_id is not None:
        leases = await lease_bounds.of_schedules(connection, [job])
        changed = await leases.bounded(connection, job, changed, author, now)
    entries = dropped_slots(job, changed, now)
    changed = accounted(changed, entries, now)
    if author is not CARILLON:
        changed = replace(changed, trace_context=current_context())
    await schedules.save(connection, [changed])
    await ledger.add(connection, [(job_id, entry) for entry in entries])
    told = ScheduleChange(revision(job, changed, action, author, now, note), changed, author)
    await revisions.add_schedule_revisions(connection, [told])
    left = await _without_dropped_retries(connection, job, changed, active.get(job_id, ()), now)
    released = await executions.release_next(connection, [changed], {job_id: left}, now)
    saved = await schedules.get(connection, job_id)
    if saved is None:
        raise AssertionError(f"schedule {job_id} vanished under lock")
    return Changed(saved, (*released.values(), *freed))


async def _change_limits(
    connection: Connection, changes: Sequence[tuple[ScheduledJob, ScheduledJob]]
) -> list[PendingRun]:
    """Refuse a limit that does not exist. Return the runs that do not wait for the former limit any more."""
    other = [(before, after) for before, after in changes if before.limit != after.limit]
    if not other:
        return []
    named = {(after.user_profile_id, after.limit) for _, after in other if after.limit is not None}
    found = await permits.find_and_keep(connection, named) if named else {}
    missing = [name for owner, name in named if (owner, name) not in found]
    if missing:
        raise InvalidError(no_such_limit(missing[0]))
    return await permits.free_waiting(connection, [after.id for _, after in other])


class ChangedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules before and after a change, those that refused it, and what may start because of it."""

    now: datetime
    changed: dict[UUID, tuple[ScheduledJob, ScheduledJob]]
    refused: dict[UUID, CarillonError]
    pending: tuple[PendingRun, ...]


async def change_many(  # noqa: PLR0913 - what is changed, how, by whom and why
    connection: Connection,
    jobs: Mapping[UUID, ScheduledJob],
    change: Change,
    author: Author,
    note: str = "",
    dated: Callable[[ScheduledJob, datetime], datetime] = lambda _before, now: now,
    ready: Mapping[UUID, ScheduledJob] | None = None,
    *,
    by_lease: bool = False,
) -> ChangedBatch:
    """Change schedules that this transaction has locked, with one statement of each kind for all of them.

    A schedule that refuses the change is left alone, and one that the change leaves as it is gets no revision.
    ``ready`` are the schedules with the calendars that they have after the change, if those may be others.
    ``dated`` says of a schedule before the change since when the change is in force.
    ``by_lease`` says that the change comes from the lease that the schedules were made with, and fits it therefore.
    """
    ready = ready or jobs
    active, now = await executions.active_and_now(connection, jobs)
    changed: dict[UUID, tuple[ScheduledJob, ScheduledJob]] = {}
    refused: dict[UUID, CarillonError] = {}
    entries: list[tuple[UUID, LedgerEntry]] = []
    freed: list[PendingRun] = []
    leases = None if by_lease else await lease_bounds.of_schedules(connection, jobs.values())
    for job_id, job in jobs.items():
        try:
            after = change(ready[job_id], count_repeats(active.get(job_id, ())), now)
            if leases is not None and after is not ready[job_id] and job.lease_id is not None:
                after = await leases.bounded(connection, job, after, author, now)
        except CarillonError as error:
            refused[job_id] = error
            continue
        if after.limit != job.limit:
            try:
                freed += await _change_limits(connection, [(job, after)])
            except InvalidError as error:
                refused[job_id] = error
                continue
        if after is not ready[job_id]:
            dropped = dropped_slots(job, after, now)
            entries += [(job_id, entry) for entry in dropped]
            context = job.trace_context if author is CARILLON else current_context()
            changed[job_id] = (job, replace(accounted(after, dropped, now), trace_context=context))
    pairs = list(changed.values())
    await schedules.save(connection, [after for _, after in pairs])
    await ledger.add(connection, entries)
    told = [
        ScheduleChange(
            revision(before, after, action_of(before, after), author, dated(before, now), note), after, author
        )
        for before, after in pairs
    ]
    await revisions.add_schedule_revisions(connection, told)
    retries = {job.id: dropped_retries(job, after, active.get(job.id, ())) for job, after in pairs}
    gone = {run for runs in retries.values() for run in runs}
    await executions.cancel(connection, dict.fromkeys(gone, CADENCE_CHANGED), now, LedgerOutcome.MISSED)
    left = {job_id: tuple(run for run in runs if run.execution_id not in gone) for job_id, runs in active.items()}
    released = await executions.release_next(connection, [after for _, after in pairs], left, now)
    return ChangedBatch(now=now, changed=changed, refused=refused, pending=(*released.values(), *freed))


async def end_pauses(connection: Connection, limit: int) -> ChangedBatch:
    """Resume schedules whose pause has ended by itself, at most ``limit``: the slots since then are due."""
    jobs = await schedules.lock_ended_pauses(connection, limit)

    def end(job: ScheduledJob, active: int, _now: datetime) -> ScheduledJob:
        return schedule_lifecycle.returned(job, active)

    return await change_many(connection, jobs, end, CARILLON, PAUSE_ENDED, dated=_pause_end)


def _pause_end(before: ScheduledJob, now: datetime) -> datetime:
    """Return when a pause has ended by the history: at its end, unless the schedule was changed since."""
    end = before.paused_until
    return now if end is None or before.updated_at > end else end


async def _without_dropped_retries(
    connection: Connection, before: ScheduledJob, after: ScheduledJob, active: tuple[ActiveRun, ...], now: datetime
) -> tuple[ActiveRun, ...]:
    """Cancel waiting retries if the cadence was changed. Return the runs that are still active."""
    retries = dropped_retries(before, after, active)
    await executions.cancel(connection, dict.fromkeys(retries, CADENCE_CHANGED), now, LedgerOutcome.MISSED)
    return tuple(run for run in active if run.execution_id not in retries)


def _stamped(draft: ScheduledJob, now: datetime) -> ScheduledJob:
    return replace(draft, created_at=now, updated_at=now, anchor_at=now)
