"""History without foreign keys: a trigger deletes it with its schedules"""

from collections.abc import Sequence

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

HISTORY = ("workflow_executions", "ledger_entries")
LOOKED_UP = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
# The columns that active_executions copies from workflow_executions, as in 0007.
ACTIVE_COLUMNS = (
    *("scheduled_job_id", "workflow_id", "entity_type", "entity_id", "trigger", "status", "exclusive", "queued"),
    *("awaiting", "retry_attempt", "timeout_seconds", "token", "worker_id", "due_at", "deadline_at", "started_at"),
)


def upgrade() -> None:
    """Upgrade the schema."""
    # A transaction that writes history has locked the schedule already; a foreign key would read and lock it for each row.
    for table in HISTORY:
        op.drop_constraint(f"fk_{table}_scheduled_job_id", table, type_="foreignkey")
    deletes = " ".join(f"DELETE FROM {table} AS t USING gone WHERE t.scheduled_job_id = gone.id;" for table in HISTORY)  # noqa: S608
    op.execute(
        f"CREATE FUNCTION forget_history() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN {deletes} "
        "RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER forget_history AFTER DELETE ON scheduled_jobs REFERENCING OLD TABLE AS gone "
        "FOR EACH STATEMENT EXECUTE FUNCTION forget_history()"
    )
    # New rows need no lookup: they cannot be in active_executions yet.
    listed = ", ".join(ACTIVE_COLUMNS)
    op.execute(
        f"CREATE FUNCTION add_active_executions() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO active_executions (id, alone, {listed}) SELECT id, NULLIF(exclusive AND NOT queued, false), "
        f"{listed} FROM written WHERE finished_at IS NULL; RETURN NULL; END $$"
    )
    _on_insert("add_active_executions")


def downgrade() -> None:
    """Downgrade the schema."""
    _on_insert("keep_active_executions")
    op.execute("DROP FUNCTION add_active_executions")
    op.execute("DROP TRIGGER forget_history ON scheduled_jobs")
    op.execute("DROP FUNCTION forget_history")
    for table in HISTORY:
        # Rows without a schedule, which the foreign key would refuse.
        op.execute(
            f"DELETE FROM {table} AS t WHERE scheduled_job_id IS NOT NULL "  # noqa: S608
            "AND NOT EXISTS (SELECT FROM scheduled_jobs AS j WHERE j.id = t.scheduled_job_id)"
        )
        op.create_foreign_key(
            f"fk_{table}_scheduled_job_id", table, "scheduled_jobs", ["scheduled_job_id"], ["id"], ondelete="CASCADE"
        )


def _on_insert(function: str) -> None:
    op.execute("DROP TRIGGER keep_after_insert ON workflow_executions")
    op.execute(
        "CREATE TRIGGER keep_after_insert AFTER INSERT ON workflow_executions REFERENCING NEW TABLE AS written "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
    )
