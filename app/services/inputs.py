"""What callers hand in. The types carry the bounds; what needs more than one field is checked by the use case."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from yarl import URL

from app.domain.access import Role
from app.domain.cron_expression import LONGEST_EXPRESSION
from app.domain.errors import FieldError, InvalidError
from app.domain.limits import DEFAULT_CAPS
from app.domain.notifications import NoticeEvent
from app.domain.schedules import CatchUp, IfRunning
from app.domain.secrets import NAME_PATTERN
from app.domain.workflows import Edge

INT_MAX = 2**31 - 1
# What the database can number.
IDS = range(1, INT_MAX + 1)
BATCH_MAX = 1000
EXAMPLE_NODES = [
    {"id": "start", "type": "trigger_schedule"},
    {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/hook", "json": {"a": 1}}},
]

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
# These bounds are the defaults: settings can raise them, so it is the use case that refuses (``app.domain.limits``).
MaxRetries = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": DEFAULT_CAPS.max_retries})]
TimeoutSeconds = Annotated[int, Meta(ge=1, extra_json_schema={"maximum": DEFAULT_CAPS.timeout_seconds})]
Payload = Annotated[dict[str, Any], Meta(description=f"At most {DEFAULT_CAPS.payload_bytes} bytes of JSON.")]


class Input(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body; a field that is not known, or not writable, is refused."""


class SpecInput(Input):
    """When: exactly one of the first five, and what narrows it down."""

    interval_seconds: Positive | None = None
    every: Every | None = None
    cron: Cron | None = None
    at: Instant | None = None
    after: Duration | None = None
    timezone: TimezoneName = "UTC"
    jitter_seconds: NotNegative = 0
    only_between: Window | None = None
    not_on: Weekdays = msgspec.field(default_factory=list)
    start_at: Instant | None = None
    end_at: Instant | None = None


class ScheduleFields(SpecInput, kw_only=True):
    """All that is said of a schedule, but what it runs."""

    name: Name
    description: Description = ""
    trigger_node_id: NodeId | None = None
    total_repeats: NotNegative = 0
    max_retries: MaxRetries = 3
    backoff_base_seconds: Positive | None = None
    timeout_seconds: TimeoutSeconds = 600
    catch_up: CatchUp = CatchUp.SKIP
    misfire_grace_seconds: NotNegative = 60
    if_running: IfRunning = IfRunning.SKIP
    max_queued: NotNegative = 1
    trigger_payload: Payload = msgspec.field(default_factory=dict)


class ScheduleInput(ScheduleFields, kw_only=True):
    """A new schedule. Exactly one of interval_seconds, every, cron, at and after says when."""

    workflow_id: Positive
    # The id of the user who owns the workflow; needed for one of somebody else. It is not stored.
    workflow_owner: Positive | None = None


class DeclaredScheduleInput(ScheduleFields, kw_only=True):
    """A schedule in a file: it names its workflow, and may say that it is paused."""

    workflow: Name
    paused: bool = False


class ScheduleChanges(Input):
    """New values for some fields of a schedule."""

    name: Name | UnsetType = UNSET
    workflow_id: Positive | UnsetType = UNSET
    workflow_owner: Positive | UnsetType | None = UNSET
    interval_seconds: Positive | UnsetType | None = UNSET
    every: Every | UnsetType | None = UNSET
    cron: Cron | UnsetType | None = UNSET
    at: Instant | UnsetType | None = UNSET
    after: Duration | UnsetType | None = UNSET
    timezone: TimezoneName | UnsetType = UNSET
    jitter_seconds: NotNegative | UnsetType = UNSET
    only_between: Window | UnsetType | None = UNSET
    not_on: Weekdays | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    trigger_node_id: NodeId | UnsetType | None = UNSET
    start_at: Instant | UnsetType | None = UNSET
    end_at: Instant | UnsetType | None = UNSET
    total_repeats: NotNegative | UnsetType = UNSET
    max_retries: MaxRetries | UnsetType = UNSET
    backoff_base_seconds: Positive | UnsetType | None = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    misfire_grace_seconds: NotNegative | UnsetType = UNSET
    if_running: IfRunning | UnsetType = UNSET
    max_queued: NotNegative | UnsetType = UNSET
    trigger_payload: Payload | UnsetType = UNSET


class ScheduleBatchInput(Input):
    """Many new schedules, all or none."""

    schedules: Annotated[list[ScheduleInput], Meta(min_length=1, max_length=BATCH_MAX)]


class LooseScheduleBatch(Input):
    """The same before its items are looked at, so that every bad one can be named, not only the first."""

    schedules: Annotated[list[Any], Meta(min_length=1, max_length=BATCH_MAX)]


class ScheduleIdsInput(Input):
    """The schedules to delete."""

    schedule_ids: Annotated[list[UUID], Meta(max_length=BATCH_MAX)]


class Span(Input, rename={"since": "from", "until": "to"}):
    """A stretch of time, open where nothing is given."""

    since: Instant | None = None
    until: Instant | None = None


class PreviewInput(SpecInput, kw_only=True):
    """A spec to look at: how it reads, what surprises it holds, and its next runs. Nothing is stored."""

    count: Annotated[int, Meta(ge=1, le=500)] = 10
    # Of an existing schedule, for its jitter; where the spec is its own, for its phase too.
    id: UUID | None = None
    timeout_seconds: Positive = 600


class Moment(Input):
    """A point in time; now, if none is given."""

    at: Instant | None = None


class RunInput(Input):
    """How a manual run behaves while another one is under way; without it, as the schedule says."""

    if_running: IfRunning | UnsetType = UNSET


class NoteInput(Input):
    """An optional remark."""

    note: Annotated[str, Meta(max_length=1000)] = ""


class NodeInput(Input):
    """A node as it comes in."""

    id: NodeId
    type: Annotated[str, Meta(min_length=1, max_length=255)]
    config: dict[str, Any] = msgspec.field(default_factory=dict)


Nodes = Annotated[list[NodeInput], Meta(min_length=1, max_length=500, examples=[EXAMPLE_NODES])]
Edges = Annotated[list[Edge], Meta(max_length=5000, examples=[[{"from": "start", "to": "call"}]])]


class WorkflowInput(Input):
    """A new workflow."""

    name: Name
    nodes: Nodes
    edges: Edges = msgspec.field(default_factory=list)
    active: bool = True
    max_concurrent_runs: Positive | None = None
    breaker_threshold: Positive | None = None
    breaker_reset_seconds: Positive | None = None


# A label; in a history its changes are said to be by "apply:" and this.
Namespace = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$(?!\n)")]


class DeclarationInput(Input):
    """A document of a file, before its items are looked at one by one."""

    namespace: Namespace
    workflows: list[Any] | None = None
    schedules: list[Any] | None = None


class WorkflowChanges(Input):
    """New values for some fields of a workflow."""

    name: Name | UnsetType = UNSET
    nodes: Nodes | UnsetType = UNSET
    edges: Edges | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    max_concurrent_runs: Positive | UnsetType | None = UNSET
    breaker_threshold: Positive | UnsetType | None = UNSET
    breaker_reset_seconds: Positive | UnsetType | None = UNSET


Url = Annotated[str, Meta(pattern=r"^https?://[^\s/]+", max_length=2000, examples=["https://example.com/hook"])]
Minutes = Annotated[int, Meta(ge=1, le=525_600)]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Headers = Annotated[dict[str, Annotated[str, Meta(max_length=8000)]], Meta(max_length=100)]
Events = Annotated[list[NoticeEvent], Meta(min_length=1, max_length=20)]


class NotificationInput(Input):
    """Whom to tell of what; without a schedule and a workflow, of all that is yours."""

    url: Url
    events: Events = msgspec.field(default_factory=lambda: list(NoticeEvent))
    schedule_id: UUID | None = None
    workflow_id: Positive | None = None
    active: bool = True


class NotificationChanges(Input):
    """New values for some fields of a notification."""

    url: Url | UnsetType = UNSET
    events: Events | UnsetType = UNSET
    active: bool | UnsetType = UNSET


class WebhookInput(Input):
    """An address to call at its times; exactly one of cron and interval_minutes says when."""

    url: Url
    name: Annotated[str, Meta(max_length=255)] = ""
    method: Method = "POST"
    headers: Headers = msgspec.field(default_factory=dict)
    # What is sent; without one, the event.
    payload: Payload = msgspec.field(default_factory=dict)
    cron: Cron | None = None
    interval_minutes: Minutes | None = None
    timezone: TimezoneName = "UTC"
    active: bool = True
    timeout_seconds: TimeoutSeconds = 600
    max_retries: MaxRetries = 3


class WebhookChanges(Input):
    """New values for some fields of a webhook."""

    url: Url | UnsetType = UNSET
    name: Annotated[str, Meta(max_length=255)] | UnsetType = UNSET
    method: Method | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    payload: Payload | UnsetType = UNSET
    cron: Cron | UnsetType | None = UNSET
    interval_minutes: Minutes | UnsetType | None = UNSET
    timezone: TimezoneName | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType = UNSET
    max_retries: MaxRetries | UnsetType = UNSET


SecretName = Annotated[str, Meta(pattern=NAME_PATTERN, examples=["API_TOKEN"])]
SecretValue = Annotated[str, Meta(min_length=1, max_length=16_384)]
AllowedHost = Annotated[str, Meta(min_length=1, max_length=300)]
AllowedHosts = Annotated[list[AllowedHost], Meta(max_length=100, examples=[["api.example.com", "*.example.org:8443"]])]
Sharing = Literal["all"] | Annotated[list[int], Meta(max_length=1000)]


class SecretInput(Input):
    """A new secret. Without allowed_hosts it can be sent nowhere."""

    name: SecretName
    value: SecretValue
    allowed_hosts: AllowedHosts = msgspec.field(default_factory=list)
    shared_with: Sharing = msgspec.field(default_factory=list)


class SecretChanges(Input):
    """New values for some fields of a secret."""

    value: SecretValue | UnsetType = UNSET
    allowed_hosts: AllowedHosts | UnsetType = UNSET
    shared_with: Sharing | UnsetType = UNSET


class CompletionInput(Input):
    """How work ended that was started earlier."""

    status: Literal["success", "failed"]
    output: Any = None
    error: Annotated[str, Meta(max_length=2000)] = ""


class SettingsChanges(Input):
    """What to turn."""

    schedules_enabled: bool | UnsetType = UNSET


class UserInput(Input):
    """A new user."""

    # Python's ``$`` alone would let a line break follow.
    username: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,254}$(?!\n)")]
    role: Role = Role.MEMBER


class TokenInput(Input):
    """A new token."""

    name: Name


def require_secret_name(name: str) -> str:
    """A name that a secret can have; no other is there."""
    if not re.match(NAME_PATTERN, name):
        raise InvalidError(FieldError("name", "Use at most 100 letters, digits and `_`, without a digit in front."))
    return name


def require_host(url: str) -> None:
    """A URL that leads somewhere."""
    try:
        host = URL(url).host
    except ValueError:
        host = None
    if not host:
        raise InvalidError(FieldError("url", "The URL has no host."))


def in_utc(values: dict[str, Any]) -> dict[str, Any]:
    """The same values with every instant in UTC, as all are stored and shown."""
    return {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in values.items()}


def given(changes: Input) -> dict[str, Any]:
    """The fields that a caller set."""
    return {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
