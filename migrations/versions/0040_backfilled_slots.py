"""Past slots that backfills have run"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0040"
down_revision: str | None = "0039"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "backfilled_slots",
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("slot", sa.DateTime(timezone=True), nullable=False),
        sa.Column("operation_id", sa.Uuid(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("former_outcome", sa.Text(), nullable=False),
        sa.Column("former_reason", sa.Text(), nullable=False),
        sa.Column("is_counted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("scheduled_job_id", "slot", "operation_id", name=op.f("pk_backfilled_slots")),
    )
    op.create_index(
        "ix_backfilled_slots_open", "backfilled_slots", ["operation_id"], postgresql_where=sa.text("NOT is_counted")
    )
    op.create_index("ix_backfilled_slots_operation", "backfilled_slots", ["operation_id", "execution_id"])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("backfilled_slots")
