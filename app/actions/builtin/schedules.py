"""Built-in actions on schedules, webhooks and history. They have the rights of the run."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from app.actions.catalog import Action, ActionFailedError, Skipped
from app.actions.context import ActionContext, RefusedError, SchedulesPort
from app.actions.templates import templates_in
from app.domain.errors import FieldError
from app.domain.limits import Caps
from app.domain.schedule_input import Instant, ScheduleInput, new_schedule_errors
from app.domain.specs import KINDS

Note = Annotated[str, msgspec.Meta(max_length=1000)]


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule, and a note for its history."""

    schedule_id: UUID
    note: Note = ""


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule."""

    schedule_id: UUID


class ListArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The filters of ``list_schedules``."""

    status: Literal["active", "paused", "done", "dead"] | None = None
    workflow_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="tool"):
    """One of the five tools. ``tool`` says which, and ``arguments`` what it needs."""


class CreateTool(Tool, frozen=True, tag="create_schedule"):
    """Create a schedule, with the fields that a request takes."""

    arguments: ScheduleInput


class PauseTool(Tool, frozen=True, tag="pause_schedule"):
    """Pause a schedule."""

    arguments: ScheduleConfig


class ResumeTool(Tool, frozen=True, tag="resume_schedule"):
    """Resume a schedule."""

    arguments: ScheduleConfig


class StopTool(Tool, frozen=True, tag="stop_schedule"):
    """Delete a schedule."""

    arguments: RunConfig


class ListTool(Tool, frozen=True, tag="list_schedules"):
    """List schedules."""

    arguments: ListArguments = ListArguments()


ToolsConfig = CreateTool | PauseTool | ResumeTool | StopTool | ListTool


class ScheduleOutput(msgspec.Struct):
    """A schedule as the API shows it; these fields and more."""

    id: UUID
    name: str
    status: str
    workflow_id: int
    next_run_at: Instant | None


class ExecutionOutput(msgspec.Struct):
    """The new execution; these fields and more."""

    id: UUID
    status: str


class StoppedOutput(msgspec.Struct):
    """The schedule that was deleted."""

    stopped: UUID


class SchedulesOutput(msgspec.Struct):
    """The schedules that were found, newest first; with ``truncated`` if they are too large to be kept."""

    schedules: list[ScheduleOutput]


class DeletedOutput(msgspec.Struct):
    """How many rows were deleted."""

    deleted: int


class RetriedOutput(msgspec.Struct):
    """How many deliveries are tried again."""

    retried: int


async def pause(config: ScheduleConfig, context: ActionContext) -> Any:
    """Pause a schedule."""
    return await _awaited(context, context.ports.schedules.pause(config.schedule_id, config.note))


async def resume(config: ScheduleConfig, context: ActionContext) -> Any:
    """Resume a schedule."""
    return await _awaited(context, context.ports.schedules.resume(config.schedule_id, config.note))


async def run(config: RunConfig, context: ActionContext) -> Any:
    """Run a schedule now; its cadence does not change."""
    return await _awaited(context, context.ports.schedules.run(config.schedule_id))


async def use_tool(config: ToolsConfig, context: ActionContext) -> Any:
    """Create, pause, resume, stop or list schedules."""
    return await _awaited(context, _use(config, context.ports.schedules))


async def _use(config: ToolsConfig, schedules: SchedulesPort) -> Any:
    match config:
        case CreateTool(arguments):
            return await schedules.create(msgspec.to_builtins(arguments))
        case PauseTool(arguments):
            return await schedules.pause(arguments.schedule_id, arguments.note)
        case ResumeTool(arguments):
            return await schedules.resume(arguments.schedule_id, arguments.note)
        case StopTool(arguments):
            await schedules.stop(arguments.schedule_id)
            return {"stopped": str(arguments.schedule_id)}
        case ListTool(arguments):
            filters = msgspec.structs.asdict(arguments)
            return {"schedules": await schedules.list(**filters)}


def tool_errors(config: Mapping[str, Any], caps: Caps) -> list[FieldError]:
    """Return what is wrong with the arguments of ``create_schedule`` beyond their types, templates left out."""
    arguments = config.get("arguments")
    if config.get("tool") != CreateTool.__struct_config__.tag or not isinstance(arguments, dict):
        return []
    fixed = {name: value for name, value in arguments.items() if not any(templates_in(value))}
    templated = arguments.keys() - fixed.keys()
    errors = new_schedule_errors(fixed, caps, may_lack_kind=not templated.isdisjoint(KINDS))
    return [FieldError(f"arguments.{error.field}", error.message) for error in errors]


async def _awaited(context: ActionContext, operation: Any) -> Any:
    """Return the result of an operation on schedules; the action fails if the operation is refused."""
    context.require_lease()
    try:
        return await operation
    except RefusedError as error:
        raise ActionFailedError(str(error)) from None


PAUSE = Action(
    name="core.schedules.pause",
    description="Pause a schedule.",
    config=ScheduleConfig,
    handler=pause,
    scope="owner",
    retry_safe=False,
    title="Pause a schedule",
    category="Schedules",
    icon="circle-pause",
    color="#6d28d9",
    outputs=ScheduleOutput,
)
RESUME = Action(
    name="core.schedules.resume",
    description="Resume a schedule.",
    config=ScheduleConfig,
    handler=resume,
    scope="owner",
    retry_safe=False,
    title="Resume a schedule",
    category="Schedules",
    icon="circle-play",
    color="#6d28d9",
    outputs=ScheduleOutput,
)
RUN = Action(
    name="core.schedules.run",
    description="Run a schedule now. Its cadence does not change.",
    config=RunConfig,
    handler=run,
    scope="owner",
    retry_safe=False,
    title="Run a schedule",
    category="Schedules",
    icon="zap",
    color="#6d28d9",
    outputs=ExecutionOutput,
)
TOOLS = Action(
    name="scheduler_tools",
    description="Create, pause, resume, stop or list schedules.",
    config=ToolsConfig,
    handler=use_tool,
    scope="owner",
    retry_safe=False,
    title="Scheduler tools",
    category="Tools",
    icon="clock",
    color="#b45309",
    outputs=(ScheduleOutput, StoppedOutput, SchedulesOutput),
    kind="tool",
    check=tool_errors,
)


class PurgeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The minimum age, and the maximum number of rows."""

    older_than_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] = 30
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


async def purge_history(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete old executions that have ended, and old ledger entries, of the owner's schedules."""
    context.require_lease()
    deleted = await context.ports.history.purge(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


async def purge_callbacks(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete the callbacks of the owner's executions that ended long ago."""
    context.require_lease()
    deleted = await context.ports.upkeep.purge_callbacks(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The maximum number of deliveries."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


async def retry_webhooks(config: RetryConfig, context: ActionContext) -> Any:
    """Retry the failed deliveries of the owner's notifications."""
    context.require_lease()
    retried = await context.ports.upkeep.retry_deliveries(config.limit)
    return {"retried": retried} if retried else Skipped("There is no failed delivery to retry.")


async def purge_webhooks(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete old finished deliveries of the owner's notifications."""
    context.require_lease()
    deleted = await context.ports.upkeep.purge_deliveries(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


RETRY_WEBHOOKS = Action(
    name="core.webhooks.retry",
    aliases=("core.notifications.retry", "core.communication.retry"),
    description="Retry failed deliveries of the owner's notifications.",
    config=RetryConfig,
    handler=retry_webhooks,
    scope="owner",
    title="Retry deliveries",
    category="Maintenance",
    icon="refresh-cw",
    color="#b45309",
    outputs=RetriedOutput,
)
PURGE_WEBHOOKS = Action(
    name="core.webhooks.purge",
    aliases=("core.notifications.purge", "core.communication.purge"),
    description="Delete old finished deliveries of the owner's notifications.",
    config=PurgeConfig,
    handler=purge_webhooks,
    scope="owner",
    title="Delete old deliveries",
    category="Maintenance",
    icon="mail-x",
    color="#b45309",
    outputs=DeletedOutput,
)
PURGE_CALLBACKS = Action(
    name="core.callbacks.purge",
    aliases=("core.webcallbacks.purge",),
    description="Delete the callbacks of the owner's executions that ended long ago.",
    config=PurgeConfig,
    handler=purge_callbacks,
    scope="owner",
    title="Delete old callbacks",
    category="Maintenance",
    icon="phone-off",
    color="#b45309",
    outputs=DeletedOutput,
)
PURGE_HISTORY = Action(
    name="core.history.purge",
    description="Delete old ended executions and ledger entries of the owner's schedules.",
    config=PurgeConfig,
    handler=purge_history,
    scope="owner",
    title="Delete old history",
    category="Maintenance",
    icon="history",
    color="#b45309",
    outputs=DeletedOutput,
)
