"""Schedules in the database: read, locked, listed and written as structs of the domain."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, delete, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.audit import ObjectType, Subject
from app.domain.calendars import NO_CALENDARS
from app.domain.errors import ConflictError, KeyTakenError
from app.domain.schedules import EDITABLE, PlannedTick, Reason, ScheduledJob
from app.persistence.calendars import with_calendars
from app.persistence.execution_rows import LOCKED_COLUMNS, LockedExecution, to_locked
from app.persistence.restrictions import runs_within
from app.persistence.sql_batches import fetch, insert_many, run_batch, update_many
from app.persistence.tables import IS_LIMITED, DueTickRow, ScheduledJobRow

_TABLE = ScheduledJobRow.__table__
_DUE = DueTickRow.__table__
# All but what Postgres writes by itself.
_COLUMNS = tuple(column.name for column in _TABLE.columns if column.name != "edited_xid")
COLUMNS = ", ".join(f"j.{name}" for name in _COLUMNS)
# The columns that ringing for a tick needs: it works even for a row that cannot be read as a ScheduledJob.
_TICK = tuple(_TABLE.c[name] for name in PlannedTick.__struct_fields__)
# The columns that hold the values of an enum, each with its members by their values.
_ENUMS = tuple(
    (field.name, {member.value: member for member in field.type})
    for field in msgspec.structs.fields(ScheduledJob)
    if isinstance(field.type, type) and issubclass(field.type, StrEnum)
)
# Stored as ``every`` of a schedule with a rule, and among ``not_on`` of one with calendars. Release 0.1.0 knows
# neither: it would finish the schedule after its pending slot, or fire what calendars leave out. A spec that it cannot
# compile is paused as ``invalid_spec`` instead, and resumed by newer workers.
RULE_MARK = "rrule"
CALENDAR_MARK = "calendars"
_TIMES_OF_PEOPLE = ("at", "start_at", "end_at", "anchor_at")
_UNIQUE_NAME = "uq_scheduled_jobs_name_of_plugin"
_UNIQUE_KEY = "uq_scheduled_jobs_key"
_FIXED = {"id", "user_profile_id", "owner_kind", "owner_id", "team_id", "created_at", "updated_at"}
_WRITABLE = tuple(name for name in _COLUMNS if name not in _FIXED)
_INSERT = insert_many(ScheduledJobRow, _COLUMNS)
_UPDATE = update_many(ScheduledJobRow, _WRITABLE, extra=", updated_at = clock_timestamp(), edited_xid = DEFAULT")
# The columns that ticks and the ends of runs write: all but those that only edits write.
_WRITTEN_BY_EDITS = {
    *EDITABLE,
    *("anchor_at", "trace_context", "calendar_versions", "lease_id", "lease_ends_at"),
}
_MOVING = tuple(name for name in _WRITABLE if name not in _WRITTEN_BY_EDITS)
# The columns that the start of a waiting run writes.
_STARTED = ("last_run_at", "last_attempt_at", "last_execution_id", "last_outcome")
MOVE = update_many(ScheduledJobRow, _MOVING, extra=", updated_at = clock_timestamp()")


def to_job(row: Row[Any]) -> ScheduledJob:
    """Return a row as a schedule."""
    named = row._mapping  # noqa: SLF001 - SQLAlchemy's public way to a row's names
    return _from_columns({name: named[name] for name in _COLUMNS})


def from_record(record: Sequence[Any]) -> ScheduledJob:
    """Return the driver's record as a schedule; values behind the columns of a schedule are ignored."""
    return _from_columns(dict(zip(_COLUMNS, record, strict=False)))


def _from_columns(values: dict[str, Any]) -> ScheduledJob:
    for name, members in _ENUMS:
        # A value of a newer release stays text: see ``ScheduledJob.unknown_value``.
        values[name] = members.get(values[name], values[name])
    values["not_on"] = tuple(map(str, values["not_on"]))
    if values["rrule"] is not None or CALENDAR_MARK in values["not_on"]:
        _unmark(values)
    values["exclude_calendars"] = tuple(values["exclude_calendars"])
    values["only_calendars"] = tuple(values["only_calendars"])
    for name in _TIMES_OF_PEOPLE:
        # The driver returns what Postgres calls infinity, which only an edit by hand can store, without a zone.
        if values[name] is not None and values[name].tzinfo is None:
            values[name] = values[name].replace(tzinfo=UTC)
    return ScheduledJob(**values)


def _unmark(values: dict[str, Any]) -> None:
    """Remove the marks; and the rule, if an API of release 0.1.0 has given the schedule another spec."""
    if values["rrule"] is not None:
        values["every" if values["every"] == RULE_MARK else "rrule"] = None
    values["not_on"] = tuple(name for name in values["not_on"] if name != CALENDAR_MARK)


def _marked(job: ScheduledJob) -> ScheduledJob:
    if job.rrule is None and not job.names_calendars:
        return job
    not_on = (*job.not_on, CALENDAR_MARK) if job.names_calendars else job.not_on
    return msgspec.structs.replace(job, every=RULE_MARK if job.rrule is not None else job.every, not_on=not_on)


def stored_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of fields as their columns hold them, to compare them with rows."""
    if values.get("rrule") is not None:
        return {**values, "every": RULE_MARK}
    return {name: value for name, value in values.items() if name != "rrule"}


def with_stored_values(job: ScheduledJob, stored: Mapping[str, Any]) -> ScheduledJob:
    """Return a schedule with some values of another time, as a revision has stored them as JSON, without calendars."""
    values = msgspec.to_builtins(msgspec.structs.replace(job, calendars=NO_CALENDARS)) | stored
    if CALENDAR_MARK in values["not_on"] or (stored.get("rrule") and stored.get("every")):
        # A snapshot that a statement has made of the row.
        _unmark(values)
    enums = {name: members.get(values[name], values[name]) for name, members in _ENUMS}
    plain = {name: value for name, value in values.items() if name not in enums}
    return msgspec.structs.replace(msgspec.convert(plain, ScheduledJob), **enums)


def from_stored(stored: Mapping[str, Any]) -> ScheduledJob:
    """Return a whole schedule that was stored as JSON, without its calendars."""
    enums = {name: members.get(stored[name], stored[name]) for name, members in _ENUMS}
    # The members come afterwards: a newer release may have stored a value that is none.
    plain = {name: value for name, value in stored.items() if name not in enums}
    return msgspec.structs.replace(msgspec.convert(plain, ScheduledJob), **enums)


_FORGET_DELETION = "DELETE FROM deleted_histories WHERE scheduled_job_id = ANY($1::uuid[])"


async def add_again(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> None:
    """Write deleted schedules again under their ids. What is left of their history belongs to them as before."""
    await fetch(connection, _FORGET_DELETION, [job.id for job in jobs])
    await add(connection, jobs)


@contextmanager
def _unique_names() -> Iterator[None]:
    """Report a plugin's second schedule of the same name, and an owner's second one of the same key, as a conflict."""
    try:
        yield
    except IntegrityError as error:
        if _UNIQUE_KEY in str(error.orig):
            raise KeyTakenError from None
        if _UNIQUE_NAME in str(error.orig):
            raise ConflictError("The plugin already has a schedule of this name.") from None
        raise


async def add(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> None:
    """Write new schedules."""
    with _unique_names():
        await run_batch(connection, _INSERT, [_marked(job) for job in jobs])


async def save(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> None:
    """Write schedules whose rows this transaction has locked."""
    with _unique_names():
        await run_batch(connection, _UPDATE, [_marked(job) for job in jobs])


async def get(connection: AsyncConnection, job_id: UUID) -> ScheduledJob | None:
    """Return a schedule, or None if it does not exist."""
    row = (await connection.execute(select(_TABLE).where(_TABLE.c.id == job_id))).one_or_none()
    return (await with_calendars(connection, [to_job(row)]))[0] if row else None


# ``edited_xid`` equals ``xmin``, which has 32 bits, until something but an edit writes the row.
_VERSIONS = (
    "SELECT j.id, j.xmin AS version, j.user_profile_id, j.workflow_id, w.name AS workflow_name, m.namespace, "
    "coalesce(j.edited_xid & 4294967295 = j.xmin::text::bigint, false) AND w.updated_at <= j.updated_at AS is_unmoved, "
    "j.edited_xid FROM unnest($1::uuid[]) AS ids(id) JOIN scheduled_jobs AS j ON j.id = ids.id "
    "JOIN workflows AS w ON w.id = j.workflow_id LEFT JOIN managed_schedules AS m ON m.scheduled_job_id = j.id"
)
_SURROUNDINGS = (
    "SELECT j.id, w.name, m.namespace, j.edited_xid FROM unnest($1::uuid[]) AS ids(id) "
    "JOIN scheduled_jobs AS j ON j.id = ids.id JOIN workflows AS w ON w.id = j.workflow_id "
    "LEFT JOIN managed_schedules AS m ON m.scheduled_job_id = j.id"
)
_SUBJECTS = (
    "SELECT j.id, j.name, j.user_profile_id FROM unnest($1::uuid[]) AS ids(id) "
    "JOIN scheduled_jobs AS j ON j.id = ids.id"
)
_MANY = (
    f"SELECT j.xmin, {COLUMNS} FROM unnest($1::uuid[]) AS ids(id) "  # noqa: S608
    "JOIN scheduled_jobs AS j ON j.id = ids.id"
)
# As lists show them: without the payloads, which may be large.
_MANY_LISTED = _MANY.replace("j.trigger_payload", "'{}'::jsonb AS trigger_payload")


class ScheduleVersion(msgspec.Struct, frozen=True):
    """The version (``xmin``) of a schedule's row, what the schedule belongs to, and what is shown beside the row."""

    id: UUID
    version: int
    user_profile_id: int
    workflow_id: int
    workflow_name: str
    # Of the file that declares it; None if no file does.
    namespace: str | None
    # Whether neither the schedule nor its workflow was written since the schedule was edited.
    is_unmoved: bool
    # The transaction of its last edit.
    edited_xid: int | None


async def versions(connection: AsyncConnection, ids: Sequence[UUID]) -> list[ScheduleVersion]:
    """Return the versions of those of these schedules that exist."""
    return [ScheduleVersion(*row) for row in await fetch(connection, _VERSIONS, ids)]


async def surroundings(
    connection: AsyncConnection, ids: Sequence[UUID]
) -> dict[UUID, tuple[str, str | None, int | None]]:
    """Return the workflows' names of schedules, the namespaces of the files that declare them, and their last edits."""
    return {row[0]: (row[1], row[2], row[3]) for row in await fetch(connection, _SURROUNDINGS, ids)}


async def many(
    connection: AsyncConnection, ids: Sequence[UUID], *, whole: bool = True
) -> list[tuple[int, ScheduledJob]]:
    """Return those of these schedules that exist, each with its row's version; with payloads only if ``whole``."""
    sql = _MANY if whole else _MANY_LISTED
    records = await fetch(connection, sql, ids)
    jobs = await with_calendars(connection, [from_record(record[1:]) for record in records])
    return [(record[0], job) for record, job in zip(records, jobs, strict=True)]


async def all_of(connection: AsyncConnection, user_profile_id: int, name: str | None = None) -> list[ScheduledJob]:
    """Return every schedule of an owner, or those of one name, newest first."""
    query = select(_TABLE).where(_TABLE.c.user_profile_id == user_profile_id).order_by(_TABLE.c.created_at.desc())
    if name is not None:
        query = query.where(_TABLE.c.name == name)
    return await with_calendars(connection, [to_job(row) for row in await connection.execute(query)])


# Locks are taken in the order of workflows, schedules by id, executions: see ``claim``. Batches skip rows that another
# transaction holds, so that one held row does not delay the whole batch; the message of a skipped tick is redelivered.
_LOCK = (
    f"SELECT {COLUMNS} FROM unnest($1::uuid[]) AS ids(id) JOIN scheduled_jobs AS j ON j.id = ids.id "  # noqa: S608
    "ORDER BY j.id FOR NO KEY UPDATE OF j"
)
_TRY_LOCK = f"{_LOCK} SKIP LOCKED"
_TRY_LOCK_UNGATED = (
    f"SELECT {COLUMNS} FROM unnest($1::uuid[]) AS ids(id) JOIN scheduled_jobs AS j ON j.id = ids.id "  # noqa: S608
    f"JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED} FOR NO KEY UPDATE OF j SKIP LOCKED"
)
_TRY_LOCK_WITH_RUNS = (
    f"SELECT {COLUMNS}, {', '.join(f'e.{name}' for name in LOCKED_COLUMNS)} "  # noqa: S608
    "FROM unnest($1::uuid[]) AS ids(id) JOIN workflow_executions AS e ON e.id = ids.id "
    "JOIN scheduled_jobs AS j ON j.id = e.scheduled_job_id WHERE NOT EXISTS "
    "(SELECT FROM workflows AS w WHERE w.id = e.workflow_id AND w.breaker_threshold IS NOT NULL) "
    "FOR NO KEY UPDATE OF j, e SKIP LOCKED"
)


async def lock(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, ScheduledJob]:
    """Lock schedules in the order of their ids; wait for other transactions that hold one."""
    return await _locked(connection, _LOCK, ids)


async def try_lock(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, ScheduledJob]:
    """Lock the schedules that no other transaction holds, without waiting: one held row delays no other."""
    return await _locked(connection, _TRY_LOCK, ids)


async def try_lock_ungated(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, ScheduledJob]:
    """Lock without waiting, and only schedules whose workflow has no guard or breaker to lock first."""
    return await _by_id(connection, await fetch(connection, _TRY_LOCK_UNGATED, ids))


async def try_lock_with_runs(
    connection: AsyncConnection, run_ids: Sequence[UUID]
) -> tuple[dict[UUID, ScheduledJob], dict[UUID, LockedExecution]]:
    """Lock runs and their schedules without waiting, except for runs whose workflow has a breaker."""
    jobs: dict[UUID, ScheduledJob] = {}
    runs: dict[UUID, LockedExecution] = {}
    for record in await fetch(connection, _TRY_LOCK_WITH_RUNS, run_ids):
        run = to_locked(record[len(_COLUMNS) :])
        runs[run.id] = run
        if run.scheduled_job_id not in jobs:
            job = from_record(record)
            jobs[job.id] = job
    return {job.id: job for job in await with_calendars(connection, list(jobs.values()))}, runs


async def _locked(connection: AsyncConnection, sql: str, ids: Iterable[UUID]) -> dict[UUID, ScheduledJob]:
    listed = list(ids)
    if not listed:
        return {}
    return await _by_id(connection, await fetch(connection, sql, listed))


async def _by_id(connection: AsyncConnection, records: Sequence[Any]) -> dict[UUID, ScheduledJob]:
    return {job.id: job for job in await with_calendars(connection, [from_record(record) for record in records])}


async def existing(connection: AsyncConnection, ids: Iterable[UUID]) -> set[UUID]:
    """Return the ids of those of these schedules that exist."""
    rows = await connection.execute(select(_TABLE.c.id).where(_TABLE.c.id.in_(list(ids))))
    return set(rows.scalars())


async def touch(connection: AsyncConnection, job_id: UUID) -> None:
    """Give a locked schedule's row a new version, so that caches of the row are not used any more."""
    await connection.execute(update(ScheduledJobRow).where(_TABLE.c.id == job_id).values(name=_TABLE.c.name))


async def touch_many(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Give the rows of locked schedules a new version."""
    await fetch(connection, "UPDATE scheduled_jobs SET name = name WHERE id = ANY($1::uuid[])", list(ids))


async def save_started_run(connection: AsyncConnection, job: ScheduledJob) -> None:
    """Write the fields of a locked schedule that the start of a waiting run has changed."""
    values = {name: getattr(job, name) for name in _STARTED}
    await connection.execute(update(ScheduledJobRow).where(_TABLE.c.id == job.id).values(values))


async def invalid(connection: AsyncConnection, limit: int) -> list[ScheduledJob]:
    """Return schedules that are paused because their spec is not valid."""
    query = select(_TABLE).where(_TABLE.c.status_reason == Reason.INVALID_SPEC).order_by(_TABLE.c.id).limit(limit)
    return await with_calendars(connection, [to_job(row) for row in await connection.execute(query)])


_LOCK_ENDED_PAUSES = (
    f"SELECT {COLUMNS} FROM scheduled_jobs AS j WHERE j.paused_until <= clock_timestamp() "  # noqa: S608
    "AND j.status = 'paused' ORDER BY j.id LIMIT $1 FOR NO KEY UPDATE OF j SKIP LOCKED"
)
_PAUSE_SECONDS = (
    "SELECT extract(epoch FROM min(paused_until) - clock_timestamp())::float AS seconds FROM scheduled_jobs "
    "WHERE paused_until > clock_timestamp() AND status = 'paused'"
)


async def lock_ended_pauses(connection: AsyncConnection, limit: int) -> dict[UUID, ScheduledJob]:
    """Lock paused schedules whose pause has ended by itself and that no other transaction holds."""
    return await _by_id(connection, await fetch(connection, _LOCK_ENDED_PAUSES, limit))


async def seconds_to_pause_end(connection: AsyncConnection) -> float | None:
    """Return the seconds until the next pause ends by itself; None if there is none."""
    (row,) = await fetch(connection, _PAUSE_SECONDS)
    seconds: float | None = row["seconds"]
    return seconds


async def lock_deletable(connection: AsyncConnection, actor: Actor, ids: Iterable[UUID]) -> list[UUID]:
    """Lock those of these schedules that the actor may delete, before they are deleted."""
    query = select(_TABLE.c.id).where(_TABLE.c.id.in_(list(ids)))
    usable = actor.usable()
    if usable.owners is not None:
        query = query.where(_TABLE.c.user_profile_id.in_(usable.owners))
    if usable.workflow_ids is not None:
        query = query.where(_TABLE.c.workflow_id.in_(usable.workflow_ids))
    query = query.where(runs_within(usable, _TABLE.c.id))
    if actor.grant is not None:
        query = query.where(_TABLE.c.lease_id == actor.grant.lease_id)
    return list((await connection.execute(query.order_by(_TABLE.c.id).with_for_update())).scalars())


# A run that is still under way keeps its schedule. The row was last written when it was done, unless edited since.
_LOCK_EXPIRED = (
    "SELECT j.id FROM scheduled_jobs AS j WHERE j.status = 'done' AND {condition} "
    "AND j.updated_at <= clock_timestamp() - make_interval(secs => coalesce(j.delete_after_seconds, $1)) "
    "AND NOT EXISTS (SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id) "
    "ORDER BY j.id LIMIT $2 FOR UPDATE OF j SKIP LOCKED"
)
_BY_THEIR_OWN = _LOCK_EXPIRED.format(condition="j.delete_after_seconds > 0")
_BY_DEFAULT = _LOCK_EXPIRED.format(condition="coalesce(j.delete_after_seconds, $1) > 0")


async def lock_expired(connection: AsyncConnection, default_seconds: int, limit: int) -> list[UUID]:
    """Lock schedules that have been done for as long as they, or the default, say before they are deleted."""
    sql = _BY_DEFAULT if default_seconds else _BY_THEIR_OWN
    return [row["id"] for row in await fetch(connection, sql, default_seconds, limit)]


async def subjects(connection: AsyncConnection, ids: Sequence[UUID]) -> list[Subject]:
    """Return schedules as what events of the audit log are about."""
    rows = await fetch(connection, _SUBJECTS, ids)
    return [Subject(ObjectType.SCHEDULE, str(row["id"]), row["name"], row["user_profile_id"]) for row in rows]


async def remove(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Delete schedules with their history."""
    await connection.execute(delete(ScheduledJobRow).where(_TABLE.c.id.in_(ids)))


async def count_of_workflow(connection: AsyncConnection, workflow_id: int) -> int:
    """Return how many schedules run a workflow."""
    query = select(func.count()).select_from(_TABLE).where(_TABLE.c.workflow_id == workflow_id)
    number: int = (await connection.execute(query)).scalar_one()
    return number


async def of_workflows(connection: AsyncConnection, workflow_ids: Iterable[int]) -> list[ScheduledJob]:
    """Return the schedules that run one of these workflows, sorted by name."""
    query = select(_TABLE).where(_TABLE.c.workflow_id.in_(list(workflow_ids))).order_by(_TABLE.c.name, _TABLE.c.id)
    return await with_calendars(connection, [to_job(row) for row in await connection.execute(query)])


async def ids_of_workflow(connection: AsyncConnection, workflow_id: int) -> list[UUID]:
    """Lock the schedules of a workflow in the order of their ids, before it is deleted, and return their ids."""
    query = select(_TABLE.c.id).where(_TABLE.c.workflow_id == workflow_id).order_by(_TABLE.c.id).with_for_update()
    return list((await connection.execute(query)).scalars())


async def overdue(
    connection: AsyncConnection, before: datetime, limit: int, after: PlannedTick | None = None
) -> list[PlannedTick]:
    """Return a page of the ticks that were due before a moment, the longest overdue first."""
    query = select(*_TICK).join(_DUE, _DUE.c.id == _TABLE.c.id).where(_DUE.c.next_run_at <= before)
    if after is not None:
        query = query.where(tuple_(_DUE.c.next_run_at, _DUE.c.id) > (after.next_run_at, after.id))
    query = query.order_by(_DUE.c.next_run_at, _DUE.c.id).limit(limit)
    return [PlannedTick(*row) for row in await connection.execute(query)]


_HAS_OTHERS = (
    "SELECT EXISTS (SELECT FROM scheduled_jobs WHERE user_profile_id < $1) "
    "OR EXISTS (SELECT FROM scheduled_jobs WHERE user_profile_id > $1) "
    "OR EXISTS (SELECT FROM active_executions WHERE entity_type IS NOT NULL) AS has_others"
)


async def has_others(connection: AsyncConnection, owner: int) -> bool:
    """Return whether another user has a schedule, or an entity has an active run. It reads indexes only."""
    (row,) = await fetch(connection, _HAS_OTHERS, owner)
    return bool(row["has_others"])


async def overdue_in_turn(
    connection: AsyncConnection, before: datetime, limit: int, but: Sequence[int] = ()
) -> list[PlannedTick]:
    """Return overdue ticks in turns of the owners: the oldest of each, then the second of each, and so on.

    The owners in ``but`` are left out.
    """
    turn = func.row_number().over(partition_by=_TABLE.c.user_profile_id, order_by=(_DUE.c.next_run_at, _DUE.c.id))
    ticks = select(*_TICK, turn.label("turn")).join(_DUE, _DUE.c.id == _TABLE.c.id)
    due = ticks.where(_DUE.c.next_run_at <= before, _TABLE.c.user_profile_id.not_in(list(but))).subquery()
    query = select(due).order_by(due.c.turn, due.c.next_run_at, due.c.id).limit(limit)
    return [PlannedTick(*row[:-1]) for row in await connection.execute(query)]


async def planned_after(connection: AsyncConnection, after: UUID | None, limit: int) -> list[PlannedTick]:
    """Return a page of all pending ticks, sorted by id."""
    query = select(*_TICK).where(_TABLE.c.next_run_at.is_not(None)).order_by(_TABLE.c.id).limit(limit)
    if after is not None:
        query = query.where(_TABLE.c.id > after)
    return [PlannedTick(*row) for row in await connection.execute(query)]
