"""The first tables"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "user_profiles",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("username", sa.String(length=255), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("role IN ('admin', 'member')", name=op.f("ck_user_profiles_role_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_user_profiles")),
        sa.UniqueConstraint("username", name=op.f("uq_user_profiles_username")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index(op.f("ix_workers_lease_expires_at"), "workers", ["lease_expires_at"], unique=False)
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("prefix", sa.String(length=32), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_api_tokens_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_tokens_prefix")),
    )
    op.create_index(op.f("ix_api_tokens_user_profile_id"), "api_tokens", ["user_profile_id"], unique=False)
    op.create_table(
        "workflows",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("nodes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("edges", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("max_concurrent_runs", sa.Integer(), nullable=True),
        sa.Column("breaker_threshold", sa.Integer(), nullable=True),
        sa.Column("breaker_reset_seconds", sa.Integer(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("breaker_reset_seconds >= 1", name=op.f("ck_workflows_breaker_reset_positive")),
        sa.CheckConstraint("breaker_threshold >= 1", name=op.f("ck_workflows_breaker_threshold_positive")),
        sa.CheckConstraint("max_concurrent_runs >= 1", name=op.f("ck_workflows_max_concurrent_runs_positive")),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_workflows_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
    )
    op.create_index(op.f("ix_workflows_user_profile_id"), "workflows", ["user_profile_id"], unique=False)
    op.create_table(
        "scheduled_jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("trigger_node_id", sa.Text(), nullable=True),
        sa.Column("trigger_payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("interval_seconds", sa.Integer(), nullable=False),
        sa.Column("start_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("total_repeats", sa.Integer(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("backoff_base_seconds", sa.Integer(), nullable=True),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("catch_up", sa.Text(), nullable=False),
        sa.Column("misfire_grace_seconds", sa.Integer(), nullable=False),
        sa.Column("if_running", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("anchor_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cadence_slot", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_slot", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_run_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_attempt", sa.Integer(), nullable=False),
        sa.Column("current_repeat", sa.Integer(), nullable=False),
        sa.Column("current_retry", sa.Integer(), nullable=False),
        sa.Column("run_count", sa.Integer(), nullable=False),
        sa.Column("error_count", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("last_run_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_fired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_success_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_success_execution_id", sa.Uuid(), nullable=True),
        sa.Column("dead_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(dead_at IS NOT NULL) = (status = 'dead')", name=op.f("ck_scheduled_jobs_dead_since")),
        sa.CheckConstraint("catch_up IN ('skip')", name=op.f("ck_scheduled_jobs_catch_up_known")),
        sa.CheckConstraint("if_running IN ('skip')", name=op.f("ck_scheduled_jobs_if_running_known")),
        sa.CheckConstraint(
            "next_run_at IS NULL OR status = 'active'", name=op.f("ck_scheduled_jobs_only_active_is_planned")
        ),
        sa.CheckConstraint(
            "status IN ('active', 'dead', 'done', 'paused')", name=op.f("ck_scheduled_jobs_status_known")
        ),
        sa.CheckConstraint(
            "total_repeats = 0 OR current_repeat < total_repeats OR status <> 'active'",
            name=op.f("ck_scheduled_jobs_done_at_the_limit"),
        ),
        sa.CheckConstraint("(next_slot IS NULL) = (next_run_at IS NULL)", name=op.f("ck_scheduled_jobs_tick_whole")),
        sa.CheckConstraint(
            "current_repeat >= 0 AND current_retry >= 0 AND run_count >= 0 AND error_count >= 0",
            name=op.f("ck_scheduled_jobs_counters_not_negative"),
        ),
        sa.CheckConstraint("interval_seconds >= 1", name=op.f("ck_scheduled_jobs_interval_positive")),
        sa.CheckConstraint("next_run_at >= next_slot", name=op.f("ck_scheduled_jobs_never_early")),
        sa.CheckConstraint("timeout_seconds >= 1", name=op.f("ck_scheduled_jobs_timeout_positive")),
        sa.CheckConstraint(
            "total_repeats >= 0 AND max_retries >= 0", name=op.f("ck_scheduled_jobs_limits_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["user_profile_id"],
            ["user_profiles.id"],
            name=op.f("fk_scheduled_jobs_user_profile_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_scheduled_jobs_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scheduled_jobs")),
    )
    op.create_index(
        "ix_scheduled_jobs_due",
        "scheduled_jobs",
        ["next_run_at"],
        unique=False,
        postgresql_where=sa.text("next_run_at IS NOT NULL"),
    )
    op.create_index("ix_scheduled_jobs_newest", "scheduled_jobs", ["created_at"], unique=False)
    op.create_index("ix_scheduled_jobs_owner_newest", "scheduled_jobs", ["user_profile_id", "created_at"], unique=False)
    op.create_index("ix_scheduled_jobs_workflow", "scheduled_jobs", ["workflow_id"], unique=False)
    op.create_table(
        "ledger_entries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("first_slot", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_slot", sa.DateTime(timezone=True), nullable=False),
        sa.Column("slot_count", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint(
            "outcome IN ('missed', 'skipped_overlap', 'skipped_retry')", name=op.f("ck_ledger_entries_outcome_known")
        ),
        sa.CheckConstraint("(slot_count = 1) = (first_slot = last_slot)", name=op.f("ck_ledger_entries_count_fits")),
        sa.CheckConstraint("first_slot <= last_slot AND slot_count >= 1", name=op.f("ck_ledger_entries_range_sane")),
        sa.ForeignKeyConstraint(
            ["scheduled_job_id"],
            ["scheduled_jobs.id"],
            name=op.f("fk_ledger_entries_scheduled_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_entries")),
        sa.UniqueConstraint(
            "scheduled_job_id", "first_slot", name=op.f("uq_ledger_entries_scheduled_job_id_first_slot")
        ),
        sa.UniqueConstraint("scheduled_job_id", "last_slot", name=op.f("uq_ledger_entries_scheduled_job_id_last_slot")),
    )
    op.create_table(
        "workflow_executions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("exclusive", sa.Boolean(), nullable=False),
        sa.Column("repeat_number", sa.Integer(), nullable=False),
        sa.Column("retry_attempt", sa.Integer(), nullable=False),
        sa.Column("scheduled_for", sa.DateTime(timezone=True), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Uuid(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (status IN ('pending', 'running'))",
            name=op.f("ck_workflow_executions_finished_when_ended"),
        ),
        sa.CheckConstraint(
            "(worker_id IS NOT NULL) = (status = 'running')", name=op.f("ck_workflow_executions_running_has_worker")
        ),
        sa.CheckConstraint(
            "started_at >= scheduled_for OR trigger = 'manual'", name=op.f("ck_workflow_executions_never_early")
        ),
        sa.CheckConstraint(
            "status IN ('blocked', 'cancelled', 'failed', 'lost', 'pending', 'running', 'skipped', 'success', 'timed_out')",
            name=op.f("ck_workflow_executions_status_known"),
        ),
        sa.CheckConstraint("trigger IN ('manual', 'schedule')", name=op.f("ck_workflow_executions_trigger_known")),
        sa.CheckConstraint(
            "repeat_number >= 0 AND retry_attempt >= 0 AND token >= 1", name=op.f("ck_workflow_executions_numbers_sane")
        ),
        sa.ForeignKeyConstraint(
            ["scheduled_job_id"],
            ["scheduled_jobs.id"],
            name=op.f("fk_workflow_executions_scheduled_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_executions")),
    )
    op.create_index(
        "ix_workflow_executions_active",
        "workflow_executions",
        ["scheduled_job_id"],
        unique=False,
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
    op.create_index("ix_workflow_executions_newest", "workflow_executions", ["scheduled_for"], unique=False)
    op.create_index(
        "ix_workflow_executions_newest_of_job",
        "workflow_executions",
        ["scheduled_job_id", "scheduled_for"],
        unique=False,
    )
    op.create_index(
        "ix_workflow_executions_newest_of_workflow",
        "workflow_executions",
        ["workflow_id", "scheduled_for"],
        unique=False,
    )
    op.create_index(
        "ix_workflow_executions_pending",
        "workflow_executions",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_workflow_executions_running",
        "workflow_executions",
        ["worker_id"],
        unique=False,
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "uq_workflow_executions_fire",
        "workflow_executions",
        ["scheduled_job_id", "scheduled_for", "retry_attempt"],
        unique=True,
        postgresql_where=sa.text("trigger <> 'manual'"),
    )
    op.create_index(
        "uq_workflow_executions_no_overlap",
        "workflow_executions",
        ["scheduled_job_id"],
        unique=True,
        postgresql_where=sa.text("exclusive AND status IN ('pending', 'running')"),
    )
    op.create_table(
        "node_results",
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("output", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "status IN ('blocked', 'cancelled', 'failed', 'lost', 'pending', 'running', 'skipped', 'success', 'timed_out')",
            name=op.f("ck_node_results_status_known"),
        ),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["workflow_executions.id"], name=op.f("fk_node_results_execution_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("execution_id", "node_id", name=op.f("pk_node_results")),
    )
    op.execute("INSERT INTO user_profiles (username, role) VALUES ('admin', 'admin')")


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("node_results")
    op.drop_index(
        "uq_workflow_executions_no_overlap",
        table_name="workflow_executions",
        postgresql_where=sa.text("exclusive AND status IN ('pending', 'running')"),
    )
    op.drop_index(
        "uq_workflow_executions_fire", table_name="workflow_executions", postgresql_where=sa.text("trigger <> 'manual'")
    )
    op.drop_index(
        "ix_workflow_executions_running",
        table_name="workflow_executions",
        postgresql_where=sa.text("status = 'running'"),
    )
    op.drop_index(
        "ix_workflow_executions_pending",
        table_name="workflow_executions",
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.drop_index("ix_workflow_executions_newest_of_workflow", table_name="workflow_executions")
    op.drop_index("ix_workflow_executions_newest_of_job", table_name="workflow_executions")
    op.drop_index("ix_workflow_executions_newest", table_name="workflow_executions")
    op.drop_index(
        "ix_workflow_executions_active",
        table_name="workflow_executions",
        postgresql_where=sa.text("status IN ('pending', 'running')"),
    )
    op.drop_table("workflow_executions")
    op.drop_table("ledger_entries")
    op.drop_index("ix_scheduled_jobs_workflow", table_name="scheduled_jobs")
    op.drop_index("ix_scheduled_jobs_owner_newest", table_name="scheduled_jobs")
    op.drop_index("ix_scheduled_jobs_newest", table_name="scheduled_jobs")
    op.drop_index(
        "ix_scheduled_jobs_due", table_name="scheduled_jobs", postgresql_where=sa.text("next_run_at IS NOT NULL")
    )
    op.drop_table("scheduled_jobs")
    op.drop_index(op.f("ix_workflows_user_profile_id"), table_name="workflows")
    op.drop_table("workflows")
    op.drop_index(op.f("ix_api_tokens_user_profile_id"), table_name="api_tokens")
    op.drop_table("api_tokens")
    op.drop_index(op.f("ix_workers_lease_expires_at"), table_name="workers")
    op.drop_table("workers")
    op.drop_table("user_profiles")
