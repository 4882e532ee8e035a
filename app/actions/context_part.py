"""What an action is told about the run that it is part of, and what it may use."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from app.actions.context import CallbackPort, PluginSchedulesPort, Ports
from app.actions.http_client import HttpCaller, OwnersCaller
from app.actions.secrets_part import BoundCaller, RunSecrets
from app.actions.signing import Sender
from app.domain.identities import idempotency_key


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
