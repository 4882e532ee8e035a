"""Queries for executions: one with its nodes, the runs of a schedule, pages of many, and the unsuccessful ones."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import ColumnElement, and_, exists, func, literal_column, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach, Source
from app.domain.executions import ACTIVE, ExecutionStatus, NodeResult
from app.domain.run_ids import first_id_at
from app.persistence.pagination import Page, Part, read_merged, read_newest, read_one, read_page
from app.persistence.permits import waited_limit
from app.persistence.restrictions import runs_within
from app.persistence.tables import (
    ActiveExecutionRow,
    DeletedHistoryRow,
    LimitPermitRow,
    ScheduledJobRow,
    UnsuccessfulExecutionRow,
    WorkflowExecutionRow,
    WorkflowRow,
)

_TABLE = WorkflowExecutionRow.__table__
_ACTIVE = ActiveExecutionRow.__table__
_UNSUCCESSFUL = UnsuccessfulExecutionRow.__table__
_DELETED = DeletedHistoryRow.__table__
_SCHEDULES = ScheduledJobRow.__table__
_WORKFLOWS = WorkflowRow.__table__
_PERMITS = LimitPermitRow.__table__
_UNSUCCESSFUL_STATUSES = frozenset(ExecutionStatus) - ACTIVE - {ExecutionStatus.SUCCESS}
# The columns of indexes that end with the id.
_INDEXED = (("scheduled_job_id",), ("entity_type", "entity_id"), ("workflow_id",), ("user_profile_id",))
# The owner of an execution is that of its schedule: executions that have ended are not handed over with it.
_SCHEDULES_OWNER = (
    select(_SCHEDULES.c.user_profile_id).where(_SCHEDULES.c.id == _TABLE.c.scheduled_job_id).scalar_subquery()
)
_WAITED_LIMIT: ColumnElement[str | None] = literal_column(waited_limit("workflow_executions")).label("waiting_limit")
_STORED = (
    *(column for column in _TABLE.columns if column.name != "user_profile_id"),
    func.coalesce(_SCHEDULES_OWNER, _TABLE.c.user_profile_id).label("user_profile_id"),
    _WAITED_LIMIT,
)
# Results of nodes are shown with a single execution only, and the payload with a run; both may be large.
_LISTED = (
    *(column for column in _TABLE.columns if column.name not in {"results", "payload", "work", "graph"}),
    _WAITED_LIMIT,
)


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
    queued: bool
    awaiting: bool
    # The name of the limit that it waits for.
    waiting_limit: str | None


class StoredRun(ListedExecution, frozen=True, kw_only=True):
    """A run of a schedule, with its payload."""

    payload: dict[str, Any]


class StoredExecution(StoredRun, frozen=True, kw_only=True):
    """An execution with the results of its nodes, and the graph that it began with if it was parked."""

    results: list[Any]
    graph: dict[str, Any] | None
    # Of the request that asked for it, if requests are traced.
    trace_context: str | None


async def get(connection: AsyncConnection, execution_id: UUID) -> StoredExecution | None:
    """Return an execution with its schedule's owner; None if there is none, or its schedule was deleted."""
    query = select(*_STORED).where(_TABLE.c.id == execution_id, _is_seen(_TABLE.c.scheduled_job_id))
    return await read_one(connection, query, StoredExecution)


def results_of(execution: StoredExecution) -> list[NodeResult]:
    """Return the results of an execution's nodes, in the order in which the nodes started."""
    results = msgspec.convert(execution.results, list[NodeResult])
    return sorted(results, key=lambda result: (result.started_at, result.node_id))


async def parked_results(connection: AsyncConnection, execution_id: UUID) -> list[NodeResult]:
    """Return the results that nodes had when the execution was last parked."""
    execution = await get(connection, execution_id)
    return results_of(execution) if execution else []


async def runs(connection: AsyncConnection, job_id: UUID, part: Part) -> Page[StoredRun]:
    """Return a page of a schedule's runs, newest first, with their payloads."""
    query = select(*_LISTED, _TABLE.c.payload).where(_TABLE.c.scheduled_job_id == job_id)
    return await read_page(connection, query, StoredRun, (_TABLE.c.id,), part)


async def page(
    connection: AsyncConnection, reach: Reach, values: Mapping[str, Any], part: Part
) -> Page[ListedExecution]:
    """Return a page of the executions within reach, newest first.

    ``values`` filters by column; None stands for any value.
    """
    filters = {name: value for name, value in values.items() if value is not None}
    within = reach.of_workflow(filters.pop("workflow_id", None))
    job_id = filters.get("scheduled_job_id")
    if job_id is not None:
        # All runs of a schedule belong to its owner. No index has both columns, so the owner is checked first instead.
        if not await _may_see_schedule(connection, job_id, within.owners):
            return Page([], 0)
        within = replace(within, owners=None)

    within_labels = runs_within(reach, _TABLE.c.scheduled_job_id)

    async def read(source: Source, part: Part) -> Page[ListedExecution]:
        return await _page_of(connection, source, filters, part, within_labels)

    return await read_merged(within.sources, part, read)


async def _page_of(
    connection: AsyncConnection,
    source: Source,
    values: Mapping[str, Any],
    part: Part,
    within_labels: ColumnElement[bool],
) -> Page[ListedExecution]:
    owner, workflow_id = source.owner, source.workflow_id
    filters = {**values, **({} if workflow_id is None else {"workflow_id": workflow_id})}
    if owner is not None:
        filters["user_profile_id"] = owner
        # The filter that stands first chooses the index. Few runs of another owner's workflow are the member's, so the
        # member's own runs are probably fewer than the workflow's.
        if "workflow_id" in filters and not await _owns_workflow(connection, filters["workflow_id"], owner):
            filters = {"user_profile_id": owner, **filters}
    if owner is None and source.owners is not None:
        within_labels = and_(within_labels, _TABLE.c.user_profile_id.in_(source.owners))
    return await _page(connection, filters, part, within_labels)


async def _page(
    connection: AsyncConnection, filters: Mapping[str, Any], part: Part, others: ColumnElement[bool]
) -> Page[ListedExecution]:
    source = await _source(connection, filters)
    query = select(*_LISTED).select_from(_TABLE)
    if source is not _TABLE:
        query = query.join(source, source.c.id == _TABLE.c.id)
    leading = _leading(source, filters)
    for name, value in filters.items():
        if name not in leading:
            query = query.where(_condition(source if name in source.c else _TABLE, name, value))
    query = query.where(others)
    if "scheduled_job_id" not in filters:
        query = query.where(_is_seen(source.c.scheduled_job_id))
    within = [(source.c[name], filters[name]) for name in leading]
    return await read_newest(connection, query, ListedExecution, within, source.c.id, part)


def _condition(source: Any, name: str, value: Any) -> ColumnElement[bool]:
    """Return the condition for a value as the API shows it: a sleeping run is stored as pending, shown as running."""
    stored: ColumnElement[bool] = source.c.status.in_(ACTIVE) == value if name == "active" else source.c[name] == value
    if name != "status" or value not in ACTIVE:
        return stored
    waits = exists().where(
        _PERMITS.c.execution_id == source.c.id,
        or_(_PERMITS.c.node_id == "", _PERMITS.c.token == source.c.token),
        _PERMITS.c.starts_at.is_(None),
    )
    if value == ExecutionStatus.RUNNING:
        asleep = and_(source.c.status == ExecutionStatus.PENDING, source.c.deadline_at.is_not(None))
        return or_(stored, and_(asleep, ~waits))
    return and_(stored, or_(source.c.deadline_at.is_(None), waits))


def _leading(source: Any, filters: Mapping[str, Any]) -> list[str]:
    """Return the filters that are the first columns of the index to use; the id follows them there."""
    if source is _ACTIVE:
        return []
    fitting = [names for names in _INDEXED if all(name in filters for name in names)]
    # The first filter that has an index wins.
    names = min(fitting, key=lambda names: list(filters).index(names[0]), default=())
    return [*names, *(["status"] if source is _UNSUCCESSFUL else [])]


async def _source(connection: AsyncConnection, filters: Mapping[str, Any]) -> Any:
    """Return the table in which the executions of a filter by status are found without reading all others."""
    status = filters.get("status")
    if status in ACTIVE or filters.get("active"):
        return _ACTIVE
    return _UNSUCCESSFUL if status in _UNSUCCESSFUL_STATUSES and await unsuccessful_is_complete(connection) else _TABLE


async def _may_see_schedule(connection: AsyncConnection, job_id: UUID, owners: Sequence[int] | None) -> bool:
    query = select(_SCHEDULES.c.user_profile_id).where(_SCHEDULES.c.id == job_id)
    schedule_owner = (await connection.execute(query)).scalar_one_or_none()
    return schedule_owner is not None and (owners is None or schedule_owner in owners)


async def _owns_workflow(connection: AsyncConnection, workflow_id: int, owner: int) -> bool:
    query = select(_WORKFLOWS.c.user_profile_id).where(_WORKFLOWS.c.id == workflow_id)
    return (await connection.execute(query)).scalar_one_or_none() == owner


def _is_seen(job_id: Any) -> Any:
    """Return the condition that a run's schedule was not deleted: the history of a deleted one goes in small parts."""
    return ~exists().where(_DELETED.c.scheduled_job_id == job_id)


# ``unsuccessful_executions`` holds the executions that did not succeed. A trigger adds each one when it ends. The table
# is younger than the history: a backfill adds the older ones, from the newest down, and until it has finished the
# filter by status reads all executions.

_BACKFILL = "unsuccessful_executions"
MOST_ROWS = 10_000

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
    """Return whether the backfill has finished, so that the table holds every unsuccessful execution."""
    return (await connection.execute(_POSITION, {"name": _BACKFILL})).scalar_one_or_none() is None


async def fill_unsuccessful(connection: AsyncConnection) -> bool:
    """Add some of the executions that ended before the trigger existed. Return whether there are more to add."""
    position = (await connection.execute(_TAKE, {"name": _BACKFILL})).scalar_one_or_none()
    if position is None:
        return False
    part = (await connection.execute(_FILL, {"position": position, "limit": MOST_ROWS})).one()
    if part.number < MOST_ROWS:
        await connection.execute(_FINISH, {"name": _BACKFILL})
        return False
    await connection.execute(_MOVE, {"name": _BACKFILL, "position": part.position})
    return True


async def drop_unsuccessful_orphans(connection: AsyncConnection, before: datetime) -> int:
    """Delete some rows whose executions were dropped with their week, from before a moment. Return how many."""
    values = {"first_kept": first_id_at(before), "limit": MOST_ROWS}
    return (await connection.execute(_DROP, values)).rowcount
