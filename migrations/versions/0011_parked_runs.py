"""Parked runs keep the graph that they started with"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("workflow_executions", sa.Column("graph", postgresql.JSONB(), nullable=True))
    op.create_index(
        "ix_active_executions_suspended_of_workflow",
        "active_executions",
        ["workflow_id"],
        postgresql_where=sa.text("status = 'pending' AND deadline_at IS NOT NULL"),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_active_executions_suspended_of_workflow", "active_executions")
    op.drop_column("workflow_executions", "graph")
