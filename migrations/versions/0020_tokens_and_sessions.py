"""Tokens have scopes and ends, users can be disabled, browsers have sessions"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("user_profiles", sa.Column("disabled_at", _moment(), nullable=True))
    for name, kind in (
        ("scopes", postgresql.JSONB(astext_type=sa.Text())),
        ("restriction", postgresql.JSONB(astext_type=sa.Text())),
        ("expires_at", _moment()),
        ("last_used_at", _moment()),
    ):
        op.add_column("api_tokens", sa.Column(name, kind, nullable=True))
    op.add_column("api_tokens", sa.Column("kind", sa.Text(), server_default="api", nullable=False))
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        *_owner("sessions"),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        sa.Column("created_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("seen_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("expires_at", _moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("secret_hash", name="uq_sessions_secret_hash"),
    )
    op.create_table(
        "session_codes",
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        *_owner("session_codes"),
        sa.Column("created_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("expires_at", _moment(), nullable=False),
        sa.PrimaryKeyConstraint("code_hash", name="pk_session_codes"),
    )
    for table in ("sessions", "session_codes"):
        for column in ("user_profile_id", "token_id"):
            op.create_index(f"ix_{table}_{column}", table, [column])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("session_codes")
    op.drop_table("sessions")
    for name in ("kind", "last_used_at", "expires_at", "restriction", "scopes"):
        op.drop_column("api_tokens", name)
    op.drop_column("user_profiles", "disabled_at")


def _moment() -> sa.DateTime:
    return sa.DateTime(timezone=True)


def _owner(table: str) -> tuple[sa.Column[int] | sa.ForeignKeyConstraint, ...]:
    """Return the columns of the user and of the token; without the token nothing made from it is left."""
    return (
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=f"fk_{table}_user_profile_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["token_id"], ["api_tokens.id"], name=f"fk_{table}_token_id", ondelete="CASCADE"),
    )
