"""The fields of a schedule as people write them: their types with bounds, and the checks of several fields."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app.domain.cron_expression import LONGEST_EXPRESSION
from app.domain.limits import DEFAULT_CAPS
from app.domain.schedules import DEFAULTS, CatchUp, IfRunning

INT_MAX = 2**31 - 1

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Description = Annotated[str, Meta(max_length=10_000)]
NodeId = Annotated[str, Meta(min_length=1, max_length=255)]
NotNegative = Annotated[int, Meta(ge=0, le=INT_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT_MAX)]
Instant = Annotated[datetime, Meta(tz=True)]
Duration = Annotated[str, Meta(min_length=2, max_length=64, examples=["5m", "1.5h", "3d"])]
Every = Annotated[str, Meta(min_length=2, max_length=64, examples=["5m", "daily", "monthly"])]
Cron = Annotated[str, Meta(min_length=1, max_length=LONGEST_EXPRESSION, examples=["0 9 * * mon-fri", "@daily"])]
TimezoneName = Annotated[str, Meta(min_length=1, max_length=64, examples=["Europe/Berlin"])]
Window = Annotated[str, Meta(max_length=16, examples=["08:00-18:00"])]
Weekday = Annotated[int, Meta(ge=0, le=7)] | Annotated[str, Meta(max_length=16)]
Weekdays = Annotated[list[Weekday], Meta(max_length=50, examples=[["saturday", "sunday"]])]
# These bounds are the defaults. Settings can raise them, so the service checks them (``app.domain.limits``).
MaxRetries = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": DEFAULT_CAPS.max_retries})]
TimeoutSeconds = Annotated[int, Meta(ge=1, extra_json_schema={"maximum": DEFAULT_CAPS.timeout_seconds})]
Payload = Annotated[dict[str, Any], Meta(description=f"At most {DEFAULT_CAPS.payload_bytes} bytes of JSON.")]


class Input(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request; a field that is unknown or not writable is refused."""


class SpecInput(Input):
    """When a schedule is due: exactly one of the first five fields, and the fields that restrict it."""

    interval_seconds: Positive | None = None
    every: Every | None = None
    cron: Cron | None = None
    at: Instant | None = None
    after: Duration | None = None
    timezone: TimezoneName = DEFAULTS.timezone
    jitter_seconds: NotNegative = DEFAULTS.jitter_seconds
    only_between: Window | None = None
    not_on: Weekdays = msgspec.field(default_factory=list)
    start_at: Instant | None = None
    end_at: Instant | None = None


class ScheduleFields(SpecInput, kw_only=True):
    """All fields of a schedule but its workflow. The bounds are here, the defaults in the domain."""

    name: Name
    description: Description = DEFAULTS.description
    trigger_node_id: NodeId | None = DEFAULTS.trigger_node_id
    total_repeats: NotNegative = DEFAULTS.total_repeats
    max_retries: MaxRetries = DEFAULTS.max_retries
    backoff_base_seconds: Positive | None = DEFAULTS.backoff_base_seconds
    timeout_seconds: TimeoutSeconds = DEFAULTS.timeout_seconds
    catch_up: CatchUp = DEFAULTS.catch_up
    misfire_grace_seconds: NotNegative = DEFAULTS.misfire_grace_seconds
    if_running: IfRunning = DEFAULTS.if_running
    max_queued: NotNegative = DEFAULTS.max_queued
    trigger_payload: Payload = msgspec.field(default_factory=dict)


class ScheduleInput(ScheduleFields, kw_only=True):
    """A new schedule. Exactly one of interval_seconds, every, cron, at and after says when."""

    workflow_id: Positive
    # The id of the user who owns the workflow; required if that is another user. It is not stored.
    workflow_owner: Positive | None = None


def in_utc(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with every time in UTC, as times are stored and shown."""
    return {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in values.items()}
