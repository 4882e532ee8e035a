"""What an action gets: the context of its run, and the ports through which it may use Carillon."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.actions.http_client import HttpCaller, OwnersCaller, Sender
from app.actions.secrets import BoundCaller, RunSecrets
from app.domain.permits import LimitOfCall
from app.domain.plugin_schedules import EnsureMode
from app.domain.run_ids import idempotency_key, message_id
from app.domain.schedules import DEFAULTS, CatchUp, IfRunning


class SchedulesPort(Protocol):
    """The schedules that the owner of the running schedule may see and change."""

    async def create(self, values: dict[str, Any]) -> dict[str, Any]:
        """Create a schedule from the fields of the API."""

    async def list(self, *, status: str | None, workflow_id: int | None, limit: int) -> list[dict[str, Any]]:
        """Return schedules, newest first."""

    async def pause(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        """Pause a schedule until it is resumed."""

    async def resume(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        """Resume a schedule."""

    async def run(self, schedule_id: UUID) -> dict[str, Any]:
        """Run a schedule now; return the execution."""

    async def stop(self, schedule_id: UUID) -> None:
        """Delete a schedule."""


class HistoryPort(Protocol):
    """The history of the owner's schedules."""

    async def purge(self, older_than: timedelta, limit: int) -> int:
        """Delete ended executions and ledger entries older than this; return how many."""


class Invitation(msgspec.Struct, frozen=True):
    """The URL to which a target reports its result later, and the token that it needs."""

    url: str
    token: str


class CallbackPort(Protocol):
    """The callback of the node that runs."""

    async def invite(self) -> Invitation:
        """Create a callback before the call is made."""

    async def withdraw(self) -> None:
        """Delete the callback, because the target answered at once."""


class TokenPort(Protocol):
    """The tokens that the calls of a node can carry."""

    async def mint(self, audience: str) -> str:
        """Return a token for one call to this audience; ``NoIssuerError`` if Carillon issues none."""


class NoIssuerError(Exception):
    """Carillon issues no tokens, because targets would not know where to find its keys."""

    code = "no_issuer"

    def __init__(self) -> None:
        """Say what to do."""
        super().__init__(NO_ISSUER)


NO_ISSUER = (
    "`auth.oidc` needs CARILLON_PUBLIC_URL, the issuer of the tokens, and it is not set. Set it for all processes."
)


class NoTokens:
    """The tokens of a process without an issuer."""

    async def mint(self, audience: str) -> str:  # noqa: ARG002 - the port's parameter
        """Refuse."""
        raise NoIssuerError


class CallLimitPort(Protocol):
    """The limit that the call of a node names, and the quota of calls of the run's owner."""

    @property
    def has_quota(self) -> bool:
        """Return whether the owner of the run may make so many calls in a second."""

    async def enter(self, limit: LimitOfCall | None) -> bool:
        """Return whether the call may be made now; False if it has to wait longer than a moment.

        Raise ``RefusedError`` if the owner of the workflow has no such limit.
        """

    async def leave(self) -> None:
        """Return the permit after the call."""


class NoLimit:
    """The limit of a node outside of a run: every use is refused."""

    has_quota = False

    async def enter(self, limit: LimitOfCall | None) -> bool:
        """Refuse."""
        raise RefusedError(f"The limit '{limit.name if limit else ''}' can only be used in a run.")

    async def leave(self) -> None:
        """Do nothing."""


class UpkeepPort(Protocol):
    """Other old rows of the owner."""

    async def purge_callbacks(self, older_than: timedelta, limit: int) -> int:
        """Delete the callbacks of executions that ended longer ago; return how many."""

    async def retry_deliveries(self, limit: int) -> int:
        """Retry failed deliveries; return how many."""

    async def purge_deliveries(self, older_than: timedelta, limit: int) -> int:
        """Delete old finished deliveries; return how many."""


class PluginScheduleInput(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule for a plugin: an action, and when to run it. Names are unique within the plugin.

    The fields are those of a schedule in the API, where ``payload`` is ``trigger_payload``. Its workflow is made from
    ``action`` and ``config``. Once somebody has deleted the schedule, ``ensure`` creates it again only for a higher
    ``version``.
    """

    name: str
    action: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    version: int = 1
    description: str = DEFAULTS.description
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    interval_seconds: float | None = None
    every: str | None = None
    cron: str | None = None
    rrule: str | None = None
    at: datetime | None = None
    after: str | None = None
    timezone: str = DEFAULTS.timezone
    jitter_seconds: int = DEFAULTS.jitter_seconds
    only_between: str | None = DEFAULTS.only_between
    not_on: Sequence[str | int] = DEFAULTS.not_on
    exclude_calendars: Sequence[str] = DEFAULTS.exclude_calendars
    only_calendars: Sequence[str] = DEFAULTS.only_calendars
    start_at: datetime | None = DEFAULTS.start_at
    end_at: datetime | None = DEFAULTS.end_at
    total_repeats: int = DEFAULTS.total_repeats
    max_retries: int = DEFAULTS.max_retries
    backoff_base_seconds: int | None = DEFAULTS.backoff_base_seconds
    timeout_seconds: int = DEFAULTS.timeout_seconds
    catch_up: CatchUp = DEFAULTS.catch_up
    misfire_grace_seconds: int = DEFAULTS.misfire_grace_seconds
    if_running: IfRunning = DEFAULTS.if_running
    max_queued: int = DEFAULTS.max_queued
    delete_after_seconds: int | None = DEFAULTS.delete_after_seconds
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    limit: str | None = DEFAULTS.limit


class PluginScheduleChanges(msgspec.Struct, frozen=True, kw_only=True):
    """New values for some fields of ``PluginScheduleInput``; ``action`` and ``version`` cannot be changed."""

    name: str | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    interval_seconds: float | UnsetType = UNSET
    every: str | UnsetType = UNSET
    cron: str | UnsetType = UNSET
    rrule: str | UnsetType = UNSET
    at: datetime | UnsetType = UNSET
    after: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    jitter_seconds: int | UnsetType = UNSET
    only_between: str | UnsetType | None = UNSET
    not_on: Sequence[str | int] | UnsetType = UNSET
    exclude_calendars: Sequence[str] | UnsetType = UNSET
    only_calendars: Sequence[str] | UnsetType = UNSET
    start_at: datetime | UnsetType | None = UNSET
    end_at: datetime | UnsetType | None = UNSET
    total_repeats: int | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    backoff_base_seconds: int | UnsetType | None = UNSET
    timeout_seconds: int | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    misfire_grace_seconds: int | UnsetType = UNSET
    if_running: IfRunning | UnsetType = UNSET
    max_queued: int | UnsetType = UNSET
    delete_after_seconds: int | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    limit: str | UnsetType | None = UNSET


class PluginSchedule(PluginScheduleInput, frozen=True, kw_only=True):
    """The current state of a plugin's schedule: its fields as they are, and what became of it.

    ``interval_seconds`` is set for every even interval, also for one that was given as ``every``. ``version`` is that
    of the last ``ensure``.
    """

    id: UUID
    workflow_id: int
    status: str
    status_reason: str
    next_run_at: datetime | None
    run_count: int
    error_count: int
    current_repeat: int
    current_retry: int
    last_error: str
    last_error_at: datetime | None
    last_outcome: str | None
    last_attempt_at: datetime | None
    last_execution_id: UUID | None
    last_success_at: datetime | None


class PluginRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a plugin has started by hand."""

    id: UUID
    status: str


class PluginSchedulesPort(Protocol):
    """The schedules of one plugin; it has no access to others. Errors are raised as ``RefusedError``."""

    async def create(self, wanted: PluginScheduleInput) -> PluginSchedule:
        """Create a schedule."""

    async def ensure(self, wanted: PluginScheduleInput, mode: EnsureMode = EnsureMode.ADOPT) -> PluginSchedule | None:
        """Create the schedule of this name, or change it where it differs and ``mode`` allows it.

        None if somebody has deleted it and ``mode`` leaves it deleted. A pause is never lifted.
        """

    async def list(self) -> list[PluginSchedule]:
        """Return all schedules of the plugin, newest first."""

    async def get(self, schedule_id: UUID) -> PluginSchedule:
        """Return a schedule."""

    async def find(self, name: str) -> PluginSchedule | None:
        """Return the schedule that the plugin has asked for under a name, also if it was renamed; or None."""

    async def update(self, schedule_id: UUID, changes: PluginScheduleChanges) -> PluginSchedule:
        """Change some fields of a schedule."""

    async def pause(self, schedule_id: UUID, note: str = "") -> PluginSchedule:
        """Stop an active schedule from firing."""

    async def resume(self, schedule_id: UUID, note: str = "") -> PluginSchedule:
        """Let a paused schedule fire again."""

    async def revive(self, schedule_id: UUID) -> PluginSchedule:
        """Make a dead schedule active again."""

    async def run(self, schedule_id: UUID, if_running: IfRunning | None = None) -> PluginRun:
        """Start a run now; ``if_running`` overrides that of the schedule."""

    async def delete(self, schedule_id: UUID) -> None:
        """Delete a schedule and its history. The plugin can ask for it again."""


class Ports(Protocol):
    """The ports of one owner."""

    schedules: SchedulesPort
    history: HistoryPort
    upkeep: UpkeepPort


class RefusedError(Exception):
    """Carillon refused what an action asked for; the message says why, for people."""

    code = "refused"


class NoPorts:
    """The ports of an action with the scope ``external``: every use is refused."""

    def __getattr__(self, name: str) -> Any:
        """Refuse the use of a port."""
        raise RefusedError(f"An action needs the scope 'owner' to use '{name}'. Declare it: Action(scope=\"owner\").")


class LeaseLostError(Exception):
    """This worker's lease has expired. Another worker may be doing the same work, so nothing more is sent."""

    code = "lease_lost"


class ActionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one node in one execution."""

    execution_id: UUID
    # The schedule that fired; for an entity None, and ``entity`` has its type and id.
    scheduled_job_id: UUID | None
    entity: str | None = None
    slot: datetime
    attempt: int
    event: Mapping[str, Any]
    # The schedule or entity that fires, and the node of its workflow.
    source: str
    node_id: str
    # Whether the run has the rights of an admin.
    acts_for_admin: bool = False
    caller: HttpCaller | BoundCaller
    # The owner whose key signs outgoing calls.
    sender: Sender
    ports: Ports
    # The schedules of the plugin that provides the action.
    plugin: PluginSchedulesPort
    callback: CallbackPort
    tokens: TokenPort = NoTokens()
    limit: CallLimitPort = NoLimit()
    lease_holds: Callable[[], bool]
    secrets: RunSecrets
    # Whether this node got secrets: then parts of its URL may be secret.
    was_shown_secrets: bool = False

    @property
    def idempotency_key(self) -> str:
        """Return the key by which a target recognises a repetition: the same for all attempts of a slot's node."""
        return idempotency_key(self.source, self.slot, self.node_id)

    @property
    def message_id(self) -> str:
        """Return the ``webhook-id`` of outgoing calls, which is signed and names the run."""
        return message_id(self.execution_id, self.node_id, self.attempt)

    @property
    def http(self) -> OwnersCaller:
        """Return the HTTP client, which signs calls for the sender and names this run in them."""
        return OwnersCaller(self.caller, self.sender, self.message_id)

    def hidden(self, value: Any) -> Any:
        """Return a JSON value without the secrets that this run has used; for everything that is logged or stored."""
        return self.secrets.hidden(value)

    async def with_secrets(self, names: frozenset[str]) -> tuple["ActionContext", dict[str, str]]:
        """Return a context that can call only the allowed hosts of these secrets, and the secrets' values."""
        shown = await self.secrets.show(names)
        bound = BoundCaller(self.caller, shown, self.hidden)
        values = {secret.name: secret.value for secret in shown}
        return msgspec.structs.replace(self, caller=bound, was_shown_secrets=True), values

    def require_lease(self) -> None:
        """Raise ``LeaseLostError`` if the lease has expired; call this before every effect outside Carillon."""
        if not self.lease_holds():
            raise LeaseLostError


class PlainContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The context of a node that uses nothing but the HTTP client: no secrets, no limit, no port of Carillon.

    It has the parts of ``ActionContext`` that such a node needs, and costs a tenth.
    """

    execution_id: UUID
    scheduled_job_id: UUID | None
    slot: datetime
    attempt: int
    event: Mapping[str, Any]
    source: str
    node_id: str
    caller: HttpCaller
    sender: Sender

    # An entity's runs are not plain.
    entity: ClassVar[None] = None
    was_shown_secrets: ClassVar[bool] = False

    @property
    def idempotency_key(self) -> str:
        """Return the key by which a target recognises a repetition."""
        return idempotency_key(self.source, self.slot, self.node_id)

    @property
    def message_id(self) -> str:
        """Return the ``webhook-id`` of outgoing calls."""
        return message_id(self.execution_id, self.node_id, self.attempt)

    def hidden(self, value: Any) -> Any:
        """Return the value: no secrets were used."""
        return value
