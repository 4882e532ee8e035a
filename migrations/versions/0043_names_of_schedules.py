"""Schedules of an owner in the order of their names, and by their whole names"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0043"
down_revision: str | None = "0042"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the indexes afterwards.
MOST_ROWS = 10_000
INDEXES = {
    "ix_scheduled_jobs_owner_name": ("user_profile_id", 'name COLLATE "C"', "id"),
    "ix_scheduled_jobs_whole_name": ('lower(name) COLLATE "C"', "created_at", "id"),
}


def upgrade() -> None:
    """Upgrade the schema."""
    few = sa.text("SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT :most) AS few").bindparams(most=MOST_ROWS + 1)
    if op.get_bind().execute(few).scalar_one() <= MOST_ROWS:
        for name, columns in INDEXES.items():
            op.create_index(name, "scheduled_jobs", [sa.text(column) for column in columns])


def downgrade() -> None:
    """Downgrade the schema."""
    for name in INDEXES:
        op.drop_index(name, table_name="scheduled_jobs", if_exists=True)
