"""Schedules: created, changed, paused, deleted, read."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
from msgspec.structs import replace

from app import clock
from app.domain.access import Actor, require_owner
from app.domain.errors import (
    CarillonError,
    FieldError,
    ForeignWorkflowError,
    InDoubtError,
    InvalidError,
    NotFoundError,
    QuotaExceededError,
    UnavailableError,
    field_error,
)
from app.domain.lifecycle import problems
from app.domain.limits import Caps, Quota
from app.domain.planning import with_start_anchor
from app.domain.revisions import Author
from app.domain.schedules import ScheduledJob
from app.domain.specs import canonical, require_kind
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.engine.schedule_changes import Changed
from app.micro_batcher import MicroBatcher
from app.observability.tracing import current_context
from app.persistence import executions, schedules, workflows
from app.persistence.database import Connection, Database
from app.persistence.pagination import KnownTotals, Page, Part
from app.services.admission import NO_QUOTAS, Limits, NewSchedule, quota_refusal, refusals, require_usable
from app.services.inputs import NoteInput, ScheduleChanges, ScheduleInput, SpecInput, given, in_utc
from app.services.listing import FIRST_ROWS, PAYLOAD, ShownSchedules, read_shown, selected
from app.services.views import ScheduleList, SchedulePage, ScheduleView, schedule_view

# Far enough for every plan, near enough that no interval leaves the calendar.
EARLIEST_YEAR, LATEST_YEAR = 1971, 2999

# For so many owners it is remembered what they are asking for.
MOST_LISTING = 1000

Scheduling = Callable[[Connection, UUID], Awaitable[Changed]]


class Question(msgspec.Struct, frozen=True):
    """Which schedules somebody wants to see, and which of their fields; None is all but the payload."""

    listing: schedules.Listing
    fields: frozenset[str] | None


class ScheduleService:
    """Use cases about schedules."""

    def __init__(self, database: Database, ringer: Ringer, limits: Limits = NO_QUOTAS) -> None:
        """Ring after each commit that moves a tick."""
        self.limits = limits
        self._database = database
        self._ringer = ringer
        self._shown = database.history.watch(ShownSchedules())
        self._totals = database.history.watch(KnownTotals())
        self._reads = MicroBatcher("read", self._read, shared=(UnavailableError,))
        # One for each owner: the slow lists of one keep nobody else waiting.
        self._lists: dict[int | None, MicroBatcher[Question, SchedulePage]] = {}
        self._creates = MicroBatcher("create", self._create, shared=(UnavailableError,))

    async def create(self, actor: Actor, wanted: ScheduleInput) -> ScheduleView:
        """A new schedule of the actor's, its first run planned."""
        new = NewSchedule(actor, sound_draft(wanted, actor, self.limits.caps), wanted.workflow_owner)
        try:
            job = await self._creates.ask(new)
        except InDoubtError:
            job = await self._created_after_all(new.job.id)
        if isinstance(job, CarillonError):
            raise job
        await self._ringer.ticks([job])
        return schedule_view(job)

    async def _create(self, wanted: Sequence[NewSchedule]) -> Sequence[ScheduledJob | CarillonError]:
        """In one transaction for all who ask in one moment; each gets its schedule, or why it was refused."""
        async with self._database.transaction() as connection:
            refused = await refusals(connection, wanted, self.limits)
            admitted = [new for new, error in zip(wanted, refused, strict=True) if error is None]
            started = await _start(connection, admitted)
        by_id = {job.id: job for job in started}
        return [error or by_id[new.job.id] for new, error in zip(wanted, refused, strict=True)]

    async def create_many(self, actor: Actor, raw: Sequence[Any]) -> ScheduleList:
        """Many at once, all or none; each bad one is named by its index."""
        drafts, errors = await _drafts(raw, actor, self.limits.caps)
        wanted = list(drafts.values())
        async with self._database.transaction() as connection:
            over = await quota_refusal(connection, self.limits, Quota.SCHEDULES, actor.user_id, len(wanted))
            refused = await refusals(connection, wanted, NO_QUOTAS)
            _require_none(errors, dict(zip(drafts, refused, strict=True)), over)
            jobs = await _start(connection, wanted)
        await self._ringer.ticks(jobs)
        return ScheduleList([schedule_view(job) for job in jobs])

    async def list(
        self,
        actor: Actor,
        part: Part,
        *,
        status: str | None = None,
        workflow_id: int | None = None,
        fields: frozenset[str] | None = None,
    ) -> SchedulePage:
        """What the actor may see, newest first; without payloads, unless ``fields`` names them."""
        listing = schedules.Listing(actor.owner_filter, status, workflow_id, part)
        return await self._lists_of(actor.owner_filter).ask(Question(listing, fields))

    def _lists_of(self, owner: int | None) -> MicroBatcher[Question, SchedulePage]:
        if owner not in self._lists:
            if len(self._lists) >= MOST_LISTING:
                self._lists = {key: batcher for key, batcher in self._lists.items() if not batcher.is_idle}
            self._lists[owner] = MicroBatcher("list", self._list, shared=(UnavailableError,))
        return self._lists[owner]

    async def _list(self, wanted: Sequence[Question]) -> Sequence[SchedulePage]:
        """Those who ask the same in one moment get the same answer."""
        pages: dict[Question, SchedulePage] = {}
        async with self._database.reading() as connection:
            for question in dict.fromkeys(wanted):
                pages[question] = await self._page(connection, question)
        return [pages[question] for question in wanted]

    async def _page(self, connection: Connection, question: Question) -> SchedulePage:
        whole = question.fields is not None and PAYLOAD in question.fields
        views: dict[UUID, msgspec.Raw] = {}

        async def read(part: Part) -> Page:
            page = await schedules.page(connection, replace(question.listing, part=part), self._totals)
            versions = [(row["id"], row["xmin"]) for row in page.items]
            views.update(await self._shown.of(connection, versions, whole=whole))
            return replace(page, items=[row for row in page.items if row["id"] in views])

        part = question.listing.part
        # Without payloads they are small: one question is enough.
        rows = FIRST_ROWS if whole else part.limit
        found = await read_shown(read, lambda row: selected(views[row["id"]], question.fields), part, rows)
        return SchedulePage(found.items, found.total, found.total_is_estimate, found.next_cursor)

    async def get(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """One schedule."""
        owner, view = await self._reads.ask(job_id)
        require_owner(actor, owner, "schedule")
        if view is None:
            raise AssertionError("a schedule that nobody owns was let through")
        return view

    async def _read(self, job_ids: Sequence[UUID]) -> Sequence[tuple[int | None, ScheduleView | None]]:
        """Whose they are, and how they are shown; read together for all who ask in one moment."""
        async with self._database.reading() as connection:
            found = await schedules.versions(connection, list(dict.fromkeys(job_ids)))
            wanted = [(job_id, version) for job_id, version, _ in found]
            shown: dict[UUID, Any] = await self._shown.of(connection, wanted, whole=True)
        owners = {job_id: owner for job_id, _, owner in found if job_id in shown}
        return [(owners.get(job_id), shown.get(job_id)) for job_id in job_ids]

    async def change(self, actor: Actor, job_id: UUID, changes: ScheduleChanges) -> ScheduleView:
        """New values; a changed cadence moves the next run at once."""
        values = changed_values(changes)
        named = given(changes).get("workflow_owner")

        async def edit(connection: Connection, schedule_id: UUID) -> Changed:
            if "workflow_id" in values or named is not None:
                await _require_workflow(connection, actor, schedule_id, values.get("workflow_id"), named)
            author = author_of(actor)
            return await schedule_changes.edit_scheduled_job(connection, schedule_id, values, author, self.limits.caps)

        return await self._carry_out(actor, job_id, edit)

    async def pause(self, actor: Actor, job_id: UUID, wanted: NoteInput) -> ScheduleView:
        """Nothing fires until it is resumed."""

        async def pause(connection: Connection, schedule_id: UUID) -> Changed:
            return await schedule_changes.pause_scheduled_job(connection, schedule_id, author_of(actor), wanted.note)

        return await self._carry_out(actor, job_id, pause)

    async def resume(self, actor: Actor, job_id: UUID, wanted: NoteInput) -> ScheduleView:
        """Fire again."""

        async def resume(connection: Connection, schedule_id: UUID) -> Changed:
            return await schedule_changes.resume_scheduled_job(connection, schedule_id, author_of(actor), wanted.note)

        return await self._carry_out(actor, job_id, resume)

    async def revive(self, actor: Actor, job_id: UUID) -> ScheduleView:
        """Bring a dead one back."""

        async def revive(connection: Connection, schedule_id: UUID) -> Changed:
            return await schedule_changes.revive_scheduled_job(connection, schedule_id, author_of(actor))

        return await self._carry_out(actor, job_id, revive)

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

    async def _created_after_all(self, job_id: UUID) -> ScheduledJob:
        """The answer to a commit may have been lost: what was written is read back, by its id."""
        async with self._database.transaction() as connection:
            job = await schedules.get(connection, job_id)
        if job is None:
            raise UnavailableError
        return job

    async def _carry_out(self, actor: Actor, job_id: UUID, action: Scheduling) -> ScheduleView:
        async with self._database.transaction() as connection:
            await owned_schedule(connection, actor, job_id)
            changed = await action(connection, job_id)
        await self._ringer.ticks([changed.job])
        await self._ringer.executions(changed.pending)
        return schedule_view(changed.job)


async def owned_schedule(connection: Connection, actor: Actor, job_id: UUID) -> ScheduledJob:
    """A schedule that the actor may see."""
    job = await schedules.get(connection, job_id)
    require_owner(actor, job.user_profile_id if job else None, "schedule")
    if job is None:
        raise AssertionError("a schedule that nobody owns was let through")
    return job


def author_of(actor: Actor) -> Author:
    """Who the history names."""
    return Author(actor.user_id, actor.username)


def spec_values(wanted: SpecInput) -> dict[str, Any]:
    """What was given, with its spec in the stored form; ``InvalidError`` names what is wrong."""
    values = msgspec.structs.asdict(wanted)
    _require_sane(values)
    stored = canonical(in_utc(values))
    require_kind(stored)
    return _stored(stored)


def _stored(values: dict[str, Any]) -> dict[str, Any]:
    """The same values without what is a part of the request only."""
    return {name: value for name, value in values.items() if name != "workflow_owner"}


def draft(values: dict[str, Any], actor: Actor) -> ScheduledJob:
    """A schedule that is not stored yet; the times are the database's to fill in."""
    moment = clock.now()
    return ScheduledJob(
        id=uuid4(),
        user_profile_id=actor.user_id,
        owner_kind=actor.kind,
        owner_id=actor.owner_id,
        anchor_at=moment,
        trace_context=current_context(),
        created_at=moment,
        updated_at=moment,
        **values,
    )


def sound_draft(wanted: ScheduleInput, actor: Actor, caps: Caps) -> ScheduledJob:
    """A new schedule of the actor's; ``InvalidError`` names what is wrong with it."""
    return sound(draft(spec_values(wanted), actor), caps)


def sound(new: ScheduledJob, caps: Caps) -> ScheduledJob:
    """The same schedule, if it can begin now; ``InvalidError`` names what is wrong with it."""
    errors = _problems(new, caps)
    if errors:
        raise InvalidError(*errors)
    return new


def changed_values(changes: ScheduleChanges) -> dict[str, Any]:
    """What was given, in the stored form; ``InvalidError`` names what is wrong."""
    values = given(changes)
    _require_sane(values)
    return _stored(canonical(in_utc(values)))


def _require_sane(values: dict[str, Any]) -> None:
    """Refuse what the types cannot: times outside the supported years, and an end before the start."""
    require_years(values)
    start, end = values.get("start_at"), values.get("end_at")
    if start is not None and end is not None and end < start:
        raise InvalidError(FieldError("end_at", "The end must not be before start_at."))


def require_years(values: dict[str, Any]) -> None:
    """Refuse times outside the years for which schedules are planned."""
    errors = [
        FieldError(name, f"The year must be between {EARLIEST_YEAR} and {LATEST_YEAR}.")
        for name, moment in values.items()
        if isinstance(moment, datetime) and not EARLIEST_YEAR <= moment.year <= LATEST_YEAR
    ]
    if errors:
        raise InvalidError(*errors)


def _problems(new: ScheduledJob, caps: Caps) -> list[FieldError]:
    """What is wrong with a new schedule as a whole. Before any lock is held, as a search for slots may take a while."""
    now = clock.now()
    return [*caps.errors(msgspec.structs.asdict(new)), *problems(with_start_anchor(new, now), now)]


async def _drafts(raw: Sequence[Any], actor: Actor, caps: Caps) -> tuple[dict[int, NewSchedule], list[FieldError]]:
    """The good ones by index, and what is wrong with the others. Other requests get their turn in between."""
    drafts: dict[int, NewSchedule] = {}
    errors: list[FieldError] = []
    for index, item in enumerate(raw):
        await asyncio.sleep(0)
        try:
            wanted = msgspec.convert(item, ScheduleInput)
            drafts[index] = NewSchedule(actor, draft(spec_values(wanted), actor), wanted.workflow_owner)
            errors += _placed(index, _problems(drafts[index].job, caps))
        except msgspec.ValidationError as error:
            errors.append(field_error(error, _place(index)))
        except InvalidError as error:
            errors += _placed(index, error.errors)
    return drafts, errors


def _placed(index: int, errors: Iterable[FieldError]) -> list[FieldError]:
    return [FieldError(f"{_place(index)}.{one.field}", one.message) for one in errors]


def _place(index: int) -> str:
    return f"schedules[{index}]"


def _require_none(
    errors: Sequence[FieldError], refused: dict[int, CarillonError | None], over: QuotaExceededError | None
) -> None:
    """Refuse a batch: 409 if all that is wrong are workflows of others or the quota, else everything by its index."""
    foreign = {index: error for index, error in refused.items() if isinstance(error, ForeignWorkflowError)}
    unknown = [
        FieldError(f"{_place(index)}.workflow_id", error.detail)
        for index, error in refused.items()
        if error and index not in foreign
    ]
    not_named = [FieldError(f"{_place(index)}.workflow_owner", error.detail) for index, error in foreign.items()]
    if errors or unknown:
        raise InvalidError(*errors, *unknown, *not_named)
    if foreign:
        raise ForeignWorkflowError(next(iter(foreign.values())).workflow_owner, *not_named)
    if over:
        raise over


async def _start(connection: Connection, wanted: Sequence[NewSchedule]) -> list[ScheduledJob]:
    return await schedule_changes.start_scheduled_jobs(connection, [(new.job, author_of(new.actor)) for new in wanted])


async def _require_workflow(
    connection: Connection, actor: Actor, job_id: UUID, workflow_id: int | None, named: int | None
) -> None:
    """Refuse to move a schedule to a workflow that its owner may not run; it may stay where it is."""
    job = await owned_schedule(connection, actor, job_id)
    if named is None and workflow_id == job.workflow_id:
        return
    wanted = workflow_id or job.workflow_id
    owners = await workflows.owners(connection, {wanted})
    require_usable(actor, job.user_profile_id, owners.get(wanted), named)
