"""Pauses that end by themselves"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0032"
down_revision: str | None = "0031"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the index afterwards.
MOST_ROWS = 10_000


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("scheduled_jobs", sa.Column("paused_until", sa.DateTime(timezone=True), nullable=True))
    few = sa.text("SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT :most) AS few").bindparams(most=MOST_ROWS + 1)
    if op.get_bind().execute(few).scalar_one() <= MOST_ROWS:
        op.create_index(
            "ix_scheduled_jobs_paused_until",
            "scheduled_jobs",
            ["paused_until"],
            postgresql_where=sa.text("paused_until IS NOT NULL"),
        )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_scheduled_jobs_paused_until", table_name="scheduled_jobs", if_exists=True)
    op.drop_column("scheduled_jobs", "paused_until")
