"""Who is told of what, and how the telling went."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


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
        Index(
            "ix_deliveries_waiting",
            "notification_id",
            "next_attempt_at",
            postgresql_where=text("status = 'pending'"),
        ),
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
