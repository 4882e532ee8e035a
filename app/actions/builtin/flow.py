"""Actions that call nobody: wait, do nothing, say something, fail."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import structlog

from app.actions.catalog import Action, ActionFailedError, Sleeping
from app.actions.context import ActionContext

# Putting a run aside and starting it again costs two transactions: not worth it for less.
SHORT_SECONDS = 1.0
ALARMING = frozenset({"warning", "error"})

log = structlog.get_logger(__name__)


class DelayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400 * 366)]


class NoopConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to set."""


class FailConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to fail with."""

    message: Annotated[str, msgspec.Meta(max_length=1000)] = "This always fails."


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to say, and how loudly."""

    message: Annotated[str, msgspec.Meta(max_length=10_000)]
    level: Literal["debug", "info", "warning", "error"] = "info"


async def delay(config: DelayConfig, _context: ActionContext) -> Any:
    """Wait for some seconds."""
    output = {"seconds": config.seconds}
    if config.seconds > SHORT_SECONDS:
        return Sleeping(config.seconds, output)
    await asyncio.sleep(config.seconds)
    return output


async def noop(_config: NoopConfig, _context: ActionContext) -> Any:
    """Do nothing."""
    return None


async def fail(config: FailConfig, _context: ActionContext) -> Any:
    """Fail, for trying things out."""
    raise ActionFailedError(config.message)


async def say(config: LogConfig, context: ActionContext) -> Any:
    """Write a line into the worker's log."""
    fields = {} if context.scheduled_job_id is None else {"schedule": str(context.scheduled_job_id)}
    level = config.level
    if level in ALARMING and not context.acts_for_admin:
        # Operators are alerted by these levels: a member could keep them awake, or hide an attack among false alarms.
        fields["wanted_level"], level = level, "info"
    getattr(log, level)(
        "workflow_says", words=context.hidden(config.message), **fields, execution=str(context.execution_id)
    )
    return {"message": config.message}


DELAY = Action(name="core.delay", config=DelayConfig, handler=delay)
NOOP = Action(name="core.noop", config=NoopConfig, handler=noop, instant=True)
FAIL = Action(name="core.fail", config=FailConfig, handler=fail, instant=True)
LOG = Action(name="core.log", config=LogConfig, handler=say, instant=True)
