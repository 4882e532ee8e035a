"""Selections of schedules for operations and forecasts: how many match, in which states, and how to read them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.access import Reach
from app.domain.bulk_operations import BulkAction, RowState
from app.domain.schedules import Status
from app.persistence.pagination import Part
from app.persistence.schedule_filters import (
    OVERDUE,
    SEARCH_MEGABYTES,
    Filters,
    Query,
    Stage,
    unordered,
    with_owner_id,
    with_rarity,
)
from app.persistence.schedule_lists import ListedRow, Listing, overdue, restricted
from app.persistence.schedules import CALENDAR_MARK, stored_values
from app.persistence.sql_batches import fetch, type_of
from app.persistence.tables import ScheduledJobRow


class StateCount(msgspec.Struct, frozen=True):
    """How many schedules are in a state that decides about an action."""

    state: RowState
    count: int


async def count_states(
    connection: AsyncConnection, reach: Reach, filters: Filters, action: BulkAction, wanted: Mapping[str, Any]
) -> list[StateCount]:
    """Return how many of the schedules that match are in which state.

    ``wanted`` are the values by which a schedule counts as unchanged: ``labels_added`` and ``labels_removed`` of a
    change of labels, or columns.
    """
    now = clock.now()
    counts: list[StateCount] = []
    for stage, query in await _parts(connection, reach, filters, now):
        same = _same_values(query, action, wanted)
        active = "EXISTS (SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id)"
        rows = await fetch(
            connection,
            f"SELECT j.status, j.status_reason, j.if_running, {active if action is BulkAction.RUN else 'false'}, "  # noqa: S608
            f"{same}, count(*) FROM {stage.source} WHERE {query.text} GROUP BY 1, 2, 3, 4, 5",
            *query.values,
        )
        counts += [StateCount(_state(row), row[5]) for row in rows]
    return counts


class Selection(msgspec.Struct, frozen=True):
    """Schedules ``j`` as SQL: the tables, the condition, and the values of its parameters."""

    source: str
    condition: str
    values: tuple[Any, ...]


async def selections(connection: AsyncConnection, reach: Reach, filters: Filters) -> list[Selection]:
    """Return what matches, in parts that have no schedule in common, for queries of the caller's own."""
    now = clock.now()
    parts = await _parts(connection, reach, filters, now)
    return [Selection(stage.source, query.text, tuple(query.values)) for stage, query in parts]


async def some_to_change(  # noqa: PLR0913 - which schedules, and what is done to them
    connection: AsyncConnection,
    reach: Reach,
    filters: Filters,
    action: BulkAction,
    wanted: Mapping[str, Any],
    status: Status | None,
    limit: int,
) -> list[UUID]:
    """Return some of the schedules that match and would change, of this status if one is named, in no order."""
    now = clock.now()
    ids: list[UUID] = []
    for stage, query in await _parts(connection, reach, filters, now):
        same, named = _same_values(query, action, wanted), query.bind(status)
        conditions = f"{query.text} AND NOT {same} AND ({named}::text IS NULL OR j.status = {named})"
        sql = f"SELECT j.id FROM {stage.source} WHERE {conditions} LIMIT {limit:d}"  # noqa: S608
        ids += [row["id"] for row in await fetch(connection, sql, *query.values)]
    return ids[:limit]


def _state(row: Any) -> RowState:
    return RowState(status=row[0], status_reason=row[1], if_running=row[2], has_active_run=row[3], is_same=row[4])


async def select_for_operation(connection: AsyncConnection, operation_id: UUID, reach: Reach, filters: Filters) -> int:
    """Note all schedules that match as those of an operation. Return how many."""
    now = clock.now()
    total = 0
    for stage, query in await _parts(connection, reach, filters, now):
        rows = await fetch(
            connection,
            "WITH added AS (INSERT INTO operation_items (operation_id, scheduled_job_id) "  # noqa: S608
            f"SELECT {query.bind(operation_id)}::uuid, j.id FROM {stage.source} WHERE {query.text} RETURNING 1) "
            "SELECT count(*) FROM added",
            *query.values,
        )
        total += rows[0][0]
    return total


async def _parts(
    connection: AsyncConnection, reach: Reach, filters: Filters, now: datetime
) -> list[tuple[Stage, Query]]:
    """Return the queries for what matches and is within reach, which have no schedule in common."""
    listing = restricted(Listing(reach, await with_owner_id(connection, filters), Part(1)))
    plain = await _with_plain_filters(connection, listing.reach, listing.filters, now)
    return [unordered(plain, source, now) for source in listing.reach.of_workflow(plain.workflow_id).sources]


async def _with_plain_filters(connection: AsyncConnection, reach: Reach, filters: Filters, now: datetime) -> Filters:
    """Return filters that SQL can answer: late and silent schedules are named by their ids."""
    if filters.need_plans_of_their_own:
        await connection.execute(text("SET LOCAL plan_cache_mode = force_custom_plan"))
        await connection.execute(text(f"SET LOCAL work_mem = '{SEARCH_MEGABYTES}MB'"))
    filters = await with_rarity(connection, filters)
    if filters.health not in OVERDUE:
        return filters
    rows: list[ListedRow] = []
    for source in reach.of_workflow(filters.workflow_id).sources:
        rows += await overdue(connection, Listing(reach, filters, Part(1)), source, now)
    return replace(filters, health=None, ids=tuple(row.id for row in rows))


def _same_values(query: Query, action: BulkAction, wanted: Mapping[str, Any]) -> str:
    """Return the expression that a schedule has these values already."""
    if action is BulkAction.LABEL:
        added = query.bind(msgspec.json.encode(wanted["labels_added"]).decode())
        removed = query.bind(list(wanted["labels_removed"]))
        return f"(j.labels @> {added}::text::jsonb AND NOT j.labels ?| {removed}::text[])"
    if not wanted:
        return "false"
    stored = stored_values(wanted)
    return "(" + " AND ".join(_same_value(query, name, value) for name, value in stored.items()) + ")"


def _same_value(query: Query, name: str, value: Any) -> str:
    kind = type_of(ScheduledJobRow.__table__.c[name])
    if kind == "JSONB":
        column = f"(j.{name} - '{CALENDAR_MARK}')" if name == "not_on" else f"j.{name}"
        return f"{column} = {query.bind(msgspec.json.encode(value).decode())}::text::jsonb"
    return f"j.{name} IS NOT DISTINCT FROM {query.bind(value)}::{kind}"
