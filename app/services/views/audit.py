"""Views of the audit log."""

from typing import Any

import msgspec

from app.domain.audit import AuditAction, AuditEvent, ObjectType, Via
from app.services.inputs import Instant
from app.services.listing import Encoded


class AuditEventView(msgspec.Struct, kw_only=True):
    """An event of the audit log: who did what to which object, from where."""

    at: Instant
    actor: str | None
    on_behalf_of: str | None
    via: Via
    action: AuditAction
    object_type: ObjectType
    object_id: str | None
    object_name: str
    changes: dict[str, Any]
    note: str
    request_id: str | None
    address: str | None
    details: dict[str, Any]


class AuditList(msgspec.Struct):
    """A page of the audit log."""

    items: list[Encoded[AuditEventView]]
    next_cursor: str | None


def audit_event_view(event: AuditEvent) -> AuditEventView:
    """Return the view of an event.

    Its values are shown unchecked: during an upgrade a newer release may write some that this one does not know.
    """
    return AuditEventView(**{name: getattr(event, name) for name in AuditEventView.__struct_fields__})
