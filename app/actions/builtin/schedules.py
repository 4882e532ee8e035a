"""Built-in actions on schedules, webhooks and history, with the rights of the run."""

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from app.actions.catalog import Action, ActionFailedError, Skipped
from app.actions.context import ActionContext, RefusedError

Note = Annotated[str, msgspec.Meta(max_length=1000)]


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which schedule."""

    schedule_id: UUID
    note: Note = ""


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which schedule."""

    schedule_id: UUID


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the five tools, and with what."""

    tool: Literal["create_schedule", "pause_schedule", "resume_schedule", "stop_schedule", "list_schedules"]
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class ListArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to list."""

    status: Literal["active", "paused", "done", "dead"] | None = None
    workflow_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


async def pause(config: ScheduleConfig, context: ActionContext) -> Any:
    """Pause a schedule."""
    return await _asked(context, context.ports.schedules.pause(config.schedule_id, config.note))


async def resume(config: ScheduleConfig, context: ActionContext) -> Any:
    """Resume a schedule."""
    return await _asked(context, context.ports.schedules.resume(config.schedule_id, config.note))


async def run(config: RunConfig, context: ActionContext) -> Any:
    """Run a schedule now, beside its cadence."""
    return await _asked(context, context.ports.schedules.run(config.schedule_id))


async def use_tool(config: ToolsConfig, context: ActionContext) -> Any:
    """Create, pause, resume, stop or list schedules."""
    return await _asked(context, _TOOLS[config.tool](config.arguments, context))


async def _create(arguments: dict[str, Any], context: ActionContext) -> Any:
    return await context.ports.schedules.create(arguments)


async def _pause(arguments: dict[str, Any], context: ActionContext) -> Any:
    wanted = _read(arguments, ScheduleConfig)
    return await context.ports.schedules.pause(wanted.schedule_id, wanted.note)


async def _resume(arguments: dict[str, Any], context: ActionContext) -> Any:
    wanted = _read(arguments, ScheduleConfig)
    return await context.ports.schedules.resume(wanted.schedule_id, wanted.note)


async def _stop(arguments: dict[str, Any], context: ActionContext) -> Any:
    wanted = _read(arguments, RunConfig)
    await context.ports.schedules.stop(wanted.schedule_id)
    return {"stopped": str(wanted.schedule_id)}


async def _list(arguments: dict[str, Any], context: ActionContext) -> Any:
    wanted = _read(arguments, ListArguments)
    found = await context.ports.schedules.list(status=wanted.status, workflow_id=wanted.workflow_id, limit=wanted.limit)
    return {"schedules": found}


_TOOLS = {
    "create_schedule": _create,
    "pause_schedule": _pause,
    "resume_schedule": _resume,
    "stop_schedule": _stop,
    "list_schedules": _list,
}


def _read(arguments: dict[str, Any], wanted: Any) -> Any:
    try:
        return msgspec.convert(arguments, wanted)
    except msgspec.ValidationError as error:
        raise ActionFailedError(f"The arguments are not valid: {error}") from None


async def _asked(context: ActionContext, question: Any) -> Any:
    """What Carillon answers; what it refuses is a failure that says why."""
    context.require_lease()
    try:
        return await question
    except RefusedError as error:
        raise ActionFailedError(str(error)) from None


PAUSE = Action(name="core.schedules.pause", config=ScheduleConfig, handler=pause, scope="owner", retry_safe=False)
RESUME = Action(name="core.schedules.resume", config=ScheduleConfig, handler=resume, scope="owner", retry_safe=False)
RUN = Action(name="core.schedules.run", config=RunConfig, handler=run, scope="owner", retry_safe=False)
TOOLS = Action(name="scheduler_tools", config=ToolsConfig, handler=use_tool, scope="owner", retry_safe=False)


class PurgeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How old, and how many at the most."""

    older_than_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] = 30
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


async def purge_history(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete ended executions and ledger entries of the owner's schedules that are old."""
    context.require_lease()
    deleted = await context.ports.history.purge(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


async def purge_callbacks(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete the callbacks of the owner's executions that ended long ago."""
    context.require_lease()
    deleted = await context.ports.upkeep.purge_callbacks(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many at the most."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


async def retry_webhooks(config: RetryConfig, context: ActionContext) -> Any:
    """Try again to deliver the owner's notices that were given up."""
    context.require_lease()
    retried = await context.ports.upkeep.retry_deliveries(config.limit)
    return {"retried": retried} if retried else Skipped("Nothing was given up.")


async def purge_webhooks(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete old deliveries of the owner's notices that are over."""
    context.require_lease()
    deleted = await context.ports.upkeep.purge_deliveries(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


RETRY_WEBHOOKS = Action(name="core.webhooks.retry", config=RetryConfig, handler=retry_webhooks, scope="owner")
PURGE_WEBHOOKS = Action(name="core.webhooks.purge", config=PurgeConfig, handler=purge_webhooks, scope="owner")
PURGE_CALLBACKS = Action(name="core.callbacks.purge", config=PurgeConfig, handler=purge_callbacks, scope="owner")
PURGE_HISTORY = Action(name="core.history.purge", config=PurgeConfig, handler=purge_history, scope="owner")
