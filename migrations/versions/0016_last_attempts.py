"""Schedules say what their last attempt came to"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

COLUMNS = {
    "last_error_at": sa.DateTime(timezone=True),
    "last_outcome": sa.Text(),
    "last_attempt_at": sa.DateTime(timezone=True),
    "last_execution_id": sa.Uuid(),
}


def upgrade() -> None:
    """Upgrade the schema. No index: every tick writes these columns."""
    for name, kind in COLUMNS.items():
        op.add_column("scheduled_jobs", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    """Downgrade the schema."""
    for name in COLUMNS:
        op.drop_column("scheduled_jobs", name)
