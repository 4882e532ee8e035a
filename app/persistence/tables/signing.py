"""The keys that sign what is sent on somebody's behalf."""

from datetime import datetime

from sqlalchemy import ForeignKey, Identity, Index, String, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


class SigningKeyRow(Base):
    """A key of an owner: the one in use, or the one before it until it retires."""

    __tablename__ = "signing_keys"
    __table_args__ = (
        Index("uq_signing_keys_in_use", "user_profile_id", unique=True, postgresql_where=text("retires_at IS NULL")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    key_id: Mapped[str] = mapped_column(String(40), unique=True)
    key: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    retires_at: Mapped[datetime | None]
