"""Carries out backfills, step by step: counts the runs that have ended, and starts as many as the terms allow.

A step is one transaction that holds the lock of the operation's row: runs, the slots that they stand for and the
position are written together, so that a worker that dies leaves no slot out and runs none twice.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor
from app.domain.backfills import LOOK_SECONDS, MOST_LOST, BackfillTerms, PastSlot, fates, past_slots
from app.domain.bulk_operations import OperationStatus
from app.domain.executions import ACTIVE, FIRST_TOKEN, ExecutionStatus, PendingRun, Trigger
from app.domain.run_ids import backfill_execution_id
from app.domain.schedules import ScheduledJob
from app.engine import lease_bounds
from app.persistence import backfills, executions, operations, restrictions, schedules
from app.persistence.backfills import OpenRun
from app.persistence.database import Connection, database_now
from app.persistence.execution_rows import NewExecution
from app.persistence.operations import MOST_ERRORS, Operation, RowError

# How many slots are looked at in one step. Those that have fired already are passed over.
SLOTS_PER_STEP = 500
# How long nothing is started while due ticks wait for workers.
LIVE_WAIT_SECONDS = 0.5
SCHEDULE_GONE = "The schedule does not exist any more."
LEASE_USED_UP = "The lease of the schedule has ended, or has no runs left. The other slots do not run."


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a backfill that have ended since it was last looked at, and those that are under way."""

    done: int = 0
    failed: tuple[RowError, ...] = ()
    lost: tuple[OpenRun, ...] = ()
    active: int = 0
    ended: tuple[OpenRun, ...] = ()


class Next(msgspec.Struct, frozen=True):
    """How far a backfill is after a step, the runs that it started, and whether the lease left no room for more."""

    terms: BackfillTerms
    runs: tuple[PendingRun, ...] = ()
    lacks_room: bool = False


async def carry_out(connection: Connection, operation: Operation, actor: Actor) -> tuple[PendingRun, ...]:
    """Do one step of a backfill. Return the runs to ring for after the commit."""
    terms = operation.terms.backfill
    job = None if terms is None else await schedules.get(connection, terms.schedule_id)
    if terms is None or job is None or not await _may_use(connection, actor, job):
        await operations.end(connection, operation.id, OperationStatus.FAILED, SCHEDULE_GONE)
        return ()
    now = await database_now(connection)
    counts = _counted(job, await backfills.open_runs(connection, operation.id))
    await backfills.count(connection, operation.id, [run.execution_id for run in counts.ended])
    again = await _start_again(connection, operation, job, counts.lost, now)
    is_held = await backfills.live_work_waits(connection)
    room = None if is_held else await lease_bounds.runs_left(connection, job, now)
    next_ones = Next(terms)
    if not is_held:
        next_ones = await _start_next(connection, operation, job, terms, counts, now, room)
    started, terms = next_ones.runs, next_ones.terms
    await lease_bounds.spend_runs(connection, job, len(started))
    await _store(connection, operation, terms, counts, now, LIVE_WAIT_SECONDS if is_held else LOOK_SECONDS)
    if terms.is_exhausted and not (counts.active or again or started):
        failed, changed = operation.failed + len(counts.failed), operation.done + counts.done
        status = OperationStatus.FAILED if failed and not changed else OperationStatus.DONE
        await operations.end(connection, operation.id, status)
    elif next_ones.lacks_room and not (counts.active or again or started):
        await operations.end(connection, operation.id, OperationStatus.FAILED, LEASE_USED_UP)
    return (*again, *started)


async def _may_use(connection: Connection, actor: Actor, job: ScheduledJob) -> bool:
    within = await restrictions.admitted_schedules(connection, actor.restriction, [job.id])
    return actor.may_use(job.user_profile_id, is_within=job.id in within)


def _counted(job: ScheduledJob, runs: Sequence[OpenRun]) -> Counts:
    active = [run for run in runs if run.status in ACTIVE]
    lost = [run for run in runs if run.status == ExecutionStatus.LOST and (run.retry_attempt or 0) + 1 < MOST_LOST]
    ended = [run for run in runs if run not in active and run not in lost]
    failed = [run for run in ended if run.status not in {ExecutionStatus.SUCCESS, ExecutionStatus.SKIPPED}]
    return Counts(
        done=len(ended) - len(failed),
        failed=tuple(RowError(job.id, _failure(run)) for run in failed),
        lost=tuple(lost),
        active=len(active) + len(lost),
        ended=tuple(ended),
    )


def _failure(run: OpenRun) -> str:
    slot = run.slot.isoformat().replace("+00:00", "Z")
    return f"Slot {slot}: {run.error or run.status or 'its run was deleted'}"


async def _start_again(
    connection: Connection, operation: Operation, job: ScheduledJob, lost: Sequence[OpenRun], now: datetime
) -> tuple[PendingRun, ...]:
    """Start runs again whose worker died; they have the places that they had."""
    runs = [_run(operation, job, run.slot, now, (run.retry_attempt or 0) + 1) for run in lost]
    await executions.add(connection, runs)
    for before, run in zip(lost, runs, strict=True):
        await backfills.replace_run(connection, operation.id, before.execution_id, run.id)
    return _pending(runs)


async def _start_next(  # noqa: PLR0913 - how far it is, and what bounds it
    connection: Connection,
    operation: Operation,
    job: ScheduledJob,
    terms: BackfillTerms,
    counts: Counts,
    now: datetime,
    room: int | None,
) -> Next:
    """Start the next slots for which there is a place, in their order.

    ``room`` is how many runs the lease of the schedule leaves, if it has one.
    """
    budget = terms.budget(counts.active, now)
    if not budget or terms.is_exhausted:
        return Next(terms)
    most = budget if room is None else min(budget, room)
    looked_at, is_all = await next_slots(connection, job, terms, SLOTS_PER_STEP)
    chosen: list[PastSlot] = []
    lacks_room = False
    for past in looked_at:
        if terms.admits(past.outcome):
            if len(chosen) == most:
                is_all, lacks_room = False, most == room
                break
            chosen.append(past)
        terms = replace(terms, position=past.slot)
    runs = [_run(operation, job, past.slot, now) for past in chosen]
    await executions.add(connection, runs)
    if runs:
        named = [(past, run.id) for past, run in zip(chosen, runs, strict=True)]
        await backfills.add(connection, job.id, operation.id, named)
    return Next(replace(terms.started(len(runs), now), is_exhausted=is_all), _pending(runs), lacks_room)


async def next_slots(
    connection: Connection, job: ScheduledJob, terms: BackfillTerms, limit: int
) -> tuple[list[PastSlot], bool]:
    """Return the next slots of a backfill with what became of them, and whether these are all that are left."""
    found = await backfills.eras_of(connection, job, terms.first, terms.last)
    search = partial(past_slots, found, terms, limit)
    # In a thread, as it may take long and must not block the event loop.
    slots = await asyncio.get_running_loop().run_in_executor(None, search)
    records = await backfills.records(connection, job.id, [slot for slot, _ in slots])
    return fates(slots, records), len(slots) < limit


async def _store(
    connection: Connection,
    operation: Operation,
    terms: BackfillTerms,
    counts: Counts,
    now: datetime,
    wait_seconds: float,
) -> None:
    errors = [*operation.errors, *counts.failed][:MOST_ERRORS]
    await operations.change(
        connection,
        operation.id,
        terms=msgspec.to_builtins(replace(operation.terms, backfill=terms)),
        started_at=operation.started_at or now,
        starts_at=now + timedelta(seconds=wait_seconds),
        done=operation.done + counts.done,
        failed=operation.failed + len(counts.failed),
        errors=msgspec.to_builtins(errors),
    )


def _run(operation: Operation, job: ScheduledJob, slot: datetime, now: datetime, attempt: int = 0) -> NewExecution:
    """Return the run of a past slot: it stands beside the live ones, whatever ``if_running`` says."""
    return NewExecution(
        id=backfill_execution_id(operation.id, slot, now, attempt),
        user_profile_id=job.user_profile_id,
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=Trigger.BACKFILL,
        status=ExecutionStatus.PENDING,
        exclusive=False,
        repeat_number=job.current_repeat,
        retry_attempt=attempt,
        scheduled_for=slot,
        payload=job.trigger_payload,
        timeout_seconds=job.timeout_seconds,
        created_at=now,
        due_at=now,
    )


def _pending(runs: Sequence[NewExecution]) -> tuple[PendingRun, ...]:
    return tuple(PendingRun(run.id, FIRST_TOKEN, run.due_at) for run in runs)
