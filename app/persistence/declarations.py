"""Objects that files declare: what each name of a namespace stands for."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Select, exists, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import OwnerKind
from app.domain.declarations import Key, Kind
from app.domain.errors import ConflictError, UnavailableError
from app.domain.schedules import ScheduledJob
from app.persistence import calendars, limits
from app.persistence.calendars import StoredCalendar, with_calendars
from app.persistence.database import state_of
from app.persistence.limits import Limit
from app.persistence.pagination import read_all
from app.persistence.schedules import to_job
from app.persistence.tables import (
    CalendarRow,
    LimitRow,
    ManagedCalendarRow,
    ManagedLimitRow,
    ManagedScheduleRow,
    ManagedWorkflowRow,
    ScheduledJobRow,
    WorkflowRow,
)
from app.persistence.workflows import StoredWorkflow

# Almost as long as a statement may take: another ``apply`` that holds the lock may have much to write.
LOCK_WAIT_SECONDS = 25

_WORKFLOWS = WorkflowRow.__table__
_JOBS = ScheduledJobRow.__table__
T = TypeVar("T", StoredCalendar, Limit)

_CALENDARS = CalendarRow.__table__
_LIMITS = LimitRow.__table__
_MANAGED_LIMITS = ManagedLimitRow.__table__
_MANAGED_CALENDARS = ManagedCalendarRow.__table__
_MANAGED_WORKFLOWS = ManagedWorkflowRow.__table__
_MANAGED_SCHEDULES = ManagedScheduleRow.__table__
_LOCK_NOT_AVAILABLE = "55P03"
_WAIT = text("SELECT set_config('lock_timeout', :wait, true)")
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:namespace, 2))")


async def lock(connection: AsyncConnection, namespaces: Iterable[str]) -> None:
    """Lock namespaces until the transaction ends, so that no two transactions apply the same one at a time."""
    usual = (await connection.execute(text("SHOW lock_timeout"))).scalar_one()
    await connection.execute(_WAIT, {"wait": f"{LOCK_WAIT_SECONDS}s"})
    for namespace in sorted(namespaces):
        try:
            await connection.execute(_LOCK, {"namespace": namespace})
        except DBAPIError as error:
            if state_of(error) == _LOCK_NOT_AVAILABLE:
                raise UnavailableError(
                    f"Another apply of the namespace '{namespace}' is running. Try again when it has finished."
                ) from error
            raise
    await connection.execute(_WAIT, {"wait": usual})


async def managed_workflows(
    connection: AsyncConnection, namespaces: Collection[str] | None = None
) -> dict[Key, StoredWorkflow]:
    """Return the workflows of these namespaces, or of all."""
    marks = list(await connection.execute(_of(select(_MANAGED_WORKFLOWS), namespaces)))
    ids = _of(select(_MANAGED_WORKFLOWS.c.workflow_id), namespaces)
    stored = await read_all(connection, select(_WORKFLOWS).where(_WORKFLOWS.c.id.in_(ids)), StoredWorkflow)
    by_id = {workflow.id: workflow for workflow in stored}
    named = {Key(mark.namespace, Kind.WORKFLOW, mark.name): by_id.get(mark.workflow_id) for mark in marks}
    return {key: workflow for key, workflow in named.items() if workflow is not None}


async def managed_schedules(
    connection: AsyncConnection, namespaces: Collection[str] | None = None
) -> dict[Key, ScheduledJob]:
    """Return the schedules of these namespaces, or of all."""
    marks = list(await connection.execute(_of(select(_MANAGED_SCHEDULES), namespaces)))
    ids = _of(select(_MANAGED_SCHEDULES.c.scheduled_job_id), namespaces)
    rows = await connection.execute(select(_JOBS).where(_JOBS.c.id.in_(ids)))
    jobs = {job.id: job for job in await with_calendars(connection, [to_job(row) for row in rows])}
    named = {Key(mark.namespace, Kind.SCHEDULE, mark.name): jobs.get(mark.scheduled_job_id) for mark in marks}
    return {key: job for key, job in named.items() if job is not None}


async def managed_calendars(
    connection: AsyncConnection, namespaces: Collection[str] | None = None
) -> dict[Key, StoredCalendar]:
    """Return the calendars of these namespaces, or of all."""
    marks = list(await connection.execute(_of(select(_MANAGED_CALENDARS), namespaces)))
    by_id = await calendars.by_ids(connection, [mark.calendar_id for mark in marks])
    named = {Key(mark.namespace, Kind.CALENDAR, mark.name): by_id.get(mark.calendar_id) for mark in marks}
    return {key: calendar for key, calendar in named.items() if calendar is not None}


async def managed_limits(connection: AsyncConnection, namespaces: Collection[str] | None = None) -> dict[Key, Limit]:
    """Return the limits of these namespaces, or of all."""
    marks = list(await connection.execute(_of(select(_MANAGED_LIMITS), namespaces)))
    by_id = await limits.by_ids(connection, [mark.limit_id for mark in marks])
    named = {Key(mark.namespace, Kind.LIMIT, mark.name): by_id.get(mark.limit_id) for mark in marks}
    return {key: limit for key, limit in named.items() if limit is not None}


async def namespace_of_calendar(connection: AsyncConnection, calendar_id: int) -> str | None:
    """Return the namespace whose files declare a calendar, or None."""
    query = select(_MANAGED_CALENDARS.c.namespace).where(_MANAGED_CALENDARS.c.calendar_id == calendar_id)
    return (await connection.execute(query)).scalar_one_or_none()


async def namespace_of_limit(connection: AsyncConnection, limit_id: int) -> str | None:
    """Return the namespace whose files declare a limit, or None."""
    query = select(_MANAGED_LIMITS.c.namespace).where(_MANAGED_LIMITS.c.limit_id == limit_id)
    return (await connection.execute(query)).scalar_one_or_none()


@contextmanager
def _declared_once() -> Iterator[None]:
    """Report it as a conflict if another namespace has just declared the same object, or it was just deleted."""
    try:
        yield
    except IntegrityError:
        message = "A limit or calendar was deleted or declared by another namespace at this moment. Apply again."
        raise ConflictError(message) from None


async def add_limits(connection: AsyncConnection, ids: Mapping[Key, int]) -> None:
    """Store the limits that these names stand for."""
    rows = [{"namespace": key.namespace, "name": key.name, "limit_id": number} for key, number in ids.items()]
    if rows:
        with _declared_once():
            await connection.execute(insert(ManagedLimitRow), rows)


async def unmanaged_limits(connection: AsyncConnection, owner_id: int | None) -> list[Limit]:
    """Return the limits of all users, or of one, that no file declares, oldest first; of each name the oldest."""
    managed = exists().where(_MANAGED_LIMITS.c.limit_id == _LIMITS.c.id)
    query = select(_LIMITS.c.id).where(~managed, _LIMITS.c.team_id.is_(None))
    ids = (await connection.execute(_owned(query, _LIMITS, owner_id))).scalars().all()
    return _oldest_of_each_name(await limits.by_ids(connection, ids))


async def add_calendars(connection: AsyncConnection, ids: Mapping[Key, int]) -> None:
    """Store the calendars that these names stand for."""
    rows = [{"namespace": key.namespace, "name": key.name, "calendar_id": number} for key, number in ids.items()]
    if rows:
        with _declared_once():
            await connection.execute(insert(ManagedCalendarRow), rows)


async def unmanaged_calendars(connection: AsyncConnection, owner_id: int | None) -> list[StoredCalendar]:
    """Return the calendars of all users, or of one, that no file declares, oldest first; of each name the oldest."""
    managed = exists().where(_MANAGED_CALENDARS.c.calendar_id == _CALENDARS.c.id)
    query = select(_CALENDARS.c.id).where(~managed, _CALENDARS.c.team_id.is_(None))
    ids = (await connection.execute(_owned(query, _CALENDARS, owner_id))).scalars().all()
    return _oldest_of_each_name(await calendars.by_ids(connection, ids))


def _oldest_of_each_name(found: Mapping[int, T]) -> list[T]:
    oldest = {found[number].name: number for number in sorted(found, reverse=True)}
    return [found[number] for number in sorted(oldest.values())]


async def add_workflows(connection: AsyncConnection, ids: Mapping[Key, int]) -> None:
    """Store the workflows that these names stand for."""
    rows = [{"namespace": key.namespace, "name": key.name, "workflow_id": number} for key, number in ids.items()]
    if rows:
        await connection.execute(insert(ManagedWorkflowRow), rows)


async def add_schedules(connection: AsyncConnection, ids: Mapping[Key, UUID]) -> None:
    """Store the schedules that these names stand for."""
    rows = [{"namespace": key.namespace, "name": key.name, "scheduled_job_id": job} for key, job in ids.items()]
    if rows:
        await connection.execute(insert(ManagedScheduleRow), rows)


async def unmanaged_workflows(connection: AsyncConnection, owner_id: int | None) -> list[StoredWorkflow]:
    """Return the workflows of all users, or of one, that no file declares, oldest first."""
    managed = exists().where(_MANAGED_WORKFLOWS.c.workflow_id == _WORKFLOWS.c.id)
    query = select(_WORKFLOWS).where(~managed, _WORKFLOWS.c.owner_kind == OwnerKind.USER)
    oldest_first = _owned(query, _WORKFLOWS, owner_id).order_by(_WORKFLOWS.c.id)
    return await read_all(connection, oldest_first, StoredWorkflow)


async def unmanaged_schedules(connection: AsyncConnection, owner_id: int | None) -> list[ScheduledJob]:
    """Return the schedules of all users, or of one, that no file declares, oldest first."""
    managed = exists().where(_MANAGED_SCHEDULES.c.scheduled_job_id == _JOBS.c.id)
    query = select(_JOBS).where(~managed, _JOBS.c.owner_kind == OwnerKind.USER)
    oldest_first = _owned(query, _JOBS, owner_id).order_by(_JOBS.c.created_at, _JOBS.c.id)
    return await with_calendars(connection, [to_job(row) for row in await connection.execute(oldest_first)])


def _of(query: Select[Any], namespaces: Collection[str] | None) -> Select[Any]:
    (table,) = query.get_final_froms()
    return query if namespaces is None else query.where(table.c.namespace.in_(sorted(namespaces)))


def _owned(query: Select[Any], table: Any, owner_id: int | None) -> Select[Any]:
    return query if owner_id is None else query.where(table.c.user_profile_id == owner_id)
