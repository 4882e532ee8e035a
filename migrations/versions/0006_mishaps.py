"""Mishaps: errors while handling a schedule or an execution"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "mishaps",
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("subject_id", name=op.f("pk_mishaps")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("mishaps")
