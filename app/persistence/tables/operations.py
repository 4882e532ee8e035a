"""Tables of breakers, switches, sitemap pings, locks, notifications, webhooks and declared objects."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    String,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.breakers import BreakerState
from app.persistence.tables.base import Base, one_of

LONGEST_NAMESPACE = 63


class CircuitBreakerRow(Base):
    """The state of a workflow's breaker; a breaker without a row is closed."""

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


class SwitchRow(Base):
    """A switch that is turned on or off at run time, for all processes at once."""

    __tablename__ = "switches"

    name: Mapped[str] = mapped_column(primary_key=True)
    is_on: Mapped[bool]
    changed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class SitemapPingRow(Base):
    """The only row: the URLs of sitemap pings, whether a ping is wanted, and the slot of the one planned last."""

    __tablename__ = "sitemap_pings"
    __table_args__ = (CheckConstraint("id = 1", name="only_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, server_default="1")
    # NULL: those of the environment.
    urls: Mapped[list[Any] | None]
    wanted_at: Mapped[datetime | None]
    last_slot: Mapped[datetime | None]


class LockRow(Base):
    """A lock for work that one process does at a time, valid until its lease expires."""

    __tablename__ = "locks"

    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[UUID]
    expires_at: Mapped[datetime]


class MishapRow(Base):
    """How often a schedule or an execution could not be handled in its current state."""

    __tablename__ = "mishaps"

    subject_id: Mapped[UUID] = mapped_column(primary_key=True)
    # The generation of a schedule, or the token of an execution.
    state: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]
    error: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ManagedWorkflowRow(Base):
    """The workflow that a name of a namespace stands for."""

    __tablename__ = "managed_workflows"

    namespace: Mapped[str] = mapped_column(String(LONGEST_NAMESPACE), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    workflow_id: Mapped[int] = mapped_column(ForeignKey("workflows.id", ondelete="CASCADE"), unique=True)


class ManagedScheduleRow(Base):
    """The schedule that a name of a namespace stands for."""

    __tablename__ = "managed_schedules"

    namespace: Mapped[str] = mapped_column(String(LONGEST_NAMESPACE), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    scheduled_job_id: Mapped[UUID] = mapped_column(ForeignKey("scheduled_jobs.id", ondelete="CASCADE"), unique=True)


class ManagedCalendarRow(Base):
    """The calendar that a name of a namespace stands for."""

    __tablename__ = "managed_calendars"

    namespace: Mapped[str] = mapped_column(String(LONGEST_NAMESPACE), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    calendar_id: Mapped[int] = mapped_column(ForeignKey("calendars.id", ondelete="CASCADE"), unique=True)


class ManagedLimitRow(Base):
    """The limit that a name of a namespace stands for."""

    __tablename__ = "managed_limits"

    namespace: Mapped[str] = mapped_column(String(LONGEST_NAMESPACE), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    limit_id: Mapped[int] = mapped_column(ForeignKey("limits.id", ondelete="CASCADE"), unique=True)


class WebhookRow(Base):
    """A URL that is called at its own times."""

    __tablename__ = "webhooks"
    __table_args__ = (
        # Exactly one of these says when.
        CheckConstraint("num_nonnulls(cron, interval_minutes) = 1", name="one_kind_of_times"),
        CheckConstraint("interval_minutes >= 1", name="interval_positive"),
        CheckConstraint("timeout_seconds >= 1 AND max_retries >= 0", name="limits_sane"),
        # For the poller, which looks for due webhooks.
        Index("ix_webhooks_due", "next_execution_at", "id", postgresql_where=text("active")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(255))
    url: Mapped[str]
    method: Mapped[str]
    headers: Mapped[dict[str, Any]]
    payload: Mapped[dict[str, Any]]
    cron: Mapped[str | None]
    interval_minutes: Mapped[int | None]
    timezone: Mapped[str]
    active: Mapped[bool]
    timeout_seconds: Mapped[int]
    max_retries: Mapped[int]
    last_execution_at: Mapped[datetime | None]
    next_execution_at: Mapped[datetime | None]
    # Why no next time can be planned, if so.
    last_error: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    # The owner's id again if the owner is a team.
    team_id: Mapped[int | None]


class NotificationRow(Base):
    """A subscription: which events are delivered to a URL, of a schedule, of a workflow, or of all."""

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
    # The owner's id again if the owner is a team.
    team_id: Mapped[int | None]


class DeliveryRow(Base):
    """A notice for one notification: written in the transaction of its event, and delivered later."""

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
