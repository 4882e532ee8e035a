"""Built-in actions on schedules, webhooks and history. They have the rights of the run."""

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from app.actions.catalog import Action, ActionFailedError, Skipped
from app.actions.context import ActionContext, RefusedError

Note = Annotated[str, msgspec.Meta(max_length=1000)]


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule, and a note for its history."""

    schedule_id: UUID
    note: Note = ""


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule."""

    schedule_id: UUID


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the five tools, and its arguments."""

    tool: Literal["create_schedule", "pause_schedule", "resume_schedule", "stop_schedule", "list_schedules"]
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class ListArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The filters of ``list_schedules``."""

    status: Literal["active", "paused", "done", "dead"] | None = None
    workflow_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


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
    return await _awaited(context, _TOOLS[config.tool](config.arguments, context))


async def _create(arguments: dict[str, Any], context: ActionContext) -> Any:
    return await context.ports.schedules.create(arguments)


async def _pause(arguments: dict[str, Any], context: ActionContext) -> Any:
    config = _read(arguments, ScheduleConfig)
    return await context.ports.schedules.pause(config.schedule_id, config.note)


async def _resume(arguments: dict[str, Any], context: ActionContext) -> Any:
    config = _read(arguments, ScheduleConfig)
    return await context.ports.schedules.resume(config.schedule_id, config.note)


async def _stop(arguments: dict[str, Any], context: ActionContext) -> Any:
    config = _read(arguments, RunConfig)
    await context.ports.schedules.stop(config.schedule_id)
    return {"stopped": str(config.schedule_id)}


async def _list(arguments: dict[str, Any], context: ActionContext) -> Any:
    filters = _read(arguments, ListArguments)
    schedules = await context.ports.schedules.list(
        status=filters.status, workflow_id=filters.workflow_id, limit=filters.limit
    )
    return {"schedules": schedules}


_TOOLS = {
    "create_schedule": _create,
    "pause_schedule": _pause,
    "resume_schedule": _resume,
    "stop_schedule": _stop,
    "list_schedules": _list,
}


def _read(arguments: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise ActionFailedError(f"The arguments are not valid: {error}") from None


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
)
RESUME = Action(
    name="core.schedules.resume",
    description="Resume a schedule.",
    config=ScheduleConfig,
    handler=resume,
    scope="owner",
    retry_safe=False,
)
RUN = Action(
    name="core.schedules.run",
    description="Run a schedule now. Its cadence does not change.",
    config=RunConfig,
    handler=run,
    scope="owner",
    retry_safe=False,
)
TOOLS = Action(
    name="scheduler_tools",
    description="Create, pause, resume, stop or list schedules.",
    config=ToolsConfig,
    handler=use_tool,
    scope="owner",
    retry_safe=False,
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
    description="Retry failed deliveries of the owner's notifications.",
    config=RetryConfig,
    handler=retry_webhooks,
    scope="owner",
)
PURGE_WEBHOOKS = Action(
    name="core.webhooks.purge",
    description="Delete old finished deliveries of the owner's notifications.",
    config=PurgeConfig,
    handler=purge_webhooks,
    scope="owner",
)
PURGE_CALLBACKS = Action(
    name="core.callbacks.purge",
    description="Delete the callbacks of the owner's executions that ended long ago.",
    config=PurgeConfig,
    handler=purge_callbacks,
    scope="owner",
)
PURGE_HISTORY = Action(
    name="core.history.purge",
    description="Delete old ended executions and ledger entries of the owner's schedules.",
    config=PurgeConfig,
    handler=purge_history,
    scope="owner",
)
