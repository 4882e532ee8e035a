"""Where traces come from"""

import time
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import DBAPIError

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = ("workflow_executions", "scheduled_jobs")
# Whoever waits for a table holds up all who come after him: so nobody waits for long, and it is tried again.
LOCK_SECONDS = 2
PAUSE_SECONDS = 1
ATTEMPTS = 60
# lock_not_available, deadlock_detected
HELD_BY_OTHERS = ("55P03", "40P01")


def upgrade() -> None:
    """Apply."""
    connection = op.get_bind()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with connection.begin_nested():
                connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
                for table in TABLES:
                    op.add_column(table, sa.Column("trace_context", sa.Text(), nullable=True))
            break
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in HELD_BY_OTHERS or attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS)
    connection.execute(sa.text("SET LOCAL lock_timeout = DEFAULT"))


def downgrade() -> None:
    """Take back."""
    for table in TABLES:
        op.drop_column(table, "trace_context")
