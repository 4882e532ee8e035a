"""Slots that people ask to leave out, and runs of backfills"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0038"
down_revision: str | None = "0037"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` validates its checks afterwards.
MOST_ROWS = 10_000
OUTCOMES = (
    *("coalesced", "missed", "skipped_breaker", "skipped_guard", "skipped_overlap", "skipped_queue_full"),
    "skipped_retry",
)
TRIGGERS = ("catch_up", "cron", "entity", "manual", "schedule")
# A check, its table and column, the values before, and those that are new.
CHECKS = (
    ("unrun_outcome_known", "workflow_executions", "unrun_outcome", OUTCOMES, ("skipped_request",)),
    ("trigger_known", "workflow_executions", "trigger", TRIGGERS, ("backfill",)),
    ("outcome_known", "ledger_entries", "outcome", OUTCOMES, ("skipped_request",)),
)


def set_values(name: str, table: str, column: str, values: Sequence[str]) -> None:
    """Replace the check that lists the values of a column."""
    few = sa.text(f"SELECT count(*) FROM (SELECT FROM {table} LIMIT :most) AS few")  # noqa: S608
    is_small = op.get_bind().execute(few.bindparams(most=MOST_ROWS + 1)).scalar_one() <= MOST_ROWS
    listed = ", ".join(f"'{one}'" for one in sorted(values))
    constraint = op.f(f"ck_{table}_{name}")
    op.drop_constraint(constraint, table)
    suffix = "" if is_small else " NOT VALID"
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {constraint} CHECK ({column} IN ({listed})){suffix}")


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column(
        "scheduled_jobs", sa.Column("has_skips", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    for name, table, column, before, new in CHECKS:
        set_values(name, table, column, [*before, *new])
    op.create_table(
        "slot_skips",
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("slot", sa.DateTime(timezone=True), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["scheduled_job_id"],
            ["scheduled_jobs.id"],
            name=op.f("fk_slot_skips_scheduled_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("scheduled_job_id", "slot", name=op.f("pk_slot_skips")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("slot_skips")
    op.execute("DELETE FROM ledger_entries WHERE outcome = 'skipped_request'")
    op.execute("DELETE FROM workflow_executions WHERE trigger = 'backfill'")
    for name, table, column, before, _ in CHECKS:
        set_values(name, table, column, before)
    op.drop_column("scheduled_jobs", "has_skips")
