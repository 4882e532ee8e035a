"""Views of the audit log."""

from typing import Any

import msgspec

from app.services.inputs import Instant
from app.services.listing import Encoded


class AuditEventView(msgspec.Struct, kw_only=True):
    """An event of the audit log: who did what to which object, from where."""

    at: Instant
    actor: str | None
    on_behalf_of: str | None
    via: str
    action: str
    object_type: str
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
