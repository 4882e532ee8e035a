"""Outcomes and lateness by minute"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0030"
down_revision: str | None = "0029"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the index of each partition
# afterwards. Those of new partitions come with them.
MOST_ROWS = 10_000
COUNT = f"SELECT count(*) FROM (SELECT FROM ledger_entries LIMIT {MOST_ROWS + 1}) AS few"  # noqa: S608 - made of constants


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "outcome_minutes",
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcomes", postgresql.JSONB(), nullable=False),
        sa.Column("lateness", postgresql.JSONB(), nullable=False),
        sa.Column(
            "derived_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("user_profile_id", "workflow_id", "minute", name=op.f("pk_outcome_minutes")),
    )
    op.create_index("ix_outcome_minutes_minute", "outcome_minutes", ["minute"])
    op.create_index("ix_outcome_minutes_workflow", "outcome_minutes", ["workflow_id", "minute"])
    # Entries are written in the order of their slots, nearly: such an index is small, and costs writers next to nothing.
    few = op.get_bind().execute(sa.text(COUNT)).scalar_one() <= MOST_ROWS
    whole = "ledger_entries" if few else "ONLY ledger_entries"
    op.execute(f"CREATE INDEX ix_ledger_entries_slots ON {whole} USING brin (first_slot) WITH (autosummarize = on)")


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_ledger_entries_slots", table_name="ledger_entries")
    op.drop_table("outcome_minutes")
