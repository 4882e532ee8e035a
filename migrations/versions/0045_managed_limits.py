"""Limits that files declare"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0045"
down_revision: str | None = "0044"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "managed_limits",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("limit_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["limit_id"], ["limits.id"], name=op.f("fk_managed_limits_limit_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_managed_limits")),
        sa.UniqueConstraint("limit_id", name=op.f("uq_managed_limits_limit_id")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("managed_limits")
