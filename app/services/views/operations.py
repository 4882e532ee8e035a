"""Views of actions, settings, cron pings, operations, limits, webhooks and notifications."""

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.bulk_operations import BulkAction, OperationStatus
from app.domain.executions import ExecutionStatus
from app.persistence.operations import Operation
from app.services.inputs import Instant
from app.services.listing import Encoded


class ActionView(msgspec.Struct, kw_only=True):
    """A trigger, an action or a tool: a type of nodes, and how a palette shows it."""

    name: str
    kind: Literal["trigger", "action", "tool"]
    title: str
    description: str
    category: str
    icon: str
    color: str
    aliases: list[str]
    version: str
    origin: str
    scope: str
    retry_safe: bool
    publishes: bool
    secret_fields: list[str]
    config_schema: dict[str, Any]
    outputs: dict[str, Any] | None


class PluginProblemView(msgspec.Struct):
    """A plugin that could not be loaded, or not completely."""

    plugin: str
    error: str


class ActionList(msgspec.Struct):
    """All actions, and, for admins only, the plugins that could not be loaded."""

    items: list[ActionView]
    problems: list[PluginProblemView]


class EntityTypeView(msgspec.Struct, kw_only=True):
    """A kind of entities that have times of their own, such as webhooks."""

    entity_type: str
    description: str
    plugin: str
    acts_for_users: bool
    pending_runs: int | None = None
    running_runs: int | None = None


class EntityTypeList(msgspec.Struct):
    """A page of the entity types, and, for admins only, the entity schedulers that could not be loaded."""

    items: list[EntityTypeView]
    next_cursor: str | None
    problems: list[PluginProblemView]


class SettingsView(msgspec.Struct):
    """The settings that can be changed at run time."""

    schedules_enabled: bool
    ping_sitemap_on_run: bool
    sitemap_urls: list[str]


class PingView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a ping did. ``busy`` means that another ping is running, and that this one did nothing."""

    ok: bool = msgspec.field(default_factory=lambda: True)
    busy: bool = False
    message: str = ""
    ran: int | UnsetType = UNSET
    skipped: int | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    errors: int | UnsetType = UNSET
    dead_lettered: int | UnsetType = UNSET
    not_fired: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET


class FoundView(msgspec.Struct, kw_only=True):
    """An object that a search has found."""

    type: Literal["schedule", "workflow"]
    id: str
    name: str
    status: str
    match: Literal["id", "name", "key", "target_host"]


class SearchView(msgspec.Struct, kw_only=True):
    """What a search has found, the best matches first."""

    items: list[FoundView]


class SkippedView(msgspec.Struct):
    """Why schedules are left alone, and how many."""

    reason: str
    count: int


class PastSlotView(msgspec.Struct):
    """A past slot, and what became of it."""

    slot: Instant
    outcome: str
    reason: str


class BackfillDryRun(msgspec.Struct, kw_only=True):
    """Which slots a backfill would run, and how long it would take."""

    count: int
    slots: list[PastSlotView]
    estimate_seconds: float


class RowErrorView(msgspec.Struct):
    """A schedule that could not be changed, and why."""

    schedule_id: UUID
    message: str


class OperationView(msgspec.Struct, kw_only=True):
    """An operation on many schedules, and how far it is."""

    id: UUID
    action: BulkAction
    status: OperationStatus
    by: str
    user_profile_id: int
    note: str
    selection: dict[str, Any]
    total: int
    done: int
    skipped: int
    skipped_reasons: list[SkippedView]
    failed: int
    errors: list[RowErrorView]
    error: str
    undoable: bool
    undo_of: UUID | None
    undone_by: UUID | None
    starts_at: Instant | None
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


class OperationList(msgspec.Struct):
    """A page of the list of operations, newest first."""

    items: list[Encoded[OperationView]]
    next_cursor: str | None


def skipped_views(reasons: Mapping[str, int]) -> list[SkippedView]:
    """Return the views of reasons, the most frequent first."""
    return [SkippedView(reason, count) for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1])]


def operation_view(operation: Operation) -> OperationView:
    """Return the view of an operation."""
    return OperationView(
        id=operation.id,
        action=operation.action,
        status=operation.status,
        by=operation.username,
        user_profile_id=operation.user_profile_id,
        note=operation.note,
        selection=operation.selection,
        total=operation.total,
        done=operation.done,
        skipped=operation.skipped,
        skipped_reasons=skipped_views(operation.skipped_reasons),
        failed=operation.failed,
        errors=[RowErrorView(error.schedule_id, error.message) for error in operation.errors],
        error=operation.error,
        undoable=operation.can_be_undone,
        undo_of=operation.undo_of,
        undone_by=operation.undone_by,
        starts_at=operation.starts_at,
        created_at=operation.created_at,
        started_at=operation.started_at,
        finished_at=operation.finished_at,
    )


class WebhookView(msgspec.Struct, kw_only=True):
    """A URL that is called at its times."""

    id: int
    user_profile_id: int
    team_id: int | None
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
    """A page of the list of webhooks."""

    items: list[Encoded[WebhookView]]
    total: int
    total_is_estimate: bool
    next_cursor: str | None


class LimitView(msgspec.Struct, kw_only=True):
    """A named limit."""

    name: str
    user_profile_id: int
    team_id: int | None
    public: bool
    max_concurrent: int | None
    rate: str | None
    burst: int | None
    held: int
    waiting: int
    created_at: Instant
    updated_at: Instant


class LimitList(msgspec.Struct):
    """A page of limits, newest first."""

    items: list[Encoded[LimitView]]
    next_cursor: str | None


class NotificationView(msgspec.Struct, kw_only=True):
    """A notification: which events are delivered to which URL."""

    id: int
    user_profile_id: int
    team_id: int | None
    url: str
    events: list[str]
    schedule_id: UUID | None
    workflow_id: int | None
    active: bool
    created_at: Instant


class NotificationList(msgspec.Struct):
    """A page of the list of notifications."""

    items: list[Encoded[NotificationView]]
    next_cursor: str | None


class DeliveryView(msgspec.Struct, kw_only=True):
    """A notice and the state of its delivery."""

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
    """A page of a notification's deliveries, newest first."""

    items: list[Encoded[DeliveryView]]
    next_cursor: str | None
