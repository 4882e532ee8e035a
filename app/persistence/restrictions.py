"""What the restriction of a token leaves: conditions on schedules and workflows, and the answer for a single object."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, and_, exists, false, true
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach, Restriction
from app.persistence.sql_batches import fetch
from app.persistence.tables import ManagedScheduleRow, ManagedWorkflowRow, ScheduledJobRow, WorkflowRow

_JOBS = ScheduledJobRow.__table__
_WORKFLOWS = WorkflowRow.__table__
_OF_SCHEDULES = ManagedScheduleRow.__table__
_OF_WORKFLOWS = ManagedWorkflowRow.__table__

_ADMITTED = (
    "SELECT FROM {table} AS t WHERE t.id = $1 AND ($2::int[] = '{{}}' OR t.{workflow} = ANY($2)) "
    "AND t.labels @> $3::text::jsonb AND ($4::text = '' OR EXISTS (SELECT FROM {managed} AS m "
    "WHERE m.namespace = $4 AND m.{reference} = t.id))"
)
_SCHEDULE = _ADMITTED.format(
    table="scheduled_jobs", workflow="workflow_id", managed="managed_schedules", reference="scheduled_job_id"
)
_SCHEDULES = _SCHEDULE.replace("SELECT FROM", "SELECT t.id FROM", 1).replace("t.id = $1", "t.id = ANY($1::uuid[])", 1)
_WORKFLOW = _ADMITTED.format(table="workflows", workflow="id", managed="managed_workflows", reference="workflow_id")


async def admits_schedule(connection: AsyncConnection, restriction: Restriction, job_id: UUID) -> bool:
    """Return whether a restriction leaves a schedule."""
    return bool(await fetch(connection, _SCHEDULE, job_id, *_values(restriction)))


async def admitted_schedules(
    connection: AsyncConnection, restriction: Restriction | None, ids: Collection[UUID]
) -> set[UUID]:
    """Return those of these schedules that a restriction leaves; without a restriction, all of them."""
    if restriction is None or not ids:
        return set(ids)
    rows = await fetch(connection, _SCHEDULES, list(ids), *_values(restriction))
    return {row["id"] for row in rows}


async def admits_workflow(connection: AsyncConnection, restriction: Restriction, workflow_id: int) -> bool:
    """Return whether a restriction leaves a workflow."""
    return bool(await fetch(connection, _WORKFLOW, workflow_id, *_values(restriction)))


def _values(restriction: Restriction) -> tuple[list[int], str, str]:
    labels = msgspec.json.encode(dict(restriction.labels)).decode()
    return list(restriction.workflow_ids), labels, restriction.namespace


def workflows_within(reach: Reach) -> ColumnElement[bool]:
    """Return the condition that a workflow is one of those that a list has."""
    named = true() if reach.workflow_ids is None else _WORKFLOWS.c.id.in_(reach.workflow_ids)
    declared = exists().where(
        _OF_WORKFLOWS.c.namespace == reach.namespace, _OF_WORKFLOWS.c.workflow_id == _WORKFLOWS.c.id
    )
    return and_(named, _labelled(_WORKFLOWS, reach), declared if reach.namespace else true())


def runs_within(reach: Reach, job_id: Any) -> ColumnElement[bool]:
    """Return the condition that an execution is one of a schedule with the labels and the namespace of a list."""
    if not reach.labels and not reach.namespace:
        return true()
    # A name of its own: a query may itself be about schedules.
    jobs = _JOBS.alias("within")
    declared = exists().where(
        _OF_SCHEDULES.c.namespace == reach.namespace, _OF_SCHEDULES.c.scheduled_job_id == jobs.c.id
    )
    return exists().where(jobs.c.id == job_id, _labelled(jobs, reach), declared if reach.namespace else true())


def _labelled(table: Any, reach: Reach) -> ColumnElement[bool]:
    if not reach.labels:
        return true()
    labels = dict(reach.labels)
    if len(labels) < len(set(reach.labels)):
        # Two values of one name: nothing has both.
        return false()
    contains: ColumnElement[bool] = table.c.labels.contains(labels)
    return contains
