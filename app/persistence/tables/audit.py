"""Tables of the audit log, and of the addresses that tokens and users were seen at."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


class AuditEventRow(Base):
    """An event of the audit log. The partitions are weeks; the id begins with the time and gives the order of lists.

    There are no foreign keys: an event outlives its actor and its object.
    """

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_newest_of_actor_id", "actor_id", "id"),
        Index("ix_audit_events_newest_of_actor", "actor", "id"),
        Index("ix_audit_events_newest_of_owner", "owner_id", "id"),
        Index("ix_audit_events_newest_of_object", "object_type", "object_id", "id"),
        Index("ix_audit_events_newest_of_action", "action", "id"),
        {"postgresql_partition_by": "RANGE (id)"},
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    actor_id: Mapped[int | None]
    actor: Mapped[str | None]
    on_behalf_of: Mapped[str | None]
    via: Mapped[str]
    action: Mapped[str]
    object_type: Mapped[str]
    object_id: Mapped[str | None]
    object_name: Mapped[str]
    owner_id: Mapped[int | None]
    changes: Mapped[dict[str, Any]]
    note: Mapped[str]
    request_id: Mapped[str | None]
    address: Mapped[str | None]
    details: Mapped[dict[str, Any]]


class TokenAddressRow(Base):
    """An address, or a /64 network of IPv6, that a token was used from."""

    __tablename__ = "token_addresses"

    token_id: Mapped[int] = mapped_column(ForeignKey("api_tokens.id", ondelete="CASCADE"), primary_key=True)
    address: Mapped[str] = mapped_column(primary_key=True)
    # To the minute.
    seen_at: Mapped[datetime]


class UserAddressRow(Base):
    """An address, or a /64 network of IPv6, from which a user came without a stored token: by session or identity."""

    __tablename__ = "user_addresses"

    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), primary_key=True)
    address: Mapped[str] = mapped_column(primary_key=True)
    # To the minute.
    seen_at: Mapped[datetime]
