"""Calendars in the database: who has which, which of them a name stands for, and the calendars of schedules.

A schedule's row names the contents of its calendars by digest. Contents never change, so what a process has read once
stays valid: a tick needs no query for calendars. When a calendar gets other contents, the rows of its schedules are
written again, and with their versions the caches of these rows become invalid.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import Select, delete, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cache import BoundedCache
from app.domain.access import Owner
from app.domain.calendars import CONTENT_FIELDS, NO_CALENDARS, Calendar, content_digest, rules_of, stored_names
from app.domain.schedules import ScheduledJob
from app.persistence.pagination import Page, Part, read_all, read_one, read_page, read_written
from app.persistence.sql_batches import fetch
from app.persistence.tables import CalendarContentRow, CalendarReplanRow, CalendarRow

# What is kept in memory of calendars: entries, and bytes of their texts. In memory they take several times as much.
MOST_KEPT = 1000
MOST_KEPT_BYTES = 16 * 1024 * 1024
# Larger iCalendar files are read in a thread.
READ_AT_ONCE_BYTES = 16 * 1024
# Contents that are deleted by one statement.
MOST_DELETED = 1000

_TABLE = CalendarRow.__table__
_CONTENTS = CalendarContentRow.__table__
_SHOWN: tuple[Any, ...] = (*_TABLE.c, *(_CONTENTS.c[name] for name in CONTENT_FIELDS))
# By name and version. Versions hold a digest, so the entries are valid for every server and database.
_KEPT: BoundedCache[tuple[str, str], Calendar] = BoundedCache(MOST_KEPT, MOST_KEPT_BYTES)

# Whoever binds names to calendars holds this lock shared until the end of the transaction, and whoever changes what
# names stand for holds it alone. So a schedule that is bound to the old content is committed before the change, and
# those who plan schedules again find it.
_LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared(22, 0)"
_LOCK = "SELECT pg_advisory_xact_lock(22, 0)"
# One's own calendar comes before one of a team, before a public one.
_USABLE = (
    "SELECT DISTINCT ON (o.id, c.name) o.id AS owner, c.name, c.id, c.digest FROM unnest($1::int[]) AS o(id) "
    "JOIN calendars AS c ON c.name = ANY($2::text[]) LEFT JOIN team_members AS m "
    "ON m.team_id = c.user_profile_id AND m.user_profile_id = o.id "
    "WHERE c.user_profile_id = o.id OR m.team_id IS NOT NULL OR c.public "
    "ORDER BY o.id, c.name, (c.user_profile_id = o.id) DESC, (m.team_id IS NOT NULL) DESC, c.id"
)
_CURRENT = "SELECT id, digest FROM calendars WHERE id = ANY($1::int[])"
_CONTENT = "SELECT digest, timezone, dates, ics, holidays FROM calendar_contents WHERE digest = ANY($1::text[])"
# In the words of the index.
_USES = "calendar_versions <> '{}' AND calendar_versions ? $1"
_USERS_AFTER = f"SELECT id FROM scheduled_jobs WHERE {_USES} AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3"  # noqa: S608
_IS_NAMED = f"SELECT EXISTS (SELECT FROM scheduled_jobs WHERE {_USES})"  # noqa: S608
_COUNT_USES = (
    f"SELECT count(*) AS number, count(*) FILTER (WHERE user_profile_id <> $3) AS foreign_ones "  # noqa: S608
    f"FROM scheduled_jobs WHERE {_USES} AND starts_with(calendar_versions ->> $1, $2)"
)
_TAKE_REPLAN = text(
    "SELECT id, name, position, user_profile_id, author FROM calendar_replans ORDER BY id LIMIT 1 "
    "FOR UPDATE SKIP LOCKED"
)
_DELETE_OLD = text(
    "DELETE FROM calendar_contents WHERE digest IN (SELECT c.digest FROM calendar_contents AS c "
    "WHERE c.used_at < :before AND NOT EXISTS (SELECT FROM calendars AS k WHERE k.digest = c.digest) LIMIT :limit)"
)


class StoredCalendar(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar with its content."""

    id: int
    user_profile_id: int
    team_id: int | None
    name: str
    public: bool
    digest: str
    timezone: str
    dates: list[str]
    ics: str | None
    holidays: str | None
    created_at: datetime
    updated_at: datetime


class Uses(msgspec.Struct, frozen=True):
    """How many schedules use a calendar, and how many of them belong to others than its owner."""

    number: int
    foreign: int


class Replan(msgspec.Struct, frozen=True):
    """A change of what a name stands for, and how far the schedules that use the name have been planned again."""

    id: int
    name: str
    position: UUID | None
    user_profile_id: int | None
    author: str


async def lock_names(connection: AsyncConnection) -> None:
    """Let everyone wait who binds schedules to calendars, until this transaction ends."""
    await fetch(connection, _LOCK)


async def page(
    connection: AsyncConnection, owners: Sequence[int] | None, part: Part, *, with_public: bool = True
) -> Page[StoredCalendar]:
    """Return a page of the calendars of these owners and of public ones, newest first; None stands for all."""
    query = _all()
    if owners is not None:
        query = query.where(or_(_TABLE.c.user_profile_id.in_(owners), _TABLE.c.public & with_public))
    return await read_page(connection, query, StoredCalendar, (_TABLE.c.id,), part)


async def of_owner(connection: AsyncConnection, owner: int, name: str) -> StoredCalendar | None:
    """Return an owner's calendar, or None."""
    return await read_one(
        connection, _all().where(_TABLE.c.user_profile_id == owner, _TABLE.c.name == name), StoredCalendar
    )


async def by_ids(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, StoredCalendar]:
    """Return calendars by their ids."""
    rows = await read_all(connection, _all().where(_TABLE.c.id.in_(ids)), StoredCalendar) if ids else []
    return {row.id: row for row in rows}


async def of_name(connection: AsyncConnection, name: str) -> list[StoredCalendar]:
    """Return the calendars of a name, at most two of them."""
    return await read_all(connection, _all().where(_TABLE.c.name == name).limit(2), StoredCalendar)


async def usable(connection: AsyncConnection, owner: int, name: str) -> StoredCalendar | None:
    """Return the calendar that a name stands for in schedules of an owner, or None."""
    rows = await fetch(connection, _USABLE, [owner], [name])
    if not rows:
        return None
    return await read_one(connection, _all().where(_TABLE.c.id == rows[0]["id"]), StoredCalendar)


async def count_of(connection: AsyncConnection, owner: int) -> int:
    """Return the number of an owner's calendars."""
    query = select(func.count()).select_from(_TABLE).where(_TABLE.c.user_profile_id == owner)
    return int((await connection.execute(query)).scalar_one())


async def name_is_public(connection: AsyncConnection, name: str) -> bool:
    """Return whether there is a public calendar of this name."""
    query = select(_TABLE.c.id).where(_TABLE.c.public, _TABLE.c.name == name)
    return (await connection.execute(query)).first() is not None


async def uses(connection: AsyncConnection, calendar: StoredCalendar) -> Uses:
    """Return by how many schedules a calendar is used."""
    values = (calendar.name, version_prefix(calendar), calendar.user_profile_id)
    (row,) = await fetch(connection, _COUNT_USES, *values)
    return Uses(row["number"], row["foreign_ones"])


async def add(connection: AsyncConnection, owner: Owner, values: Mapping[str, Any]) -> StoredCalendar | None:
    """Create a calendar and return it; None if the owner has one of that name."""
    digest = await _store_content(connection, values)
    plain = {name: value for name, value in values.items() if name not in CONTENT_FIELDS}
    statement = upsert(CalendarRow).values(
        **plain, digest=digest, user_profile_id=owner.user_profile_id, team_id=owner.team_id
    )
    unless_taken = statement.on_conflict_do_nothing(index_elements=["user_profile_id", "name"])
    created = (await connection.execute(unless_taken.returning(_TABLE.c.id))).scalar_one_or_none()
    return None if created is None else await read_one(connection, _all().where(_TABLE.c.id == created), StoredCalendar)


async def save(connection: AsyncConnection, before: StoredCalendar, values: Mapping[str, Any]) -> StoredCalendar:
    """Change a calendar. Its former content stays for the history."""
    content = {name: values.get(name, getattr(before, name)) for name in CONTENT_FIELDS}
    plain = {name: value for name, value in values.items() if name not in CONTENT_FIELDS}
    digest = await _store_content(connection, content)
    await _leave_content(connection, before.digest)
    changed = {**plain, "digest": digest, "updated_at": func.clock_timestamp()}
    await connection.execute(update(CalendarRow).where(_TABLE.c.id == before.id).values(changed))
    return await read_written(connection, _all().where(_TABLE.c.id == before.id), StoredCalendar)


async def remove(connection: AsyncConnection, calendar: StoredCalendar) -> None:
    """Delete a calendar. Its content stays for the history."""
    await _leave_content(connection, calendar.digest)
    await connection.execute(delete(CalendarRow).where(_TABLE.c.id == calendar.id))


def _all() -> Select[Any]:
    return select(*_SHOWN).join(_CONTENTS, _CONTENTS.c.digest == _TABLE.c.digest)


async def _store_content(connection: AsyncConnection, values: Mapping[str, Any]) -> str:
    content = {name: values[name] for name in CONTENT_FIELDS} | {"dates": list(values["dates"])}
    digest = content_digest(content)
    statement = upsert(CalendarContentRow).values(digest=digest, **content)
    kept = statement.on_conflict_do_update(index_elements=["digest"], set_={"used_at": func.clock_timestamp()})
    await connection.execute(kept)
    return digest


async def _leave_content(connection: AsyncConnection, digest: str) -> None:
    statement = update(CalendarContentRow).where(_CONTENTS.c.digest == digest)
    await connection.execute(statement.values(used_at=func.clock_timestamp()))


async def delete_old_contents(connection: AsyncConnection, before: datetime) -> int:
    """Delete some contents that no calendar has had since a moment. Return how many."""
    return (await connection.execute(_DELETE_OLD, {"before": before, "limit": MOST_DELETED})).rowcount


async def with_calendars(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> list[ScheduledJob]:
    """Return schedules that were read with their calendars, in the versions that their rows name."""
    if not any(job.exclude_calendars or job.only_calendars for job in jobs):
        return list(jobs)
    wanted = {(name, version) for job in jobs for name, version in job.calendar_versions.items() if version}
    known = await _read(connection, wanted)
    return [_with_rules(job, known) if job.names_calendars else job for job in jobs]


def _with_rules(job: ScheduledJob, known: Mapping[tuple[str, str], Calendar]) -> ScheduledJob:
    versions = job.calendar_versions.items()
    calendars = {name: known[name, version] for name, version in versions if version and (name, version) in known}
    return replace(job, calendars=rules_of(job.exclude_calendars, job.only_calendars, calendars, job.timezone))


async def _read(connection: AsyncConnection, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], Calendar]:
    """Return calendars by name and version; those whose content is not there any more are left out."""
    known = {key: kept for key in wanted if (kept := _KEPT.get(key)) is not None}
    missing = {key: _digest(key[1]) for key in wanted if key not in known}
    if not missing:
        return known
    rows = {row["digest"]: row for row in await fetch(connection, _CONTENT, sorted(set(missing.values())))}
    for key, digest in missing.items():
        row = rows.get(digest)
        if row is not None:
            known[key] = await _compiled(key[0], row)
            _KEPT.keep(key, known[key], len(row["ics"] or "") + 16 * len(row["dates"]))
    return known


async def _compiled(name: str, row: Any) -> Calendar:
    """Return a calendar whose file has been read, in a thread if it is large."""
    content = {field: row[field] for field in CONTENT_FIELDS}
    calendar = Calendar(name=name, **{**content, "dates": tuple(row["dates"])})
    if calendar.ics is not None and len(calendar.ics) > READ_AT_ONCE_BYTES:
        await asyncio.to_thread(lambda: calendar.problem)
    return calendar


async def bound(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> list[ScheduledJob]:
    """Return schedules with the calendars that their names stand for now, one's own before a team's or a public one.

    A name that stands for none any more keeps the calendar that the schedule has, as long as that exists: an owner who
    leaves a team does not change when schedules fire.
    """
    naming = [job for job in jobs if job.names_calendars]
    if not naming:
        return [_unbound(job) for job in jobs]
    await fetch(connection, _LOCK_SHARED)
    names = {name for job in naming for name in _stored(job)}
    rows = await fetch(connection, _USABLE, sorted({job.user_profile_id for job in naming}), sorted(names))
    usable_ones = {(row["owner"], row["name"]): _version(row["id"], row["digest"]) for row in rows}
    ids = {_calendar_id(version) for job in naming for version in job.calendar_versions.values() if version}
    current = {row["id"]: _version(*row) for row in await fetch(connection, _CURRENT, sorted(ids))} if ids else {}

    def version_of(job: ScheduledJob, name: str) -> str | None:
        former = job.calendar_versions.get(name)
        kept = None if former is None else current.get(_calendar_id(former))
        return usable_ones.get((job.user_profile_id, name), kept)

    bound_jobs = [
        replace(job, calendar_versions={name: version_of(job, name) for name in _stored(job)})
        if job.names_calendars
        else _unbound(job)
        for job in jobs
    ]
    return await with_calendars(connection, bound_jobs)


async def with_content(
    connection: AsyncConnection, jobs: Sequence[ScheduledJob], calendar: StoredCalendar, content: Mapping[str, Any]
) -> list[ScheduledJob]:
    """Return schedules with the content that a calendar of theirs would have after a change."""
    wanted = {(name, version) for job in jobs for name, version in job.calendar_versions.items() if version}
    known = await _read(connection, wanted)
    changed = await _compiled(calendar.name, content)
    known |= {key: changed for key in wanted if _calendar_id(key[1]) == calendar.id}
    return [_with_rules(job, known) for job in jobs]


async def prepared(
    connection: AsyncConnection, jobs: Mapping[UUID, ScheduledJob], changes: Mapping[UUID, Mapping[str, Any]]
) -> dict[UUID, ScheduledJob]:
    """Return schedules that are about to be changed, with the calendars that they have after the change."""
    concerned = {"exclude_calendars", "only_calendars", "timezone"}
    affected = {job_id: concerned & changes[job_id].keys() for job_id in jobs}
    after = {
        job_id: replace(jobs[job_id], **{name: changes[job_id][name] for name in names})
        for job_id, names in affected.items()
        if names
    }
    new = {job.id: job for job in await bound(connection, list(after.values()))}
    return {
        job_id: replace(job, calendars=new[job_id].calendars, calendar_versions=new[job_id].calendar_versions)
        if job_id in new
        else job
        for job_id, job in jobs.items()
    }


def _unbound(job: ScheduledJob) -> ScheduledJob:
    is_bound = job.calendar_versions or job.calendars is not NO_CALENDARS
    return replace(job, calendar_versions={}, calendars=NO_CALENDARS) if is_bound else job


def _stored(job: ScheduledJob) -> tuple[str, ...]:
    return stored_names((*job.exclude_calendars, *job.only_calendars))


def _version(calendar_id: int, digest: str) -> str:
    return f"{calendar_id}.{digest}"


def version_prefix(calendar: StoredCalendar) -> str:
    """Return how the versions of a calendar begin in the rows of schedules, whatever its content."""
    return _version(calendar.id, "")


def _calendar_id(version: str) -> int:
    return int(version.partition(".")[0])


def _digest(version: str) -> str:
    return version.partition(".")[2]


async def request_replan(connection: AsyncConnection, names: Iterable[str], user_id: int | None, author: str) -> None:
    """Have the schedules that use one of these names planned again, if there are any."""
    for name in sorted(set(names)):
        if (await fetch(connection, _IS_NAMED, name))[0][0]:
            values = {"name": name, "user_profile_id": user_id, "author": author}
            await connection.execute(upsert(CalendarReplanRow).values(values))


async def take_replan(connection: AsyncConnection) -> Replan | None:
    """Lock the oldest request that no other transaction works on; None if there is none."""
    return await read_one(connection, _TAKE_REPLAN, Replan)


async def users_after(connection: AsyncConnection, name: str, position: UUID | None, limit: int) -> list[UUID]:
    """Return the next schedules, by id, that use a name."""
    return [row["id"] for row in await fetch(connection, _USERS_AFTER, name, position, limit)]


async def advance_replan(connection: AsyncConnection, replan: Replan, position: UUID | None) -> None:
    """Note how far a request was carried out; None ends it."""
    table = CalendarReplanRow.__table__
    if position is None:
        await connection.execute(delete(CalendarReplanRow).where(table.c.id == replan.id))
    else:
        await connection.execute(update(CalendarReplanRow).where(table.c.id == replan.id).values(position=position))
