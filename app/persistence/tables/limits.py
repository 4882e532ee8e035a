"""Tables of named limits: their bounds, their buckets, and the permits that runs and calls hold or wait for."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.persistence.tables.base import Base


class LimitRow(Base):
    """A named limit of a user or a team; a public one can be named by everybody."""

    __tablename__ = "limits"
    __table_args__ = (
        UniqueConstraint("user_profile_id", "name"),
        Index("ix_limits_public", "name", postgresql_where=text("public")),
        CheckConstraint("max_concurrent >= 1", name="max_concurrent_positive"),
        CheckConstraint("burst IS NULL OR (burst >= 1 AND rate IS NOT NULL)", name="burst_of_rate"),
        CheckConstraint("num_nonnulls(max_concurrent, rate) >= 1", name="has_bound"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"))
    # The owner's id again if the owner is a team.
    team_id: Mapped[int | None]
    name: Mapped[str]
    public: Mapped[bool] = mapped_column(server_default=text("false"))
    max_concurrent: Mapped[int | None]
    rate: Mapped[str | None]
    burst: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class LimitBucketRow(Base):
    """The state of a limit, or of one key of it. Whoever gives permits holds the lock of this row."""

    __tablename__ = "limit_buckets"
    __table_args__ = (
        Index(
            "uq_limit_buckets_of_limit", "limit_id", "key", unique=True, postgresql_where=text("limit_id IS NOT NULL")
        ),
        Index(
            "uq_limit_buckets_of_owner", "owner_id", "key", unique=True, postgresql_where=text("owner_id IS NOT NULL")
        ),
        CheckConstraint("num_nonnulls(limit_id, owner_id) = 1", name="one_source"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    limit_id: Mapped[int | None] = mapped_column(ForeignKey("limits.id", ondelete="CASCADE"))
    # Of a quota, which is a limit for all that an owner has; ``key`` is the name of the quota.
    owner_id: Mapped[int | None] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"))
    key: Mapped[str] = mapped_column(server_default="")
    # When the next start is regular by the rate.
    next_at: Mapped[datetime | None]


class LimitPermitRow(Base):
    """A permit of a bucket that a run, or a call of one of its nodes, holds or waits for.

    It counts for as long as the run is active, and that of a call only under the token that the run had then. No
    foreign key to the run: those that have ended are deleted when the bucket is looked at.
    """

    __tablename__ = "limit_permits"
    __table_args__ = (
        Index("ix_limit_permits_waiting", "bucket_id", "slot", postgresql_where=text("starts_at IS NULL")),
        Index("ix_limit_permits_held", "bucket_id", postgresql_where=text("starts_at IS NOT NULL")),
    )

    execution_id: Mapped[UUID] = mapped_column(primary_key=True)
    # Empty for the run as a whole.
    node_id: Mapped[str] = mapped_column(server_default="", primary_key=True)
    bucket_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("limit_buckets.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # The schedule or entity of the run.
    source: Mapped[str]
    slot: Mapped[datetime]
    token: Mapped[int]
    entered_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    # None while it waits; then the time at which the run or call may start.
    starts_at: Mapped[datetime | None]
