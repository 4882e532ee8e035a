"""Namespaces of what files declare"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "managed_workflows",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_managed_workflows_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_managed_workflows")),
        sa.UniqueConstraint("workflow_id", name=op.f("uq_managed_workflows_workflow_id")),
    )
    op.create_table(
        "managed_schedules",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["scheduled_job_id"],
            ["scheduled_jobs.id"],
            name=op.f("fk_managed_schedules_scheduled_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_managed_schedules")),
        sa.UniqueConstraint("scheduled_job_id", name=op.f("uq_managed_schedules_scheduled_job_id")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("managed_schedules")
    op.drop_table("managed_workflows")
