"""What there is in namespaces, in the form in which files declare it."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.declarations import Key, Managed
from app.domain.revisions import EDITABLE
from app.domain.schedules import ScheduledJob
from app.persistence import declarations
from app.services.inputs import WorkflowInput

_OF_WORKFLOW = WorkflowInput.__struct_fields__
_OF_SCHEDULE = tuple(name for name in EDITABLE if name != "workflow_id")


class Inventory(msgspec.Struct, frozen=True):
    """What names stand for."""

    managed: dict[Key, Managed]
    workflow_ids: dict[Key, int]
    schedule_ids: dict[Key, UUID]


async def take_inventory(connection: AsyncConnection, namespaces: Collection[str]) -> Inventory:
    """Everything that these namespaces manage."""
    flows = await declarations.managed_workflows(connection, namespaces)
    jobs = await declarations.managed_schedules(connection, namespaces)
    names = {row.id: key for key, row in flows.items()}
    managed = {key: _workflow(key, row) for key, row in flows.items()}
    managed |= {key: _schedule(key, job, names) for key, job in jobs.items()}
    workflow_ids = {key: row.id for key, row in flows.items()}
    return Inventory(managed, workflow_ids, {key: job.id for key, job in jobs.items()})


def _workflow(key: Key, row: Row[Any]) -> Managed:
    values = {name: getattr(row, name) for name in _OF_WORKFLOW}
    return Managed(key=key, user_profile_id=row.user_profile_id, values=values)


def _schedule(key: Key, job: ScheduledJob, names: Mapping[int, Key]) -> Managed:
    values = {name: getattr(job, name) for name in _OF_SCHEDULE}
    values["workflow"] = _name(names.get(job.workflow_id), key, job.workflow_id)
    return Managed(key=key, user_profile_id=job.user_profile_id, values=values, status=job.status)


def _name(workflow: Key | None, schedule: Key, workflow_id: int) -> str:
    """What files of the namespace call a workflow. Somebody may have given a schedule one that they do not know."""
    if workflow is None or workflow.namespace != schedule.namespace:
        return f"id {workflow_id}"
    return workflow.name
