"""Filters of schedules by reason and owner have indexes"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | None = "0017"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

INDEXES = (
    ("ix_scheduled_jobs_reason", ["status_reason", "created_at", "id"], "status_reason <> ''"),
    ("ix_scheduled_jobs_of_plugins", ["created_at", "id"], "owner_kind <> 'user'"),
    ("ix_scheduled_jobs_owner_id", ["owner_id", "created_at", "id"], None),
)


# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds them afterwards.
MOST_ROWS = 10_000


def upgrade() -> None:
    """Upgrade the schema."""
    few = sa.text("SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT :most) AS few").bindparams(most=MOST_ROWS + 1)
    if op.get_bind().execute(few).scalar_one() > MOST_ROWS:
        return
    for name, columns, where in INDEXES:
        op.create_index(name, "scheduled_jobs", columns, postgresql_where=sa.text(where) if where else None)


def downgrade() -> None:
    """Downgrade the schema."""
    for name, *_ in INDEXES:
        op.drop_index(name, table_name="scheduled_jobs", if_exists=True)
