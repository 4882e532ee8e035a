"""Room for the ends of runs beside their beginnings"""

from collections.abc import Sequence

from alembic import op

revision: str = "0047"
down_revision: str | None = "0046"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

PARTITIONS = "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'workflow_executions'::regclass"


def upgrade() -> None:
    """Upgrade the schema.

    A run is written when it begins and again, with its results, when it ends. With less room the second version went to
    another page, and into all indexes. As in ``app.persistence.retention``, for the partitions that exist.
    """
    _set_fillfactor(35)


def downgrade() -> None:
    """Downgrade the schema."""
    _set_fillfactor(70)


def _set_fillfactor(percent: int) -> None:
    for (partition,) in op.get_bind().exec_driver_sql(PARTITIONS).all():
        op.execute(f"ALTER TABLE {partition} SET (fillfactor = {percent})")
