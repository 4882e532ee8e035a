"""The schedules of plugins: a plugin creates, changes and deletes its own, and no others."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from app.actions.context import PluginSchedule, PluginScheduleChanges, PluginScheduleInput, RefusedError
from app.actions.plugins import Capability, LoadedActions, LoadedPlugin
from app.domain.access import Actor
from app.domain.errors import CarillonError, ConflictError, NotFoundError, UnavailableError
from app.domain.schedules import EDITABLE, ScheduledJob
from app.domain.specs import KINDS
from app.domain.workflows import TRIGGER_TYPE
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import schedules, users, workflows
from app.persistence.database import Connection, Database
from app.persistence.workflows import StoredWorkflow
from app.services.inputs import ScheduleChanges, ScheduleInput, WorkflowChanges, WorkflowInput, given
from app.services.schedules import ScheduleService, author_of, changed_values, owned_schedule, sound_draft
from app.services.validation import checked
from app.services.workflows import WorkflowService

OUTAGE_PAUSE_SECONDS = 1.0
START_SECONDS = 60.0
# For the check of a draft, whose workflow has no id before it is stored.
NO_WORKFLOW_YET = 1
# Fields of which a plugin's None means "not given".
_SPEC_FIELDS = frozenset({*KINDS, "timezone"})
# What a plugin can say of a schedule in the words of the API; ``payload`` is the one field with another name.
_PLAIN_FIELDS = tuple(name for name in PluginScheduleInput.__struct_fields__ if name in EDITABLE)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class PluginService:
    """Gives each plugin access to its own schedules, and starts the plugins."""

    def __init__(
        self,
        database: Database,
        ringer: Ringer,
        loaded: LoadedActions,
        schedule_service: ScheduleService,
        workflow_service: WorkflowService,
    ) -> None:
        """Let those of the loaded plugins schedule that declare it."""
        self._database = database
        self._ringer = ringer
        self._loaded = loaded
        self._schedules = schedule_service
        self._workflows = workflow_service

    def schedules_of(self, plugin: str) -> "PluginSchedules":
        """Return the port of one plugin."""
        return PluginSchedules(
            plugin,
            self._database,
            self._ringer,
            self._schedules,
            self._workflows,
            may_schedule=self._loaded.declares(plugin, Capability.SCHEDULE_JOBS),
        )

    async def start_all(self) -> None:
        """Start all plugins concurrently. One that fails or takes too long is logged, and affects no other."""
        await asyncio.gather(*(self._start(loaded) for loaded in self._loaded.plugins))

    async def _start(self, loaded: LoadedPlugin) -> None:
        while loaded.plugin.start is not None:
            try:
                async with asyncio.timeout(START_SECONDS):
                    await loaded.plugin.start(self.schedules_of(loaded.name))
            except UnavailableError:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            except Exception as error:
                log.exception("plugin_failed", plugin=loaded.name, error=str(error))
                return
            else:
                log.info("plugin_started", plugin=loaded.name)
                return


class PluginSchedules:
    """The schedules of one plugin, each with a workflow of its own."""

    def __init__(
        self,
        plugin: str,
        database: Database,
        ringer: Ringer,
        schedule_service: ScheduleService,
        workflow_service: WorkflowService,
        *,
        may_schedule: bool,
    ) -> None:
        """Act as this plugin; refuse everything unless it ``may_schedule``."""
        self._plugin = plugin
        self._database = database
        self._ringer = ringer
        self._schedules = schedule_service
        self._workflows = workflow_service
        self._may_schedule = may_schedule

    async def create(self, schedule: PluginScheduleInput) -> PluginSchedule:
        """Create a schedule with a workflow of its own."""
        return await _answered(self._create(await self._actor(), schedule))

    async def ensure(self, schedule: PluginScheduleInput) -> PluginSchedule:
        """Create the schedule of this name, or change it where it differs."""
        actor = await self._actor()
        existing = await self._named(actor, schedule.name)
        if existing is None:
            try:
                return await _answered(self._create(actor, schedule))
            except _TakenError:
                # Another process has created it meanwhile.
                existing = await self._named(actor, schedule.name)
        if existing is None:
            raise RefusedError(f"The schedule '{schedule.name}' is being made and deleted at once.")
        nodes = _nodes(schedule.action, schedule.config)
        return await _answered(self._update(actor, existing, _schedule_values(schedule), nodes))

    async def list(self) -> list[PluginSchedule]:
        """Return all schedules of the plugin, newest first."""
        actor = await self._actor()
        async with self._database.transaction() as connection:
            jobs = await schedules.all_of(connection, actor.user_id)
            rows = await workflows.all_of(connection, actor.user_id)
        return [_view(job, rows.get(job.workflow_id)) for job in jobs]

    async def update(self, schedule_id: UUID, changes: PluginScheduleChanges) -> PluginSchedule:
        """Give a schedule new values."""
        actor = await self._actor()
        values = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not msgspec.UNSET}
        config = values.pop("config", None)
        if "payload" in values:
            values["trigger_payload"] = values.pop("payload")
        return await _answered(self._change(actor, schedule_id, values, config))

    async def delete(self, schedule_id: UUID) -> None:
        """Delete a schedule with its history and its workflow."""
        await _answered(self._delete(await self._actor(), schedule_id))

    async def _actor(self) -> Actor:
        if not self._may_schedule:
            raise RefusedError(f"The plugin '{self._plugin}' has not declared the capability schedule_jobs.")
        async with self._database.transaction() as connection:
            return await users.plugin(connection, self._plugin)

    async def _named(self, actor: Actor, name: str) -> ScheduledJob | None:
        async with self._database.transaction() as connection:
            return next(iter(await schedules.all_of(connection, actor.user_id, name)), None)

    async def _create(self, actor: Actor, schedule: PluginScheduleInput) -> PluginSchedule:
        """Create the workflow and the schedule, or neither."""
        values = {"name": schedule.name, "workflow_id": NO_WORKFLOW_YET, **_schedule_values(schedule)}
        caps = self._schedules.limits.caps
        new = sound_draft(checked(_given_spec(values), ScheduleInput), actor, caps)
        flow = msgspec.to_builtins(
            checked({"name": schedule.name, **_nodes(schedule.action, schedule.config)}, WorkflowInput)
        )
        self._workflows.check(flow)
        async with self._database.transaction() as connection:
            await self._workflows.check_secrets(connection, actor, actor.user_id, flow)
            row = await workflows.add(connection, actor, flow, author_of(actor))
            job = await schedule_changes.start_scheduled_job(
                connection, replace(new, workflow_id=row.id), author_of(actor)
            )
        await self._ringer.ticks([job])
        return _view(job, row)

    async def _change(
        self, actor: Actor, schedule_id: UUID, values: dict[str, Any], config: dict[str, Any] | None
    ) -> PluginSchedule:
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, schedule_id)
            row = await workflows.get(connection, job.workflow_id)
        nodes = {} if config is None else _nodes(_work_of(row)["type"], config)
        return await self._update(actor, job, values, nodes)

    async def _update(
        self, actor: Actor, job: ScheduledJob, values: dict[str, Any], nodes: dict[str, Any]
    ) -> PluginSchedule:
        """Change the workflow and the schedule, or neither; equal values change nothing."""
        changes = changed_values(checked(_given_spec(values), ScheduleChanges))
        flow = given(checked(nodes, WorkflowChanges))
        if flow:
            self._workflows.check(msgspec.to_builtins(flow))
        async with self._database.transaction() as connection:
            await owned_schedule(connection, actor, job.id)
            await self._workflows.check_secrets(connection, actor, actor.user_id, msgspec.to_builtins(flow))
            row = await self._with_nodes(connection, actor, job.workflow_id, msgspec.to_builtins(flow))
            caps = self._schedules.limits.caps
            changed = await schedule_changes.edit_scheduled_job(connection, job.id, changes, author_of(actor), caps)
        await self._ringer.ticks([changed.job])
        await self._ringer.executions(changed.pending)
        return _view(changed.job, row)

    async def _with_nodes(
        self, connection: Connection, actor: Actor, workflow_id: int, flow: dict[str, Any]
    ) -> StoredWorkflow | None:
        """Give the workflow these nodes, unless it is not the plugin's own; return it, or None if there is none."""
        row = await workflows.lock_to_change(connection, workflow_id)
        if row is None or row.user_profile_id != actor.user_id:
            return row
        return await workflows.save(connection, row, flow, author_of(actor))

    async def _delete(self, actor: Actor, schedule_id: UUID) -> None:
        """Delete the schedule with its workflow, unless another schedule uses that too."""
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, schedule_id)
            row = await workflows.get(connection, job.workflow_id)
            schedules_of_it = await schedules.count_of_workflow(connection, job.workflow_id)
        if row is not None and row.user_profile_id == actor.user_id and schedules_of_it == 1:
            await self._workflows.delete(actor, job.workflow_id)
        else:
            await self._schedules.delete(actor, schedule_id)


def _schedule_values(schedule: PluginScheduleInput) -> dict[str, Any]:
    values = {name: getattr(schedule, name) for name in _PLAIN_FIELDS}
    return {**values, "trigger_payload": schedule.payload}


def _given_spec(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as a JSON body would have them, without the kinds of spec that are None."""
    shown: dict[str, Any] = msgspec.to_builtins(values)
    return {name: value for name, value in shown.items() if value is not None or name not in _SPEC_FIELDS}


def _nodes(action: str, config: dict[str, Any]) -> dict[str, Any]:
    nodes = [{"id": "start", "type": TRIGGER_TYPE}, {"id": "work", "type": action, "config": config}]
    return {"nodes": nodes, "edges": [{"from": "start", "to": "work"}]}


def _work_of(row: StoredWorkflow | None) -> dict[str, Any]:
    """Return the node that does the work, or an empty one if an admin has changed the workflow."""
    nodes: list[dict[str, Any]] = row.nodes if row else []
    return next((node for node in nodes if node["id"] == "work"), {"type": "", "config": {}})


def _view(job: ScheduledJob, row: StoredWorkflow | None) -> PluginSchedule:
    work = _work_of(row)
    return PluginSchedule(
        id=job.id,
        name=job.name,
        action=work["type"],
        config=work.get("config", {}),
        status=job.status,
        next_run_at=job.next_run_at,
        last_error=job.last_error,
        run_count=job.run_count,
        error_count=job.error_count,
    )


class _TakenError(RefusedError):
    """There is a schedule of that name already."""


async def _answered(call: Awaitable[T]) -> T:
    """Return the answer of a service; raise a refusal as ``RefusedError``, but an outage unchanged."""
    try:
        return await call
    except UnavailableError:
        raise
    except ConflictError as error:
        raise _TakenError(str(error)) from None
    except NotFoundError:
        raise RefusedError("The plugin has no such schedule.") from None
    except CarillonError as error:
        raise RefusedError(str(error)) from None
