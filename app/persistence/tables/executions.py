"""Runs, what their nodes did, who runs them, and what they wait for."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.executions import ExecutionStatus, Trigger
from app.domain.ledger import LedgerOutcome
from app.persistence.tables.declaring import IS_ACTIVE_EXECUTION, Base, one_of


class WorkerRow(Base):
    """A worker process and how long its word holds. Its executions are lost once the lease has run out."""

    __tablename__ = "workers"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    lease_expires_at: Mapped[datetime] = mapped_column(index=True)


class WorkflowExecutionRow(Base):
    """One run, of a workflow or of an entity's work. Its id is computed from what fires it: it exists once."""

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
        # A schedule's or an entity's; an entity says itself what is to be done.
        CheckConstraint("num_nonnulls(scheduled_job_id, entity_type) = 1", name="one_source"),
        CheckConstraint("(scheduled_job_id IS NULL) = (workflow_id IS NULL)", name="schedules_run_workflows"),
        CheckConstraint("num_nulls(entity_type, entity_id, work) IN (0, 3)", name="entity_whole"),
        CheckConstraint("(trigger = 'entity') = (entity_type IS NOT NULL)", name="entities_trigger_their_own"),
        Index(
            "uq_workflow_executions_entity_fire",
            *("entity_type", "entity_id", "scheduled_for", "retry_attempt"),
            unique=True,
            postgresql_where=text("entity_type IS NOT NULL"),
        ),
        # One run of an entity at a time.
        Index(
            "uq_workflow_executions_entity_running",
            *("entity_type", "entity_id"),
            unique=True,
            postgresql_where=text("entity_type IS NOT NULL AND status = 'running'"),
        ),
        Index(
            "ix_workflow_executions_active_of_entity",
            *("entity_type", "entity_id"),
            postgresql_where=text(f"entity_type IS NOT NULL AND {IS_ACTIVE_EXECUTION}"),
        ),
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
        Index("ix_workflow_executions_newest_of_owner", "user_profile_id", "scheduled_for"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    # Whose it is; as its schedule never changes hands, it is written down once.
    user_profile_id: Mapped[int]
    scheduled_job_id: Mapped[UUID | None] = mapped_column(ForeignKey("scheduled_jobs.id", ondelete="CASCADE"))
    entity_type: Mapped[str | None]
    entity_id: Mapped[str | None]
    work: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    # What ran then. No foreign key: the history belongs to the schedule, which may have moved to another workflow,
    # and a claim shall lock its schedule alone.
    workflow_id: Mapped[int | None]
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
