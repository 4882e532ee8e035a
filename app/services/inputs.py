"""The bodies of requests. Types carry the bounds; rules about several fields are checked by the services.

``app/api/field_descriptions.py`` says what each field means.
"""

import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.domain.access import TEAM_NAME_PATTERN, OwnerKind, Role, Scope, TeamRole, TokenKind
from app.domain.agent_leases import AtEnd, Review
from app.domain.calendars import MAX_DATES
from app.domain.errors import FieldError, InvalidError
from app.domain.field_errors import EXPECTED, read_as
from app.domain.health import Health
from app.domain.http_urls import HttpUrl, url_problem
from app.domain.icalendar import MAX_BYTES
from app.domain.identity_tokens import MOST_TOKEN_CHARACTERS
from app.domain.labels import MOST_LABELS, Key, LabelName, Labels
from app.domain.limits import MOST_SITEMAP_URLS, OwnQuotas
from app.domain.notifications import NoticeEvent
from app.domain.permits import LimitName, RateText
from app.domain.schedule_input import (
    INT_MAX,
    Cron,
    Input,
    Instant,
    MaxRetries,
    Name,
    NodeId,
    Payload,
    Positive,
    ScheduleFields,
    ScheduleInput,
    SpecInput,
    TimeoutSeconds,
    TimezoneName,
)
from app.domain.schedules import DEFAULTS, IfRunning, Reason, Status
from app.domain.secrets import NAME_PATTERN
from app.domain.skips import MOST_SKIPS
from app.domain.workflows import Edge
from app.persistence.schedule_filters import Kind

# The fields of a schedule are in the domain, because actions take them too. Other modules find all bodies here.
__all__ = ["INT_MAX", "Input", "Instant", "ScheduleInput", "SpecInput"]

# The ids that the database can assign.
IDS = range(1, INT_MAX + 1)
BATCH_MAX = 1000
FilterText = Annotated[str, Meta(max_length=255)]
LabelPair = Annotated[str, Meta(max_length=400, examples=["team=shop"])]
EXAMPLE_NODES = [
    {"id": "start", "type": "trigger_schedule"},
    {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/hook", "json": {"a": 1}}},
]


class Changes(Input):
    """New values for some fields of an object: read them with ``given``, as any of them may be UNSET."""


C = TypeVar("C", bound=Changes)


def optional_fields_of(form: type[Input], without: Collection[str] = ()) -> Callable[[type[C]], type[C]]:
    """Give a class of changes the fields of ``form``, none of them required: a PATCH takes what a POST takes."""
    optional = [
        (field.name, field.type | UnsetType, UNSET)
        for field in msgspec.structs.fields(form)
        if field.name not in without
    ]

    def with_fields(changes: type[C]) -> type[C]:
        named = {"__doc__": changes.__doc__, "__qualname__": changes.__qualname__}
        whole = msgspec.defstruct(
            changes.__name__, optional, bases=(changes,), module=changes.__module__, namespace=named, kw_only=True
        )
        return cast("type[C]", whole)

    return with_fields


class DeclaredScheduleInput(ScheduleFields, kw_only=True):
    """A schedule in a file: it refers to its workflow by name, and can be declared as paused."""

    workflow: Name
    paused: bool = False


@optional_fields_of(ScheduleInput, without=("team_id",))
class ScheduleChanges(Changes):
    """New values for some fields of a schedule; with `plan_id` only if it is as the plan found it."""

    plan_id: UUID | UnsetType = UNSET


@optional_fields_of(ScheduleInput, without=("team_id",))
class PlanInput(Changes):
    """New values for some fields of a schedule, to see what they would do in the next `days`."""

    days: Annotated[int, Meta(ge=1, le=366)] = 7


class ScheduleBatchInput(Input):
    """New schedules that are created together: all of them, or none."""

    schedules: Annotated[list[ScheduleInput], Meta(min_length=1, max_length=BATCH_MAX)]


class LooseScheduleBatch(Input):
    """The same batch with unchecked items, so that the errors of all items can be reported, not only the first."""

    schedules: Annotated[list[Any], Meta(min_length=1, max_length=BATCH_MAX)]


class ScheduleIdsInput(Input):
    """The schedules to delete."""

    schedule_ids: Annotated[list[UUID], Meta(max_length=BATCH_MAX)]


class BulkFilter(Input):
    """The schedules that an operation is about, by the filters of the list of schedules; without any, all of yours."""

    status: Status | None = None
    status_reason: Reason | None = None
    workflow_id: Positive | None = None
    owner_kind: OwnerKind | None = None
    owner_id: FilterText | None = None
    team_id: Positive | None = None
    q: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    label: Annotated[list[LabelPair], Meta(max_length=MOST_LABELS)] = msgspec.field(default_factory=list)
    health: Health | None = None
    namespace: FilterText | None = None
    target_host: FilterText | None = None
    kind: Kind | None = None
    ids: Annotated[list[UUID], Meta(max_length=BATCH_MAX)] | None = None


class LabelChanges(Input):
    """Labels that schedules get and lose."""

    add: Labels = msgspec.field(default_factory=dict)
    remove: Annotated[list[LabelName], Meta(max_length=MOST_LABELS)] = msgspec.field(default_factory=list)


@optional_fields_of(ScheduleInput, without=("team_id", "key", "workflow_id", "workflow_owner"))
class BulkFields(Changes):
    """New values for some fields of many schedules."""


class BulkArguments(Input):
    """What an action needs: `pause` takes `until`, `label` needs `labels`, `set` `fields`, `move` `workflow_id`."""

    until: Instant | None = None
    labels: LabelChanges | None = None
    fields: BulkFields | None = None
    workflow_id: Positive | None = None


class BulkInput(Input):
    """An operation on many schedules, which `ids` or `filter` names."""

    action: Literal["pause", "resume", "run", "revive", "delete", "label", "set", "move"]
    ids: Annotated[list[UUID], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    filter: BulkFilter | None = None
    arguments: BulkArguments = msgspec.field(default_factory=BulkArguments)
    note: Annotated[str, Meta(max_length=1000)] = ""
    dry_run: bool = False
    expect_count: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None

    def __post_init__(self) -> None:
        """Refuse both, and neither."""
        if (self.ids is None) == (self.filter is None):
            raise ValueError("Exactly one of `ids` and `filter` is needed.")


@optional_fields_of(ScheduleInput, without=("team_id",))
class ForecastSet(Changes):
    """New values for some fields of a schedule in a forecast."""


class ForecastChange(Input):
    """A change to lay over a forecast: of the schedule `id`, as a PATCH with `set` would make it, or a new `draft`."""

    id: UUID | None = None
    set: ForecastSet = msgspec.field(default_factory=ForecastSet)
    draft: ScheduleInput | None = None

    def __post_init__(self) -> None:
        """Refuse both, and neither."""
        if (self.id is None) == (self.draft is None):
            raise ValueError("Exactly one of `id` and `draft` is needed.")


class ForecastInput(Input, rename={"since": "from", "until": "to"}):
    """Which load to forecast."""

    since: Instant | None = None
    until: Instant | None = None
    bucket_seconds: Annotated[int, Meta(ge=1, le=31 * 86_400)] = 300
    by: Literal["schedule", "workflow", "owner", "host"] | None = None
    changes: Annotated[list[ForecastChange], Meta(max_length=BATCH_MAX)] = msgspec.field(default_factory=list)
    filter: BulkFilter | None = None


class SpreadInput(Input):
    """How far schedules may be moved to flatten peaks of load."""

    max_shift_seconds: Annotated[int, Meta(ge=1, le=86_400)]
    filter: BulkFilter | None = None
    by_jitter: bool = False


class Span(Input, rename={"since": "from", "until": "to"}):
    """A range of time; an end that is not given is open."""

    since: Instant | None = None
    until: Instant | None = None


class PreviewInput(SpecInput, kw_only=True):
    """A spec to describe: in words, with warnings and its next runs. Nothing is stored."""

    count: Annotated[int, Meta(ge=1, le=500)] = 10
    id: UUID | None = None
    timeout_seconds: Positive = DEFAULTS.timeout_seconds


class Moment(Input):
    """A point in time; without `at`, the present."""

    at: Instant | None = None


class RunInput(Input):
    """What a manual run does while another run is active; without `if_running`, as the schedule says."""

    if_running: IfRunning | UnsetType = UNSET


class NoteInput(Input):
    """An optional note for the history."""

    note: Annotated[str, Meta(max_length=1000)] = ""


class PauseInput(NoteInput):
    """When a pause ends by itself, if it does, and an optional note for the history."""

    until: Instant | None = None


class SkipInput(Input, rename={"since": "from", "until": "to"}):
    """Slots to come to leave out: these `slots`, the `next` ones, or those between `from` and `to`."""

    slots: Annotated[list[Instant], Meta(min_length=1, max_length=MOST_SKIPS)] | None = None
    next: Annotated[int, Meta(ge=1, le=MOST_SKIPS)] | None = None
    since: Instant | None = None
    until: Instant | None = None
    note: Annotated[str, Meta(max_length=1000)] = ""


class BackfillInput(Input, rename={"since": "from", "until": "to"}):
    """Past slots to run after all, from `from` to `to`, both included."""

    since: Instant | None = None
    until: Instant | None = None
    only: Literal["not_fired", "all"] = "not_fired"
    order: Literal["oldest", "newest"] = "oldest"
    max_concurrent: Annotated[int, Meta(ge=1, le=100)] = 1
    rate: Annotated[str, Meta(max_length=20)] | int | float | None = None
    dry_run: bool = False
    note: Annotated[str, Meta(max_length=1000)] = ""


class NodeInput(Input):
    """A node of a workflow."""

    id: NodeId
    type: Annotated[str, Meta(min_length=1, max_length=255)]
    config: dict[str, Any] = msgspec.field(default_factory=dict)


Nodes = Annotated[list[NodeInput], Meta(min_length=1, max_length=500, examples=[EXAMPLE_NODES])]
Edges = Annotated[list[Edge], Meta(max_length=5000, examples=[[{"from": "start", "to": "call"}]])]


class WorkflowFields(Input):
    """All fields of a workflow but its owner."""

    name: Name
    nodes: Nodes
    edges: Edges = msgspec.field(default_factory=list)
    active: bool = True
    max_concurrent_runs: Positive | None = None
    breaker_threshold: Positive | None = None
    breaker_reset_seconds: Positive | None = None
    key: Key | None = None
    labels: Labels = msgspec.field(default_factory=dict)
    limit: LimitName | None = None


class WorkflowInput(WorkflowFields, kw_only=True):
    """A new workflow."""

    team_id: Positive | None = None


# The history names "apply:" and the namespace as the author of changes by files.
Namespace = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$(?!\n)",
        extra={EXPECTED: "1 to 63 letters, digits, `_`, `.` and `-` that begin with a letter or a digit"},
    ),
]


@optional_fields_of(WorkflowFields)
class WorkflowChanges(Changes):
    """New values for some fields of a workflow."""


Minutes = Annotated[int, Meta(ge=1, le=525_600)]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Headers = Annotated[dict[str, Annotated[str, Meta(max_length=8000)]], Meta(max_length=100)]
Events = Annotated[list[NoticeEvent], Meta(min_length=1, max_length=20)]


class NotificationInput(Input):
    """A URL to notify of events; without a schedule and a workflow, of the events of all your objects."""

    url: HttpUrl
    events: Events = msgspec.field(default_factory=lambda: list(NoticeEvent))
    schedule_id: UUID | None = None
    workflow_id: Positive | None = None
    active: bool = True
    team_id: Positive | None = None


@optional_fields_of(NotificationInput, without=("schedule_id", "workflow_id", "team_id"))
class NotificationChanges(Changes):
    """New values for some fields of a notification."""


class WebhookInput(Input):
    """A URL to call regularly; exactly one of cron and interval_minutes says when."""

    url: HttpUrl
    name: Annotated[str, Meta(max_length=255)] = ""
    method: Method = "POST"
    headers: Headers = msgspec.field(default_factory=dict)
    payload: Payload = msgspec.field(default_factory=dict)
    cron: Cron | None = None
    interval_minutes: Minutes | None = None
    timezone: TimezoneName = "UTC"
    active: bool = True
    timeout_seconds: TimeoutSeconds = 600
    max_retries: MaxRetries = 3
    team_id: Positive | None = None


@optional_fields_of(WebhookInput, without=("team_id",))
class WebhookChanges(Changes):
    """New values for some fields of a webhook."""


class LimitFields(Input):
    """All fields of a limit but its owner."""

    name: LimitName
    max_concurrent: Positive | None = None
    rate: RateText | None = None
    burst: Positive | None = None
    public: bool = False


class LimitInput(LimitFields, kw_only=True):
    """A new limit: how many may be under way at once, how many may start in a time, or both."""

    team_id: Positive | None = None


@optional_fields_of(LimitInput, without=("name", "team_id"))
class LimitChanges(Changes):
    """New bounds of a limit."""


def require_limit_name(name: str) -> str:
    """Return the name if a limit can have it; refuse it otherwise."""
    return read_as(name, LimitName)


SECRET_NAME = "at most 100 letters, digits and `_`, without a digit in front"  # noqa: S105 - what a name may be
SecretName = Annotated[str, Meta(pattern=NAME_PATTERN, examples=["API_TOKEN"], extra={EXPECTED: SECRET_NAME})]
SecretValue = Annotated[str, Meta(min_length=1, max_length=16_384)]
AllowedHost = Annotated[str, Meta(min_length=1, max_length=300)]
AllowedHosts = Annotated[list[AllowedHost], Meta(max_length=100, examples=[["api.example.com", "*.example.org:8443"]])]
Sharing = Literal["all"] | Annotated[list[int], Meta(max_length=1000)]


class SecretInput(Input):
    """A new secret. It can be sent to `allowed_hosts` only: without any, to no host."""

    name: SecretName
    value: SecretValue
    allowed_hosts: AllowedHosts = msgspec.field(default_factory=list)
    shared_with: Sharing = msgspec.field(default_factory=list)
    team_id: Positive | None = None


@optional_fields_of(SecretInput, without=("name",))
class SecretChanges(Changes):
    """New values for some fields of a secret."""


CALENDAR_NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
CALENDAR_NAME = "1 to 100 letters, digits, `.`, `_` or `-`, the first a letter or a digit"
CalendarName = Annotated[
    str, Meta(pattern=rf"{CALENDAR_NAME_PATTERN}(?!\n)", examples=["company-holidays"], extra={EXPECTED: CALENDAR_NAME})
]
CalendarDates = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=60)]],
    Meta(max_length=MAX_DATES, examples=[["2026-12-25", "2026-12-24/2027-01-01", "--05-01"]]),
]


class CalendarFields(Input):
    """All fields of a calendar but its owner."""

    name: CalendarName
    timezone: TimezoneName = "UTC"
    dates: CalendarDates = msgspec.field(default_factory=list)
    ics: Annotated[str, Meta(max_length=MAX_BYTES)] | None = None
    holidays: Annotated[str, Meta(min_length=1, max_length=20, examples=["DE-BE"])] | None = None
    public: bool = False


class CalendarInput(CalendarFields, kw_only=True):
    """A new calendar. It has the dates, the events of the iCalendar file and the public holidays together."""

    team_id: Positive | None = None


@optional_fields_of(CalendarInput, without=("team_id",))
class CalendarChanges(Changes):
    """New values for some fields of a calendar."""


@optional_fields_of(CalendarInput, without=("team_id",))
class CalendarPlanInput(Changes):
    """New values for some fields of a calendar, to see what they would do to schedules in the next `days`."""

    days: Annotated[int, Meta(ge=1, le=366)] = 7


class DeclarationInput(Input):
    """One document of a file, with unchecked items."""

    namespace: Namespace
    calendars: list[Any] | None = None
    limits: list[Any] | None = None
    workflows: list[Any] | None = None
    schedules: list[Any] | None = None


class DeclaredDocument(Input):
    """The calendars, limits, workflows and schedules of a namespace."""

    namespace: Namespace
    calendars: list[CalendarFields] | None = None
    limits: list[LimitFields] | None = None
    workflows: list[WorkflowFields] | None = None
    schedules: list[DeclaredScheduleInput] | None = None


class DocumentsInput(Input):
    """Documents to apply, unchecked, so that all their errors can be reported: as JSON values, or as YAML text."""

    documents: Annotated[list[Any], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    yaml: Annotated[str, Meta(min_length=1)] | None = None
    dry_run: bool = False
    prune: bool = False

    def __post_init__(self) -> None:
        """Refuse both, and neither."""
        if (self.documents is None) == (self.yaml is None):
            raise ValueError("Exactly one of `documents` and `yaml` is needed.")


class ApplyInput(DocumentsInput):
    """Calendars, limits, workflows and schedules to create or change."""

    documents: Annotated[list[DeclaredDocument], Meta(min_length=1, max_length=BATCH_MAX)] | None = None


class CompletionInput(Input):
    """The result of work that was started by an earlier call."""

    status: Literal["success", "failed"]
    output: Any = None
    error: Annotated[str, Meta(max_length=2000)] = ""


class SettingsChanges(Changes):
    """New values for some settings."""

    schedules_enabled: bool | UnsetType = UNSET
    ping_sitemap_on_run: bool | UnsetType = UNSET
    sitemap_urls: Annotated[list[HttpUrl], Meta(max_length=MOST_SITEMAP_URLS)] | UnsetType | None = UNSET


# Python's ``$`` alone would accept a trailing line break.
Username = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,254}$(?!\n)",
        extra={EXPECTED: "1 to 255 letters, digits, `_`, `.`, `@` and `-` that begin with a letter or a digit"},
    ),
]


class UserInput(Input):
    """A new user."""

    username: Username
    role: Role = Role.MEMBER


class TeamInput(Input):
    """A new team."""

    name: Annotated[
        str,
        Meta(
            pattern=rf"^{TEAM_NAME_PATTERN}$(?!\n)",
            extra={
                EXPECTED: "1 to 200 letters, digits, spaces, `_`, `.`, `@` and `-` that begin with a letter or a digit"
            },
        ),
    ]


@optional_fields_of(TeamInput)
class TeamChanges(Changes):
    """New values for some fields of a team; only admins set quotas, and all of them at once."""

    quotas: OwnQuotas | UnsetType = UNSET


class MemberInput(Input):
    """A user who is to belong to a team: exactly one of user_id and username says which."""

    role: TeamRole
    user_id: Positive | None = None
    username: Username | None = None


@optional_fields_of(MemberInput, without=("user_id", "username"))
class MemberChanges(Changes):
    """New values for some fields of a member of a team."""


class RestrictionInput(Input):
    """The objects that a token is restricted to."""

    labels: Labels = msgspec.field(default_factory=dict)
    namespace: Namespace | None = None
    workflow_ids: Annotated[list[Positive], Meta(max_length=100)] = msgspec.field(default_factory=list)


class TokenInput(Input):
    """A new token. Without `scopes` it has those of the user's role, without `expires_at` it has no end."""

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4)] | None = None
    expires_at: Instant | None = None
    restrict: RestrictionInput | None = None
    kind: TokenKind = TokenKind.API


class SessionInput(Input):
    """What is exchanged for a session: a token, or a one-time code."""

    token: Annotated[str, Meta(min_length=1, max_length=MOST_TOKEN_CHARACTERS)] | None = None
    code: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class RotationInput(Input):
    """How much longer the old token is accepted."""

    grace_seconds: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 0


class UserChanges(Changes):
    """New values for some fields of a user; `schedules` says what becomes of the schedules of one who is disabled."""

    role: Role | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    schedules: Literal["keep", "pause"] | UnsetType = UNSET
    quotas: OwnQuotas | UnsetType = UNSET


def require_secret_name(name: str) -> str:
    """Return the name if a secret can have it; refuse it otherwise."""
    if not re.match(NAME_PATTERN, name):
        raise InvalidError(FieldError("name", f"Expected {SECRET_NAME}."))
    return name


def require_calendar_name(name: str) -> str:
    """Return the name if a calendar can have it; refuse it otherwise."""
    if not re.fullmatch(CALENDAR_NAME_PATTERN[1:-1], name):
        raise InvalidError(FieldError("name", f"Expected {CALENDAR_NAME}."))
    return name


def require_url(url: str, field: str = "url") -> None:
    """Refuse a URL that cannot be called."""
    problem = url_problem(url)
    if problem:
        raise InvalidError(FieldError(field, problem))


def given(changes: Changes) -> dict[str, Any]:
    """Return the fields that a caller has set."""
    return {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}


class LeaseFields(Input, kw_only=True):
    """The terms of a lease. The bounds are those of the whole lease, not of each schedule."""

    purpose: Annotated[str, Meta(max_length=2000)] = ""
    expires_at: Instant
    max_schedules: Annotated[int, Meta(ge=0, le=100_000)] = 10
    max_runs: Annotated[int, Meta(ge=0, le=INT_MAX)] = 1000
    max_retries: Annotated[int, Meta(ge=0, le=1000)] = 3
    min_interval_seconds: Annotated[int, Meta(ge=1, le=INT_MAX)] = 1
    max_writes: Annotated[int, Meta(ge=0, le=INT_MAX)] = 0
    workflows: Annotated[list[Positive], Meta(max_length=500)] = msgspec.field(default_factory=list)
    review: Review = Review.NONE
    at_end: AtEnd = AtEnd.PAUSE


class LeaseInput(LeaseFields, kw_only=True):
    """A new lease: this agent may make so much, until then."""

    agent: Annotated[
        str,
        Meta(
            pattern=rf"^{TEAM_NAME_PATTERN}$(?!\n)",
            extra={
                EXPECTED: "1 to 200 letters, digits, spaces, `_`, `.`, `@` and `-` that begin with a letter or a digit"
            },
        ),
    ]
    user_id: Positive | None = None


@optional_fields_of(LeaseFields)
class LeaseChanges(Changes):
    """New terms of a lease."""


class AdoptInput(Input):
    """The schedules that leave their lease; without `schedule_ids` all of them."""

    schedule_ids: Annotated[list[UUID], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    note: Annotated[str, Meta(max_length=2000)] = ""


class ApproveInput(Input):
    """The schedules that are approved; without `schedule_ids` all of the lease that await review."""

    schedule_ids: Annotated[list[UUID], Meta(min_length=1, max_length=BATCH_MAX)] | None = None
    note: Annotated[str, Meta(max_length=1000)] = ""
