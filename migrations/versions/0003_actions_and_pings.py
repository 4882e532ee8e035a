"""Actions and pings"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


# CHECK constraints, which Alembic does not compare: name, before, after.
CHECKS = (
    (
        "trigger_known",
        "trigger IN ('catch_up', 'manual', 'schedule')",
        "trigger IN ('catch_up', 'cron', 'manual', 'schedule')",
    ),
    (
        "running_has_worker",
        "(worker_id IS NOT NULL) = (status = 'running')",
        "(worker_id IS NOT NULL) = (status = 'running' AND NOT awaiting)",
    ),
)
DEADLINE = "ck_workflow_executions_awaiting_has_deadline"


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "locks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Uuid(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_locks")),
    )
    op.create_table(
        "switches",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_on", sa.Boolean(), nullable=False),
        sa.Column(
            "changed_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_switches")),
    )
    op.create_table(
        "callbacks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("succeeded", sa.Boolean(), nullable=True),
        sa.Column("output", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(succeeded IS NOT NULL) = (state = 'completed')", name=op.f("ck_callbacks_completed_says_how")
        ),
        sa.CheckConstraint("state IN ('completed', 'open', 'superseded')", name=op.f("ck_callbacks_state_known")),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["workflow_executions.id"], name=op.f("fk_callbacks_execution_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_callbacks")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_callbacks_token_hash")),
    )
    op.create_index(op.f("ix_callbacks_execution_id"), "callbacks", ["execution_id"], unique=False)
    op.create_index(
        "uq_callbacks_open",
        "callbacks",
        ["execution_id", "node_id"],
        unique=True,
        postgresql_where=sa.text("state = 'open'"),
    )
    op.add_column(
        "workflow_executions", sa.Column("awaiting", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column("workflow_executions", sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_workflow_executions_awaiting",
        "workflow_executions",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("awaiting"),
    )
    for name, _, after in CHECKS:
        _replace_check(name, after)
    op.create_check_constraint(
        op.f(DEADLINE), "workflow_executions", "NOT awaiting OR (status = 'running' AND deadline_at IS NOT NULL)"
    )


def downgrade() -> None:
    """Downgrade the schema. Runs that wait for a callback are lost."""
    op.execute("UPDATE workflow_executions SET trigger = 'schedule' WHERE trigger = 'cron'")
    op.execute(
        "UPDATE workflow_executions SET status = 'lost', finished_at = clock_timestamp(), awaiting = false, "
        "error = 'It waited for a callback when the tables went back.' WHERE awaiting"
    )
    op.drop_constraint(op.f(DEADLINE), "workflow_executions")
    for name, before, _ in CHECKS:
        _replace_check(name, before)
    op.drop_index(
        "ix_workflow_executions_awaiting", table_name="workflow_executions", postgresql_where=sa.text("awaiting")
    )
    op.drop_column("workflow_executions", "deadline_at")
    op.drop_column("workflow_executions", "awaiting")
    op.drop_index("uq_callbacks_open", table_name="callbacks", postgresql_where=sa.text("state = 'open'"))
    op.drop_index(op.f("ix_callbacks_execution_id"), table_name="callbacks")
    op.drop_table("callbacks")
    op.drop_table("switches")
    op.drop_table("locks")


def _replace_check(name: str, condition: str) -> None:
    full = op.f(f"ck_workflow_executions_{name}")
    op.drop_constraint(full, "workflow_executions")
    op.create_check_constraint(full, "workflow_executions", condition)
