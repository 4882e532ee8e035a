"""Schedules: create, change, pause, resume, revive and delete them. Reading them needs no Redis: schedule_queries."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC
from typing import Any
from uuid import UUID, uuid4

import msgspec

from app import clock
from app.domain.access import Actor, owner_for, require_granted
from app.domain.audit import Origin
from app.domain.edit_plans import PLAN_LIFETIME, change_digests, require_planned
from app.domain.errors import (
    CarillonError,
    FieldError,
    ForeignWorkflowError,
    InDoubtError,
    InvalidError,
    KeyTakenError,
    LeaseExhaustedError,
    NoSuchTeamError,
    NotFoundError,
    PlanOutdatedError,
    QuotaExceededError,
    UnavailableError,
)
from app.domain.executions import PendingRun
from app.domain.field_errors import MOST_ERRORS, read_as
from app.domain.limits import Caps, Quota
from app.domain.planning import with_start_anchor
from app.domain.revisions import Author
from app.domain.schedule_input import require_years, stored_spec
from app.domain.schedule_lifecycle import problems
from app.domain.schedules import ScheduledJob
from app.domain.specs import require_kind
from app.engine import lease_bounds, schedule_changes
from app.engine.ringing import Ringer
from app.engine.schedule_changes import Changed
from app.micro_batcher import MicroBatcher
from app.observability.tracing import current_context
from app.persistence import edit_plans, keys, schedules, workflows
from app.persistence.audit import current_origin
from app.persistence.database import Connection, Database, database_now
from app.services.admission import (
    NO_QUOTAS,
    Limits,
    NewSchedule,
    UsableWorkflow,
    quota_refusal,
    refusals,
    require_owned,
    require_usable,
    schedule_is_within,
    workflow_is_within,
)
from app.services.inputs import NoteInput, PauseInput, ScheduleChanges, ScheduleInput, SpecInput, given
from app.services.preconditions import PRECONDITION, require_absent, require_match, require_present, tag_of, tag_of_row
from app.services.schedule_views import views_of
from app.services.views import ScheduleList, ScheduleView, row_fields

# A change of one schedule within a transaction.
Change = Callable[[Connection, UUID], Awaitable[Changed]]


class ScheduleService:
    """Use cases that change schedules."""

    def __init__(self, database: Database, ringer: Ringer, limits: Limits = NO_QUOTAS) -> None:
        """Ring after each commit that changes a pending tick."""
        self.limits = limits
        self._database = database
        self._ringer = ringer
        self._creates = MicroBatcher("create", self._create, shared=(UnavailableError,))

    async def create(self, actor: Actor, schedule: ScheduleInput) -> ScheduleView:
        """Create a schedule of the actor and plan its first run."""
        new = NewSchedule(actor, sound_draft(schedule, actor, self.limits.caps), schedule.workflow_owner)
        try:
            job = await self._creates.ask(new)
        except InDoubtError:
            job = await self._read_back(new.job.id)
        if isinstance(job, CarillonError):
            await self._tell_exhausted(actor, job)
            raise job
        await self._ringer.ticks([job.job])
        return job.view

    async def _tell_exhausted(self, actor: Actor, error: CarillonError) -> None:
        """Tell the owner of an agent's lease that it is used up."""
        if actor.grant is not None and isinstance(error, LeaseExhaustedError):
            await lease_bounds.tell_exhausted(self._database, actor.grant.lease_id, error)

    async def _create(self, batch: Sequence[NewSchedule]) -> Sequence["Started | CarillonError"]:
        """Create the schedules of all requests of one moment in one transaction.

        Each request gets its schedule, or the reason why it is refused.
        """
        async with self._database.transaction() as connection:
            refused = await refusals(connection, batch, self.limits)
            batch, refused = await _within_leases(connection, batch, refused)
            admitted = [new for new, error in zip(batch, refused, strict=True) if error is None]
            started = await _start(connection, admitted)
            views = await views_of(connection, started)
        by_id = {job.id: Started(job, view) for job, view in zip(started, views, strict=True)}
        return [error or by_id[new.job.id] for new, error in zip(batch, refused, strict=True)]

    async def create_many(self, actor: Actor, raw: Sequence[Any]) -> ScheduleList:
        """Create all of these schedules or none; errors name the bad ones by index."""
        drafts, errors = await _drafts(raw, actor, self.limits.caps)
        batch = list(drafts.values())
        async with self._database.transaction() as connection:
            over = await self._over_quota(connection, batch)
            refused = await refusals(connection, batch, NO_QUOTAS)
            _require_none(errors, dict(zip(drafts, refused, strict=True)), over)
            batch = await _all_within_leases(connection, batch)
            jobs = await _start(connection, batch)
            views = await views_of(connection, jobs)
        await self._ringer.ticks(jobs)
        return ScheduleList(views)

    async def _over_quota(self, connection: Connection, batch: Sequence[NewSchedule]) -> QuotaExceededError | None:
        """Return the refusal of the first owner whose quota a batch exceeds, or None; owners are locked by id."""
        for owner, count in sorted(Counter(new.job.user_profile_id for new in batch).items()):
            over = await quota_refusal(connection, self.limits, Quota.SCHEDULES, owner, count)
            if over is not None:
                return over
        return None

    async def change(self, actor: Actor, job_id: UUID, changes: ScheduleChanges) -> ScheduleView:
        """Give a schedule new values; a changed cadence moves the next run at once."""
        values = changed_values(changes)
        named, plan_id = given(changes).get("workflow_owner"), given(changes).get("plan_id")

        async def edit(connection: Connection, schedule_id: UUID) -> Changed:
            if plan_id is not None:
                await _require_plan(connection, schedule_id, plan_id, values)
            if "workflow_id" in values or named is not None:
                await require_workflow(connection, actor, schedule_id, values.get("workflow_id"), named)
            author = author_of(actor)
            return await schedule_changes.edit_scheduled_job(connection, schedule_id, values, author, self.limits.caps)

        return await self._carry_out(actor, job_id, edit)

    async def pause(self, actor: Actor, job_id: UUID, wanted: PauseInput) -> ScheduleView:
        """Stop a schedule from firing until a time, or until it is resumed."""
        require_years({"until": wanted.until})
        until = None if wanted.until is None else wanted.until.astimezone(UTC)

        async def pause(connection: Connection, schedule_id: UUID) -> Changed:
            author = author_of(actor)
            return await schedule_changes.pause_scheduled_job(connection, schedule_id, author, wanted.note, until)

        return await self._carry_out(actor, job_id, pause)

    async def resume(self, actor: Actor, job_id: UUID, note: NoteInput) -> ScheduleView:
        """Let a paused schedule fire again, from a fresh slot on."""

        async def resume(connection: Connection, schedule_id: UUID) -> Changed:
            return await schedule_changes.resume_scheduled_job(connection, schedule_id, author_of(actor), note.note)

        return await self._carry_out(actor, job_id, resume)

    async def revive(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """Make a dead schedule active again, with all its retries."""

        async def revive(connection: Connection, schedule_id: UUID) -> Changed:
            return await schedule_changes.revive_scheduled_job(connection, schedule_id, author_of(actor))

        return await self._carry_out(actor, job_id, revive)

    async def delete(self, actor: Actor, job_id: UUID) -> None:
        """Delete a schedule with its history, and cancel its runs."""
        if not await self.delete_many(actor, [job_id]):
            async with self._database.reading() as connection:
                await owned_schedule(connection, actor, job_id)
            raise NotFoundError("There is no such schedule.")

    async def delete_many(self, actor: Actor, job_ids: Sequence[UUID]) -> int:
        """Delete those of these schedules that the actor may delete; return how many."""
        async with self._database.transaction() as connection:
            if len(job_ids) == 1 and PRECONDITION.get().if_match is not None:
                await fresh_schedule(connection, actor, job_ids[0])
            deleted = await schedules.lock_deletable(connection, actor, job_ids)
            running = await schedule_changes.delete_scheduled_jobs(connection, deleted, author_of(actor))
            await lease_bounds.debit_writes(connection, author_of(actor), len(deleted))
        await self._ringer.call_off(running)
        return len(deleted)

    async def _read_back(self, job_id: UUID) -> "Started":
        """Return a new schedule after the answer to its commit was lost; ``UnavailableError`` if it was not stored."""
        async with self._database.transaction() as connection:
            job = await schedules.get(connection, job_id)
            if job is None:
                raise UnavailableError
            (view,) = await views_of(connection, [job])
        return Started(job, view)

    async def put(self, actor: Actor, key: str, schedule: ScheduleInput) -> tuple[ScheduleView, bool]:
        """Create the schedule of a key, or change it where it differs; return it, and whether it is new.

        Fields that are left out have their defaults. A pause is not lifted.
        """
        if schedule.key is not None and schedule.key != key:
            raise InvalidError(FieldError("key", f"The path names the key '{key}'. Leave it out of the body."))
        schedule = msgspec.structs.replace(schedule, key=key)
        new = NewSchedule(actor, sound_draft(schedule, actor, self.limits.caps), schedule.workflow_owner)
        pending: tuple[PendingRun, ...] = ()
        async with self._database.transaction() as connection:
            await keys.lock(connection, [(new.job.user_profile_id, key)])
            job_id = await keys.schedule_of(connection, new.job.user_profile_id, key)
            if job_id is None:
                require_present()
                (refused,) = await refusals(connection, [new], self.limits)
                if refused is not None:
                    raise refused
                (job,) = await _start(connection, await _all_within_leases(connection, [new]))
            else:
                require_absent()
                changed = await self._replace(connection, actor, job_id, schedule)
                job, pending = changed.job, changed.pending
            (view,) = await views_of(connection, [job])
        await self._ringer.ticks([job])
        await self._ringer.executions(pending)
        return view, job_id is None

    async def _replace(self, connection: Connection, actor: Actor, job_id: UUID, schedule: ScheduleInput) -> Changed:
        """Give a schedule all values of an input."""
        values = spec_values(schedule)
        # ``after`` counts from the moment of the request: what has the same duration is left as it is.
        await fresh_schedule(connection, actor, job_id)
        await require_workflow(connection, actor, job_id, values["workflow_id"], schedule.workflow_owner)
        return await schedule_changes.edit_scheduled_job(connection, job_id, values, author_of(actor), self.limits.caps)

    async def id_of_key(self, actor: Actor, key: str, team_id: int | None) -> UUID:
        """Return the id of the schedule of a key; ``NotFoundError`` if there is none."""
        async with self._database.reading() as connection:
            owner = team_id if team_id is not None else actor.user_id
            job_id = await keys.schedule_of(connection, owner, key)
            if job_id is None:
                raise NotFoundError("There is no such schedule.")
            await owned_schedule(connection, actor, job_id)
        return job_id

    async def _carry_out(self, actor: Actor, job_id: UUID, change: Change) -> ScheduleView:
        async with self._database.transaction() as connection:
            await fresh_schedule(connection, actor, job_id)
            changed = await change(connection, job_id)
            (view,) = await views_of(connection, [changed.job])
        await self._ringer.ticks([changed.job])
        await self._ringer.executions(changed.pending)
        return view


class Started(msgspec.Struct, frozen=True):
    """A new schedule, and its view."""

    job: ScheduledJob
    view: ScheduleView


async def fresh_schedule(connection: Connection, actor: Actor, job_id: UUID) -> ScheduledJob:
    """Return a schedule of the actor, and refuse a request that knows another version of it."""
    job = await owned_schedule(connection, actor, job_id)
    if PRECONDITION.get().if_match is None:
        return job
    locked = (await schedules.lock(connection, [job_id])).get(job_id)
    views = [] if locked is None else await views_of(connection, [locked])
    require_match(lambda: tag_of(views[0]) if views else "")
    return locked or job


async def _require_plan(connection: Connection, job_id: UUID, plan_id: UUID, values: dict[str, Any]) -> None:
    """Refuse an edit whose plan was made for another version of the schedule or another edit, or has expired."""
    locked = (await schedules.lock(connection, [job_id])).get(job_id)
    plan = await edit_plans.get(connection, plan_id, job_id, PLAN_LIFETIME)
    if locked is None or plan is None or plan.tag != tag_of_row(row_fields(locked, whole=True)):
        raise PlanOutdatedError
    if plan.changes is not None:
        require_planned(plan.changes, change_digests(locked, values))


async def owned_schedule(connection: Connection, actor: Actor, job_id: UUID) -> ScheduledJob:
    """Return a schedule that the actor may see."""
    job = await schedules.get(connection, job_id)
    is_within = job is not None and await schedule_is_within(connection, actor, job_id)
    owned = require_owned(actor, job, "schedule", is_within=is_within)
    require_granted(actor, owned.lease_id)
    return owned


def author_of(actor: Actor, origin: Origin | None = None) -> Author:
    """Return the actor as the author of a change that comes from this origin, by default that of the request."""
    return Author(actor.user_id, actor.author, actor, origin or current_origin())


def spec_values(wanted: SpecInput) -> dict[str, Any]:
    """What was given, with its spec in the stored form; ``InvalidError`` names what is wrong."""
    stored = stored_spec(msgspec.structs.asdict(wanted))
    require_kind(stored)
    return _stored(stored)


def _stored(values: dict[str, Any]) -> dict[str, Any]:
    """The same values without what is a part of the request only."""
    return {name: value for name, value in values.items() if name not in {"workflow_owner", "team_id", "plan_id"}}


def draft(values: dict[str, Any], actor: Actor, team_id: int | None = None) -> ScheduledJob:
    """Return a new schedule of the actor or a team; its times are those of the database once it is stored."""
    moment = clock.now()
    return ScheduledJob(
        id=uuid4(),
        **msgspec.structs.asdict(owner_for(actor, team_id)),
        anchor_at=moment,
        trace_context=current_context(),
        created_at=moment,
        updated_at=moment,
        **values,
    )


def sound_draft(schedule: ScheduleInput, actor: Actor, caps: Caps) -> ScheduledJob:
    """Return a new schedule of the actor; ``InvalidError`` names what is wrong with it."""
    return sound(draft(spec_values(schedule), actor, schedule.team_id), caps)


def sound(new: ScheduledJob, caps: Caps) -> ScheduledJob:
    """Return the same schedule if it can start now; ``InvalidError`` names what is wrong with it."""
    errors = _problems(new, caps)
    if errors:
        raise InvalidError(*errors)
    return new


def changed_values(changes: ScheduleChanges) -> dict[str, Any]:
    """What was given, in the stored form; ``InvalidError`` names what is wrong."""
    return stored_values(given(changes))


def stored_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of a request in the stored form; ``InvalidError`` names what is wrong."""
    return _stored(stored_spec(values))


def _problems(new: ScheduledJob, caps: Caps) -> list[FieldError]:
    """Return what is wrong with a new schedule as a whole.

    To be called before any lock is held, as the search for its first slot may take long.
    """
    now = clock.now()
    return [*caps.errors(msgspec.structs.asdict(new)), *problems(with_start_anchor(new, now), now)]


async def _drafts(raw: Sequence[Any], actor: Actor, caps: Caps) -> tuple[dict[int, NewSchedule], list[FieldError]]:
    """Return the valid schedules by index, and what is wrong with the others.

    It yields after each: a thousand specs must not hold up the requests of others.
    """
    drafts: dict[int, NewSchedule] = {}
    errors: list[FieldError] = []
    for index, item in enumerate(raw):
        await asyncio.sleep(0)
        try:
            schedule = read_as(item, ScheduleInput)
            job = draft(spec_values(schedule), actor, schedule.team_id)
            drafts[index] = NewSchedule(actor, job, schedule.workflow_owner)
            errors += _placed(index, _problems(drafts[index].job, caps))
        except InvalidError as error:
            # Every bad schedule is named; all of its errors only as long as the list is short.
            errors += _placed(index, error.errors[: max(1, MOST_ERRORS - len(errors))])
    return drafts, errors


def _placed(index: int, errors: Iterable[FieldError]) -> list[FieldError]:
    return [FieldError(f"{_place(index)}.{error.field}".rstrip("."), error.message) for error in errors]


def _place(index: int) -> str:
    return f"schedules[{index}]"


def _require_none(
    errors: Sequence[FieldError], refused: dict[int, CarillonError | None], over: QuotaExceededError | None
) -> None:
    """Refuse a batch with errors: a conflict if they are all about the owners of workflows, or about the quota alone.

    Otherwise the errors name every bad schedule by its index.
    """
    foreign = {index: error for index, error in refused.items() if isinstance(error, ForeignWorkflowError)}
    unknown = [
        FieldError(f"{_place(index)}.{field}", message)
        for index, error in refused.items()
        if error and index not in foreign
        for field, message in _messages_of(error)
    ]
    not_named = [FieldError(f"{_place(index)}.workflow_owner", error.detail) for index, error in foreign.items()]
    if errors or unknown:
        raise InvalidError(*errors, *unknown, *not_named)
    if foreign:
        raise ForeignWorkflowError(next(iter(foreign.values())).workflow_owner, *not_named)
    if over:
        raise over


def _messages_of(error: CarillonError) -> list[tuple[str, str]]:
    """Return the fields of a new schedule that an error is about, each with what is wrong."""
    if isinstance(error, InvalidError):
        return [(one.field, one.message) for one in error.errors]
    return [(_field_of(error), error.detail)]


def _field_of(error: CarillonError) -> str:
    """Return the field of a new schedule that an error is about."""
    if isinstance(error, KeyTakenError):
        return "key"
    return "team_id" if isinstance(error, NoSuchTeamError) else "workflow_id"


async def _within_leases(
    connection: Connection, batch: Sequence[NewSchedule], refused: Sequence[CarillonError | None]
) -> tuple[list[NewSchedule], list[CarillonError | None]]:
    """Return the new schedules with the bounds of their agents' leases, and why each one is refused, if it is."""
    news, errors = list(batch), list(refused)
    asking = [
        (index, lease_bounds.Wish(new.job, new.actor.grant.lease_id))
        for index, new in enumerate(news)
        if new.actor.grant is not None and errors[index] is None
    ]
    if not asking:
        return news, errors
    now = await database_now(connection)
    answers = await lease_bounds.admit(connection, [wish for _, wish in asking], now)
    for (index, _), answer in zip(asking, answers, strict=True):
        if isinstance(answer, CarillonError):
            errors[index] = answer
        else:
            news[index] = msgspec.structs.replace(news[index], job=answer)
    return news, errors


async def _all_within_leases(connection: Connection, batch: Sequence[NewSchedule]) -> list[NewSchedule]:
    """Return the new schedules with the bounds of their agents' leases; raise the first refusal."""
    news, errors = await _within_leases(connection, batch, [None] * len(batch))
    refusal = next((error for error in errors if error is not None), None)
    if refusal is not None:
        raise refusal
    return news


async def _start(connection: Connection, batch: Sequence[NewSchedule]) -> list[ScheduledJob]:
    # A batch holds the schedules of several requests, each with an origin of its own.
    drafts = [(new.job, author_of(new.actor, new.origin)) for new in batch]
    return await schedule_changes.start_scheduled_jobs(connection, drafts)


async def require_workflow(
    connection: Connection, actor: Actor, job_id: UUID, workflow_id: int | None, named: int | None
) -> None:
    """Refuse to move a schedule to a workflow that its owner may not run; it may keep the one it has."""
    job = await owned_schedule(connection, actor, job_id)
    if named is None and workflow_id == job.workflow_id:
        return
    target = workflow_id or job.workflow_id
    owners = await workflows.owners(connection, {target})
    is_within = await workflow_is_within(connection, actor, target)
    require_usable(actor, job.user_profile_id, UsableWorkflow(owners.get(target), is_within), named)
