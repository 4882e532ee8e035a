"""The schedules of one plugin: it creates, changes, runs and deletes its own, and no others."""

from collections.abc import Awaitable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from app.actions.context import (
    PluginRun,
    PluginSchedule,
    PluginScheduleChanges,
    PluginScheduleInput,
    RefusedError,
)
from app.domain.access import Actor
from app.domain.errors import CarillonError, NotFoundError, UnavailableError
from app.domain.executions import PendingRun
from app.domain.plugin_schedules import FIELDS, NODES, EnsureMode, Merge, may_create, merge
from app.domain.revisions import Action, revision
from app.domain.schedules import IfRunning, ScheduledJob
from app.domain.specs import KINDS
from app.domain.workflows import TRIGGER_TYPE
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import plugin_schedules, revisions, schedules, users, workflows
from app.persistence.database import Connection, Database, database_now
from app.persistence.plugin_schedules import Asked
from app.persistence.workflows import StoredWorkflow
from app.services.executions import ManualRunService
from app.services.inputs import (
    NoteInput,
    RunInput,
    ScheduleChanges,
    ScheduleInput,
    WorkflowChanges,
    WorkflowInput,
    given,
)
from app.services.schedules import (
    ScheduleService,
    author_of,
    changed_values,
    draft,
    owned_schedule,
    sound,
    spec_values,
)
from app.services.validation import checked
from app.services.workflows import WorkflowService

# For a draft, whose workflow has no id before it is stored.
NO_WORKFLOW_YET = 1
# Fields of which a plugin's None means "not given".
_SPEC_FIELDS = frozenset({*KINDS, "timezone"})
# ``payload`` is the one field with another name in the API.
_PLUGINS_NAMES = {"trigger_payload": "payload"}
_SHOWN = tuple(
    name
    for name in PluginSchedule.__struct_fields__
    if name not in {"action", "config", "version", "payload", "status", "status_reason"}
)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Collaborators(msgspec.Struct, frozen=True, kw_only=True):
    """What the schedules of plugins are made with."""

    database: Database
    ringer: Ringer
    schedules: ScheduleService
    workflows: WorkflowService
    manual_runs: ManualRunService


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as a plugin wants it: a draft with values in their stored form, and its workflow."""

    version: int
    draft: ScheduledJob
    workflow: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """The values that the plugin decides about, as JSON."""
        return _values(self.draft, self.workflow)


class _Stored(msgspec.Struct, frozen=True):
    """A schedule of the plugin, its workflow, and the executions that may start because of a change."""

    job: ScheduledJob
    workflow: StoredWorkflow | None
    pending: tuple[PendingRun, ...] = ()


class PluginSchedules:
    """The schedules of one plugin, each with a workflow of its own."""

    def __init__(self, plugin: str, collaborators: Collaborators, *, may_schedule: bool) -> None:
        """Act as this plugin; refuse everything unless it ``may_schedule``."""
        self._plugin = plugin
        self._database = collaborators.database
        self._ringer = collaborators.ringer
        self._schedules = collaborators.schedules
        self._workflows = collaborators.workflows
        self._manual_runs = collaborators.manual_runs
        self._may_schedule = may_schedule

    async def create(self, schedule: PluginScheduleInput) -> PluginSchedule:
        """Create a schedule with a workflow of its own."""
        return await _answered(self._create(await self._actor(), schedule))

    async def ensure(self, schedule: PluginScheduleInput, mode: EnsureMode = EnsureMode.ADOPT) -> PluginSchedule | None:
        """Create the schedule of this name, or change it where it differs and ``mode`` allows it."""
        return await _answered(self._ensure(await self._actor(), schedule, EnsureMode(mode)))

    async def list(self) -> list[PluginSchedule]:
        """Return all schedules of the plugin, newest first."""
        actor = await self._actor()
        async with self._database.transaction() as connection:
            jobs = await schedules.all_of(connection, actor.user_id)
            rows = await workflows.all_of(connection, actor.user_id)
            versions = await plugin_schedules.versions(connection, actor.user_id)
        return [_view(_Stored(job, rows.get(job.workflow_id)), versions.get(job.id, 0)) for job in jobs]

    async def get(self, schedule_id: UUID) -> PluginSchedule:
        """Return a schedule."""
        return await _answered(self._get(await self._actor(), schedule_id))

    async def find(self, name: str) -> PluginSchedule | None:
        """Return the schedule that the plugin has asked for under a name, also if it was renamed; or None."""
        actor = await self._actor()
        async with self._database.transaction() as connection:
            asked_id = await plugin_schedules.find(connection, actor.user_id, name)
            job = await _of_name(connection, actor, asked_id, name)
        return None if job is None else await self.get(job.id)

    async def update(self, schedule_id: UUID, changes: PluginScheduleChanges) -> PluginSchedule:
        """Give a schedule new values."""
        actor = await self._actor()
        values = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not msgspec.UNSET}
        config = values.pop("config", None)
        if "payload" in values:
            values["trigger_payload"] = values.pop("payload")
        return await _answered(self._update(actor, schedule_id, values, config))

    async def pause(self, schedule_id: UUID, note: str = "") -> PluginSchedule:
        """Stop an active schedule from firing."""
        actor = await self._actor()
        await _answered(self._schedules.pause(actor, schedule_id, NoteInput(note=note)))
        return await self.get(schedule_id)

    async def resume(self, schedule_id: UUID, note: str = "") -> PluginSchedule:
        """Let a paused schedule fire again."""
        actor = await self._actor()
        await _answered(self._schedules.resume(actor, schedule_id, NoteInput(note=note)))
        return await self.get(schedule_id)

    async def revive(self, schedule_id: UUID) -> PluginSchedule:
        """Make a dead schedule active again."""
        await _answered(self._schedules.revive(await self._actor(), schedule_id))
        return await self.get(schedule_id)

    async def run(self, schedule_id: UUID, if_running: IfRunning | None = None) -> PluginRun:
        """Start a run now; ``if_running`` overrides that of the schedule."""
        request = RunInput() if if_running is None else RunInput(if_running=IfRunning(if_running))
        run = await _answered(self._manual_runs.run(await self._actor(), schedule_id, request))
        return PluginRun(id=run.id, status=run.status)

    async def delete(self, schedule_id: UUID) -> None:
        """Delete a schedule with its history and its workflow."""
        await _answered(self._delete(await self._actor(), schedule_id))

    async def _actor(self) -> Actor:
        if not self._may_schedule:
            raise RefusedError(f"The plugin '{self._plugin}' has not declared the capability schedule_jobs.")
        async with self._database.transaction() as connection:
            return await users.plugin(connection, self._plugin)

    def _wish(self, actor: Actor, schedule: PluginScheduleInput) -> _Wish:
        """Return what a plugin wants, checked and in its stored form."""
        values = msgspec.structs.asdict(schedule)
        config, action, version = values.pop("config"), values.pop("action"), values.pop("version")
        values["trigger_payload"] = values.pop("payload")
        wanted = checked(_given_spec({"workflow_id": NO_WORKFLOW_YET, **values}), ScheduleInput)
        flow = msgspec.to_builtins(checked({"name": schedule.name, **_nodes(action, config)}, WorkflowInput))
        self._workflows.check(flow)
        return _Wish(version=version, draft=draft(spec_values(wanted), actor), workflow=flow)

    async def _create(self, actor: Actor, schedule: PluginScheduleInput) -> PluginSchedule:
        wish = self._wish(actor, schedule)
        sound(wish.draft, self._schedules.limits.caps)
        async with self._database.transaction() as connection:
            asked = await plugin_schedules.lock(connection, actor.user_id, schedule.name)
            stored = await self._added(connection, actor, wish)
            await _save(connection, asked, wish, stored.job.id)
        return await self._rung(stored, wish.version)

    async def _ensure(self, actor: Actor, schedule: PluginScheduleInput, mode: EnsureMode) -> PluginSchedule | None:
        wish = self._wish(actor, schedule)
        async with self._database.transaction() as connection:
            # Other processes of the plugin, which ask for the same, wait here.
            asked = await plugin_schedules.lock(connection, actor.user_id, schedule.name)
            job = await _of_name(connection, actor, asked.scheduled_job_id, schedule.name)
            if job is not None:
                stored = await self._merged(connection, actor, asked, job, wish, mode)
            elif may_create(mode, asked.version if asked.scheduled_job_id else None, wish.version):
                sound(wish.draft, self._schedules.limits.caps)
                note = "Created again, after it was deleted." if asked.scheduled_job_id else ""
                stored = await self._added(connection, actor, wish, note)
            else:
                log.info("plugin_schedule_stays_deleted", plugin=self._plugin, schedule=schedule.name)
                return None
            if mode is not EnsureMode.CREATE_ONLY or job is None:
                await _save(connection, asked, wish, stored.job.id)
        return await self._rung(stored, wish.version)

    async def _added(self, connection: Connection, actor: Actor, wish: _Wish, note: str = "") -> _Stored:
        """Create the workflow and the schedule."""
        await self._workflows.check_secrets(connection, actor, actor.user_id, wish.workflow)
        row = await workflows.add(connection, actor, wish.workflow, author_of(actor))
        new = replace(wish.draft, workflow_id=row.id)
        return _Stored(await schedule_changes.start_scheduled_job(connection, new, author_of(actor), note), row)

    async def _merged(
        self, connection: Connection, actor: Actor, asked: Asked, job: ScheduledJob, wish: _Wish, mode: EnsureMode
    ) -> _Stored:
        """Give an existing schedule and its workflow the values that the plugin may change."""
        row = await workflows.lock_to_change(connection, job.workflow_id)
        own = row if row is not None and row.user_profile_id == actor.user_id else None
        # A workflow that an admin has put in the place of the plugin's own is left alone.
        current = _values(job, msgspec.structs.asdict(own) if own else wish.workflow)
        decided = merge(mode, await _last_asked(connection, asked, job, current), current, wish.values)
        if own is not None and NODES in decided.changes:
            flow = {name: wish.workflow[name] for name in ("nodes", "edges")}
            await self._workflows.check_secrets(connection, actor, actor.user_id, flow)
            row = await workflows.save(connection, own, flow, author_of(actor), decided.note)
        return await self._edited(connection, actor, job, wish, decided, row)

    async def _edited(
        self,
        connection: Connection,
        actor: Actor,
        job: ScheduledJob,
        wish: _Wish,
        decided: Merge,
        row: StoredWorkflow | None,
    ) -> _Stored:
        author = author_of(actor)
        changes = {name: getattr(wish.draft, name) for name in decided.changes if name != NODES}
        if changes:
            caps = self._schedules.limits.caps
            changed = await schedule_changes.edit_scheduled_job(connection, job.id, changes, author, caps, decided.note)
            return _Stored(changed.job, row, changed.pending)
        if decided.note:
            now = await database_now(connection)
            told = revision(job, job, Action.CHANGED, author, now, decided.note)
            await revisions.add_schedule_revisions(connection, [told])
        return _Stored(job, row)

    async def _get(self, actor: Actor, schedule_id: UUID) -> PluginSchedule:
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, schedule_id)
            row = await workflows.get(connection, job.workflow_id)
            versions = await plugin_schedules.versions(connection, actor.user_id)
        return _view(_Stored(job, row), versions.get(job.id, 0))

    async def _update(
        self, actor: Actor, schedule_id: UUID, values: dict[str, Any], config: dict[str, Any] | None
    ) -> PluginSchedule:
        """Change the workflow and the schedule, or neither; equal values change nothing."""
        changes = changed_values(checked(_given_spec(values), ScheduleChanges))
        async with self._database.transaction() as connection:
            asked = await plugin_schedules.lock_of_job(connection, actor.user_id, schedule_id)
            job = await owned_schedule(connection, actor, schedule_id)
            row = await self._with_config(connection, actor, job.workflow_id, config)
            changed = await schedule_changes.edit_scheduled_job(
                connection, job.id, changes, author_of(actor), self._schedules.limits.caps
            )
            if asked is not None:
                values_now = _values(changed.job, msgspec.structs.asdict(row) if row else {})
                names = (*changes, *((NODES,) if config is not None else ()))
                new = {name: values_now[name] for name in names if name in values_now}
                await plugin_schedules.save(connection, replace(asked, wanted=asked.wanted | new))
        version = asked.version if asked else 0
        return await self._rung(_Stored(changed.job, row, changed.pending), version)

    async def _with_config(
        self, connection: Connection, actor: Actor, workflow_id: int, config: dict[str, Any] | None
    ) -> StoredWorkflow | None:
        """Give the workflow this configuration, unless it is not the plugin's own; return it, or None."""
        row = await workflows.lock_to_change(connection, workflow_id)
        if row is None or config is None or row.user_profile_id != actor.user_id:
            return row
        flow = msgspec.to_builtins(given(checked(_nodes(_work_of(row)["type"], config), WorkflowChanges)))
        self._workflows.check(flow)
        await self._workflows.check_secrets(connection, actor, actor.user_id, flow)
        return await workflows.save(connection, row, flow, author_of(actor))

    async def _delete(self, actor: Actor, schedule_id: UUID) -> None:
        """Delete the schedule with its workflow, unless another schedule uses that too."""
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, schedule_id)
            row = await workflows.get(connection, job.workflow_id)
            schedules_of_it = await schedules.count_of_workflow(connection, job.workflow_id)
            await plugin_schedules.remove_of_job(connection, actor.user_id, schedule_id)
        if row is not None and row.user_profile_id == actor.user_id and schedules_of_it == 1:
            await self._workflows.delete(actor, job.workflow_id)
        else:
            await self._schedules.delete(actor, schedule_id)

    async def _rung(self, stored: _Stored, version: int) -> PluginSchedule:
        """Ring for what was written, and return the schedule as the plugin sees it."""
        await self._ringer.ticks([stored.job])
        await self._ringer.executions(stored.pending)
        return _view(stored, version)


async def _of_name(connection: Connection, actor: Actor, asked_id: UUID | None, name: str) -> ScheduledJob | None:
    """Return the schedule that was asked for, also if it was renamed; else the one that has the name."""
    job = None if asked_id is None else await schedules.get(connection, asked_id)
    if job is not None and job.user_profile_id == actor.user_id:
        return job
    return next(iter(await schedules.all_of(connection, actor.user_id, name)), None)


async def _last_asked(
    connection: Connection, asked: Asked, job: ScheduledJob, current: dict[str, Any]
) -> dict[str, Any]:
    """Return what the plugin asked for last. If that was not recorded, the history says what others have changed."""
    if asked.scheduled_job_id == job.id:
        return asked.wanted
    edited = await plugin_schedules.changed_by_others(connection, job, asked.user_profile_id)
    return {name: value for name, value in current.items() if name not in edited}


async def _save(connection: Connection, asked: Asked, wish: _Wish, job_id: UUID) -> None:
    new = replace(asked, scheduled_job_id=job_id, version=wish.version, wanted=wish.values)
    await plugin_schedules.save(connection, new)


def _values(job: ScheduledJob, workflow: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a plugin decides about, as JSON."""
    values: dict[str, Any] = msgspec.to_builtins({name: getattr(job, name) for name in FIELDS})
    return {**values, NODES: {name: workflow.get(name) for name in ("nodes", "edges")}}


def _given_spec(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as a JSON body would have them, without the kinds of spec that are None."""
    shown: dict[str, Any] = msgspec.to_builtins(values)
    seconds = shown.get("interval_seconds")
    if isinstance(seconds, float) and seconds.is_integer():
        shown["interval_seconds"] = int(seconds)
    return {name: value for name, value in shown.items() if value is not None or name not in _SPEC_FIELDS}


def _nodes(action: str, config: dict[str, Any]) -> dict[str, Any]:
    nodes = [{"id": "start", "type": TRIGGER_TYPE}, {"id": "work", "type": action, "config": config}]
    return {"nodes": nodes, "edges": [{"from": "start", "to": "work"}]}


def _work_of(row: StoredWorkflow | None) -> dict[str, Any]:
    """Return the node that does the work, or an empty one if an admin has changed the workflow."""
    nodes: list[dict[str, Any]] = row.nodes if row else []
    return next((node for node in nodes if node["id"] == "work"), {"type": "", "config": {}})


def _view(stored: _Stored, version: int) -> PluginSchedule:
    job, work = stored.job, _work_of(stored.workflow)
    return PluginSchedule(
        action=work["type"],
        config=work.get("config", {}),
        version=version,
        payload=job.trigger_payload,
        status=job.status,
        status_reason=job.status_reason,
        **{name: getattr(job, name) for name in _SHOWN},
    )


async def _answered(call: Awaitable[T]) -> T:
    """Return the answer of a service; raise a refusal as ``RefusedError``, but an outage unchanged."""
    try:
        return await call
    except UnavailableError:
        raise
    except NotFoundError:
        raise RefusedError("The plugin has no such schedule.") from None
    except CarillonError as error:
        raise RefusedError(str(error)) from None
