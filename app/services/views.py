"""What callers get to see."""

from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import Row

from app.domain.access import Role
from app.domain.breakers import BreakerState
from app.domain.descriptions import describe
from app.domain.executions import ExecutionStatus, Trigger
from app.domain.ledger import LedgerEntry
from app.domain.revisions import Action
from app.domain.schedules import CatchUp, IfRunning, Reason, ScheduledJob, Status
from app.domain.workflows import Edge, Node
from app.services.inputs import Instant


class ScheduleView(msgspec.Struct, kw_only=True):
    """A schedule."""

    id: UUID
    name: str
    description: str
    workflow_id: int
    trigger_node_id: str | None
    user_profile_id: int
    interval_seconds: int | float | None
    every: str | None
    cron: str | None
    at: Instant | None
    after: str | None
    timezone: str
    jitter_seconds: int
    only_between: str | None
    not_on: list[str]
    start_at: Instant | None
    end_at: Instant | None
    spec_description: str
    total_repeats: int
    max_retries: int
    backoff_base_seconds: int | None
    timeout_seconds: int
    catch_up: CatchUp
    misfire_grace_seconds: int
    if_running: IfRunning
    max_queued: int
    trigger_payload: dict[str, Any]
    status: Status
    status_reason: Reason
    current_repeat: int
    current_retry: int
    run_count: int
    error_count: int
    last_run_at: Instant | None
    next_run_at: Instant | None
    last_error: str
    next_slot: Instant | None
    last_fired_at: Instant | None
    last_success_at: Instant | None
    last_success_execution_id: UUID | None
    dead_at: Instant | None
    created_at: Instant
    updated_at: Instant


class SchedulePage(msgspec.Struct):
    """A part of the list of schedules."""

    items: list[ScheduleView]
    total: int


class ScheduleList(msgspec.Struct):
    """Schedules that were created together."""

    items: list[ScheduleView]


class ExecutionView(msgspec.Struct, kw_only=True):
    """An execution."""

    id: UUID
    workflow_id: int
    scheduled_job_id: UUID
    trigger: Trigger
    status: ExecutionStatus
    repeat_number: int
    retry_attempt: int
    scheduled_for: Instant
    started_at: Instant | None
    finished_at: Instant | None
    duration_ms: int | None
    error: str


class NodeResultView(msgspec.Struct, kw_only=True):
    """What a node did."""

    node_id: str
    type: str
    status: ExecutionStatus
    output: Any
    error: str
    started_at: Instant
    finished_at: Instant


class ExecutionDetail(ExecutionView, kw_only=True):
    """An execution with all that is known of it."""

    payload: dict[str, Any]
    nodes: list[NodeResultView]


class ExecutionPage(msgspec.Struct):
    """A part of the list of executions."""

    items: list[ExecutionView]
    total: int


class RunView(ExecutionView, kw_only=True):
    """A run in the audit of its schedule, with the payload as it was then."""

    payload: dict[str, Any]


class RunList(msgspec.Struct):
    """The latest runs."""

    items: list[RunView]


class LedgerItem(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"first": "from", "last": "to"}):
    """A slot and what became of it; or, with ``from``, ``to`` and ``count``, a range of them."""

    slot: Instant
    outcome: str
    reason: str
    execution_id: UUID | None
    first: Instant | None = None
    last: Instant | None = None
    count: int | None = None


class LedgerList(msgspec.Struct):
    """The account of the latest slots."""

    items: list[LedgerItem]


class PreviewRun(msgspec.Struct):
    """A run that would come: when, and what is special about it."""

    at: Instant
    note: str


class PreviewView(msgspec.Struct):
    """A spec in plain words, what may surprise about it, and its next runs."""

    description: str
    warnings: list[str]
    next_runs: list[PreviewRun]


class CheckView(msgspec.Struct):
    """One of the checks that a slot goes through."""

    check: str
    passed: bool
    detail: str


class ExplanationView(msgspec.Struct, kw_only=True):
    """Why a schedule did, or did not, run at some time."""

    slot: Instant | None
    outcome: str
    sentence: str
    execution_id: UUID | None
    checks: list[CheckView]


class HistoryItem(msgspec.Struct, kw_only=True):
    """A change of a schedule: by whom, when, and what it was before and after."""

    at: Instant
    by: str
    user_profile_id: int | None
    action: Action
    changes: dict[str, Any]
    note: str


class HistoryList(msgspec.Struct):
    """The latest changes."""

    items: list[HistoryItem]


class BreakerView(msgspec.Struct, kw_only=True):
    """The breaker of a workflow."""

    workflow_id: int
    workflow_name: str
    state: BreakerState
    failure_count: int
    opened_at: Instant | None
    half_opens_at: Instant | None
    probe_execution_id: UUID | None
    breaker_threshold: int | None
    breaker_reset_seconds: int | None


class TransitionView(msgspec.Struct, kw_only=True):
    """A change of a breaker's state, and why."""

    at: Instant
    from_state: BreakerState
    to_state: BreakerState
    reason: str
    execution_id: UUID | None


class BreakerDetail(BreakerView, kw_only=True):
    """The breaker of a workflow, with its latest transitions, newest first."""

    transitions: list[TransitionView]


class BreakerList(msgspec.Struct):
    """The breakers of all workflows that have one."""

    items: list[BreakerView]


class ActionView(msgspec.Struct, kw_only=True):
    """An action that nodes may use."""

    name: str
    aliases: list[str]
    version: str
    origin: str
    scope: str
    retry_safe: bool
    description: str
    config_schema: dict[str, Any]


class PluginProblemView(msgspec.Struct):
    """A plugin that could not be used, or not whole."""

    plugin: str
    error: str


class ActionList(msgspec.Struct):
    """All actions, and the plugins that could not be used."""

    items: list[ActionView]
    problems: list[PluginProblemView]


class AcceptedView(msgspec.Struct):
    """It was taken."""

    ok: bool


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


class SettingsView(msgspec.Struct):
    """What is on."""

    schedules_enabled: bool


class PingView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a ping did; or, with ``busy``, that another one is at it."""

    ok: bool = msgspec.field(default_factory=lambda: True)
    busy: bool = False
    message: str = ""
    ran: int | UnsetType = UNSET
    skipped: int | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    errors: int | UnsetType = UNSET
    dead_lettered: int | UnsetType = UNSET


class WorkflowView(msgspec.Struct, kw_only=True):
    """A workflow."""

    id: int
    user_profile_id: int
    name: str
    nodes: list[Node]
    edges: list[Edge]
    active: bool
    max_concurrent_runs: int | None
    breaker_threshold: int | None
    breaker_reset_seconds: int | None
    created_at: Instant
    updated_at: Instant


class WorkflowPage(msgspec.Struct):
    """A part of the list of workflows."""

    items: list[WorkflowView]
    total: int


class UserView(msgspec.Struct, kw_only=True):
    """A user."""

    id: int
    username: str
    role: Role
    created_at: Instant


class UserList(msgspec.Struct):
    """All users."""

    items: list[UserView]


class TokenView(msgspec.Struct, kw_only=True):
    """A token, without what proves it."""

    id: int
    name: str
    prefix: str
    created_at: Instant


class FreshTokenView(TokenView, kw_only=True):
    """A token, this once with its text."""

    token: str


class TokenList(msgspec.Struct):
    """The tokens of a user."""

    items: list[TokenView]


_SHOWN_OTHERWISE = {"interval_seconds", "every", "not_on", "spec_description"}
_PLAIN_SCHEDULE_FIELDS = tuple(name for name in ScheduleView.__struct_fields__ if name not in _SHOWN_OTHERWISE)


def schedule_view(job: ScheduledJob) -> ScheduleView:
    """A schedule as callers see it."""
    plain = {name: getattr(job, name) for name in _PLAIN_SCHEDULE_FIELDS}
    seconds = job.interval_seconds
    return ScheduleView(
        interval_seconds=int(seconds) if seconds is not None and seconds.is_integer() else seconds,
        every=job.spec.spelled_every,
        not_on=list(job.not_on),
        spec_description=describe(
            job.spec, start_at=job.start_at, end_at=job.end_at, jitter_seconds=job.jitter_seconds
        ),
        **plain,
    )


def workflow_view(row: Row[Any]) -> WorkflowView:
    """A workflow as callers see it."""
    return msgspec.convert(row._mapping, WorkflowView)  # noqa: SLF001 - SQLAlchemy's public way to a row's names


def user_view(row: Row[Any]) -> UserView:
    """A user as callers see it."""
    return UserView(id=row.id, username=row.username, role=Role(row.role), created_at=row.created_at)


def execution_fields(row: Row[Any]) -> dict[str, Any]:
    """The fields that all views of an execution share."""
    return {
        "id": row.id,
        "workflow_id": row.workflow_id,
        "scheduled_job_id": row.scheduled_job_id,
        "trigger": Trigger(row.trigger),
        "status": ExecutionStatus(row.status),
        "repeat_number": row.repeat_number,
        "retry_attempt": row.retry_attempt,
        "scheduled_for": row.scheduled_for,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "duration_ms": _duration_ms(row.started_at, row.finished_at),
        "error": row.error,
    }


def node_view(row: Row[Any]) -> NodeResultView:
    """A node's result as callers see it."""
    return NodeResultView(
        node_id=row.node_id,
        type=row.type,
        status=ExecutionStatus(row.status),
        output=row.output,
        error=row.error,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def ledger_item(row: Row[Any] | LedgerEntry) -> LedgerItem:
    """An entry as callers see it."""
    item = LedgerItem(slot=row.last_slot, outcome=row.outcome, reason=row.reason, execution_id=row.execution_id)
    if row.slot_count > 1:
        item.first, item.last, item.count = row.first_slot, row.last_slot, row.slot_count
    return item


def _duration_ms(started: Instant | None, finished: Instant | None) -> int | None:
    return None if started is None or finished is None else int((finished - started).total_seconds() * 1000)
