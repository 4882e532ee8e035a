"""A migration as the next release may bring one. It is copied to the others, with their head, and run under load."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "9999"
down_revision: str | None = "head of this tree"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# In the order in which everything locks them.
TABLES = ("workflows", "scheduled_jobs", "workflow_executions")


def upgrade() -> None:
    """Columns that may be left out, and a table that refers to others."""
    for table in TABLES:
        op.add_column(table, sa.Column("may_be_null", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("has_a_default", sa.Integer(), nullable=False, server_default="7"))
    op.create_table(
        "of_a_later_release",
        sa.Column("scheduled_job_id", sa.Uuid(), sa.ForeignKey("scheduled_jobs.id", ondelete="CASCADE")),
        sa.Column("workflow_id", sa.Integer(), sa.ForeignKey("workflows.id", ondelete="CASCADE")),
    )


def downgrade() -> None:
    """Never."""
    raise NotImplementedError
