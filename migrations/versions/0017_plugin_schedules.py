"""What plugins asked for last, and which of their schedules somebody has deleted"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "plugin_schedules",
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("wanted", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("mode", sa.Text(), server_default="adopt", nullable=False),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name="fk_plugin_schedules_user_profile_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_profile_id", "name", name="pk_plugin_schedules"),
    )
    op.create_index("ix_plugin_schedules_scheduled_job_id", "plugin_schedules", ["scheduled_job_id"])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("plugin_schedules")
