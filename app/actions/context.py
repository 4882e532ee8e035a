"""What an action is given: the context of its run, and the ports through which it may use Carillon."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.actions.http_client import HttpCaller, OwnersCaller, Sender
from app.actions.secrets import BoundCaller, RunSecrets
from app.domain.identities import idempotency_key
from app.domain.schedules import DEFAULTS


class SchedulesPort(Protocol):
    """The schedules that the owner of the running one may see and change."""

    async def create(self, values: dict[str, Any]) -> dict[str, Any]:
        """A new schedule, from the fields of the API."""

    async def list(self, *, status: str | None, workflow_id: int | None, limit: int) -> list[dict[str, Any]]:
        """The newest first."""

    async def pause(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        """Fire no more until it is resumed."""

    async def resume(self, schedule_id: UUID, note: str) -> dict[str, Any]:
        """Fire again."""

    async def run(self, schedule_id: UUID) -> dict[str, Any]:
        """Run it now; the execution."""

    async def stop(self, schedule_id: UUID) -> None:
        """Delete it."""


class HistoryPort(Protocol):
    """The past of the owner's schedules."""

    async def purge(self, older_than: timedelta, limit: int) -> int:
        """Delete ended executions and ledger entries from before; how many there were."""


class Invitation(msgspec.Struct, frozen=True):
    """Where a target may say later how its work ended, and the token that it needs."""

    url: str
    token: str


class CallbackPort(Protocol):
    """The callback of the node that runs."""

    async def invite(self) -> Invitation:
        """Promise one, before the call."""

    async def withdraw(self) -> None:
        """The target has answered at once."""


class UpkeepPort(Protocol):
    """What else grows old."""

    async def purge_callbacks(self, older_than: timedelta, limit: int) -> int:
        """Delete the callbacks of executions that ended before; how many there were."""

    async def retry_deliveries(self, limit: int) -> int:
        """Try again to deliver the notices that were given up; how many there were."""

    async def purge_deliveries(self, older_than: timedelta, limit: int) -> int:
        """Delete old deliveries that are over; how many there were."""


class PluginScheduleInput(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that a plugin wants: an action, and when. Its name is the plugin's own and there once."""

    name: str
    action: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    description: str = DEFAULTS.description
    interval_seconds: int | None = None
    every: str | None = None
    cron: str | None = None
    at: datetime | None = None
    timezone: str = DEFAULTS.timezone
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    max_retries: int = DEFAULTS.max_retries
    timeout_seconds: int = DEFAULTS.timeout_seconds


class PluginScheduleChanges(msgspec.Struct, frozen=True, kw_only=True):
    """New values for some fields of ``PluginScheduleInput``; ``action`` cannot be changed."""

    name: str | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    interval_seconds: int | UnsetType = UNSET
    every: str | UnsetType = UNSET
    cron: str | UnsetType = UNSET
    at: datetime | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    timeout_seconds: int | UnsetType = UNSET


class PluginSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a plugin's, as it is now."""

    id: UUID
    name: str
    action: str
    config: dict[str, Any]
    status: str
    next_run_at: datetime | None
    last_error: str
    run_count: int
    error_count: int


class PluginSchedulesPort(Protocol):
    """The schedules of one plugin: it sees and changes no others. ``RefusedError`` says what is wrong."""

    async def create(self, wanted: PluginScheduleInput) -> PluginSchedule:
        """A new one."""

    async def ensure(self, wanted: PluginScheduleInput) -> PluginSchedule:
        """The one of this name as it is wanted: made, or changed, or left as it is."""

    async def list(self) -> list[PluginSchedule]:
        """All of them, newest first."""

    async def update(self, schedule_id: UUID, changes: PluginScheduleChanges) -> PluginSchedule:
        """Give one new values."""

    async def delete(self, schedule_id: UUID) -> None:
        """Remove one, with its history."""


class Ports(Protocol):
    """All of them, for one owner."""

    schedules: SchedulesPort
    history: HistoryPort
    upkeep: UpkeepPort


class RefusedError(Exception):
    """Carillon refused what an action asked for; the message says why, for people."""

    code = "refused"


class NoPorts:
    """What an action has that said that it touches nothing of Carillon."""

    def __getattr__(self, name: str) -> Any:
        """Refuse."""
        raise RefusedError(f"An action needs the scope 'owner' to use '{name}'.")


class LeaseLostError(Exception):
    """This worker's lease has run out: someone else may be doing this work already, so nothing more is sent."""

    code = "lease_lost"


class ActionContext(msgspec.Struct, frozen=True, kw_only=True):
    """One node of one execution."""

    execution_id: UUID
    # The schedule that fired; or the entity, as its type and id.
    scheduled_job_id: UUID | None
    entity: str | None = None
    slot: datetime
    attempt: int
    event: Mapping[str, Any]
    # What fires, and which node of its workflow this is.
    source: str
    node_id: str
    # Whether the run has the rights of an admin.
    acts_for_admin: bool = False
    caller: HttpCaller | BoundCaller
    # Whose key signs what is sent.
    sender: Sender
    ports: Ports
    # The schedules of the plugin that brings the action.
    plugin: PluginSchedulesPort
    callback: CallbackPort
    lease_holds: Callable[[], bool]
    secrets: RunSecrets
    # Whether this node was shown secrets: then parts of its URL may be secret.
    was_shown_secrets: bool = False

    @property
    def idempotency_key(self) -> str:
        """What a target tells a repetition by: constant over all attempts at one slot's node."""
        return idempotency_key(self.source, self.slot, self.node_id)

    @property
    def message_id(self) -> str:
        """The ``webhook-id`` of what is sent: it names the run inside of what is signed."""
        return f"{self.execution_id}.{quote(self.node_id, safe='')}.{self.attempt}"

    @property
    def http(self) -> OwnersCaller:
        """The HTTP client, for calls that are the sender's and name this run."""
        return OwnersCaller(self.caller, self.sender, self.message_id)

    def hidden(self, value: Any) -> Any:
        """A JSON value without the secrets that this run has used: for whatever is said or kept."""
        return self.secrets.hidden(value)

    async def with_secrets(self, names: frozenset[str]) -> tuple["ActionContext", dict[str, str]]:
        """The context of a node that is shown these secrets, and their values: it calls their allowed hosts only."""
        shown = await self.secrets.show(names)
        bound = BoundCaller(self.caller, shown, self.hidden)
        values = {secret.name: secret.value for secret in shown}
        return msgspec.structs.replace(self, caller=bound, was_shown_secrets=True), values

    def require_lease(self) -> None:
        """To be called before anything that the outside sees."""
        if not self.lease_holds():
            raise LeaseLostError
