"""History is deleted in parts, and unsuccessful executions are found by an index"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

LOOKED_UP = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
HISTORY = ("workflow_executions", "ledger_entries")
KEPT = ("id", "user_profile_id", "scheduled_job_id", "workflow_id", "entity_type", "entity_id", "status")


def upgrade() -> None:
    """Upgrade the schema."""
    # The revisions of a schedule are deleted in parts too, after the schedule itself.
    op.drop_constraint("fk_schedule_revisions_scheduled_job_id", "schedule_revisions", type_="foreignkey")
    op.create_table(
        "deleted_histories",
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=False),
        sa.Column(
            "deleted_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("scheduled_job_id", name="pk_deleted_histories"),
    )
    op.create_index("ix_deleted_histories_deleted_at", "deleted_histories", ["deleted_at"])
    # Active executions are deleted at once, so that a late settle finds nothing; the rest is noted and deleted in parts.
    op.execute(
        f"CREATE OR REPLACE FUNCTION forget_history() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        "DELETE FROM workflow_executions AS e USING active_executions AS a JOIN gone ON gone.id = a.scheduled_job_id "
        "WHERE e.id = a.id; "
        "INSERT INTO deleted_histories (scheduled_job_id) SELECT id FROM gone ON CONFLICT (scheduled_job_id) "
        "DO NOTHING; RETURN NULL; END $$"
    )
    _keep_unsuccessful()


def downgrade() -> None:
    """Downgrade the schema."""
    op.execute("DROP TRIGGER keep_unsuccessful ON workflow_executions")
    op.execute("DROP FUNCTION keep_unsuccessful_executions")
    _forget_active("")
    op.drop_table("backfills")
    op.drop_table("unsuccessful_executions")
    for table in (*HISTORY, "schedule_revisions"):
        op.execute(
            f"DELETE FROM {table} AS t USING deleted_histories AS d WHERE t.scheduled_job_id = d.scheduled_job_id"  # noqa: S608
        )
    deletes = " ".join(f"DELETE FROM {table} AS t USING gone WHERE t.scheduled_job_id = gone.id;" for table in HISTORY)  # noqa: S608
    op.execute(
        f"CREATE OR REPLACE FUNCTION forget_history() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "
        f"{deletes} RETURN NULL; END $$"
    )
    op.drop_table("deleted_histories")
    op.create_foreign_key(
        *("fk_schedule_revisions_scheduled_job_id", "schedule_revisions", "scheduled_jobs"),
        *(["scheduled_job_id"], ["id"]),
        ondelete="CASCADE",
    )


def _keep_unsuccessful() -> None:
    """Create a narrow table of executions that did not succeed, and the trigger that fills it.

    A partial index on ``status`` would make it an indexed column, and the update at the end of a run could no longer
    stay on its page (HOT). A row trigger with a condition costs a successful run one comparison.
    """
    op.create_table(
        "unsuccessful_executions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=True),
        sa.Column("workflow_id", sa.Integer(), nullable=True),
        sa.Column("entity_type", sa.Text(), nullable=True),
        sa.Column("entity_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_unsuccessful_executions"),
    )
    for name, columns, where in (
        ("newest", ["status", "id"], None),
        ("newest_of_owner", ["user_profile_id", "status", "id"], None),
        ("newest_of_job", ["scheduled_job_id", "status", "id"], "scheduled_job_id IS NOT NULL"),
        ("newest_of_workflow", ["workflow_id", "status", "id"], "workflow_id IS NOT NULL"),
        ("newest_of_entity", ["entity_type", "entity_id", "status", "id"], "entity_type IS NOT NULL"),
    ):
        op.create_index(
            f"ix_unsuccessful_executions_{name}",
            "unsuccessful_executions",
            columns,
            postgresql_where=sa.text(where) if where else None,
        )
    # How far existing rows have been copied, beginning with the newest; the row is deleted when all are.
    op.create_table(
        "backfills",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_backfills"),
    )
    op.execute(
        f"CREATE FUNCTION keep_unsuccessful_executions() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO unsuccessful_executions ({', '.join(KEPT)}) VALUES ({', '.join(f'NEW.{name}' for name in KEPT)}) "
        "ON CONFLICT (id) DO NOTHING; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER keep_unsuccessful AFTER INSERT OR UPDATE ON workflow_executions FOR EACH ROW "
        "WHEN (NEW.finished_at IS NOT NULL AND NEW.status <> 'success') "
        "EXECUTE FUNCTION keep_unsuccessful_executions()"
    )
    _forget_active("DELETE FROM unsuccessful_executions AS t USING gone WHERE t.id = gone.id; ")
    op.execute(
        "INSERT INTO backfills (name, position) SELECT 'unsuccessful_executions', "
        "'ffffffff-ffff-ffff-ffff-ffffffffffff' WHERE EXISTS (SELECT FROM workflow_executions)"
    )


def _forget_active(more: str) -> None:
    op.execute(
        f"CREATE OR REPLACE FUNCTION forget_active_executions() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ "  # noqa: S608
        f"BEGIN DELETE FROM active_executions AS t USING gone WHERE t.id = gone.id; {more}RETURN NULL; END $$"
    )
