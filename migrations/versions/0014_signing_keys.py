"""A signing key for each owner, and an index of deliveries by notification"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("retires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_signing_keys_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
        sa.UniqueConstraint("key_id", name=op.f("uq_signing_keys_key_id")),
    )
    op.create_index(op.f("ix_signing_keys_user_profile_id"), "signing_keys", ["user_profile_id"])
    op.create_index(
        "uq_signing_keys_in_use",
        "signing_keys",
        ["user_profile_id"],
        unique=True,
        postgresql_where=sa.text("retires_at IS NULL"),
    )
    # Workers find the notifications with pending deliveries by this index alone, however many deliveries each has.
    op.create_index(
        "ix_deliveries_waiting",
        "deliveries",
        ["notification_id", "next_attempt_at"],
        postgresql_where=sa.text("status = 'pending'"),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_deliveries_waiting", table_name="deliveries")
    op.drop_table("signing_keys")
