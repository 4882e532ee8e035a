"""Plugins as owners, and entities"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

OWNERS = "owner_kind IN ('plugin', 'user')"
TRIGGERS = ("catch_up", "cron", "manual", "schedule")
CHECKS = (
    ("user_profiles", "kind_known", "kind IN ('plugin', 'user')"),
    ("workflows", "owner_kind_known", OWNERS),
    ("scheduled_jobs", "owner_kind_known", OWNERS),
    ("workflow_executions", "one_source", "num_nonnulls(scheduled_job_id, entity_type) = 1"),
    ("workflow_executions", "schedules_run_workflows", "(scheduled_job_id IS NULL) = (workflow_id IS NULL)"),
    ("workflow_executions", "entity_whole", "num_nulls(entity_type, entity_id, work) IN (0, 3)"),
    ("workflow_executions", "entities_trigger_their_own", "(trigger = 'entity') = (entity_type IS NOT NULL)"),
)


def add_owner_id(table: str) -> None:
    """Add the owner's id. Until now every owner was a user, whose id is a number."""
    op.add_column(table, sa.Column("owner_id", sa.Text(), nullable=True))
    op.execute(sa.text(f"UPDATE {table} SET owner_id = CAST(user_profile_id AS text)"))  # noqa: S608 - our own names
    op.alter_column(table, "owner_id", nullable=False)


def recognise_plugins() -> None:
    """Mark the users of plugins as plugins again, if the database was downgraded before."""
    op.execute("UPDATE user_profiles SET kind = 'plugin' WHERE username LIKE 'plugin:%'")
    for table in ("workflows", "scheduled_jobs"):
        op.execute(
            sa.text(
                f"UPDATE {table} AS t SET owner_kind = 'plugin', owner_id = substr(u.username, 8) "  # noqa: S608
                "FROM user_profiles AS u WHERE u.id = t.user_profile_id AND u.kind = 'plugin'"
            )
        )


def set_triggers(known: Sequence[str]) -> None:
    """Set the triggers that an execution may have."""
    name = op.f("ck_workflow_executions_trigger_known")
    op.drop_constraint(name, "workflow_executions")
    listed = ", ".join(f"'{one}'" for one in sorted(known))
    op.create_check_constraint(name, "workflow_executions", f"trigger IN ({listed})")


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("headers", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("cron", sa.Text(), nullable=True),
        sa.Column("interval_minutes", sa.Integer(), nullable=True),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("last_execution_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_execution_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), server_default="", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("interval_minutes >= 1", name=op.f("ck_webhooks_interval_positive")),
        sa.CheckConstraint("num_nonnulls(cron, interval_minutes) = 1", name=op.f("ck_webhooks_one_kind_of_times")),
        sa.CheckConstraint("timeout_seconds >= 1 AND max_retries >= 0", name=op.f("ck_webhooks_limits_sane")),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_webhooks_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index(
        "ix_webhooks_due", "webhooks", ["next_execution_at", "id"], unique=False, postgresql_where=sa.text("active")
    )
    op.create_index(op.f("ix_webhooks_user_profile_id"), "webhooks", ["user_profile_id"], unique=False)
    op.add_column("scheduled_jobs", sa.Column("owner_kind", sa.Text(), server_default="user", nullable=False))
    add_owner_id("scheduled_jobs")
    op.create_index(
        "uq_scheduled_jobs_name_of_plugin",
        "scheduled_jobs",
        ["owner_id", "name"],
        unique=True,
        postgresql_where=sa.text("owner_kind = 'plugin'"),
    )
    op.add_column("user_profiles", sa.Column("kind", sa.Text(), server_default="user", nullable=False))
    op.add_column("workflow_executions", sa.Column("user_profile_id", sa.Integer(), nullable=True))
    op.execute(
        "UPDATE workflow_executions AS e SET user_profile_id = j.user_profile_id "
        "FROM scheduled_jobs AS j WHERE j.id = e.scheduled_job_id"
    )
    op.alter_column("workflow_executions", "user_profile_id", nullable=False)
    op.add_column("workflow_executions", sa.Column("entity_type", sa.Text(), nullable=True))
    op.add_column("workflow_executions", sa.Column("entity_id", sa.Text(), nullable=True))
    op.add_column("workflow_executions", sa.Column("work", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.alter_column("workflow_executions", "scheduled_job_id", existing_type=sa.UUID(), nullable=True)
    op.alter_column("workflow_executions", "workflow_id", existing_type=sa.INTEGER(), nullable=True)
    op.create_index(
        "ix_workflow_executions_newest_of_owner",
        "workflow_executions",
        ["user_profile_id", "scheduled_for"],
        unique=False,
    )
    op.create_index(
        "uq_workflow_executions_entity_fire",
        "workflow_executions",
        ["entity_type", "entity_id", "scheduled_for", "retry_attempt"],
        unique=True,
        postgresql_where=sa.text("entity_type IS NOT NULL"),
    )
    op.create_index(
        "uq_workflow_executions_entity_running",
        "workflow_executions",
        ["entity_type", "entity_id"],
        unique=True,
        postgresql_where=sa.text("entity_type IS NOT NULL AND status = 'running'"),
    )
    op.create_index(
        "ix_workflow_executions_active_of_entity",
        "workflow_executions",
        ["entity_type", "entity_id"],
        unique=False,
        postgresql_where=sa.text("entity_type IS NOT NULL AND status IN ('pending', 'running')"),
    )
    op.add_column("workflows", sa.Column("owner_kind", sa.Text(), server_default="user", nullable=False))
    add_owner_id("workflows")
    recognise_plugins()
    for table, name, condition in CHECKS:
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)
    set_triggers((*TRIGGERS, "entity"))


def downgrade() -> None:
    """Downgrade the schema."""
    # The old tables cannot store executions of entities.
    op.execute("DELETE FROM workflow_executions WHERE entity_type IS NOT NULL")
    set_triggers(TRIGGERS)
    for table, name, _ in CHECKS:
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table)
    op.drop_column("workflows", "owner_id")
    op.drop_column("workflows", "owner_kind")
    op.drop_index("ix_workflow_executions_active_of_entity", table_name="workflow_executions")
    op.drop_index("uq_workflow_executions_entity_running", table_name="workflow_executions")
    op.drop_index(
        "uq_workflow_executions_entity_fire",
        table_name="workflow_executions",
        postgresql_where=sa.text("entity_type IS NOT NULL"),
    )
    op.drop_index("ix_workflow_executions_newest_of_owner", table_name="workflow_executions")
    op.alter_column("workflow_executions", "workflow_id", existing_type=sa.INTEGER(), nullable=False)
    op.alter_column("workflow_executions", "scheduled_job_id", existing_type=sa.UUID(), nullable=False)
    op.drop_column("workflow_executions", "work")
    op.drop_column("workflow_executions", "entity_id")
    op.drop_column("workflow_executions", "entity_type")
    op.drop_column("workflow_executions", "user_profile_id")
    op.drop_column("user_profiles", "kind")
    op.drop_index(
        "uq_scheduled_jobs_name_of_plugin",
        table_name="scheduled_jobs",
        postgresql_where=sa.text("owner_kind = 'plugin'"),
    )
    op.drop_column("scheduled_jobs", "owner_id")
    op.drop_column("scheduled_jobs", "owner_kind")
    op.drop_index(op.f("ix_webhooks_user_profile_id"), table_name="webhooks")
    op.drop_index("ix_webhooks_due", table_name="webhooks", postgresql_where=sa.text("active"))
    op.drop_table("webhooks")
