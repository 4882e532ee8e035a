"""Views of executions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from app.domain.executions import ExecutionStatus, NodeResult, Trigger
from app.domain.permits import WAITING_FOR_LIMIT
from app.persistence.execution_queries import ListedExecution
from app.services.inputs import Instant
from app.services.listing import Encoded


class ExecutionView(msgspec.Struct, kw_only=True):
    """An execution."""

    id: UUID
    workflow_id: int | None
    scheduled_job_id: UUID | None
    entity_type: str | None
    entity_id: str | None
    trigger: Trigger
    status: ExecutionStatus
    repeat_number: int
    retry_attempt: int
    scheduled_for: Instant
    started_at: Instant | None
    finished_at: Instant | None
    duration_ms: int | None
    error: str
    waiting_for: str | None
    reason: str


class NodeResultView(msgspec.Struct, kw_only=True):
    """The result of a node."""

    node_id: str
    type: str
    status: ExecutionStatus
    output: Any
    error: str
    started_at: Instant
    finished_at: Instant | None


class ExecutionDetail(ExecutionView, kw_only=True):
    """An execution with its payload and the results of its nodes."""

    payload: dict[str, Any]
    nodes: list[NodeResultView]
    # None unless the settings say where traces are looked at.
    trace_url: str | None = None


class ExecutionPage(msgspec.Struct):
    """A page of the list of executions."""

    items: list[Encoded[ExecutionView]]
    total: int
    total_is_estimate: bool
    next_cursor: str | None


class RunView(ExecutionView, kw_only=True):
    """A run of a schedule, with the payload that it had."""

    payload: dict[str, Any]


class RunList(msgspec.Struct):
    """A page of a schedule's runs, newest first."""

    items: list[Encoded[RunView]]
    next_cursor: str | None


class AcceptedView(msgspec.Struct):
    """The callback was accepted."""

    ok: bool


def execution_fields(row: ListedExecution) -> dict[str, Any]:
    """Return the fields that all views of an execution share."""
    return {
        "id": row.id,
        "workflow_id": row.workflow_id,
        "scheduled_job_id": row.scheduled_job_id,
        "entity_type": row.entity_type,
        "entity_id": row.entity_id,
        "trigger": row.trigger,
        "status": shown_status(row),
        "repeat_number": row.repeat_number,
        "retry_attempt": row.retry_attempt,
        "scheduled_for": row.scheduled_for,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "duration_ms": duration_ms(row.started_at, row.finished_at),
        "error": row.error,
        "waiting_for": waiting_for(row),
        "reason": waiting_reason(row),
    }


def waiting_for(row: ListedExecution) -> str | None:
    """Return what a run waits for: a limit, a callback, its turn among the runs of its schedule, or nothing."""
    if row.waiting_limit is not None:
        return f"limit:{row.waiting_limit}"
    if row.awaiting:
        return "callback"
    return "turn" if row.queued else None


class RunState(Protocol):
    """A run whose status is shown."""

    @property
    def status(self) -> str:
        """Return the stored status."""

    @property
    def deadline_at(self) -> datetime | None:
        """Return until when it may wait, if it was parked."""

    @property
    def waiting_limit(self) -> str | None:
        """Return the name of the limit that it waits for."""


def waiting_reason(row: RunState) -> str:
    """Return the reason why a run is pending, if it waits for a limit."""
    return "" if row.waiting_limit is None else WAITING_FOR_LIMIT


def shown_status(row: RunState) -> str:
    """Return the status to show. A run that has begun and sleeps is running, though no worker holds it.

    One that waits for a limit is pending, whether it has begun or not.

    Text and not an enum: a newer release may have stored a status that this one does not know.
    """
    if row.deadline_at is not None and row.status == ExecutionStatus.PENDING and row.waiting_limit is None:
        return ExecutionStatus.RUNNING
    return row.status


def node_view(result: NodeResult, now: datetime, graph: Mapping[str, Any] | None) -> NodeResultView:
    """Return the view of a node's result. A sleeping node is stored as a success at the time when it will wake up."""
    shown = NodeResultView(**msgspec.structs.asdict(result))
    wakes = msgspec.convert((graph or {}).get("asleep", {}), dict[str, datetime])
    if result.node_id in wakes and wakes[result.node_id] > now:
        shown.status = ExecutionStatus.RUNNING
    if shown.status is ExecutionStatus.RUNNING:
        shown.finished_at = None
    return shown


def duration_ms(started: Instant | None, finished: Instant | None) -> int | None:
    """Return the milliseconds between two moments; None unless both are known."""
    return None if started is None or finished is None else int((finished - started).total_seconds() * 1000)
