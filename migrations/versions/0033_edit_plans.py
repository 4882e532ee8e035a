"""Plans of edits"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0033"
down_revision: str | None = "0032"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "edit_plans",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_edit_plans")),
    )
    op.create_index(op.f("ix_edit_plans_created_at"), "edit_plans", ["created_at"])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("edit_plans")
