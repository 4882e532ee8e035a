"""Notifications"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "notifications",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=True),
        sa.Column("workflow_id", sa.Integer(), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["scheduled_job_id"],
            ["scheduled_jobs.id"],
            name=op.f("fk_notifications_scheduled_job_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_notifications_user_profile_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_notifications_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notifications")),
    )
    op.create_index(op.f("ix_notifications_scheduled_job_id"), "notifications", ["scheduled_job_id"], unique=False)
    op.create_index(op.f("ix_notifications_user_profile_id"), "notifications", ["user_profile_id"], unique=False)
    op.create_index(op.f("ix_notifications_workflow_id"), "notifications", ["workflow_id"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("notification_id", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "next_attempt_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), server_default="", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('delivered', 'failed', 'pending')", name=op.f("ck_deliveries_status_known")),
        sa.ForeignKeyConstraint(
            ["notification_id"], ["notifications.id"], name=op.f("fk_deliveries_notification_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(op.f("ix_deliveries_notification_id"), "deliveries", ["notification_id"], unique=False)


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index(op.f("ix_deliveries_notification_id"), table_name="deliveries")
    op.drop_index("ix_deliveries_due", table_name="deliveries", postgresql_where=sa.text("status = 'pending'"))
    op.drop_table("deliveries")
    op.drop_index(op.f("ix_notifications_workflow_id"), table_name="notifications")
    op.drop_index(op.f("ix_notifications_user_profile_id"), table_name="notifications")
    op.drop_index(op.f("ix_notifications_scheduled_job_id"), table_name="notifications")
    op.drop_table("notifications")
