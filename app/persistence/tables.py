"""The tables. What the design promises stands here as constraints, so that no code path can break it quietly."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.domain.access import Role
from app.domain.breakers import BreakerState
from app.domain.executions import ACTIVE, ExecutionStatus, Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.revisions import Action
from app.domain.schedules import CatchUp, IfRunning, Status

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


def one_of(column: str, values: Any) -> str:
    """The SQL condition that a column holds one of these values."""
    listed = ", ".join(f"'{value}'" for value in sorted(values))
    return f"{column} IN ({listed})"


IS_ACTIVE_EXECUTION = one_of("status", ACTIVE)


class Base(DeclarativeBase):
    """All tables; timestamps carry their zone, JSON is jsonb."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own protocol
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
        str: Text,
    }


class UserProfile(Base):
    """Who owns workflows and schedules."""

    __tablename__ = "user_profiles"
    __table_args__ = (CheckConstraint(one_of("role", Role), name="role_known"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    username: Mapped[str] = mapped_column(String(255), unique=True)
    role: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ApiToken(Base):
    """A bearer token: found by its prefix, proved by its hash; the token itself is nowhere."""

    __tablename__ = "api_tokens"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(255))
    prefix: Mapped[str] = mapped_column(String(32), unique=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class WorkflowRow(Base):
    """Nodes and edges that a schedule runs."""

    __tablename__ = "workflows"
    __table_args__ = (
        CheckConstraint("max_concurrent_runs >= 1", name="max_concurrent_runs_positive"),
        CheckConstraint("breaker_threshold >= 1", name="breaker_threshold_positive"),
        CheckConstraint("breaker_reset_seconds >= 1", name="breaker_reset_positive"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(255))
    nodes: Mapped[list[Any]]
    edges: Mapped[list[Any]]
    active: Mapped[bool] = mapped_column(server_default=text("true"))
    max_concurrent_runs: Mapped[int | None]
    breaker_threshold: Mapped[int | None]
    breaker_reset_seconds: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ScheduledJobRow(Base):
    """A schedule: what to run, when, and its state. Its pending tick is (id, generation)."""

    __tablename__ = "scheduled_jobs"
    __table_args__ = (
        CheckConstraint(one_of("status", Status), name="status_known"),
        CheckConstraint(one_of("if_running", IfRunning), name="if_running_known"),
        CheckConstraint(one_of("catch_up", CatchUp), name="catch_up_known"),
        CheckConstraint("interval_seconds >= 1", name="interval_positive"),
        # Exactly one of these says when.
        CheckConstraint("num_nonnulls(interval_seconds, every, cron, at, after) = 1", name="one_kind_of_spec"),
        CheckConstraint("jitter_seconds >= 0 AND max_queued >= 0", name="allowances_not_negative"),
        CheckConstraint("timeout_seconds >= 1", name="timeout_positive"),
        CheckConstraint("total_repeats >= 0 AND max_retries >= 0", name="limits_not_negative"),
        CheckConstraint(
            "current_repeat >= 0 AND current_retry >= 0 AND run_count >= 0 AND error_count >= 0",
            name="counters_not_negative",
        ),
        # Nothing fires while paused, after done or dead.
        CheckConstraint("next_run_at IS NULL OR status = 'active'", name="only_active_is_planned"),
        # A pending tick is whole: a slot and a due time, and never due before its slot.
        CheckConstraint("(next_slot IS NULL) = (next_run_at IS NULL)", name="tick_whole"),
        CheckConstraint("next_run_at >= next_slot", name="never_early"),
        CheckConstraint("(dead_at IS NOT NULL) = (status = 'dead')", name="dead_since"),
        CheckConstraint(
            "total_repeats = 0 OR current_repeat < total_repeats OR status <> 'active' OR num_nonnulls(at, after) = 1",
            name="done_at_the_limit",
        ),
        # Those that wait for their spec to be valid again.
        Index("ix_scheduled_jobs_invalid", "id", postgresql_where=text("status_reason = 'invalid_spec'")),
        # What is due, and nothing else.
        Index("ix_scheduled_jobs_due", "next_run_at", postgresql_where=text("next_run_at IS NOT NULL")),
        Index("ix_scheduled_jobs_owner_newest", "user_profile_id", "created_at"),
        Index("ix_scheduled_jobs_newest", "created_at"),
        Index("ix_scheduled_jobs_workflow", "workflow_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"))
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(255))
    description: Mapped[str]
    trigger_node_id: Mapped[str | None]
    trigger_payload: Mapped[dict[str, Any]]
    interval_seconds: Mapped[float | None]
    every: Mapped[str | None]
    cron: Mapped[str | None]
    at: Mapped[datetime | None]
    after: Mapped[str | None]
    timezone: Mapped[str] = mapped_column(server_default="UTC")
    jitter_seconds: Mapped[int] = mapped_column(server_default="0")
    only_between: Mapped[str | None]
    not_on: Mapped[list[Any]] = mapped_column(server_default="[]")
    start_at: Mapped[datetime | None]
    end_at: Mapped[datetime | None]
    total_repeats: Mapped[int]
    max_retries: Mapped[int]
    backoff_base_seconds: Mapped[int | None]
    timeout_seconds: Mapped[int]
    catch_up: Mapped[str]
    misfire_grace_seconds: Mapped[int]
    if_running: Mapped[str]
    max_queued: Mapped[int] = mapped_column(server_default="1")
    status: Mapped[str]
    status_reason: Mapped[str]
    generation: Mapped[int] = mapped_column(BigInteger)
    anchor_at: Mapped[datetime]
    cadence_slot: Mapped[datetime | None]
    next_slot: Mapped[datetime | None]
    next_run_at: Mapped[datetime | None]
    next_attempt: Mapped[int]
    last_slot: Mapped[datetime | None]
    current_repeat: Mapped[int]
    current_retry: Mapped[int]
    run_count: Mapped[int]
    error_count: Mapped[int]
    last_error: Mapped[str]
    last_run_at: Mapped[datetime | None]
    last_fired_at: Mapped[datetime | None]
    last_success_at: Mapped[datetime | None]
    last_success_execution_id: Mapped[UUID | None]
    dead_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class WorkerRow(Base):
    """A worker process and how long its word holds. Its executions are lost once the lease has run out."""

    __tablename__ = "workers"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    lease_expires_at: Mapped[datetime] = mapped_column(index=True)


class WorkflowExecutionRow(Base):
    """One run of a workflow. A scheduled run's id is computed from (schedule, slot, attempt): it exists once."""

    __tablename__ = "workflow_executions"
    __table_args__ = (
        CheckConstraint(one_of("status", ExecutionStatus), name="status_known"),
        CheckConstraint(one_of("trigger", Trigger), name="trigger_known"),
        CheckConstraint("repeat_number >= 0 AND retry_attempt >= 0 AND token >= 1", name="numbers_sane"),
        CheckConstraint(f"(finished_at IS NULL) = ({IS_ACTIVE_EXECUTION})", name="finished_when_ended"),
        CheckConstraint("(worker_id IS NOT NULL) = (status = 'running' AND NOT awaiting)", name="running_has_worker"),
        CheckConstraint(
            "NOT awaiting OR (status = 'running' AND deadline_at IS NOT NULL)", name="awaiting_has_deadline"
        ),
        CheckConstraint("started_at >= scheduled_for OR trigger = 'manual'", name="never_early"),
        # No two executions share (schedule, slot, retry).
        Index(
            "uq_workflow_executions_fire",
            "scheduled_job_id",
            "scheduled_for",
            "retry_attempt",
            unique=True,
            postgresql_where=text("trigger <> 'manual'"),
        ),
        CheckConstraint("NOT queued OR status = 'pending'", name="queued_has_not_run"),
        CheckConstraint(one_of("unrun_outcome", LedgerOutcome), name="unrun_outcome_known"),
        CheckConstraint(
            "(unrun_outcome IS NOT NULL) = (finished_at IS NOT NULL AND started_at IS NULL)",
            name="unrun_is_accounted_for",
        ),
        # Unless they may run side by side, executions of one schedule never overlap.
        Index(
            "uq_workflow_executions_no_overlap",
            "scheduled_job_id",
            unique=True,
            postgresql_where=text(f"exclusive AND NOT queued AND {IS_ACTIVE_EXECUTION}"),
        ),
        Index("ix_workflow_executions_active", "scheduled_job_id", postgresql_where=text(IS_ACTIVE_EXECUTION)),
        Index("ix_workflow_executions_running", "worker_id", postgresql_where=text("status = 'running'")),
        # What may start, once its time has come.
        Index("ix_workflow_executions_pending", "due_at", postgresql_where=text("status = 'pending' AND NOT queued")),
        Index("ix_workflow_executions_awaiting", "deadline_at", postgresql_where=text("awaiting")),
        # What the guard of a workflow counts.
        Index("ix_workflow_executions_running_of_workflow", "workflow_id", postgresql_where=text("status = 'running'")),
        Index("ix_workflow_executions_newest_of_job", "scheduled_job_id", "scheduled_for"),
        Index("ix_workflow_executions_newest_of_workflow", "workflow_id", "scheduled_for"),
        Index("ix_workflow_executions_newest", "scheduled_for"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    scheduled_job_id: Mapped[UUID] = mapped_column(ForeignKey("scheduled_jobs.id", ondelete="CASCADE"))
    # What ran then. No foreign key: the history belongs to the schedule, which may have moved to another workflow,
    # and a claim shall lock its schedule alone.
    workflow_id: Mapped[int]
    trigger: Mapped[str]
    status: Mapped[str]
    # Whether it may not run beside others; under `allow`, or by an override of a manual run, it may.
    exclusive: Mapped[bool]
    # Whether it waits for its turn behind others of its schedule.
    queued: Mapped[bool] = mapped_column(server_default=text("false"))
    # Whether it waits, without a worker, for a callback; and until when.
    awaiting: Mapped[bool] = mapped_column(server_default=text("false"))
    deadline_at: Mapped[datetime | None]
    # It may not start before.
    due_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    repeat_number: Mapped[int]
    retry_attempt: Mapped[int]
    scheduled_for: Mapped[datetime]
    payload: Mapped[dict[str, Any]]
    timeout_seconds: Mapped[int]
    # Fences: +1 whenever the right to run or to settle it changes hands.
    token: Mapped[int]
    worker_id: Mapped[UUID | None]
    error: Mapped[str]
    # What its slot is accounted as, if it ended without having begun.
    unrun_outcome: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class NodeResultRow(Base):
    """What a node of the workflow did in an execution."""

    __tablename__ = "node_results"
    __table_args__ = (CheckConstraint(one_of("status", ExecutionStatus), name="status_known"),)

    execution_id: Mapped[UUID] = mapped_column(
        ForeignKey("workflow_executions.id", ondelete="CASCADE"), primary_key=True
    )
    node_id: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    status: Mapped[str]
    output: Mapped[Any] = mapped_column(JSONB, nullable=True)
    error: Mapped[str]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]


class CallbackRow(Base):
    """What a target may say later, once, about work that it was given; only the hash of its token is here."""

    __tablename__ = "callbacks"
    __table_args__ = (
        CheckConstraint("state IN ('completed', 'open', 'superseded')", name="state_known"),
        CheckConstraint("(succeeded IS NOT NULL) = (state = 'completed')", name="completed_says_how"),
        Index("uq_callbacks_open", "execution_id", "node_id", unique=True, postgresql_where=text("state = 'open'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    execution_id: Mapped[UUID] = mapped_column(ForeignKey("workflow_executions.id", ondelete="CASCADE"), index=True)
    node_id: Mapped[str]
    token_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    state: Mapped[str]
    succeeded: Mapped[bool | None]
    output: Mapped[Any] = mapped_column(JSONB, nullable=True)
    error: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    heartbeat_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]


class CircuitBreakerRow(Base):
    """The breaker of a workflow, from its first change on."""

    __tablename__ = "circuit_breakers"
    __table_args__ = (
        CheckConstraint(one_of("state", BreakerState), name="state_known"),
        CheckConstraint("failure_count >= 0", name="failure_count_not_negative"),
        CheckConstraint("(opened_at IS NULL) = (state = 'closed')", name="opened_unless_closed"),
        CheckConstraint("probe_execution_id IS NULL OR state = 'half_open'", name="probe_only_half_open"),
    )

    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), primary_key=True)
    state: Mapped[str]
    failure_count: Mapped[int]
    opened_at: Mapped[datetime | None]
    probe_execution_id: Mapped[UUID | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class CircuitBreakerTransitionRow(Base):
    """A change of a breaker's state, and why."""

    __tablename__ = "circuit_breaker_transitions"
    __table_args__ = (
        CheckConstraint(one_of("from_state", BreakerState), name="from_state_known"),
        CheckConstraint(one_of("to_state", BreakerState), name="to_state_known"),
        CheckConstraint("from_state <> to_state", name="state_changed"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), index=True)
    from_state: Mapped[str]
    to_state: Mapped[str]
    reason: Mapped[str]
    at: Mapped[datetime]
    execution_id: Mapped[UUID | None]


class NotificationRow(Base):
    """Who wants to be told of which events, of a schedule, of a workflow, or of all."""

    __tablename__ = "notifications"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    url: Mapped[str]
    events: Mapped[list[Any]]
    scheduled_job_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("scheduled_jobs.id", ondelete="CASCADE"), index=True
    )
    workflow_id: Mapped[int | None] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), index=True)
    active: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class DeliveryRow(Base):
    """A notice for somebody: written with what happened, delivered beside it."""

    __tablename__ = "deliveries"
    __table_args__ = (
        CheckConstraint("status IN ('delivered', 'failed', 'pending')", name="status_known"),
        Index("ix_deliveries_due", "next_attempt_at", postgresql_where=text("status = 'pending'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    notification_id: Mapped[int] = mapped_column(ForeignKey("notifications.id", ondelete="CASCADE"), index=True)
    event: Mapped[str]
    data: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(server_default="pending")
    attempts: Mapped[int] = mapped_column(server_default="0")
    next_attempt_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    last_status: Mapped[int | None]
    last_error: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    delivered_at: Mapped[datetime | None]


class SwitchRow(Base):
    """Something that is turned on or off at run time, for all processes at once."""

    __tablename__ = "switches"

    name: Mapped[str] = mapped_column(primary_key=True)
    is_on: Mapped[bool]
    changed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class LockRow(Base):
    """The right to do what only one may do at a time, for as long as its lease lasts. It cannot stick."""

    __tablename__ = "locks"

    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[UUID]
    expires_at: Mapped[datetime]


class ScheduleRevisionRow(Base):
    """A change of a schedule: who made it, when, and how the schedule was from then on."""

    __tablename__ = "schedule_revisions"
    __table_args__ = (
        CheckConstraint(one_of("action", Action), name="action_known"),
        Index("ix_schedule_revisions_newest_of_job", "scheduled_job_id", "at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    scheduled_job_id: Mapped[UUID] = mapped_column(ForeignKey("scheduled_jobs.id", ondelete="CASCADE"))
    at: Mapped[datetime]
    # Nobody, where Carillon itself did it; and no foreign key: the history outlives the user.
    user_profile_id: Mapped[int | None]
    author: Mapped[str]
    action: Mapped[str]
    changes: Mapped[dict[str, Any]]
    note: Mapped[str]
    snapshot: Mapped[dict[str, Any]]


class LedgerEntryRow(Base):
    """A slot, or a range of neighbouring slots, that did not fire, and why."""

    __tablename__ = "ledger_entries"
    __table_args__ = (
        CheckConstraint(one_of("outcome", LedgerOutcome), name="outcome_known"),
        CheckConstraint("first_slot <= last_slot AND slot_count >= 1", name="range_sane"),
        CheckConstraint("(slot_count = 1) = (first_slot = last_slot)", name="count_fits"),
        UniqueConstraint("scheduled_job_id", "first_slot"),
        UniqueConstraint("scheduled_job_id", "last_slot"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    scheduled_job_id: Mapped[UUID] = mapped_column(ForeignKey("scheduled_jobs.id", ondelete="CASCADE"))
    first_slot: Mapped[datetime]
    last_slot: Mapped[datetime]
    slot_count: Mapped[int] = mapped_column(BigInteger)
    outcome: Mapped[str]
    reason: Mapped[str]
    execution_id: Mapped[UUID | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
