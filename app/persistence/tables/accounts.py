"""Who owns things, and how they prove it."""

from datetime import datetime

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Identity,
    LargeBinary,
    String,
    func,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.access import OwnerKind, Role
from app.persistence.tables.base import Base, one_of


class UserProfile(Base):
    """Who owns workflows and schedules: a person or a service, or a plugin."""

    __tablename__ = "user_profiles"
    __table_args__ = (
        CheckConstraint(one_of("role", Role), name="role_known"),
        CheckConstraint(one_of("kind", OwnerKind), name="kind_known"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    username: Mapped[str] = mapped_column(String(255), unique=True)
    role: Mapped[str]
    kind: Mapped[str] = mapped_column(server_default=OwnerKind.USER)
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
