"""Secrets that users keep here."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Identity, UniqueConstraint, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


class SecretRow(Base):
    """A secret of a user's: sent to its allowed hosts, answered to nobody.

    Without a value it lends the one that the environment has under its name.
    """

    __tablename__ = "secrets"
    __table_args__ = (
        UniqueConstraint("owner_id", "name"),
        CheckConstraint("name ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$'", name="name_known"),
        CheckConstraint("value IS NULL OR allowed_hosts IS NOT NULL", name="value_has_hosts"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(index=True)
    value: Mapped[str | None]
    # None, without a value: as the environment says.
    allowed_hosts: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    # Ids of users, or "all".
    shared_with: Mapped[Any] = mapped_column(JSONB, nullable=False)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
