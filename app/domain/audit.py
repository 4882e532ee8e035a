"""The audit log: who did what to which object, from where. An event outlives the object that it is about."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.access import Actor, OwnerKind, Role
from app.domain.run_ids import audit_event_id


class Via(StrEnum):
    """The ways by which something is done."""

    API = "api"
    # With the session of a browser.
    CONSOLE = "console"
    CLI = "cli"
    MCP = "mcp"
    FILE = "file"
    PLUGIN = "plugin"
    ENGINE = "engine"


class ObjectType(StrEnum):
    """The kinds of objects that events are about."""

    USER = "user"
    TEAM = "team"
    LEASE = "lease"
    TOKEN = "token"  # noqa: S105 - the name of a kind
    SESSION = "session"
    SECRET = "secret"  # noqa: S105 - the name of a kind
    SIGNING_KEY = "signing_key"
    OIDC_KEY = "oidc_key"
    SETTINGS = "settings"
    OPERATION = "operation"
    SCHEDULE = "schedule"
    WORKFLOW = "workflow"
    # A run of an entity, such as a webhook; runs of schedules are told under their schedules.
    EXECUTION = "execution"
    WEBHOOK = "webhook"
    LIMIT = "limit"
    NOTIFICATION = "notification"
    CALENDAR = "calendar"
    # The address of a client that was not authenticated.
    ADDRESS = "address"


class AuditAction(StrEnum):
    """What happened. The names are stable: they are part of the API."""

    SESSION_BEGUN = "session_begun"
    SESSION_ENDED = "session_ended"
    SESSION_CODE_CREATED = "session_code_created"
    TOKEN_CREATED = "token_created"  # noqa: S105 - the name of an action
    TOKEN_ROTATED = "token_rotated"  # noqa: S105 - the name of an action
    TOKEN_DELETED = "token_deleted"  # noqa: S105 - the name of an action
    TOKEN_USED_FROM_NEW_ADDRESS = "token_used_from_new_address"  # noqa: S105 - the name of an action
    # By a session, a token of an identity provider, or the admin token of the settings.
    USER_SEEN_AT_NEW_ADDRESS = "user_seen_at_new_address"
    USER_CREATED = "user_created"
    USER_CHANGED = "user_changed"
    USER_DELETED = "user_deleted"
    TEAM_CREATED = "team_created"
    TEAM_CHANGED = "team_changed"
    TEAM_DELETED = "team_deleted"
    TEAM_MEMBER_ADDED = "team_member_added"
    TEAM_MEMBER_CHANGED = "team_member_changed"
    TEAM_MEMBER_REMOVED = "team_member_removed"
    LEASE_GRANTED = "lease_granted"
    LEASE_CHANGED = "lease_changed"
    LEASE_APPROVED = "lease_approved"
    LEASE_ADOPTED = "lease_adopted"
    LEASE_REVOKED = "lease_revoked"
    LEASE_EXPIRED = "lease_expired"
    OIDC_KEY_ROTATED = "oidc_key_rotated"
    SECRET_CREATED = "secret_created"  # noqa: S105 - the name of an action
    SECRET_CHANGED = "secret_changed"  # noqa: S105 - the name of an action
    SECRET_DELETED = "secret_deleted"  # noqa: S105 - the name of an action
    SIGNING_KEY_CREATED = "signing_key_created"
    SIGNING_KEY_ROTATED = "signing_key_rotated"
    SETTINGS_CHANGED = "settings_changed"
    OPERATION_STARTED = "operation_started"
    OPERATION_PAUSED = "operation_paused"
    OPERATION_RESUMED = "operation_resumed"
    OPERATION_CANCELLED = "operation_cancelled"
    SCHEDULE_CREATED = "schedule_created"
    SCHEDULE_CHANGED = "schedule_changed"
    SCHEDULE_PAUSED = "schedule_paused"
    SCHEDULE_RESUMED = "schedule_resumed"
    SCHEDULE_REVIVED = "schedule_revived"
    SCHEDULE_DIED = "schedule_died"
    SCHEDULE_DELETED = "schedule_deleted"
    SCHEDULE_RUN = "schedule_run"
    EXECUTION_CANCELLED = "execution_cancelled"
    WORKFLOW_CREATED = "workflow_created"
    WORKFLOW_CHANGED = "workflow_changed"
    WORKFLOW_DELETED = "workflow_deleted"
    BREAKER_RESET = "breaker_reset"
    WEBHOOK_CREATED = "webhook_created"
    WEBHOOK_CHANGED = "webhook_changed"
    WEBHOOK_DELETED = "webhook_deleted"
    LIMIT_CREATED = "limit_created"
    LIMIT_CHANGED = "limit_changed"
    LIMIT_DELETED = "limit_deleted"
    NOTIFICATION_CREATED = "notification_created"
    NOTIFICATION_CHANGED = "notification_changed"
    NOTIFICATION_DELETED = "notification_deleted"
    CALENDAR_CREATED = "calendar_created"
    CALENDAR_CHANGED = "calendar_changed"
    CALENDAR_DELETED = "calendar_deleted"
    AUTHENTICATION_REFUSED = "authentication_refused"
    SCOPE_DENIED = "scope_denied"
    ACCESS_DENIED = "access_denied"


class Origin(msgspec.Struct, frozen=True):
    """Where a change comes from: by which way, from which address, and in which request."""

    via: Via
    address: str | None = None
    request_id: str | None = None
    # For a call of an agent: the tool, its arguments, and the name of the client.
    details: dict[str, Any] = {}


# The origin of what no request and no command caused.
ENGINE = Origin(Via.ENGINE)


class Subject(msgspec.Struct, frozen=True):
    """The object that an event is about, and the user who owns it."""

    type: ObjectType
    id: str | None
    name: str = ""
    owner_id: int | None = None


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the audit log. Values of secrets and texts of tokens never stand in it."""

    id: UUID
    at: datetime
    # None if no user is known.
    actor_id: int | None = None
    actor: str | None = None
    on_behalf_of: str | None = None
    via: str
    action: str
    object_type: str
    object_id: str | None
    object_name: str = ""
    # The user who owns the object, and may see the event therefore.
    owner_id: int | None = None
    changes: dict[str, Any] = {}
    note: str = ""
    request_id: str | None = None
    address: str | None = None
    details: dict[str, Any] = {}


def audit_event(  # noqa: PLR0913 - the parts of an event
    actor: Actor | None,
    action: AuditAction,
    subject: Subject,
    origin: Origin,
    now: datetime,
    key: str,
    *,
    changes: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
    note: str = "",
) -> AuditEvent:
    """Return an event. The same ``now`` and ``key`` give the same id."""
    return AuditEvent(
        id=audit_event_id(now, key),
        at=now,
        # Commands of operators act as the built-in admin, without its id.
        actor_id=(actor.user_id or None) if actor else None,
        actor=actor.author if actor else None,
        on_behalf_of=actor.username if actor and actor.grant else None,
        via=_via(actor, origin),
        action=action,
        object_type=subject.type,
        object_id=subject.id,
        object_name=subject.name,
        owner_id=subject.owner_id,
        changes=dict(changes or {}),
        note=note,
        request_id=origin.request_id,
        address=origin.address,
        details={**_credential(actor), **origin.details, **(details or {})},
    )


def _via(actor: Actor | None, origin: Origin) -> Via:
    """Return by which way a change came: plugins act in workers and in the API, by no request of their own."""
    return Via.PLUGIN if actor is not None and actor.kind is OwnerKind.PLUGIN else origin.via


def _credential(actor: Actor | None) -> dict[str, int]:
    """Return the ids of the token, its lease and the session that the actor used."""
    if actor is None:
        return {}
    lease_id = None if actor.grant is None else actor.grant.lease_id
    ids = {"token_id": actor.token_id, "session_id": actor.session_id, "lease_id": lease_id}
    return {name: value for name, value in ids.items() if value is not None}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ, each with its value before and after."""
    return {name: {"from": before[name], "to": after[name]} for name in after if before[name] != after[name]}


class Refusals(msgspec.Struct, frozen=True, kw_only=True):
    """The key by which refusals are counted: those of one minute to one client, or to one token or session and scope.

    Without an address and an actor it stands for all those that are not counted one by one.
    """

    action: AuditAction
    minute: datetime
    address: str | None = None
    actor: Actor | None = None
    # The scope that was missing, or the code of another reason.
    scope: str = ""
    code: str = ""


def identity_of(actor: Actor) -> Actor:
    """Return an actor by whom refusals are counted: the user and the token or session, without their rights."""
    return Actor(actor.user_id, actor.username, Role.MEMBER, token_id=actor.token_id, session_id=actor.session_id)


def refusals_event(refusals: Refusals, count: int) -> AuditEvent:
    """Return the event for refusals. Processes that count the same ones give it the same id."""
    actor = refusals.actor
    via = Via.API if actor is None or actor.session_id is None else Via.CONSOLE
    by = "" if actor is None else f"{actor.user_id}/{actor.token_id}/{actor.session_id}"
    return audit_event(
        actor,
        refusals.action,
        _refused(refusals),
        Origin(via, refusals.address),
        refusals.minute,
        f"{refusals.action}/{refusals.address}/{by}/{refusals.scope or refusals.code}",
        details={"count": count, **_reason(refusals)},
    )


def _reason(refusals: Refusals) -> dict[str, str]:
    given = {"scope": refusals.scope, "code": refusals.code}
    return {name: value for name, value in given.items() if value}


def _refused(refusals: Refusals) -> Subject:
    actor = refusals.actor
    if refusals.action is AuditAction.AUTHENTICATION_REFUSED:
        return Subject(ObjectType.ADDRESS, refusals.address, refusals.address or "other addresses")
    if actor is None:
        return Subject(ObjectType.TOKEN, None, "other tokens")
    if actor.session_id is not None:
        return Subject(ObjectType.SESSION, str(actor.session_id), owner_id=actor.user_id)
    return Subject(ObjectType.TOKEN, None if actor.token_id is None else str(actor.token_id), owner_id=actor.user_id)
