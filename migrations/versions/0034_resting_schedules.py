"""Lists and counts of schedules that are not active have indexes by owner and in order"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0034"
down_revision: str | None = "0033"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds them afterwards.
MOST_ROWS = 10_000
COUNT = f"SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT {MOST_ROWS + 1}) AS few"  # noqa: S608 - made of constants
INDEXES = {
    "ix_scheduled_jobs_resting_newest": ["status", "created_at", "id"],
    "ix_scheduled_jobs_owner_resting": ["user_profile_id", "status", "created_at", "id"],
}


def upgrade() -> None:
    """Upgrade the schema."""
    if op.get_bind().execute(sa.text(COUNT)).scalar_one() > MOST_ROWS:
        return
    for name, columns in INDEXES.items():
        op.create_index(
            name,
            "scheduled_jobs",
            columns,
            postgresql_where=sa.text("status <> 'active'"),
            postgresql_include=["status_reason"],
        )


def downgrade() -> None:
    """Downgrade the schema."""
    for name in INDEXES:
        op.drop_index(name, table_name="scheduled_jobs", if_exists=True)
