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
from app.domain.access import Actor, owner_for
from app.domain.errors import CarillonError, NotFoundError, UnavailableError
from app.domain.plugin_schedules import NODES, EnsureMode, Merge, may_create, merge
from app.domain.revisions import Action, revision
from app.domain.schedules import IfRunning, ScheduledJob
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import plugin_schedules, revisions, schedules, users, workflows
from app.persistence.database import Connection, Database, database_now
from app.persistence.plugin_schedules import Asked
from app.persistence.revisions import ScheduleChange
from app.persistence.workflows import StoredWorkflow
from app.services.executions import ManualRunService
from app.services.inputs import (
    NoteInput,
    PauseInput,
    RunInput,
    ScheduleChanges,
    WorkflowChanges,
    given,
)
from app.services.plugin_wishes import (
    Stored,
    Wish,
    given_values,
    nodes_of,
    plugins_view,
    values_of,
    wish_of,
    work_of,
)
from app.services.schedules import (
    ScheduleService,
    author_of,
    changed_values,
    owned_schedule,
    sound,
)
from app.services.validation import checked
from app.services.workflows import WorkflowService

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Collaborators(msgspec.Struct, frozen=True, kw_only=True):
    """What the schedules of plugins are made with."""

    database: Database
    ringer: Ringer
    schedules: ScheduleService
    workflows: WorkflowService
    manual_runs: ManualRunService


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
        return [plugins_view(Stored(job, rows.get(job.workflow_id)), versions.get(job.id, 0)) for job in jobs]

    async def get(self, schedule_id: UUID) -> PluginSchedule:
        """Return a schedule."""
        return await _answered(self._get(await self._actor(), schedule_id))

    async def find(self, name: str) -> PluginSchedule | None:
        """Return the schedule that the plugin has asked for under a name, also if it was renamed; or None."""
        actor = await self._actor()
        async with self._database.transaction() as connection:
            asked = await plugin_schedules.get(connection, actor.user_id, name)
            job = await plugin_schedules.schedule_of(connection, asked)
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
        await _answered(self._schedules.pause(actor, schedule_id, PauseInput(note=note)))
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

    def _wish(self, actor: Actor, schedule: PluginScheduleInput) -> Wish:
        wish = wish_of(actor, schedule)
        self._workflows.check(wish.workflow)
        return wish

    async def _create(self, actor: Actor, schedule: PluginScheduleInput) -> PluginSchedule:
        wish = self._wish(actor, schedule)
        sound(wish.draft, self._schedules.limits.caps)
        async with self._database.transaction() as connection:
            asked = await plugin_schedules.lock(connection, actor.user_id, wish.name)
            stored = await self._added(connection, actor, wish)
            await plugin_schedules.save(connection, _asked_now(asked, wish, stored.job.id, EnsureMode.ADOPT))
        return await self._rung(stored, wish.version)

    async def _ensure(self, actor: Actor, schedule: PluginScheduleInput, mode: EnsureMode) -> PluginSchedule | None:
        wish = self._wish(actor, schedule)
        async with self._database.transaction() as connection:
            # Other processes of the plugin, which ask for the same, wait here.
            asked = await plugin_schedules.lock(connection, actor.user_id, wish.name)
            job = await plugin_schedules.schedule_of(connection, asked)
            if job is not None:
                stored, now_asked = await self._merged(connection, actor, asked, job, wish, mode)
            elif may_create(mode, asked.version if asked.scheduled_job_id else None, wish.version):
                sound(wish.draft, self._schedules.limits.caps)
                note = "Created again, after it was deleted." if asked.scheduled_job_id else ""
                stored = await self._added(connection, actor, wish, note)
                now_asked = _asked_now(asked, wish, stored.job.id, mode)
            else:
                log.info("plugin_schedule_stays_deleted", plugin=self._plugin, schedule=wish.name)
                return None
            await plugin_schedules.save(connection, now_asked)
        return await self._rung(stored, now_asked.version)

    async def _added(self, connection: Connection, actor: Actor, wish: Wish, note: str = "") -> Stored:
        """Create the workflow and the schedule."""
        await self._workflows.check_secrets(connection, actor, actor.user_id, wish.workflow)
        row = await workflows.add(connection, owner_for(actor, None), wish.workflow, author_of(actor))
        new = replace(wish.draft, workflow_id=row.id)
        return Stored(await schedule_changes.start_scheduled_job(connection, new, author_of(actor), note), row)

    async def _merged(
        self, connection: Connection, actor: Actor, asked: Asked, job: ScheduledJob, wish: Wish, mode: EnsureMode
    ) -> tuple[Stored, Asked]:
        """Give an existing schedule and its workflow the values that the plugin may change.

        Both are locked before they are compared with what was asked for: an edit that is under way is seen whole.
        """
        row = await workflows.lock_to_change(connection, job.workflow_id)
        locked = (await schedules.lock(connection, [job.id])).get(job.id, job)
        is_own = row is not None and row.user_profile_id == actor.user_id and row.id == locked.workflow_id
        # A workflow that an admin has put in the place of the plugin's own is left alone.
        current = values_of(locked, msgspec.structs.asdict(row) if row and is_own else wish.workflow)
        last = await plugin_schedules.last_asked(connection, asked, locked, current)
        # A process of an earlier version of the plugin does not undo what a later one has asked for.
        is_outdated = mode is not EnsureMode.ENFORCE and wish.version < asked.version
        if is_outdated or mode is EnsureMode.CREATE_ONLY:
            kept = replace(asked, scheduled_job_id=job.id, version=max(asked.version, wish.version), wanted=last)
            return Stored(locked, row), kept
        decided = merge(mode, last, current, wish.values)
        if row is not None and is_own and NODES in decided.changes:
            flow = {name: wish.workflow[name] for name in ("nodes", "edges")}
            await self._workflows.check_secrets(connection, actor, actor.user_id, flow)
            row = await workflows.save(connection, row, flow, author_of(actor), decided.note)
        stored = await self._edited(connection, actor, Stored(locked, row), wish, decided)
        return stored, _asked_now(asked, wish, job.id, mode)

    async def _edited(self, connection: Connection, actor: Actor, stored: Stored, wish: Wish, decided: Merge) -> Stored:
        """Give the schedule the values that follow the plugin, and say in its history who won."""
        author, job = author_of(actor), stored.job
        changes = {name: getattr(wish.draft, name) for name in decided.changes if name != NODES}
        if changes:
            caps = self._schedules.limits.caps
            changed = await schedule_changes.edit_scheduled_job(connection, job.id, changes, author, caps, decided.note)
            return Stored(changed.job, stored.workflow, changed.pending)
        if decided.note:
            now = await database_now(connection)
            told = revision(job, job, Action.CHANGED, author, now, decided.note)
            await revisions.add_schedule_revisions(connection, [ScheduleChange(told, job, author)])
        return stored

    async def _get(self, actor: Actor, schedule_id: UUID) -> PluginSchedule:
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, schedule_id)
            row = await workflows.get(connection, job.workflow_id)
            version = await plugin_schedules.version_of(connection, actor.user_id, schedule_id)
        return plugins_view(Stored(job, row), version)

    async def _update(
        self, actor: Actor, schedule_id: UUID, values: dict[str, Any], config: dict[str, Any] | None
    ) -> PluginSchedule:
        """Change the workflow and the schedule, or neither; equal values change nothing."""
        changes = changed_values(checked(given_values(values), ScheduleChanges))
        async with self._database.transaction() as connection:
            asked = await plugin_schedules.lock_of_job(connection, actor.user_id, schedule_id)
            job = await owned_schedule(connection, actor, schedule_id)
            row = await workflows.lock_to_change(connection, job.workflow_id)
            if config is not None:
                row = await self._with_config(connection, actor, row, config)
            changed = await schedule_changes.edit_scheduled_job(
                connection, job.id, changes, author_of(actor), self._schedules.limits.caps
            )
            if asked is not None:
                values_now = values_of(changed.job, msgspec.structs.asdict(row) if row else {})
                names = (*changes, *((NODES,) if config is not None else ()))
                new = {name: values_now[name] for name in names if name in values_now}
                await plugin_schedules.save(connection, replace(asked, wanted=asked.wanted | new))
        version = asked.version if asked else 0
        return await self._rung(Stored(changed.job, row, changed.pending), version)

    async def _with_config(
        self, connection: Connection, actor: Actor, row: StoredWorkflow | None, config: dict[str, Any]
    ) -> StoredWorkflow:
        """Give the plugin's own workflow, which is locked, this configuration."""
        work = work_of(row)
        if row is None or work is None or row.user_profile_id != actor.user_id:
            raise RefusedError("The workflow of this schedule was replaced: its configuration cannot be changed.")
        flow = msgspec.to_builtins(given(checked(nodes_of(work["type"], config), WorkflowChanges)))
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

    async def _rung(self, stored: Stored, version: int) -> PluginSchedule:
        """Ring for what was written, and return the schedule as the plugin sees it."""
        await self._ringer.ticks([stored.job])
        await self._ringer.executions(stored.pending)
        return plugins_view(stored, version)


def _asked_now(asked: Asked, wish: Wish, job_id: UUID, mode: EnsureMode) -> Asked:
    version = max(asked.version, wish.version)
    return replace(asked, scheduled_job_id=job_id, version=version, wanted=wish.values, mode=mode)


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
