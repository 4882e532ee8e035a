"""Calendars: create, change and delete them. Schedules that use one are planned again when it changes."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor, Owner, require_admin, require_owner
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.audited_changes import shown_differences
from app.domain.calendars import CONTENT_FIELDS, canonical_calendar
from app.domain.errors import ConflictError, ForbiddenError, NotFoundError, UnavailableError
from app.domain.revisions import Author
from app.domain.schedule_lifecycle import with_new_calendars
from app.engine.calendar_replans import CalendarReplanner
from app.persistence import audit, calendars, edit_plans, schedules
from app.persistence.calendars import READ_AT_ONCE_BYTES, StoredCalendar
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part
from app.services.admission import new_owner
from app.services.fleet_plans import MOST_READ, Candidate, as_candidates, fleet_plan_fields, plan_many
from app.services.inputs import IDS, CalendarChanges, CalendarInput, CalendarPlanInput, given, require_calendar_name
from app.services.listing import read_views, visible
from app.services.preconditions import require_match, tag_of
from app.services.schedules import author_of
from app.services.views import CalendarList, CalendarPlanView, CalendarView

MOST_CALENDARS = 1000
NOT_FOUND = "There is no such calendar."


class Named(msgspec.Struct, frozen=True):
    """A calendar as a request names it: by its name, and by its owner or its team if there are several."""

    name: str
    owner: int | None = None
    team_id: int | None = None


class CalendarService:
    """Use cases about calendars."""

    def __init__(self, database: Database, replanner: CalendarReplanner) -> None:
        """Have schedules planned again after each change."""
        self._database = database
        self._replanner = replanner

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> CalendarList:
        """Return a page of the calendars that the actor may use, of this team if one is named, newest first."""
        async with self._database.reading() as connection:
            owners = (await visible(connection, actor, team_id)).owners
            page = await read_views(
                partial(calendars.page, connection, owners, with_public=team_id is None), _view, part
            )
        return CalendarList(page.items, page.next_cursor)

    async def create(self, actor: Actor, calendar: CalendarInput) -> CalendarView:
        """Create a calendar of the actor or of a team; only admins make one public."""
        values = await _canonical(msgspec.structs.asdict(calendar))
        team_id = values.pop("team_id")
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            row = await add_calendar(connection, actor, owner, values, author_of(actor))
        await self._replan()
        return _view(row)

    async def get(self, actor: Actor, named: Named) -> CalendarView:
        """Return a calendar that the actor may use."""
        async with self._database.reading() as connection:
            return _view(await _found(connection, actor, named))

    async def change(self, actor: Actor, named: Named, changes: CalendarChanges) -> CalendarView:
        """Give a calendar new values, and plan the schedules again that use it."""
        async with self._database.reading() as connection:
            known = await _found(connection, actor, named)
        # Before any lock is held: an iCalendar file takes a while to read.
        values = await _canonical(_with_context(given(changes), known))
        async with self._database.transaction() as connection:
            await calendars.lock_names(connection)
            before = await _changeable(connection, actor, named)
            require_match(lambda: tag_of(_view(before)))
            after = await change_calendar(connection, actor, before, values, author_of(actor))
            if after is before:
                return _view(before)
        await self._replan()
        return _view(after)

    async def plan(self, actor: Actor, named: Named, request: CalendarPlanInput) -> CalendarPlanView:
        """Return what a change of a calendar would do to those schedules that use it and that the actor sees."""
        fields = given(request)
        days = fields.pop("days")
        async with self._database.reading() as connection:
            calendar = await _found(connection, actor, named)
        values = await _canonical(_with_context(fields, calendar))
        values = {name: value for name, value in values.items() if _editable(calendar)[name] != value}
        async with self._database.transaction() as connection:
            if actor.may_use(calendar.user_profile_id):
                await _require_allowed(connection, actor, calendar, values)
            number = await edit_plans.count_using(connection, actor.reach(), calendar)
            candidates = await _candidates(connection, actor, calendar, values)
            now = await database_now(connection)
        plan = await plan_many(candidates, now, change=with_new_calendars, days=days)
        changes = shown_differences(_audited(calendar), _audited(replace(calendar, **values)))
        return CalendarPlanView(changes=changes, **fleet_plan_fields(plan, number))

    async def _replan(self) -> None:
        """Plan schedules again; workers do what fails here, as the change itself is stored."""
        with suppress(UnavailableError):
            await self._replanner.run()

    async def delete(self, actor: Actor, named: Named) -> None:
        """Delete a calendar that no schedule uses."""
        async with self._database.transaction() as connection:
            await calendars.lock_names(connection)
            row = await _changeable(connection, actor, named)
            require_match(lambda: tag_of(_view(row)))
            await remove_calendar(connection, row, author_of(actor))


async def add_calendar(
    connection: Connection, actor: Actor, owner: Owner, values: Mapping[str, Any], author: Author
) -> StoredCalendar:
    """Create a calendar within a transaction; only admins make one public."""
    name = values["name"]
    if values["public"]:
        require_admin(actor)
    await calendars.lock_names(connection)
    if await calendars.count_of(connection, owner.user_profile_id) >= MOST_CALENDARS:
        raise ConflictError(f"There are {MOST_CALENDARS} calendars of this owner already. Delete one first.")
    if values["public"]:
        await _require_free_public_name(connection, name)
    row = await calendars.add(connection, owner, values)
    if row is None:
        raise ConflictError(f"The owner has a calendar '{name}' already. PATCH changes it.")
    await calendars.request_replan(connection, [name], actor.user_id, author.name)
    details = {"public": row.public}
    await audit.record_by(connection, author, AuditAction.CALENDAR_CREATED, [_subject(row)], details=details)
    return row


async def change_calendar(
    connection: Connection, actor: Actor, before: StoredCalendar, values: Mapping[str, Any], author: Author
) -> StoredCalendar:
    """Give a calendar new values within a transaction that has locked the names; equal values change nothing."""
    values = {name: value for name, value in values.items() if _editable(before)[name] != value}
    if not values:
        return before
    await _require_allowed(connection, actor, before, values)
    after = await calendars.save(connection, before, values)
    await calendars.request_replan(connection, [before.name, after.name], actor.user_id, author.name)
    differing = shown_differences(_audited(before), _audited(after))
    await audit.record_by(connection, author, AuditAction.CALENDAR_CHANGED, [_subject(after)], changes=differing)
    return after


async def remove_calendar(connection: Connection, row: StoredCalendar, author: Author) -> None:
    """Delete a calendar that no schedule uses, within a transaction that has locked the names."""
    number = (await calendars.uses(connection, row)).number
    if number:
        raise ConflictError(f"{_schedules(number)} the calendar '{row.name}'. Change them first.")
    await calendars.remove(connection, row)
    await audit.record_by(connection, author, AuditAction.CALENDAR_DELETED, [_subject(row)])


async def _candidates(
    connection: Connection, actor: Actor, calendar: StoredCalendar, values: Mapping[str, Any]
) -> list[Candidate]:
    """Return some of the schedules that use a calendar, each with the calendar as a change would leave it."""
    if not CONTENT_FIELDS & values.keys():
        return []
    ids = await edit_plans.some_using(connection, actor.reach(), calendar, MOST_READ)
    jobs = [job for _, job in await schedules.many(connection, ids, whole=False)]
    content = {name: values.get(name, getattr(calendar, name)) for name in CONTENT_FIELDS}
    ready = await calendars.with_content(connection, jobs, calendar, content)
    return await as_candidates(connection, list(zip(jobs, ready, strict=True)))


async def _canonical(values: dict[str, Any]) -> dict[str, Any]:
    """Return values in their stored form; a large iCalendar file is read in a thread."""
    read = partial(canonical_calendar, values)
    is_large = len(values.get("ics") or "") > READ_AT_ONCE_BYTES
    stored = await asyncio.to_thread(read) if is_large else read()
    return stored | ({"dates": [*stored["dates"]]} if "dates" in stored else {})


def _with_context(values: dict[str, Any], known: StoredCalendar) -> dict[str, Any]:
    """Return given values, with what an iCalendar file is read with: the file and its timezone."""
    if not {"ics", "timezone"} & values.keys() or (known.ics is None and values.get("ics") is None):
        return values
    return {"timezone": known.timezone, "ics": known.ics, **values}


async def _found(connection: Connection, actor: Actor, named: Named) -> StoredCalendar:
    """Return the calendar that a request names: one's own, one of a team, a public one; for admins any other too."""
    name = require_calendar_name(named.name)
    if named.team_id is not None or named.owner is not None:
        owner = named.team_id or named.owner or 0
        row = await calendars.of_owner(connection, owner, name) if owner in IDS else None
        if row is not None and row.public:
            return row
        require_owner(actor, None if row is None else row.user_profile_id, "calendar")
    else:
        row = await calendars.usable(connection, actor.user_id, name)
        if row is None and actor.sees_all:
            row = await _only_one(connection, name)
    if row is None:
        raise NotFoundError(NOT_FOUND)
    return row


async def _only_one(connection: Connection, name: str) -> StoredCalendar | None:
    rows = await calendars.of_name(connection, name)
    if len(rows) > 1:
        raise ConflictError(f"Several owners have a calendar '{name}'. Say whose: `owner` or `team_id`.")
    return rows[0] if rows else None


async def _changeable(connection: Connection, actor: Actor, named: Named) -> StoredCalendar:
    row = await _found(connection, actor, named)
    if row.public and not actor.sees_all and row.user_profile_id != actor.user_id:
        raise ForbiddenError("Only its owner and admins change a public calendar.")
    require_owner(actor, row.user_profile_id, "calendar")
    return row


async def _require_allowed(
    connection: Connection, actor: Actor, before: StoredCalendar, values: Mapping[str, Any]
) -> None:
    """Refuse changes that are for admins, that a name stands in the way of, or that schedules would be left without."""
    name = values.get("name", before.name)
    if values.get("public") or (before.public and "name" in values):
        require_admin(actor)
        await _require_free_public_name(connection, name)
    if "name" in values:
        if await calendars.of_owner(connection, before.user_profile_id, name) is not None:
            raise ConflictError(f"The owner has a calendar '{name}' already.")
        number = (await calendars.uses(connection, before)).number
        if number:
            raise ConflictError(f"{_schedules(number)} the calendar '{before.name}'. Its name cannot be changed.")
    if values.get("public") is False:
        foreign = (await calendars.uses(connection, before)).foreign
        if foreign:
            raise ConflictError(f"{_schedules(foreign, of='of other owners ')} the public calendar '{before.name}'.")


async def _require_free_public_name(connection: Connection, name: str) -> None:
    if await calendars.name_is_public(connection, name):
        raise ConflictError(f"There is a public calendar '{name}' already.")


def _schedules(number: int, of: str = "") -> str:
    return f"{number} schedule {of}uses" if number == 1 else f"{number} schedules {of}use"


def _subject(row: StoredCalendar) -> Subject:
    return Subject(ObjectType.CALENDAR, str(row.id), row.name, row.user_profile_id)


def _editable(row: StoredCalendar) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("name", "public", *CONTENT_FIELDS)}


def _audited(row: StoredCalendar) -> dict[str, Any]:
    """Return what events show: of a file only how long it is."""
    return _editable(row) | {"ics": None if row.ics is None else f"{len(row.ics)} characters"}


def _view(row: StoredCalendar) -> CalendarView:
    return CalendarView(
        name=row.name,
        owner=row.user_profile_id,
        team_id=row.team_id,
        public=row.public,
        timezone=row.timezone,
        dates=row.dates,
        ics=row.ics,
        holidays=row.holidays,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
