"""Schedules that are deleted some time after they are done"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0039"
down_revision: str | None = "0038"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the index afterwards.
MOST_ROWS = 10_000


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("scheduled_jobs", sa.Column("delete_after_seconds", sa.Integer(), nullable=True))
    few = sa.text("SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT :most) AS few").bindparams(most=MOST_ROWS + 1)
    if op.get_bind().execute(few).scalar_one() <= MOST_ROWS:
        op.create_index(
            "ix_scheduled_jobs_deleted_after",
            "scheduled_jobs",
            ["id"],
            postgresql_where=sa.text("status = 'done' AND delete_after_seconds > 0"),
        )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_scheduled_jobs_deleted_after", table_name="scheduled_jobs", if_exists=True)
    op.drop_column("scheduled_jobs", "delete_after_seconds")
