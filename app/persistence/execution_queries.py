"""Executions as they are read: one with its nodes, the runs of a schedule, pages of many, and the unsuccessful ones."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, and_, exists, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import ACTIVE, ExecutionStatus, NodeResult
from app.domain.identities import first_id_at
from app.persistence.pagination import Page, Part, read_newest, read_one, read_page
from app.persistence.tables import (
    ActiveExecutionRow,
    DeletedHistoryRow,
    ScheduledJobRow,
    UnsuccessfulExecutionRow,
    WorkflowExecutionRow,
    WorkflowRow,
)

NAME = "unsuccessful_executions"
MOST_ROWS = 10_000
STATUSES = frozenset(ExecutionStatus) - ACTIVE - {ExecutionStatus.SUCCESS}

_POSITION = text("SELECT position FROM backfills WHERE name = :name")
_TAKE = text("SELECT position FROM backfills WHERE name = :name FOR UPDATE SKIP LOCKED")
_FILL = text(
    "WITH part AS MATERIALIZED (SELECT id, user_profile_id, scheduled_job_id, workflow_id, entity_type, entity_id, "
    "status, finished_at FROM workflow_executions WHERE id < :position ORDER BY id DESC LIMIT :limit), "
    "filled AS (INSERT INTO unsuccessful_executions (id, user_profile_id, scheduled_job_id, workflow_id, entity_type, "
    "entity_id, status) SELECT id, user_profile_id, scheduled_job_id, workflow_id, entity_type, entity_id, status "
    "FROM part WHERE finished_at IS NOT NULL AND status <> 'success' ON CONFLICT (id) DO NOTHING) "
    "SELECT count(*) AS number, (array_agg(id ORDER BY id))[1] AS position FROM part"
)
_MOVE = text("UPDATE backfills SET position = :position WHERE name = :name")
_FINISH = text("DELETE FROM backfills WHERE name = :name")
_DROP = text(
    "DELETE FROM unsuccessful_executions WHERE id IN (SELECT u.id FROM unsuccessful_executions AS u "
    "WHERE u.id < :first_kept AND NOT EXISTS (SELECT FROM workflow_executions AS e WHERE e.id = u.id) "
    "ORDER BY u.id LIMIT :limit)"
)


async def unsuccessful_is_complete(connection: AsyncConnection) -> bool:
    """Whether all that ended otherwise than well is there."""
    return (await connection.execute(_POSITION, {"name": NAME})).scalar_one_or_none() is None


async def fill_unsuccessful(connection: AsyncConnection) -> bool:
    """Add a part of what ended before the trigger was there; whether there is more to add."""
    position = (await connection.execute(_TAKE, {"name": NAME})).scalar_one_or_none()
    if position is None:
        return False
    part = (await connection.execute(_FILL, {"position": position, "limit": MOST_ROWS})).one()
    if part.number < MOST_ROWS:
        await connection.execute(_FINISH, {"name": NAME})
        return False
    await connection.execute(_MOVE, {"name": NAME, "position": part.position})
    return True


async def drop_unsuccessful_orphans(connection: AsyncConnection, before: datetime) -> int:
    """Delete a part of the rows from before a moment whose executions went with their week; how many."""
    values = {"first_kept": first_id_at(before), "limit": MOST_ROWS}
    return (await connection.execute(_DROP, values)).rowcount


_TABLE = WorkflowExecutionRow.__table__
_ACTIVE = ActiveExecutionRow.__table__
_UNSUCCESSFUL = UnsuccessfulExecutionRow.__table__
_DELETED = DeletedHistoryRow.__table__
_SCHEDULES = ScheduledJobRow.__table__
_WORKFLOWS = WorkflowRow.__table__
# Each with the id behind it.
_INDEXED = (("scheduled_job_id",), ("entity_type", "entity_id"), ("workflow_id",), ("user_profile_id",))
# What the nodes did is shown with a single execution only, and the payload with a run; both may be large.
_LISTED = tuple(column for column in _TABLE.columns if column.name not in {"results", "payload", "work", "graph"})


class ListedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as lists read it."""

    id: UUID
    user_profile_id: int
    scheduled_job_id: UUID | None
    entity_type: str | None
    entity_id: str | None
    workflow_id: int | None
    trigger: str
    status: str
    deadline_at: datetime | None
    repeat_number: int
    retry_attempt: int
    scheduled_for: datetime
    token: int
    error: str
    started_at: datetime | None
    finished_at: datetime | None


class StoredRun(ListedExecution, frozen=True, kw_only=True):
    """A run of a schedule, with its payload."""

    payload: dict[str, Any]


class StoredExecution(StoredRun, frozen=True, kw_only=True):
    """An execution with the results of its nodes, and the graph that it began with if it was parked."""

    results: list[Any]
    graph: dict[str, Any] | None


async def get(connection: AsyncConnection, execution_id: UUID) -> StoredExecution | None:
    """Return an execution; None if there is none, or its schedule was deleted."""
    query = select(_TABLE).where(_TABLE.c.id == execution_id, _is_seen(_TABLE.c.scheduled_job_id))
    return await read_one(connection, query, StoredExecution)


def results_of(execution: StoredExecution) -> list[NodeResult]:
    """Return the results of an execution's nodes, in the order in which the nodes started."""
    results = msgspec.convert(execution.results, list[NodeResult])
    return sorted(results, key=lambda result: (result.started_at, result.node_id))


async def kept_results(connection: AsyncConnection, execution_id: UUID) -> list[NodeResult]:
    """Return the results that nodes had when the execution was last parked."""
    execution = await get(connection, execution_id)
    return results_of(execution) if execution else []


async def page(
    connection: AsyncConnection, actor: Actor, wanted: Mapping[str, Any], part: Part
) -> Page[ListedExecution]:
    """Return a page of the executions that the actor may see, newest first.

    They have the wanted values; None stands for any value.
    """
    filters = {name: value for name, value in wanted.items() if value is not None}
    owner = actor.owner_filter
    job_id = filters.get("scheduled_job_id")
    if job_id is not None:
        # All runs of a schedule are its owner's: by the two filters together nothing could be found quickly.
        if not await _may_see_schedule(connection, job_id, owner):
            return Page([], 0)
    elif owner is not None:
        filters["user_profile_id"] = owner
        # Whose runs are the fewer ones is a guess: those of somebody else's workflow are hardly the member's.
        if "workflow_id" in filters and not await _owns_workflow(connection, filters["workflow_id"], owner):
            filters = {"user_profile_id": owner, **filters}
    return await _page(connection, filters, part)


async def _page(connection: AsyncConnection, filters: Mapping[str, Any], part: Part) -> Page[ListedExecution]:
    source = await _source(connection, filters.get("status"))
    query = select(*_LISTED).select_from(_TABLE)
    if source is not _TABLE:
        query = query.join(source, source.c.id == _TABLE.c.id)
    leading = _leading(source, filters)
    for name, value in filters.items():
        if name not in leading:
            query = query.where(_condition(source if name in source.c else _TABLE, name, value))
    if "scheduled_job_id" not in filters:
        query = query.where(_is_seen(source.c.scheduled_job_id))
    within = [(source.c[name], filters[name]) for name in leading]
    return await read_newest(connection, query, ListedExecution, within, source.c.id, part)


def _condition(source: Any, name: str, value: Any) -> ColumnElement[bool]:
    """That a column has a value, as it is shown: a run that has begun and sleeps is running, though it is pending."""
    stored: ColumnElement[bool] = source.c[name] == value
    if name == "status" and value == ExecutionStatus.RUNNING:
        asleep = and_(source.c.status == ExecutionStatus.PENDING, source.c.deadline_at.is_not(None))
        return or_(stored, asleep)
    if name == "status" and value == ExecutionStatus.PENDING:
        return and_(stored, source.c.deadline_at.is_(None))
    return stored


def _leading(source: Any, filters: Mapping[str, Any]) -> list[str]:
    """The filters that the index begins with in which the rows are found; the id follows them there."""
    if source is _ACTIVE:
        return []
    fitting = [names for names in _INDEXED if all(name in filters for name in names)]
    # The filters stand in the order in which they are to be tried.
    names = min(fitting, key=lambda names: list(filters).index(names[0]), default=())
    return [*names, *(["status"] if source is _UNSUCCESSFUL else [])]


async def _source(connection: AsyncConnection, status: str | None) -> Any:
    """Where executions of a status are found without going through all others."""
    if status in ACTIVE:
        return _ACTIVE
    return _UNSUCCESSFUL if status in STATUSES and await unsuccessful_is_complete(connection) else _TABLE


async def _may_see_schedule(connection: AsyncConnection, job_id: UUID, owner: int | None) -> bool:
    query = select(_SCHEDULES.c.user_profile_id).where(_SCHEDULES.c.id == job_id)
    found = (await connection.execute(query)).scalar_one_or_none()
    return found is not None and owner in {None, found}


async def _owns_workflow(connection: AsyncConnection, workflow_id: int, owner: int) -> bool:
    query = select(_WORKFLOWS.c.user_profile_id).where(_WORKFLOWS.c.id == workflow_id)
    return (await connection.execute(query)).scalar_one_or_none() == owner


def _is_seen(job_id: Any) -> Any:
    """Whether its schedule is still there, or it never had one: the history of a deleted one goes bit by bit."""
    return ~exists().where(_DELETED.c.scheduled_job_id == job_id)


async def runs(connection: AsyncConnection, job_id: UUID, part: Part) -> Page[StoredRun]:
    """Return a page of a schedule's runs, newest first, with their payloads."""
    query = select(*_LISTED, _TABLE.c.payload).where(_TABLE.c.scheduled_job_id == job_id)
    return await read_page(connection, query, StoredRun, (_TABLE.c.id,), part)
