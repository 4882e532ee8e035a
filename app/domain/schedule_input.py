"""The fields of a schedule as people write them: their types with bounds, and the checks of several fields."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from app.domain.calendars import MAX_NAMED
from app.domain.cron_expression import LONGEST_EXPRESSION
from app.domain.errors import FieldError, InvalidError
from app.domain.field_errors import EXPECTED
from app.domain.labels import Key, Labels
from app.domain.limits import DEFAULT_CAPS, Caps
from app.domain.permits import LimitName
from app.domain.rrule import LONGEST_RULE
from app.domain.schedules import DEFAULTS, CatchUp, IfRunning
from app.domain.specs import canonical, require_kind

INT_MAX = 2**31 - 1
# Wide enough for every plan, and so far from the ends of the calendar that no interval leaves it.
EARLIEST_YEAR, LATEST_YEAR = 1971, 2999

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern=r"\S",
        extra={EXPECTED: "a string of 1 to 255 characters that are not all white space"},
    ),
]
Description = Annotated[str, Meta(max_length=10_000)]
NodeId = Annotated[str, Meta(min_length=1, max_length=255)]
NotNegative = Annotated[int, Meta(ge=0, le=INT_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT_MAX)]
Instant = Annotated[datetime, Meta(tz=True)]
Duration = Annotated[str, Meta(min_length=2, max_length=64, examples=["5m", "1.5h", "3d"])]
Every = Annotated[str, Meta(min_length=2, max_length=64, examples=["5m", "daily", "monthly"])]
Cron = Annotated[str, Meta(min_length=1, max_length=LONGEST_EXPRESSION, examples=["0 9 * * mon-fri", "@daily"])]
RecurrenceRule = Annotated[
    str, Meta(min_length=1, max_length=LONGEST_RULE, examples=["FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9;BYMINUTE=0"])
]
TimezoneName = Annotated[str, Meta(min_length=1, max_length=64, examples=["Europe/Berlin"])]
Window = Annotated[str, Meta(max_length=16, examples=["08:00-18:00"])]
Weekday = Annotated[int, Meta(ge=0, le=7)] | Annotated[str, Meta(max_length=16)]
Weekdays = Annotated[list[Weekday], Meta(max_length=50, examples=[["saturday", "sunday"]])]
CalendarNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=120)]],
    Meta(max_length=MAX_NAMED, examples=[["company-holidays", "holidays:DE-BE"]]),
]
# These bounds are the defaults. Settings can raise them, so the service checks them (``app.domain.limits``).
MaxRetries = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": DEFAULT_CAPS.max_retries})]
TimeoutSeconds = Annotated[int, Meta(ge=1, extra_json_schema={"maximum": DEFAULT_CAPS.timeout_seconds})]
Payload = Annotated[dict[str, Any], Meta(description=f"At most {DEFAULT_CAPS.payload_bytes} bytes of JSON.")]


class Input(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request; a field that is unknown or not writable is refused."""

    # Fields that responses show and that nobody can write: the error must not say that they do not exist.
    READ_ONLY: ClassVar[frozenset[str]] = frozenset()


class SpecInput(Input):
    """When a schedule is due: exactly one of the first six fields, and the fields that restrict it."""

    interval_seconds: Positive | None = None
    every: Every | None = None
    cron: Cron | None = None
    rrule: RecurrenceRule | None = None
    at: Instant | None = None
    after: Duration | None = None
    timezone: TimezoneName = DEFAULTS.timezone
    jitter_seconds: NotNegative = DEFAULTS.jitter_seconds
    only_between: Window | None = None
    not_on: Weekdays = msgspec.field(default_factory=list)
    exclude_calendars: CalendarNames = msgspec.field(default_factory=list)
    only_calendars: CalendarNames = msgspec.field(default_factory=list)
    start_at: Instant | None = None
    end_at: Instant | None = None


class ScheduleFields(SpecInput, kw_only=True):
    """All fields of a schedule but its workflow. The bounds are here, the defaults in the domain."""

    READ_ONLY: ClassVar[frozenset[str]] = frozenset(
        {
            *("id", "user_profile_id", "owner_kind", "owner_id", "namespace", "lease_id", "workflow_name"),
            *("status", "status_reason", "health", "spec_description", "created_at", "updated_at"),
            *("current_repeat", "current_retry", "run_count", "error_count", "paused_until", "dead_at"),
            *("next_run_at", "next_slot", "last_run_at", "last_fired_at", "last_attempt_at", "last_outcome"),
            *("last_execution_id", "last_error", "last_error_at", "last_success_at", "last_success_execution_id"),
        }
    )

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
    delete_after_seconds: NotNegative | None = DEFAULTS.delete_after_seconds
    trigger_payload: Payload = msgspec.field(default_factory=dict)
    key: Key | None = DEFAULTS.key
    labels: Labels = msgspec.field(default_factory=dict)
    limit: LimitName | None = DEFAULTS.limit


class ScheduleInput(ScheduleFields, kw_only=True):
    """A new schedule. Exactly one of interval_seconds, every, cron, rrule, at and after says when."""

    workflow_id: Positive
    workflow_owner: Positive | None = None
    team_id: Positive | None = None


def stored_spec(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return given fields of a schedule, with those of its spec in the stored form.

    Raise ``InvalidError`` with what types cannot refuse: a bad cron expression, two kinds of spec, times outside the
    supported years, an end before the start.
    """
    require_years(given)
    start, end = given.get("start_at"), given.get("end_at")
    if start is not None and end is not None and end < start:
        raise InvalidError(FieldError("end_at", "The end must not be before start_at."))
    return canonical(_in_utc(given))


def new_schedule_errors(raw: Mapping[str, Any], caps: Caps, *, may_lack_kind: bool) -> list[FieldError]:
    """Return what is wrong with fields of a new schedule, given as JSON values of the right types."""
    fields = (field for field in msgspec.structs.fields(ScheduleInput) if field.name in raw)
    given = {field.name: msgspec.convert(raw[field.name], field.type) for field in fields}
    errors = caps.errors(given)
    try:
        stored = stored_spec(given)
        if not may_lack_kind:
            require_kind(stored)
    except InvalidError as error:
        errors += error.errors
    return errors


def require_years(values: Mapping[str, Any]) -> None:
    """Refuse times outside the years for which schedules are planned."""
    errors = [
        FieldError(name, f"The year must be between {EARLIEST_YEAR} and {LATEST_YEAR}.")
        for name, moment in values.items()
        if isinstance(moment, datetime) and not EARLIEST_YEAR <= moment.year <= LATEST_YEAR
    ]
    if errors:
        raise InvalidError(*errors)


def _in_utc(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with every time in UTC, as times are stored and shown."""
    return {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in values.items()}
