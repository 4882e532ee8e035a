"""Entities of Carillon's own, as callers see them."""

from typing import Any

import msgspec

from app.domain.executions import ExecutionStatus
from app.services.inputs import Instant


class WebhookView(msgspec.Struct, kw_only=True):
    """An address that is called at its times."""

    id: int
    user_profile_id: int
    name: str
    url: str
    method: str
    headers: dict[str, Any]
    payload: dict[str, Any]
    cron: str | None
    interval_minutes: int | None
    timezone: str
    active: bool
    timeout_seconds: int
    max_retries: int
    last_execution_at: Instant | None
    last_status: ExecutionStatus | None
    next_execution_at: Instant | None
    last_error: str
    created_at: Instant
    updated_at: Instant


class WebhookPage(msgspec.Struct):
    """A part of the list of webhooks."""

    items: list[WebhookView]
    total: int
    # Beyond 10,000 it may be a guess.
    total_is_estimate: bool
    # Where the next part begins, for ``cursor``; null at the end.
    next_cursor: str | None
