"""Entities with a time of their own, as Carillon itself has them."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, String, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


class WebhookRow(Base):
    """An address that is called at its times."""

    __tablename__ = "webhooks"
    __table_args__ = (
        # Exactly one of these says when.
        CheckConstraint("num_nonnulls(cron, interval_minutes) = 1", name="one_kind_of_times"),
        CheckConstraint("interval_minutes >= 1", name="interval_positive"),
        CheckConstraint("timeout_seconds >= 1 AND max_retries >= 0", name="limits_sane"),
        # What is due, and nothing else.
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
    # What is wrong with its times, where nothing can be planned.
    last_error: Mapped[str] = mapped_column(server_default="")
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
