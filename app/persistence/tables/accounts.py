"""Tables of users, their tokens, sessions and identities, of teams, of secrets and of keys."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    String,
    UniqueConstraint,
    false,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.domain.access import OwnerKind, Role, TeamRole
from app.domain.agent_leases import AtEnd, Review
from app.persistence.tables.base import Base, one_of


class UserProfile(Base):
    """An owner of workflows and schedules: a person or a service, or a plugin."""

    __tablename__ = "user_profiles"
    __table_args__ = (
        CheckConstraint(one_of("role", Role), name="role_known"),
        CheckConstraint(one_of("kind", OwnerKind), name="kind_known"),
        Index("ix_user_profiles_quotas", "id", postgresql_where=text("quotas IS NOT NULL")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    username: Mapped[str] = mapped_column(String(255), unique=True)
    role: Mapped[str]
    kind: Mapped[str] = mapped_column(server_default=OwnerKind.USER)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    disabled_at: Mapped[datetime | None]
    # Those that an admin has set for this owner; the others are those of the settings.
    quotas: Mapped[dict[str, int] | None] = mapped_column(JSONB(none_as_null=True))


class TeamRow(Base):
    """A team. It owns objects by the profile of the same id, whose name is the team's with a prefix."""

    __tablename__ = "teams"

    id: Mapped[int] = mapped_column(
        ForeignKey("user_profiles.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    name: Mapped[str] = mapped_column(String(200), unique=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class TeamMemberRow(Base):
    """A user who belongs to a team, and the user's role in it."""

    __tablename__ = "team_members"
    __table_args__ = (CheckConstraint(one_of("role", TeamRole), name="role_known"),)

    team_id: Mapped[int] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(
        ForeignKey("user_profiles.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    role: Mapped[str]
    # True if the claims of an identity provider made the user a member, and may end that too.
    by_claims: Mapped[bool] = mapped_column(server_default=false())
    added_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class IdempotencyKeyRow(Base):
    """A request with an idempotency key, and its answer once there is one."""

    __tablename__ = "idempotency_keys"

    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    request_hash: Mapped[bytes] = mapped_column(LargeBinary)
    began_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp(), index=True)
    status: Mapped[int | None]
    headers: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    body: Mapped[bytes | None] = mapped_column(LargeBinary)


class TeamExclusionRow(Base):
    """A user who was removed from a team by hand: claims of an identity provider do not add the user again."""

    __tablename__ = "team_exclusions"

    team_id: Mapped[int] = mapped_column(ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(
        ForeignKey("user_profiles.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    removed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class ApiToken(Base):
    """A bearer token: found by its prefix, proved by its hash; the token itself is not stored.

    Without ``scopes`` it has those of the user's role.
    """

    __tablename__ = "api_tokens"
    __table_args__ = (CheckConstraint("kind IN ('api', 'feed')", name="kind_known"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(255))
    prefix: Mapped[str] = mapped_column(String(32), unique=True)
    token_hash: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    scopes: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    restriction: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    expires_at: Mapped[datetime | None]
    # To the minute, and written with a delay of up to a minute.
    last_used_at: Mapped[datetime | None]
    kind: Mapped[str] = mapped_column(server_default="api")
    # None unless another token was made in its place.
    replaced_at: Mapped[datetime | None]
    # None unless it was made for an agent.
    lease_id: Mapped[int | None] = mapped_column(ForeignKey("agent_leases.id", ondelete="CASCADE"), index=True)


class AgentLeaseRow(Base):
    """A lease: what a person grants to an agent, and what of it is spent."""

    __tablename__ = "agent_leases"
    __table_args__ = (
        CheckConstraint(one_of("review", Review), name="review_known"),
        CheckConstraint(one_of("at_end", AtEnd), name="at_end_known"),
        CheckConstraint("max_schedules >= 0 AND max_runs >= 0 AND max_writes >= 0", name="bounds_not_negative"),
        CheckConstraint("spent_runs >= 0 AND writes >= 0", name="spent_not_negative"),
        # Leases whose schedules are still to be paused or deleted when their time comes.
        Index("ix_agent_leases_open", "expires_at", postgresql_where=text("ended_at IS NULL")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    granted_by: Mapped[str]
    agent: Mapped[str] = mapped_column(String(200))
    purpose: Mapped[str]
    expires_at: Mapped[datetime]
    max_schedules: Mapped[int]
    max_runs: Mapped[int]
    max_retries: Mapped[int]
    min_interval_seconds: Mapped[int]
    max_writes: Mapped[int]
    workflows: Mapped[list[Any]] = mapped_column(server_default="[]")
    review: Mapped[str]
    at_end: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    revoked_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    spent_runs: Mapped[int] = mapped_column(BigInteger, server_default="0")
    writes: Mapped[int] = mapped_column(BigInteger, server_default="0")
    # When its owner was last told that it is used up.
    exhausted_at: Mapped[datetime | None]


class SessionRow(Base):
    """A session of a browser: an opaque cookie, of which the hash is stored. It ends with its token."""

    __tablename__ = "sessions"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    secret_hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    # None if it was not made from a stored token.
    token_id: Mapped[int | None] = mapped_column(ForeignKey("api_tokens.id", ondelete="CASCADE"), index=True)
    address: Mapped[str]
    user_agent: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    seen_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    expires_at: Mapped[datetime]
    # When the token ends that it was begun with; None if that has no end, and for logins at an identity provider.
    credential_ends_at: Mapped[datetime | None]


class SessionCodeRow(Base):
    """A code that is exchanged for a session once."""

    __tablename__ = "session_codes"

    code_hash: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    token_id: Mapped[int | None] = mapped_column(ForeignKey("api_tokens.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    expires_at: Mapped[datetime]
    # As for sessions.
    credential_ends_at: Mapped[datetime | None]


class IdentityRow(Base):
    """A user of an identity provider, by issuer and subject."""

    __tablename__ = "identities"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    issuer: Mapped[str]
    subject: Mapped[str]
    user_profile_id: Mapped[int] = mapped_column(ForeignKey("user_profiles.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    # When the newest token was issued whose claims were applied: an older one changes nothing.
    claims_at: Mapped[datetime]


class SecretRow(Base):
    """A secret of a user: sent to its allowed hosts only, and never shown.

    Without a value it stands for the secret of the same name in the environment.
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
    # None without a value: the environment names the hosts.
    allowed_hosts: Mapped[Any] = mapped_column(JSONB(none_as_null=True), nullable=True)
    # Ids of users and teams, or "all".
    shared_with: Mapped[Any] = mapped_column(JSONB, nullable=False)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    team_id: Mapped[int | None]


class SigningKeyRow(Base):
    """A signing key of an owner: the current one, or the one before it until it retires."""

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


class OidcKeyRow(Base):
    """A key that signs the tokens of calls. The newest key of an algorithm has no ``retires_at`` yet."""

    __tablename__ = "oidc_keys"
    __table_args__ = (
        Index("uq_oidc_keys_newest", "algorithm", unique=True, postgresql_where=text("retires_at IS NULL")),
        CheckConstraint("algorithm = 'RS256'", name="algorithm_known"),
    )

    kid: Mapped[str] = mapped_column(String(64), primary_key=True)
    algorithm: Mapped[str] = mapped_column(server_default="RS256")
    # PKCS 8 in PEM, not encrypted.
    private_key: Mapped[str]
    # A JWK.
    public_key: Mapped[Any] = mapped_column(JSONB, nullable=False)
    created_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    activates_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    retires_at: Mapped[datetime | None]
