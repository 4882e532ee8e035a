"""Schedules: created, changed, paused, run, deleted, read."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import MAXYEAR, MINYEAR, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.access import Actor, require_owner
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError
from app.domain.executions import ExecutionStatus, Trigger
from app.domain.fields import field_error
from app.domain.identities import manual_execution_id
from app.domain.schedules import IfRunning, ScheduledJob
from app.engine import scheduling
from app.engine.ringing import Ringer
from app.persistence import executions, ledger, schedules, workflows
from app.persistence.database import Database
from app.persistence.executions import NewExecution
from app.services.inputs import RunInput, ScheduleChanges, ScheduleInput, Span, given, in_utc
from app.services.views import (
    ExecutionView,
    LedgerItem,
    LedgerList,
    RunList,
    RunView,
    ScheduleList,
    SchedulePage,
    ScheduleView,
    execution_fields,
    ledger_item,
    schedule_view,
)

# Far enough for every plan, near enough that no interval leaves the calendar.
EARLIEST_YEAR, LATEST_YEAR = 1971, 2999

Scheduling = Callable[[AsyncConnection, UUID], Awaitable[ScheduledJob]]


class ScheduleService:
    """Use cases about schedules."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring after each commit that moves a tick."""
        self._database = database
        self._ringer = ringer

    async def create(self, actor: Actor, wanted: ScheduleInput) -> ScheduleView:
        """A new schedule of the actor's, its first run planned."""
        errors = _errors(wanted)
        if errors:
            raise InvalidError(*errors)
        async with self._database.transaction() as connection:
            owners = await workflows.owners(connection, {wanted.workflow_id})
            require_owner(actor, owners.get(wanted.workflow_id), "workflow")
            job = await scheduling.start_scheduled_job(connection, _draft(wanted, actor))
        await self._ringer.ticks([job])
        return schedule_view(job)

    async def create_many(self, actor: Actor, raw: Sequence[Any]) -> ScheduleList:
        """Many at once, all or none; each bad one is named by its index."""
        wanted, errors = _converted(raw)
        async with self._database.transaction() as connection:
            owners = await workflows.owners(connection, {one.workflow_id for one in wanted.values()})
            errors += _foreign(actor, wanted, owners)
            if errors:
                raise InvalidError(*errors)
            drafts = [_draft(one, actor) for one in wanted.values()]
            jobs = await scheduling.start_scheduled_jobs(connection, drafts)
        await self._ringer.ticks(jobs)
        return ScheduleList([schedule_view(job) for job in jobs])

    async def list(
        self, actor: Actor, *, status: str | None, workflow_id: int | None, limit: int, offset: int
    ) -> SchedulePage:
        """What the actor may see, newest first."""
        async with self._database.transaction() as connection:
            page = await schedules.page(
                connection, actor, status=status, workflow_id=workflow_id, limit=limit, offset=offset
            )
        return SchedulePage([schedule_view(job) for job in page.items], page.total)

    async def get(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """One schedule."""
        async with self._database.transaction() as connection:
            return schedule_view(await _owned(connection, actor, job_id))

    async def change(self, actor: Actor, job_id: UUID, changes: ScheduleChanges) -> ScheduleView:
        """New values; a changed cadence moves the next run at once."""
        errors = _errors(changes)
        if errors:
            raise InvalidError(*errors)
        values = in_utc(given(changes))

        async def edit(connection: AsyncConnection, schedule_id: UUID) -> ScheduledJob:
            if "workflow_id" in values:
                owners = await workflows.owners(connection, {values["workflow_id"]})
                require_owner(actor, owners.get(values["workflow_id"]), "workflow")
            return await scheduling.edit_scheduled_job(connection, schedule_id, values)

        return await self._carry_out(actor, job_id, edit)

    async def pause(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """Nothing fires until it is resumed."""
        return await self._carry_out(actor, job_id, scheduling.pause_scheduled_job)

    async def resume(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """Fire again."""
        return await self._carry_out(actor, job_id, scheduling.resume_scheduled_job)

    async def revive(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """Bring a dead one back."""
        return await self._carry_out(actor, job_id, scheduling.revive_scheduled_job)

    async def delete(self, actor: Actor, job_id: UUID) -> None:
        """Gone, with its history; what runs is called off."""
        if not await self.delete_many(actor, [job_id]):
            raise NotFoundError("There is no such schedule.")

    async def delete_many(self, actor: Actor, job_ids: Sequence[UUID]) -> int:
        """Delete what the actor may; unknown and foreign ones are ignored."""
        async with self._database.transaction() as connection:
            deleted = await schedules.lock_visible(connection, actor, job_ids)
            running = await executions.active_ids(connection, deleted)
            await schedules.remove(connection, deleted)
        await self._ringer.call_off(running)
        return len(deleted)

    async def run(self, actor: Actor, job_id: UUID, wanted: RunInput) -> ExecutionView:
        """A run now, beside the cadence and the counters."""
        async with self._database.transaction() as connection:
            await _owned(connection, actor, job_id)
            job = (await schedules.lock(connection, [job_id])).get(job_id)
            if job is None:
                raise NotFoundError("There is no such schedule.")
            active, now = await executions.active_and_now(connection, [job_id])
            policy = wanted.if_running or job.if_running
            if policy == IfRunning.SKIP and active.get(job_id):
                raise ConflictError("An execution of this schedule is under way, and its if_running is 'skip'.")
            new = _manual_run(job, now, exclusive=policy == IfRunning.SKIP)
            await executions.add(connection, [new])
            row = await executions.get_with_owner(connection, new.id)
        if row is None:
            raise AssertionError("an execution vanished in its own transaction")
        await self._ringer.executions([(new.id, new.token)])
        return ExecutionView(**execution_fields(row[0]))

    async def runs(self, actor: Actor, job_id: UUID, limit: int) -> RunList:
        """The audit: the latest runs."""
        async with self._database.transaction() as connection:
            await _owned(connection, actor, job_id)
            rows = await executions.runs(connection, job_id, limit)
        return RunList([RunView(**execution_fields(row), payload=row.payload) for row in rows])

    async def ledger(self, actor: Actor, job_id: UUID, span: Span, limit: int) -> LedgerList:
        """The account of the latest slots, fired or not."""
        errors = _span_errors(span)
        if errors:
            raise InvalidError(*errors)
        async with self._database.transaction() as connection:
            await _owned(connection, actor, job_id)
            others = await ledger.of_job(connection, job_id, span.since, span.until, limit)
            fired = await ledger.fired(connection, job_id, span.since, span.until, limit)
        items = [ledger_item(row) for row in others]
        items += [LedgerItem(slot=row.scheduled_for, outcome="fired", reason="", execution_id=row.id) for row in fired]
        items.sort(key=lambda item: item.slot, reverse=True)
        return LedgerList(items[:limit])

    async def _carry_out(self, actor: Actor, job_id: UUID, action: Scheduling) -> ScheduleView:
        async with self._database.transaction() as connection:
            await _owned(connection, actor, job_id)
            job = await action(connection, job_id)
        await self._ringer.ticks([job])
        return schedule_view(job)


async def _owned(connection: AsyncConnection, actor: Actor, job_id: UUID) -> ScheduledJob:
    job = await schedules.get(connection, job_id)
    require_owner(actor, job.user_profile_id if job else None, "schedule")
    if job is None:
        raise AssertionError("a schedule that nobody owns was let through")
    return job


def _draft(wanted: ScheduleInput, actor: Actor) -> ScheduledJob:
    """The times are the database's to fill in."""
    moment = clock.now()
    values = in_utc(msgspec.structs.asdict(wanted))
    return ScheduledJob(
        id=uuid4(), user_profile_id=actor.user_id, anchor_at=moment, created_at=moment, updated_at=moment, **values
    )


def _manual_run(job: ScheduledJob, now: datetime, *, exclusive: bool) -> NewExecution:
    return NewExecution(
        id=manual_execution_id(job.id, now, uuid4().hex),
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=Trigger.MANUAL,
        status=ExecutionStatus.PENDING,
        exclusive=exclusive,
        repeat_number=job.current_repeat,
        retry_attempt=0,
        scheduled_for=now,
        payload=job.trigger_payload,
        timeout_seconds=job.timeout_seconds,
        created_at=now,
    )


def _errors(wanted: ScheduleInput | ScheduleChanges) -> list[FieldError]:
    """What the types cannot say."""
    errors = []
    for field in ("start_at", "end_at"):
        moment = getattr(wanted, field)
        if isinstance(moment, datetime) and not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
            errors.append(FieldError(field, f"The year must be between {EARLIEST_YEAR} and {LATEST_YEAR}."))
    start, end = wanted.start_at, wanted.end_at
    if isinstance(start, datetime) and isinstance(end, datetime) and end < start:
        errors.append(FieldError("end_at", "The end must not be before start_at."))
    return errors


def _span_errors(span: Span) -> list[FieldError]:
    """In its first and last year the calendar may have no such moment in UTC."""
    return [
        FieldError(field, "At the edge of the calendar only UTC is known.")
        for field, moment in (("from", span.since), ("to", span.until))
        if moment is not None and moment.year in {MINYEAR, MAXYEAR} and moment.utcoffset()
    ]


def _converted(raw: Sequence[Any]) -> tuple[dict[int, ScheduleInput], list[FieldError]]:
    """The good ones by index, and what is wrong with the others."""
    wanted: dict[int, ScheduleInput] = {}
    errors: list[FieldError] = []
    for index, item in enumerate(raw):
        try:
            wanted[index] = msgspec.convert(item, ScheduleInput)
        except msgspec.ValidationError as error:
            errors.append(field_error(error, f"schedules[{index}]"))
        else:
            found = _errors(wanted[index])
            errors += [FieldError(f"schedules[{index}].{one.field}", one.message) for one in found]
    return wanted, errors


def _foreign(actor: Actor, wanted: dict[int, ScheduleInput], owners: dict[int, int]) -> list[FieldError]:
    errors = []
    for index, one in wanted.items():
        try:
            require_owner(actor, owners.get(one.workflow_id), "workflow")
        except NotFoundError as error:
            errors.append(FieldError(f"schedules[{index}].workflow_id", error.detail))
    return errors
