"""What plugins asked for last, by the name of the schedule. The record outlives a schedule that somebody deletes."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.plugin_schedules import NODES, EnsureMode
from app.domain.schedules import ScheduledJob
from app.persistence import schedules
from app.persistence.pagination import read_one
from app.persistence.tables import PluginScheduleRow, ScheduleRevisionRow, WorkflowRevisionRow

_TABLE = PluginScheduleRow.__table__
_REVISIONS = ScheduleRevisionRow.__table__
_WORKFLOW_REVISIONS = WorkflowRevisionRow.__table__


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin asked for last under a name; nothing yet if it has no schedule."""

    user_profile_id: int
    name: str
    scheduled_job_id: UUID | None
    version: int
    wanted: dict[str, Any]
    mode: EnsureMode = EnsureMode.ADOPT


async def lock(connection: AsyncConnection, plugin_id: int, name: str) -> Asked:
    """Lock the record of a name, which is created if there is none. Several processes ask for the same at once."""
    empty = {"user_profile_id": plugin_id, "name": name, "version": 0, "wanted": {}}
    await connection.execute(insert(PluginScheduleRow).values(empty).on_conflict_do_nothing())
    asked = await read_one(connection, _of(plugin_id).where(_TABLE.c.name == name).with_for_update(), Asked)
    if asked is None:
        raise AssertionError(f"the record of the schedule '{name}' vanished")
    return asked


async def get(connection: AsyncConnection, plugin_id: int, name: str) -> Asked:
    """Return the record of a name; an empty one if there is none."""
    asked = await read_one(connection, _of(plugin_id).where(_TABLE.c.name == name), Asked)
    return asked or Asked(user_profile_id=plugin_id, name=name, scheduled_job_id=None, version=0, wanted={})


async def schedule_of(connection: AsyncConnection, asked: Asked) -> ScheduledJob | None:
    """Return the schedule that was asked for, also if it was renamed; else one with the name that no record has."""
    job = None if asked.scheduled_job_id is None else await schedules.get(connection, asked.scheduled_job_id)
    if job is not None and job.user_profile_id == asked.user_profile_id:
        return job
    named = await schedules.all_of(connection, asked.user_profile_id, asked.name)
    others = {job.id for job in named if await _other_name(connection, asked, job.id)}
    return next((job for job in named if job.id not in others), None)


async def _other_name(connection: AsyncConnection, asked: Asked, job_id: UUID) -> bool:
    """Return whether a schedule was asked for under another name, and has been renamed to this one."""
    query = _of(asked.user_profile_id).where(_TABLE.c.scheduled_job_id == job_id, _TABLE.c.name != asked.name)
    return (await connection.execute(query.limit(1))).one_or_none() is not None


async def lock_of_job(connection: AsyncConnection, plugin_id: int, job_id: UUID) -> Asked | None:
    """Lock the record of a schedule; None if the plugin has never asked for it by name."""
    query = _of(plugin_id).where(_TABLE.c.scheduled_job_id == job_id)
    return await read_one(connection, query.with_for_update(), Asked)


async def save(connection: AsyncConnection, asked: Asked) -> None:
    """Write a locked record."""
    values = {name: getattr(asked, name) for name in ("scheduled_job_id", "version", "wanted", "mode")}
    one = (_TABLE.c.user_profile_id == asked.user_profile_id) & (_TABLE.c.name == asked.name)
    await connection.execute(update(PluginScheduleRow).where(one).values(**values, updated_at=func.clock_timestamp()))


async def remove_of_job(connection: AsyncConnection, plugin_id: int, job_id: UUID) -> None:
    """Forget a schedule that the plugin itself deletes, so that it can ask for it again."""
    of_job = (_TABLE.c.user_profile_id == plugin_id) & (_TABLE.c.scheduled_job_id == job_id)
    await connection.execute(delete(PluginScheduleRow).where(of_job))


async def versions(connection: AsyncConnection, plugin_id: int) -> dict[UUID, int]:
    """Return the versions in which a plugin asked for its schedules, by schedule."""
    query = select(_TABLE.c.scheduled_job_id, _TABLE.c.version).where(_TABLE.c.user_profile_id == plugin_id)
    return {row.scheduled_job_id: row.version for row in await connection.execute(query)}


async def version_of(connection: AsyncConnection, plugin_id: int, job_id: UUID) -> int:
    """Return the version in which a plugin asked for a schedule; 0 if it never did."""
    query = select(_TABLE.c.version).where(_TABLE.c.user_profile_id == plugin_id, _TABLE.c.scheduled_job_id == job_id)
    return (await connection.execute(query.limit(1))).scalar_one_or_none() or 0


async def last_asked(
    connection: AsyncConnection, asked: Asked, job: ScheduledJob, current: dict[str, Any]
) -> dict[str, Any]:
    """Return what the plugin asked for last. If that was not recorded, the history says what others have changed."""
    if asked.scheduled_job_id == job.id:
        return asked.wanted
    edited = await _changed_by_others(connection, job, asked.user_profile_id)
    return {name: value for name, value in current.items() if name not in edited}


async def _changed_by_others(connection: AsyncConnection, job: ScheduledJob, plugin_id: int) -> set[str]:
    """Return the fields of a schedule and its workflow that somebody other than the plugin has changed, by history."""
    of_job = select(_REVISIONS.c.changes).where(
        _REVISIONS.c.scheduled_job_id == job.id, _REVISIONS.c.user_profile_id.is_distinct_from(plugin_id)
    )
    of_workflow = select(_WORKFLOW_REVISIONS.c.changes).where(
        _WORKFLOW_REVISIONS.c.workflow_id == job.workflow_id,
        _WORKFLOW_REVISIONS.c.user_profile_id.is_distinct_from(plugin_id),
    )
    changes: list[Mapping[str, Any]] = list((await connection.execute(of_job)).scalars())
    changes_of_workflow: list[Mapping[str, Any]] = list((await connection.execute(of_workflow)).scalars())
    names = {name for change in changes for name in change}
    return names | ({NODES} if any({"nodes", "edges"} & change.keys() for change in changes_of_workflow) else set())


def _of(plugin_id: int) -> Select[Any]:
    return select(_TABLE).where(_TABLE.c.user_profile_id == plugin_id)
