"""Schedules: read, locked, listed and written, as values of the domain."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace
from sqlalchemy import Row, Select, delete, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, OwnerKind
from app.domain.errors import ConflictError
from app.domain.parts import Part
from app.domain.schedules import CatchUp, IfRunning, PlannedTick, Reason, ScheduledJob, Status
from app.persistence.batches import fetch, insert_many, run_many, update_many
from app.persistence.pages import Page, read_page
from app.persistence.tables import ScheduledJobRow

_TABLE = ScheduledJobRow.__table__
_COLUMNS = tuple(column.name for column in _TABLE.columns)
# What it takes to ring for a tick; a row that cannot be read whole can still be rung for.
_TICK = tuple(_TABLE.c[name] for name in PlannedTick.__struct_fields__)
_KINDS = {kind.value: kind for kind in OwnerKind}
_STATUSES = {status.value: status for status in Status}
_REASONS = {reason.value: reason for reason in Reason}
_POLICIES = {policy.value: policy for policy in IfRunning}
_CATCH_UPS = {policy.value: policy for policy in CatchUp}
_NAME_OF_PLUGIN = "uq_scheduled_jobs_name_of_plugin"
_FIXED = {"id", "user_profile_id", "owner_kind", "owner_id", "created_at", "updated_at"}
_WRITABLE = tuple(name for name in _COLUMNS if name not in _FIXED)
_INSERT = insert_many(ScheduledJobRow, _COLUMNS)
_UPDATE = update_many(ScheduledJobRow, _WRITABLE, extra=", updated_at = clock_timestamp()")
# What ticks and the ends of runs move; what people write stays where it is.
_MOVING = (
    *("status", "status_reason", "generation", "cadence_slot", "next_slot", "next_run_at", "next_attempt", "last_slot"),
    *("current_repeat", "current_retry", "run_count", "error_count", "last_error", "last_run_at", "last_fired_at"),
    *("last_success_at", "last_success_execution_id", "dead_at"),
)
_MOVE = update_many(ScheduledJobRow, _MOVING, extra=", updated_at = clock_timestamp()")


@contextmanager
def _names_of_plugins() -> Iterator[None]:
    """A plugin has one schedule of a name."""
    try:
        yield
    except IntegrityError as error:
        if _NAME_OF_PLUGIN in str(error.orig):
            raise ConflictError("The plugin has a schedule of this name already.") from None
        raise


def to_job(row: Row[Any]) -> ScheduledJob:
    """A row as a value."""
    return _from_columns(dict(row._mapping))  # noqa: SLF001 - SQLAlchemy's public way to a row's names


async def add(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> None:
    """Write new schedules."""
    with _names_of_plugins():
        await run_many(connection, _INSERT, jobs)


async def save(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> None:
    """Write schedules whose rows this transaction has locked."""
    with _names_of_plugins():
        await run_many(connection, _UPDATE, jobs)


async def move(connection: AsyncConnection, jobs: Sequence[ScheduledJob]) -> None:
    """Write how far schedules have come whose rows this transaction has locked: what ticks and runs change of them."""
    await run_many(connection, _MOVE, jobs)


async def get(connection: AsyncConnection, job_id: UUID) -> ScheduledJob | None:
    """One schedule, as it is now."""
    row = (await connection.execute(select(_TABLE).where(_TABLE.c.id == job_id))).one_or_none()
    return to_job(row) if row else None


async def all_of(connection: AsyncConnection, user_profile_id: int, name: str | None = None) -> list[ScheduledJob]:
    """Every schedule of one owner, or those of a name, newest first."""
    query = select(_TABLE).where(_TABLE.c.user_profile_id == user_profile_id).order_by(_TABLE.c.created_at.desc())
    if name is not None:
        query = query.where(_TABLE.c.name == name)
    return [to_job(row) for row in await connection.execute(query)]


async def lock(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, ScheduledJob]:
    """Lock schedules in the order of their ids, waiting for whoever holds one."""
    return await _locked(connection, _LOCK, ids)


async def lock_free(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, ScheduledJob]:
    """Lock those that nobody holds, without waiting: one held row delays no other."""
    return await _locked(connection, _LOCK_FREE, ids)


async def existing(connection: AsyncConnection, ids: Iterable[UUID]) -> set[UUID]:
    """Those of these schedules that there are."""
    rows = await connection.execute(select(_TABLE.c.id).where(_TABLE.c.id.in_(list(ids))))
    return set(rows.scalars())


async def started_run(connection: AsyncConnection, job_id: UUID, now: datetime) -> None:
    """Note that a run of a locked schedule has started that had waited."""
    await connection.execute(update(ScheduledJobRow).where(_TABLE.c.id == job_id).values(last_run_at=now))


async def invalid(connection: AsyncConnection, limit: int) -> list[ScheduledJob]:
    """The schedules that wait for their spec to be valid again."""
    query = select(_TABLE).where(_TABLE.c.status_reason == Reason.INVALID_SPEC).order_by(_TABLE.c.id).limit(limit)
    return [to_job(row) for row in await connection.execute(query)]


async def page(
    connection: AsyncConnection, actor: Actor, part: Part, *, status: str | None, workflow_id: int | None
) -> Page:
    """The schedules that the actor may see, newest first."""
    query = _visible(select(_TABLE), actor)
    if status is not None:
        query = query.where(_TABLE.c.status == status)
    if workflow_id is not None:
        query = query.where(_TABLE.c.workflow_id == workflow_id)
    found = await read_page(connection, query, (_TABLE.c.created_at, _TABLE.c.id), part)
    return replace(found, items=[to_job(row) for row in found.items])


async def lock_visible(connection: AsyncConnection, actor: Actor, ids: Iterable[UUID]) -> list[UUID]:
    """Lock those of these schedules that the actor may see, for their deletion."""
    wanted = _visible(select(_TABLE.c.id).where(_TABLE.c.id.in_(list(ids))), actor).order_by(_TABLE.c.id)
    return list((await connection.execute(wanted.with_for_update())).scalars())


async def remove(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Delete schedules with their history."""
    await connection.execute(delete(ScheduledJobRow).where(_TABLE.c.id.in_(ids)))


async def count_of_workflow(connection: AsyncConnection, workflow_id: int) -> int:
    """How many schedules run a workflow."""
    query = select(func.count()).select_from(_TABLE).where(_TABLE.c.workflow_id == workflow_id)
    number: int = (await connection.execute(query)).scalar_one()
    return number


async def of_workflows(connection: AsyncConnection, workflow_ids: Iterable[int]) -> list[ScheduledJob]:
    """The schedules that run one of these workflows, by name."""
    query = select(_TABLE).where(_TABLE.c.workflow_id.in_(list(workflow_ids))).order_by(_TABLE.c.name, _TABLE.c.id)
    return [to_job(row) for row in await connection.execute(query)]


async def ids_of_workflow(connection: AsyncConnection, workflow_id: int) -> list[UUID]:
    """The schedules of a workflow, locked in order, for its deletion."""
    query = select(_TABLE.c.id).where(_TABLE.c.workflow_id == workflow_id).order_by(_TABLE.c.id).with_for_update()
    return list((await connection.execute(query)).scalars())


async def overdue(
    connection: AsyncConnection, before: datetime, limit: int, after: PlannedTick | None = None
) -> list[PlannedTick]:
    """A page of the ticks that were due before a moment, the longest overdue first."""
    query = select(*_TICK).where(_TABLE.c.next_run_at <= before)
    if after is not None:
        query = query.where(tuple_(_TABLE.c.next_run_at, _TABLE.c.id) > (after.next_run_at, after.id))
    query = query.order_by(_TABLE.c.next_run_at, _TABLE.c.id).limit(limit)
    return [PlannedTick(*row) for row in await connection.execute(query)]


async def overdue_in_turn(connection: AsyncConnection, before: datetime, limit: int) -> list[PlannedTick]:
    """Ticks that were due before a moment: the oldest of each owner, then the second of each, and so on."""
    turn = func.row_number().over(partition_by=_TABLE.c.user_profile_id, order_by=(_TABLE.c.next_run_at, _TABLE.c.id))
    due = select(*_TICK, turn.label("turn")).where(_TABLE.c.next_run_at <= before).subquery()
    query = select(due).order_by(due.c.turn, due.c.next_run_at, due.c.id).limit(limit)
    return [PlannedTick(*row[:-1]) for row in await connection.execute(query)]


async def planned_after(connection: AsyncConnection, after: UUID | None, limit: int) -> list[PlannedTick]:
    """A page, by id, of all pending ticks."""
    query = select(*_TICK).where(_TABLE.c.next_run_at.is_not(None)).order_by(_TABLE.c.id).limit(limit)
    if after is not None:
        query = query.where(_TABLE.c.id > after)
    return [PlannedTick(*row) for row in await connection.execute(query)]


def _visible(query: Select[Any], actor: Actor) -> Select[Any]:
    owner = actor.owner_filter
    return query if owner is None else query.where(_TABLE.c.user_profile_id == owner)


_LOCK = "SELECT * FROM scheduled_jobs WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE"
_LOCK_FREE = f"{_LOCK} SKIP LOCKED"


async def _locked(connection: AsyncConnection, sql: str, ids: Iterable[UUID]) -> dict[UUID, ScheduledJob]:
    wanted = list(ids)
    if not wanted:
        return {}
    return {record["id"]: _from_columns(dict(record)) for record in await fetch(connection, sql, wanted)}


def _from_columns(values: dict[str, Any]) -> ScheduledJob:
    values["owner_kind"] = _KINDS[values["owner_kind"]]
    values["status"] = _STATUSES[values["status"]]
    values["status_reason"] = _REASONS[values["status_reason"]]
    values["if_running"] = _POLICIES[values["if_running"]]
    values["catch_up"] = _CATCH_UPS[values["catch_up"]]
    values["not_on"] = tuple(values["not_on"])
    return ScheduledJob(**values)
