"""Tables of executions, workers and callbacks."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
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
from app.persistence.tables.base import IS_ACTIVE_EXECUTION, Base, one_of


class WorkerRow(Base):
    """A worker process and its lease. Its executions are lost once the lease has expired."""

    __tablename__ = "workers"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    lease_expires_at: Mapped[datetime] = mapped_column(index=True)


class WorkflowExecutionRow(Base):
    """A run of a workflow or of an entity's work.

    The id is computed from the schedule or entity, the slot and the attempt, so that no slot can fire twice. It begins
    with the time: it is the key of the weekly partitions, and the order of lists.
    """

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
        # A run belongs to a schedule or to an entity; an entity brings its work along.
        CheckConstraint("num_nonnulls(scheduled_job_id, entity_type) = 1", name="one_source"),
        CheckConstraint("(scheduled_job_id IS NULL) = (workflow_id IS NULL)", name="schedules_run_workflows"),
        CheckConstraint("num_nulls(entity_type, entity_id, work) IN (0, 3)", name="entity_whole"),
        CheckConstraint("(trigger = 'entity') = (entity_type IS NOT NULL)", name="entities_trigger_their_own"),
        CheckConstraint("NOT queued OR status = 'pending'", name="queued_has_not_run"),
        CheckConstraint(one_of("unrun_outcome", LedgerOutcome), name="unrun_outcome_known"),
        CheckConstraint(
            "(unrun_outcome IS NOT NULL) = (finished_at IS NOT NULL AND started_at IS NULL)",
            name="unrun_is_accounted_for",
        ),
        # Ids sort by time. No column of an index ever changes, so that the end of a run updates no index.
        Index("ix_workflow_executions_newest_of_job", "scheduled_job_id", "id"),
        Index("ix_workflow_executions_newest_of_workflow", "workflow_id", "id"),
        Index("ix_workflow_executions_newest_of_owner", "user_profile_id", "id"),
        Index(
            "ix_workflow_executions_newest_of_entity",
            *("entity_type", "entity_id", "id"),
            postgresql_where=text("entity_type IS NOT NULL"),
        ),
        {"postgresql_partition_by": "RANGE (id)"},
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    # The owner of its schedule, which never changes.
    user_profile_id: Mapped[int]
    # No foreign key: the check would lock the schedule again for each row, and a cascade would delete millions of rows
    # in one transaction. Writers hold the schedule's row, and a trigger notes histories to delete.
    scheduled_job_id: Mapped[UUID | None]
    entity_type: Mapped[str | None]
    entity_id: Mapped[str | None]
    work: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    # The workflow that ran. No foreign key: the schedule may have moved to another workflow since, and a claim must not
    # lock the workflow.
    workflow_id: Mapped[int | None]
    trigger: Mapped[str]
    status: Mapped[str]
    # Whether it must run alone; false under `allow`, or by an override of a manual run.
    exclusive: Mapped[bool]
    # Whether it waits behind other runs of its schedule.
    queued: Mapped[bool] = mapped_column(server_default=text("false"))
    # Whether it waits without a worker for a callback, and until when.
    awaiting: Mapped[bool] = mapped_column(server_default=text("false"))
    deadline_at: Mapped[datetime | None]
    # It may not start before this.
    due_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    repeat_number: Mapped[int]
    retry_attempt: Mapped[int]
    scheduled_for: Mapped[datetime]
    payload: Mapped[dict[str, Any]]
    timeout_seconds: Mapped[int]
    # The fencing token: +1 whenever another process gets the right to run or settle it.
    token: Mapped[int]
    worker_id: Mapped[UUID | None]
    error: Mapped[str]
    # The results of its nodes.
    results: Mapped[list[Any]] = mapped_column(server_default="[]")
    # The graph that it began with, if it was parked.
    graph: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    # The ledger outcome of its slot, if it ended before it began.
    unrun_outcome: Mapped[str | None]
    # The W3C trace context of the request that asked for it, if requests are traced.
    trace_context: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class ActiveExecutionRow(Base):
    """The pending and running executions. Triggers on ``workflow_executions`` maintain it; no other code writes to it.

    It stays small however long the history is, and is the one place to look for what is under way.
    """

    __tablename__ = "active_executions"
    __table_args__ = (
        # Executions of one schedule never overlap, unless they may run side by side.
        Index(
            "uq_active_executions_no_overlap",
            *("scheduled_job_id", "alone"),
            unique=True,
            postgresql_where=text("scheduled_job_id IS NOT NULL"),
        ),
        # One run of an entity at a time.
        Index(
            "uq_active_executions_entity_running",
            *("entity_type", "entity_id"),
            unique=True,
            postgresql_where=text("entity_type IS NOT NULL AND status = 'running'"),
        ),
        Index(
            "ix_active_executions_of_entity",
            *("entity_type", "entity_id"),
            postgresql_where=text("entity_type IS NOT NULL"),
        ),
        Index("ix_active_executions_of_worker", "worker_id", postgresql_where=text("worker_id IS NOT NULL")),
        # Runs that the guard of a workflow counts.
        Index("ix_active_executions_running_of_workflow", "workflow_id", postgresql_where=text("status = 'running'")),
        # Sleeping runs, and those that were woken and have not started yet, count too.
        Index(
            "ix_active_executions_suspended_of_workflow",
            "workflow_id",
            postgresql_where=text("status = 'pending' AND deadline_at IS NOT NULL"),
        ),
        # Runs that may start, once they are due.
        Index("ix_active_executions_pending", "due_at", postgresql_where=text("status = 'pending' AND NOT queued")),
        Index("ix_active_executions_awaiting", "deadline_at", postgresql_where=text("awaiting")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    scheduled_job_id: Mapped[UUID | None]
    workflow_id: Mapped[int | None]
    entity_type: Mapped[str | None]
    entity_id: Mapped[str | None]
    trigger: Mapped[str]
    status: Mapped[str]
    exclusive: Mapped[bool]
    queued: Mapped[bool]
    # True if the run is exclusive and not queued; else NULL, which a unique index never finds equal.
    alone: Mapped[bool | None]
    awaiting: Mapped[bool]
    retry_attempt: Mapped[int]
    timeout_seconds: Mapped[int]
    token: Mapped[int]
    worker_id: Mapped[UUID | None]
    due_at: Mapped[datetime]
    deadline_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]


class UnsuccessfulExecutionRow(Base):
    """The executions that did not succeed. Triggers on ``workflow_executions`` maintain it; no other code writes to it.

    A filter by such a status finds its rows here. An index on ``status`` itself would be updated by every end of a run.
    """

    __tablename__ = "unsuccessful_executions"
    __table_args__ = (
        Index("ix_unsuccessful_executions_newest", "status", "id"),
        Index("ix_unsuccessful_executions_newest_of_owner", "user_profile_id", "status", "id"),
        Index(
            "ix_unsuccessful_executions_newest_of_job",
            *("scheduled_job_id", "status", "id"),
            postgresql_where=text("scheduled_job_id IS NOT NULL"),
        ),
        Index(
            "ix_unsuccessful_executions_newest_of_workflow",
            *("workflow_id", "status", "id"),
            postgresql_where=text("workflow_id IS NOT NULL"),
        ),
        Index(
            "ix_unsuccessful_executions_newest_of_entity",
            *("entity_type", "entity_id", "status", "id"),
            postgresql_where=text("entity_type IS NOT NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_profile_id: Mapped[int]
    scheduled_job_id: Mapped[UUID | None]
    workflow_id: Mapped[int | None]
    entity_type: Mapped[str | None]
    entity_id: Mapped[str | None]
    status: Mapped[str]


class OutcomeMinuteRow(Base):
    """What became of the slots of a minute, derived by housekeeping from executions and the ledger.

    There are rows for a workflow of an owner, for all that an owner has (``workflow_id`` 0) and for all (both 0): no
    figure has to be summed up over workflows or owners.
    """

    __tablename__ = "outcome_minutes"
    __table_args__ = (
        Index("ix_outcome_minutes_minute", "minute"),
        Index("ix_outcome_minutes_workflow", "workflow_id", "minute"),
    )

    user_profile_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    workflow_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    minute: Mapped[datetime] = mapped_column(primary_key=True)
    # Counts by outcome.
    outcomes: Mapped[dict[str, Any]]
    # Counts by the buckets of ``app.domain.figures``.
    lateness: Mapped[dict[str, Any]]
    derived_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class DeletedHistoryRow(Base):
    """A deleted schedule whose history is not deleted yet. A trigger writes it; queries leave such history out."""

    __tablename__ = "deleted_histories"

    scheduled_job_id: Mapped[UUID] = mapped_column(primary_key=True)
    deleted_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp(), index=True)


class BackfillRow(Base):
    """How far a new table has been filled from older data, from the newest id down; deleted when it is complete."""

    __tablename__ = "backfills"

    name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[UUID]


class CallbackRow(Base):
    """The result that a target may report later, once. Only the hash of its token is stored."""

    __tablename__ = "callbacks"
    __table_args__ = (
        CheckConstraint("state IN ('completed', 'open', 'superseded')", name="state_known"),
        CheckConstraint("(succeeded IS NOT NULL) = (state = 'completed')", name="completed_says_how"),
        Index("uq_callbacks_open", "execution_id", "node_id", unique=True, postgresql_where=text("state = 'open'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    # No foreign key: a partition of executions is dropped as a whole.
    execution_id: Mapped[UUID] = mapped_column(index=True)
    node_id: Mapped[str]
    token_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    state: Mapped[str]
    succeeded: Mapped[bool | None]
    output: Mapped[Any] = mapped_column(JSONB, nullable=True)
    error: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    heartbeat_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    # The names of the secrets that its execution used: they are hidden in the result.
    secrets: Mapped[Any] = mapped_column(JSONB, nullable=True)
