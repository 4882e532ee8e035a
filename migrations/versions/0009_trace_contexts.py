"""Trace contexts"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = ("workflow_executions", "scheduled_jobs")


def upgrade() -> None:
    """Upgrade the schema."""
    for table in TABLES:
        op.add_column(table, sa.Column("trace_context", sa.Text(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema."""
    for table in TABLES:
        op.drop_column(table, "trace_context")
