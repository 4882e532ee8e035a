"""Notifications, and how their delivery went."""

from typing import Any
from uuid import UUID

import msgspec

from app.services.inputs import Instant


class NotificationView(msgspec.Struct, kw_only=True):
    """Whom to tell of what."""

    id: int
    user_profile_id: int
    url: str
    events: list[str]
    schedule_id: UUID | None
    workflow_id: int | None
    active: bool
    created_at: Instant


class NotificationList(msgspec.Struct):
    """All that is asked for."""

    items: list[NotificationView]
    next_cursor: str | None


class DeliveryView(msgspec.Struct, kw_only=True):
    """A notice and how its delivery went."""

    id: int
    event: str
    data: dict[str, Any]
    status: str
    attempts: int
    next_attempt_at: Instant
    last_status: int | None
    last_error: str
    created_at: Instant
    delivered_at: Instant | None


class DeliveryList(msgspec.Struct):
    """The latest deliveries."""

    items: list[DeliveryView]
    next_cursor: str | None
