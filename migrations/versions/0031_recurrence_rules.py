"""Recurrence rules of schedules"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0030"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the index afterwards.
MOST_ROWS = 10_000
COUNT = f"SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT {MOST_ROWS + 1}) AS few"  # noqa: S608 - made of constants


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("scheduled_jobs", sa.Column("rrule", sa.Text(), nullable=True))
    if op.get_bind().execute(sa.text(COUNT)).scalar_one() <= MOST_ROWS:
        op.create_index(
            "ix_scheduled_jobs_rrule",
            "scheduled_jobs",
            ["created_at", "id"],
            postgresql_where=sa.text("every = 'rrule'"),
        )


def downgrade() -> None:
    """Downgrade the schema. Schedules with a rule stay, with a spec that is not valid."""
    op.execute("DROP INDEX IF EXISTS ix_scheduled_jobs_rrule")
    op.drop_column("scheduled_jobs", "rrule")
