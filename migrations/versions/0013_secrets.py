"""Secrets with owners"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "secrets",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("owner_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=True),
        sa.Column("allowed_hosts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("shared_with", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.CheckConstraint("name ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$'", name=op.f("ck_secrets_name_known")),
        sa.CheckConstraint("value IS NULL OR allowed_hosts IS NOT NULL", name=op.f("ck_secrets_value_has_hosts")),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["user_profiles.id"], name=op.f("fk_secrets_owner_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint("owner_id", "name", name=op.f("uq_secrets_owner_id_name")),
    )
    op.create_index(op.f("ix_secrets_name"), "secrets", ["name"], unique=False)
    op.add_column("callbacks", sa.Column("secrets", postgresql.JSONB(astext_type=sa.Text()), nullable=True))


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_column("callbacks", "secrets")
    op.drop_table("secrets")
