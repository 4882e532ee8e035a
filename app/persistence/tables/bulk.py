"""Tables of operations on many schedules, and of plans of edits."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.bulk_operations import OperationStatus
from app.persistence.tables.base import Base, one_of


class OperationRow(Base):
    """An operation on many schedules. A worker that carries out a batch of it holds the row's lock meanwhile."""

    __tablename__ = "operations"
    __table_args__ = (
        CheckConstraint(one_of("status", OperationStatus), name="status_known"),
        CheckConstraint("total >= 0 AND done >= 0 AND skipped >= 0 AND failed >= 0", name="counters_not_negative"),
        CheckConstraint(
            "(finished_at IS NULL) = (status IN ('paused', 'running'))",
            name="finished_when_ended",
        ),
        Index("ix_operations_newest_of_owner", "user_profile_id", "id"),
        Index("ix_operations_running", "updated_at", postgresql_where=text("status = 'running'")),
        Index("ix_operations_undo_of", "undo_of", postgresql_where=text("undo_of IS NOT NULL")),
    )

    # Begins with the time, and gives the order of lists.
    id: Mapped[UUID] = mapped_column(primary_key=True)
    # Who started it. No foreign key: an operation whose user is gone fails at its next batch.
    user_profile_id: Mapped[int]
    username: Mapped[str]
    # What the token allowed, and where the request came from.
    warrant: Mapped[dict[str, Any]]
    action: Mapped[str]
    terms: Mapped[dict[str, Any]]
    # What the request named: a filter, or the number of ids.
    selection: Mapped[dict[str, Any]]
    note: Mapped[str]
    status: Mapped[str]
    total: Mapped[int] = mapped_column(server_default="0")
    done: Mapped[int] = mapped_column(server_default="0")
    skipped: Mapped[int] = mapped_column(server_default="0")
    failed: Mapped[int] = mapped_column(server_default="0")
    skipped_reasons: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    # The first rows that failed.
    errors: Mapped[list[Any]] = mapped_column(server_default="[]")
    # Why the whole operation could not go on.
    error: Mapped[str] = mapped_column(server_default="")
    # Schedules are handled in the order of their ids; this is the last one that was.
    position: Mapped[UUID | None]
    undo_of: Mapped[UUID | None]
    undone_by: Mapped[UUID | None]
    # It is not taken before this time. NULL: at once.
    starts_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    started_at: Mapped[datetime | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    finished_at: Mapped[datetime | None]


class OperationItemRow(Base):
    """A schedule that an operation is about, what came of it, and what it was before."""

    __tablename__ = "operation_items"
    __table_args__ = (CheckConstraint(one_of("outcome", ("changed", "failed", "skipped")), name="outcome_known"),)

    operation_id: Mapped[UUID] = mapped_column(ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True)
    # No foreign key: a schedule may be deleted meanwhile.
    scheduled_job_id: Mapped[UUID] = mapped_column(primary_key=True)
    # NULL until it was handled.
    outcome: Mapped[str | None]
    # When it was changed, by the clock of its revision.
    at: Mapped[datetime | None]
    before: Mapped[dict[str, Any] | None] = mapped_column(JSONB)


class BackfilledSlotRow(Base):
    """A past slot that a backfill has run, and what became of it before. No foreign key: it is history."""

    __tablename__ = "backfilled_slots"
    __table_args__ = (
        Index("ix_backfilled_slots_open", "operation_id", postgresql_where=text("NOT is_counted")),
        Index("ix_backfilled_slots_operation", "operation_id", "execution_id"),
    )

    scheduled_job_id: Mapped[UUID] = mapped_column(primary_key=True)
    slot: Mapped[datetime] = mapped_column(primary_key=True)
    operation_id: Mapped[UUID] = mapped_column(primary_key=True)
    execution_id: Mapped[UUID]
    former_outcome: Mapped[str]
    former_reason: Mapped[str]
    # Whether the end of the run has been counted in the operation.
    is_counted: Mapped[bool] = mapped_column(server_default=text("false"))
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class EditPlanRow(Base):
    """The plan of an edit: of which schedule, in which version, and which edit. Rows are deleted when they are old."""

    __tablename__ = "edit_plans"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    # No foreign key: the plan of a deleted schedule is worth nothing, and is deleted soon.
    scheduled_job_id: Mapped[UUID]
    user_profile_id: Mapped[int]
    # The entity tag of the schedule.
    tag: Mapped[str]
    # The fields that the edit changes, each with a digest of its new value.
    changes: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp(), index=True)
