"""Built-in actions without side effects outside: wait, do nothing, write a log line, fail."""

import asyncio
from types import NoneType
from typing import Annotated, Any, Literal

import msgspec
import structlog

from app.actions.catalog import Action, ActionFailedError, Sleeping
from app.actions.context import ActionContext

# Parking a run and resuming it costs two transactions, which is not worth it for shorter delays.
SHORT_SECONDS = 1.0
# How the palette shows these actions.
CATEGORY = "Flow"
COLOR = "#475569"
ALERTING_LEVELS = frozenset({"warning", "error"})

log = structlog.get_logger(__name__)


class DelayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400 * 366)]


class NoopConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text for readers of the workflow: what the node stands for."""

    description: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class FailConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of the failure."""

    message: Annotated[str, msgspec.Meta(max_length=1000)] = "This always fails."


class LogConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of the log line, and its level."""

    message: Annotated[str, msgspec.Meta(max_length=10_000)]
    level: Literal["debug", "info", "warning", "error"] = "info"


class DelayOutput(msgspec.Struct):
    """How long it waited."""

    seconds: float


class LogOutput(msgspec.Struct):
    """The text of the log line."""

    message: str


async def delay(config: DelayConfig, _context: ActionContext) -> Any:
    """Wait; a delay of more than a second parks the run, so that it does not occupy a worker."""
    output = {"seconds": config.seconds}
    if config.seconds > SHORT_SECONDS:
        return Sleeping(config.seconds, output)
    await asyncio.sleep(config.seconds)
    return output


class NoopOutput(msgspec.Struct):
    """The output of ``core.noop`` with a description."""

    description: str


async def noop(config: NoopConfig, _context: ActionContext) -> Any:
    """Do nothing; the description, if there is one, is the output."""
    return {"description": config.description} if config.description else None


async def fail(config: FailConfig, _context: ActionContext) -> Any:
    """Fail with the configured text."""
    raise ActionFailedError(config.message)


async def write_log(config: LogConfig, context: ActionContext) -> Any:
    """Write a log line, without the secrets of the run."""
    fields = {} if context.scheduled_job_id is None else {"schedule": str(context.scheduled_job_id)}
    level = config.level
    if level in ALERTING_LEVELS and not context.acts_for_admin:
        # Operators are alerted by these levels: a member could wake them up, or hide an attack among false alarms.
        fields["wanted_level"], level = level, "info"
    getattr(log, level)(
        "workflow_logged", words=context.hidden(config.message), **fields, execution=str(context.execution_id)
    )
    return {"message": config.message}


DELAY = Action(
    name="core.delay",
    title="Wait",
    description="Wait for some seconds.",
    category=CATEGORY,
    icon="timer",
    color=COLOR,
    config=DelayConfig,
    handler=delay,
    outputs=DelayOutput,
)
NOOP = Action(
    name="core.noop",
    title="Do nothing",
    description="Do nothing.",
    category=CATEGORY,
    icon="circle-dashed",
    color=COLOR,
    config=NoopConfig,
    handler=noop,
    instant=True,
    pure=True,
    outputs=(NoopOutput, NoneType),
)
# It never has an output.
FAIL = Action(
    name="core.fail",
    title="Fail",
    description="Fail, to try out how failures are handled.",
    category=CATEGORY,
    icon="circle-x",
    color="#b91c1c",
    config=FailConfig,
    handler=fail,
    instant=True,
)
LOG = Action(
    name="core.log",
    title="Write to the log",
    description="Write a line to the worker's log.",
    category=CATEGORY,
    icon="scroll-text",
    color=COLOR,
    config=LogConfig,
    handler=write_log,
    instant=True,
    outputs=LogOutput,
)
