"""Operations on many schedules"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

STATUSES = "'cancelled', 'done', 'failed', 'paused', 'running'"


def upgrade() -> None:
    """Upgrade the schema."""
    number = {"server_default": "0", "nullable": False}
    now = {"server_default": sa.text("clock_timestamp()"), "nullable": False}
    op.create_table(
        "operations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("warrant", postgresql.JSONB(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("terms", postgresql.JSONB(), nullable=False),
        sa.Column("selection", postgresql.JSONB(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Integer(), **number) for name in ("total", "done", "skipped", "failed")),
        sa.Column("skipped_reasons", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.Column("errors", postgresql.JSONB(), server_default="[]", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        *(sa.Column(name, sa.Uuid(), nullable=True) for name in ("position", "undo_of", "undone_by")),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), **now),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), **now),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(f"status IN ({STATUSES})", name=op.f("ck_operations_status_known")),
        sa.CheckConstraint(
            "total >= 0 AND done >= 0 AND skipped >= 0 AND failed >= 0",
            name=op.f("ck_operations_counters_not_negative"),
        ),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (status IN ('paused', 'running'))",
            name=op.f("ck_operations_finished_when_ended"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
    )
    op.create_index("ix_operations_newest_of_owner", "operations", ["user_profile_id", "id"])
    op.create_index(
        "ix_operations_running", "operations", ["updated_at"], postgresql_where=sa.text("status = 'running'")
    )
    op.create_index("ix_operations_undo_of", "operations", ["undo_of"], postgresql_where=sa.text("undo_of IS NOT NULL"))
    op.create_table(
        "operation_items",
        sa.Column("operation_id", sa.Uuid(), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("before", postgresql.JSONB(), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('changed', 'failed', 'skipped')", name=op.f("ck_operation_items_outcome_known")
        ),
        sa.ForeignKeyConstraint(
            ["operation_id"], ["operations.id"], name=op.f("fk_operation_items_operation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("operation_id", "scheduled_job_id", name=op.f("pk_operation_items")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("operation_items")
    op.drop_table("operations")
