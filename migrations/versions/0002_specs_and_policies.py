"""Specs and policies"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

OUTCOMES = (
    "('coalesced', 'missed', 'skipped_breaker', 'skipped_guard', 'skipped_overlap', "
    "'skipped_queue_full', 'skipped_retry')"
)
AT_THE_LIMIT = "total_repeats = 0 OR current_repeat < total_repeats OR status <> 'active'"
# CHECK constraints, which Alembic does not compare: name, table, before, after.
CHECKS = (
    ("done_at_the_limit", "scheduled_jobs", AT_THE_LIMIT, f"{AT_THE_LIMIT} OR num_nonnulls(at, after) = 1"),
    (
        "if_running_known",
        "scheduled_jobs",
        "if_running IN ('skip')",
        "if_running IN ('allow', 'cancel', 'queue', 'skip')",
    ),
    ("catch_up_known", "scheduled_jobs", "catch_up IN ('skip')", "catch_up IN ('run_all', 'run_once', 'skip')"),
    (
        "trigger_known",
        "workflow_executions",
        "trigger IN ('manual', 'schedule')",
        "trigger IN ('catch_up', 'manual', 'schedule')",
    ),
    (
        "outcome_known",
        "ledger_entries",
        "outcome IN ('missed', 'skipped_overlap', 'skipped_retry')",
        f"outcome IN {OUTCOMES}",
    ),
)
NEW_CHECKS = (
    ("one_kind_of_spec", "scheduled_jobs", "num_nonnulls(interval_seconds, every, cron, at, after) = 1"),
    ("allowances_not_negative", "scheduled_jobs", "jitter_seconds >= 0 AND max_queued >= 0"),
    ("queued_has_not_run", "workflow_executions", "NOT queued OR status = 'pending'"),
    ("unrun_outcome_known", "workflow_executions", f"unrun_outcome IN {OUTCOMES}"),
    (
        "unrun_is_accounted_for",
        "workflow_executions",
        "(unrun_outcome IS NOT NULL) = (finished_at IS NOT NULL AND started_at IS NULL)",
    ),
)
ACTIVE = "status IN ('pending', 'running')"


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "circuit_breaker_transitions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=False),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=True),
        sa.CheckConstraint(
            "from_state IN ('closed', 'half_open', 'open')",
            name=op.f("ck_circuit_breaker_transitions_from_state_known"),
        ),
        sa.CheckConstraint(
            "to_state IN ('closed', 'half_open', 'open')", name=op.f("ck_circuit_breaker_transitions_to_state_known")
        ),
        sa.CheckConstraint("from_state <> to_state", name=op.f("ck_circuit_breaker_transitions_state_changed")),
        sa.ForeignKeyConstraint(
            ["workflow_id"],
            ["workflows.id"],
            name=op.f("fk_circuit_breaker_transitions_workflow_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_circuit_breaker_transitions")),
    )
    op.create_index(
        op.f("ix_circuit_breaker_transitions_workflow_id"), "circuit_breaker_transitions", ["workflow_id"], unique=False
    )
    op.create_table(
        "circuit_breakers",
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failure_count", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("probe_execution_id", sa.Uuid(), nullable=True),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint(
            "(opened_at IS NULL) = (state = 'closed')", name=op.f("ck_circuit_breakers_opened_unless_closed")
        ),
        sa.CheckConstraint(
            "probe_execution_id IS NULL OR state = 'half_open'", name=op.f("ck_circuit_breakers_probe_only_half_open")
        ),
        sa.CheckConstraint("state IN ('closed', 'half_open', 'open')", name=op.f("ck_circuit_breakers_state_known")),
        sa.CheckConstraint("failure_count >= 0", name=op.f("ck_circuit_breakers_failure_count_not_negative")),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_circuit_breakers_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workflow_id", name=op.f("pk_circuit_breakers")),
    )
    op.create_table(
        "schedule_revisions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("changes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("snapshot", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint(
            "action IN ('changed', 'created', 'died', 'finished', 'paused', 'resumed', 'revived')",
            name=op.f("ck_schedule_revisions_action_known"),
        ),
        sa.ForeignKeyConstraint(
            ["scheduled_job_id"],
            ["scheduled_jobs.id"],
            name=op.f("fk_schedule_revisions_scheduled_job_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_revisions")),
    )
    op.create_index(
        "ix_schedule_revisions_newest_of_job", "schedule_revisions", ["scheduled_job_id", "at"], unique=False
    )
    op.add_column("scheduled_jobs", sa.Column("every", sa.Text(), nullable=True))
    op.add_column("scheduled_jobs", sa.Column("cron", sa.Text(), nullable=True))
    op.add_column("scheduled_jobs", sa.Column("at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("scheduled_jobs", sa.Column("after", sa.Text(), nullable=True))
    op.add_column("scheduled_jobs", sa.Column("timezone", sa.Text(), server_default="UTC", nullable=False))
    op.add_column("scheduled_jobs", sa.Column("jitter_seconds", sa.Integer(), server_default="0", nullable=False))
    op.add_column("scheduled_jobs", sa.Column("only_between", sa.Text(), nullable=True))
    op.add_column(
        "scheduled_jobs",
        sa.Column("not_on", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
    )
    op.add_column("scheduled_jobs", sa.Column("last_slot", sa.DateTime(timezone=True), nullable=True))
    op.add_column("scheduled_jobs", sa.Column("max_queued", sa.Integer(), server_default="1", nullable=False))
    op.alter_column("scheduled_jobs", "interval_seconds", existing_type=sa.INTEGER(), type_=sa.Double(), nullable=True)
    op.create_index(
        "ix_scheduled_jobs_invalid",
        "scheduled_jobs",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status_reason = 'invalid_spec'"),
    )
    op.add_column(
        "workflow_executions", sa.Column("queued", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column(
        "workflow_executions",
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
    )
    op.drop_index(
        op.f("ix_workflow_executions_pending"),
        table_name="workflow_executions",
        postgresql_where="(status = 'pending'::text)",
    )
    op.create_index(
        "ix_workflow_executions_pending",
        "workflow_executions",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("status = 'pending' AND NOT queued"),
    )
    op.create_index(
        "ix_workflow_executions_running_of_workflow",
        "workflow_executions",
        ["workflow_id"],
        unique=False,
        postgresql_where=sa.text("status = 'running'"),
    )
    op.add_column("workflow_executions", sa.Column("unrun_outcome", sa.Text(), nullable=True))
    # Executions that were cancelled before they started.
    op.execute(
        "UPDATE workflow_executions SET unrun_outcome = 'missed' WHERE finished_at IS NOT NULL AND started_at IS NULL"
    )
    for name, table, _, after in CHECKS:
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table)
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, after)
    for name, table, condition in NEW_CHECKS:
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)
    _never_overlap(f"exclusive AND NOT queued AND {ACTIVE}")
    # The anchor was the first slot; now it is the moment from which intervals are counted.
    op.execute(
        "UPDATE scheduled_jobs SET anchor_at = anchor_at - make_interval(secs => interval_seconds) "
        "WHERE start_at IS NULL OR anchor_at <> start_at"
    )


def downgrade() -> None:
    """Downgrade the schema. Schedules that the first tables cannot store are deleted, and queued runs too."""
    op.execute(
        "DELETE FROM scheduled_jobs WHERE interval_seconds IS NULL OR interval_seconds <> trunc(interval_seconds)"
    )
    op.execute("UPDATE scheduled_jobs SET if_running = 'skip', catch_up = 'skip'")
    op.execute("UPDATE workflow_executions SET trigger = 'schedule' WHERE trigger = 'catch_up'")
    op.execute(
        "INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason) "
        "SELECT scheduled_job_id, scheduled_for, scheduled_for, 1, 'missed', 'it was queued when the tables went back' "
        "FROM workflow_executions WHERE queued AND trigger <> 'manual'"
    )
    op.execute("DELETE FROM workflow_executions WHERE queued")
    op.execute(
        "UPDATE scheduled_jobs SET status_reason = CASE status WHEN 'paused' THEN 'manual' ELSE 'end_reached' END "
        "WHERE status_reason IN ('invalid_spec', 'exhausted')"
    )
    op.execute("UPDATE workflow_executions SET exclusive = false")
    op.execute("UPDATE ledger_entries SET outcome = 'missed' WHERE outcome NOT IN ('skipped_overlap', 'skipped_retry')")
    op.execute(
        "UPDATE scheduled_jobs SET anchor_at = anchor_at + make_interval(secs => interval_seconds) "
        "WHERE start_at IS NULL OR anchor_at <> start_at"
    )
    _never_overlap(f"exclusive AND {ACTIVE}")
    for name, table, _ in NEW_CHECKS:
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table)
    for name, table, before, _ in CHECKS:
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table)
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, before)
    op.drop_index(
        "ix_workflow_executions_running_of_workflow",
        table_name="workflow_executions",
        postgresql_where=sa.text("status = 'running'"),
    )
    op.drop_index(
        "ix_workflow_executions_pending",
        table_name="workflow_executions",
        postgresql_where=sa.text("status = 'pending' AND NOT queued"),
    )
    op.create_index(
        op.f("ix_workflow_executions_pending"),
        "workflow_executions",
        ["created_at"],
        unique=False,
        postgresql_where="(status = 'pending'::text)",
    )
    op.drop_column("workflow_executions", "due_at")
    op.drop_column("workflow_executions", "queued")
    op.drop_index(
        "ix_scheduled_jobs_invalid",
        table_name="scheduled_jobs",
        postgresql_where=sa.text("status_reason = 'invalid_spec'"),
    )
    op.alter_column("scheduled_jobs", "interval_seconds", existing_type=sa.Double(), type_=sa.INTEGER(), nullable=False)
    op.drop_column("workflow_executions", "unrun_outcome")
    op.drop_column("scheduled_jobs", "last_slot")
    op.drop_column("scheduled_jobs", "max_queued")
    op.drop_column("scheduled_jobs", "not_on")
    op.drop_column("scheduled_jobs", "only_between")
    op.drop_column("scheduled_jobs", "jitter_seconds")
    op.drop_column("scheduled_jobs", "timezone")
    op.drop_column("scheduled_jobs", "after")
    op.drop_column("scheduled_jobs", "at")
    op.drop_column("scheduled_jobs", "cron")
    op.drop_column("scheduled_jobs", "every")
    op.drop_index("ix_schedule_revisions_newest_of_job", table_name="schedule_revisions")
    op.drop_table("schedule_revisions")
    op.drop_table("circuit_breakers")
    op.drop_index(op.f("ix_circuit_breaker_transitions_workflow_id"), table_name="circuit_breaker_transitions")
    op.drop_table("circuit_breaker_transitions")


def _never_overlap(condition: str) -> None:
    op.drop_index("uq_workflow_executions_no_overlap", table_name="workflow_executions")
    op.create_index(
        "uq_workflow_executions_no_overlap",
        "workflow_executions",
        ["scheduled_job_id"],
        unique=True,
        postgresql_where=sa.text(condition),
    )
