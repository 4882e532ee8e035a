"""Weekly partitions of executions and ledger, and narrow tables of active executions and due ticks"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# The columns that active_executions copies from workflow_executions.
ACTIVE_COLUMNS = (
    *("scheduled_job_id", "workflow_id", "entity_type", "entity_id", "trigger", "status", "exclusive", "queued"),
    *("awaiting", "retry_attempt", "timeout_seconds", "token", "worker_id", "due_at", "deadline_at", "started_at"),
)
ALONE = "NULLIF({row}exclusive AND NOT {row}queued, false)"
# Both triggers look rows up by key: a plan that was made while a table was small must not scan it when it is large.
LOOKED_UP = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"


def upgrade() -> None:
    """Upgrade the schema."""
    _partition_executions()
    _partition_ledger()
    _keep_active_executions()
    _keep_due_ticks()
    op.create_index(
        "ix_scheduled_jobs_resting", "scheduled_jobs", ["status"], postgresql_where=sa.text("status <> 'active'")
    )
    _order_schedules(["created_at", "id"])
    op.execute("ALTER TABLE scheduled_jobs SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05)")


def downgrade() -> None:
    """Downgrade the schema."""
    for table in ("workflow_executions", "scheduled_jobs"):
        for event in ("insert", "update", "delete"):
            op.execute(f"DROP TRIGGER keep_after_{event} ON {table}")
    op.execute("DROP FUNCTION keep_active_executions, forget_active_executions, keep_due_ticks, forget_due_ticks")
    op.drop_table("active_executions")
    op.drop_table("due_ticks")
    op.drop_index("ix_scheduled_jobs_resting", "scheduled_jobs")
    _order_schedules(["created_at"])
    op.execute("ALTER TABLE scheduled_jobs RESET (fillfactor, autovacuum_vacuum_scale_factor)")
    op.create_index(
        "ix_scheduled_jobs_due", "scheduled_jobs", ["next_run_at"], postgresql_where=sa.text("next_run_at IS NOT NULL")
    )
    _join_executions()
    _join_ledger()


def _order_schedules(newest: list[str]) -> None:
    """Index schedules in the complete order of lists: thousands may have the same creation time."""
    op.drop_index("ix_scheduled_jobs_newest", "scheduled_jobs")
    op.drop_index("ix_scheduled_jobs_owner_newest", "scheduled_jobs")
    op.create_index("ix_scheduled_jobs_newest", "scheduled_jobs", newest)
    op.create_index("ix_scheduled_jobs_owner_newest", "scheduled_jobs", ["user_profile_id", *newest])


def _partition_executions() -> None:
    op.execute(
        "CREATE TABLE by_week (LIKE workflow_executions INCLUDING DEFAULTS INCLUDING CONSTRAINTS) "
        "PARTITION BY RANGE (id)"
    )
    op.execute("ALTER TABLE by_week ADD COLUMN results jsonb NOT NULL DEFAULT '[]'")
    # The default partition, for rows of weeks without a partition. Workers create the weekly ones as time passes.
    op.execute("CREATE TABLE workflow_executions_rest PARTITION OF by_week DEFAULT WITH (fillfactor = 70)")
    op.execute(
        "INSERT INTO by_week SELECT e.*, coalesce((SELECT jsonb_agg(to_jsonb(n) - 'execution_id' "
        "ORDER BY n.started_at, n.node_id) FROM node_results AS n WHERE n.execution_id = e.id), '[]') "
        "FROM workflow_executions AS e"
    )
    op.drop_table("node_results")
    op.drop_constraint("fk_callbacks_execution_id", "callbacks", type_="foreignkey")
    op.drop_table("workflow_executions")
    op.execute("ALTER TABLE by_week RENAME TO workflow_executions")
    op.create_primary_key("pk_workflow_executions", "workflow_executions", ["id"])
    op.create_foreign_key(
        *("fk_workflow_executions_scheduled_job_id", "workflow_executions", "scheduled_jobs"),
        *(["scheduled_job_id"], ["id"]),
        ondelete="CASCADE",
    )
    for name, column in (("job", "scheduled_job_id"), ("workflow", "workflow_id"), ("owner", "user_profile_id")):
        op.create_index(f"ix_workflow_executions_newest_of_{name}", "workflow_executions", [column, "id"])
    op.create_index(
        "ix_workflow_executions_newest_of_entity",
        "workflow_executions",
        ["entity_type", "entity_id", "id"],
        postgresql_where=sa.text("entity_type IS NOT NULL"),
    )


def _partition_ledger() -> None:
    op.execute(
        "CREATE TABLE by_week (LIKE ledger_entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS) "
        "PARTITION BY RANGE (first_slot)"
    )
    op.execute("CREATE TABLE ledger_entries_rest PARTITION OF by_week DEFAULT")
    op.execute("ALTER TABLE by_week DROP COLUMN id")
    columns = "scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason, execution_id, created_at"
    op.execute(f"INSERT INTO by_week ({columns}) SELECT {columns} FROM ledger_entries")  # noqa: S608 - our own names
    op.drop_table("ledger_entries")
    op.execute("ALTER TABLE by_week RENAME TO ledger_entries")
    op.create_primary_key("pk_ledger_entries", "ledger_entries", ["scheduled_job_id", "first_slot"])
    op.create_foreign_key(
        *("fk_ledger_entries_scheduled_job_id", "ledger_entries", "scheduled_jobs"),
        *(["scheduled_job_id"], ["id"]),
        ondelete="CASCADE",
    )
    op.create_index("ix_ledger_entries_newest_of_job", "ledger_entries", ["scheduled_job_id", "last_slot"])


def _keep_active_executions() -> None:
    op.create_table(
        "active_executions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("scheduled_job_id", sa.Uuid(), nullable=True),
        sa.Column("workflow_id", sa.Integer(), nullable=True),
        sa.Column("entity_type", sa.Text(), nullable=True),
        sa.Column("entity_id", sa.Text(), nullable=True),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("exclusive", sa.Boolean(), nullable=False),
        sa.Column("queued", sa.Boolean(), nullable=False),
        sa.Column("alone", sa.Boolean(), nullable=True),
        sa.Column("awaiting", sa.Boolean(), nullable=False),
        sa.Column("retry_attempt", sa.Integer(), nullable=False),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Uuid(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_active_executions"),
    )
    op.create_index(
        *("uq_active_executions_no_overlap", "active_executions", ["scheduled_job_id", "alone"]),
        unique=True,
        postgresql_where=sa.text("scheduled_job_id IS NOT NULL"),
    )
    for name, columns, unique, where in (
        ("uq_active_executions_entity_running", ["entity_type", "entity_id"], True, "status = 'running'"),
        ("ix_active_executions_of_entity", ["entity_type", "entity_id"], False, ""),
    ):
        predicate = " AND ".join(filter(None, ["entity_type IS NOT NULL", where]))
        op.create_index(name, "active_executions", columns, unique=unique, postgresql_where=sa.text(predicate))
    for name, column, predicate in (
        ("of_worker", "worker_id", "worker_id IS NOT NULL"),
        ("running_of_workflow", "workflow_id", "status = 'running'"),
        ("pending", "due_at", "status = 'pending' AND NOT queued"),
        ("awaiting", "deadline_at", "awaiting"),
    ):
        op.create_index(
            f"ix_active_executions_{name}", "active_executions", [column], postgresql_where=sa.text(predicate)
        )
    listed, alone = ", ".join(ACTIVE_COLUMNS), ALONE.format(row="w.")
    op.execute(
        f"INSERT INTO active_executions (id, alone, {listed}) "  # noqa: S608
        f"SELECT id, {ALONE.format(row='')}, {listed} FROM workflow_executions WHERE finished_at IS NULL"
    )
    op.execute(
        "ALTER TABLE active_executions SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, "
        "autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0)"
    )
    op.execute(
        f"CREATE FUNCTION keep_active_executions() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        "MERGE INTO active_executions AS t USING written AS w ON t.id = w.id "
        "WHEN MATCHED AND w.finished_at IS NOT NULL THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET alone = {alone}, {', '.join(f'{name} = w.{name}' for name in ACTIVE_COLUMNS)} "
        f"WHEN NOT MATCHED AND w.finished_at IS NULL THEN INSERT (id, alone, {listed}) "
        f"VALUES (w.id, {alone}, {', '.join(f'w.{name}' for name in ACTIVE_COLUMNS)}); "
        "RETURN NULL; END $$"
    )
    _forget("active_executions")
    _follow("workflow_executions", "active_executions")


def _keep_due_ticks() -> None:
    op.drop_index("ix_scheduled_jobs_due", "scheduled_jobs")
    op.create_table(
        "due_ticks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("next_run_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_due_ticks"),
    )
    op.execute("INSERT INTO due_ticks SELECT id, next_run_at FROM scheduled_jobs WHERE next_run_at IS NOT NULL")
    op.create_index("ix_due_ticks_next_run_at", "due_ticks", ["next_run_at"])
    op.execute(
        "ALTER TABLE due_ticks SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, "
        "autovacuum_vacuum_cost_delay = 0)"
    )
    op.execute(
        f"CREATE FUNCTION keep_due_ticks() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "
        "MERGE INTO due_ticks AS t USING written AS w ON t.id = w.id "
        "WHEN MATCHED AND w.next_run_at IS NULL THEN DELETE "
        "WHEN MATCHED AND t.next_run_at <> w.next_run_at THEN UPDATE SET next_run_at = w.next_run_at "
        "WHEN NOT MATCHED AND w.next_run_at IS NOT NULL THEN INSERT VALUES (w.id, w.next_run_at); "
        "RETURN NULL; END $$"
    )
    _forget("due_ticks")
    _follow("scheduled_jobs", "due_ticks")


def _forget(table: str) -> None:
    op.execute(
        f"CREATE FUNCTION forget_{table}() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"DELETE FROM {table} AS t USING gone WHERE t.id = gone.id; RETURN NULL; END $$"
    )


def _follow(leader: str, follower: str) -> None:
    """Make triggers that copy every change of one table to the other in the same statement."""
    for event, rows, function in (
        ("insert", "NEW TABLE AS written", f"keep_{follower}"),
        ("update", "NEW TABLE AS written", f"keep_{follower}"),
        ("delete", "OLD TABLE AS gone", f"forget_{follower}"),
    ):
        op.execute(
            f"CREATE TRIGGER keep_after_{event} AFTER {event} ON {leader} REFERENCING {rows} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        )


def _join_executions() -> None:
    op.execute("CREATE TABLE joined (LIKE workflow_executions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    op.execute("INSERT INTO joined SELECT * FROM workflow_executions")
    op.drop_table("workflow_executions")
    op.execute("ALTER TABLE joined RENAME TO workflow_executions")
    op.create_primary_key("pk_workflow_executions", "workflow_executions", ["id"])
    op.create_foreign_key(
        *("fk_workflow_executions_scheduled_job_id", "workflow_executions", "scheduled_jobs"),
        *(["scheduled_job_id"], ["id"]),
        ondelete="CASCADE",
    )
    op.execute("DELETE FROM callbacks WHERE execution_id NOT IN (SELECT id FROM workflow_executions)")
    op.create_foreign_key(
        *("fk_callbacks_execution_id", "callbacks", "workflow_executions", ["execution_id"], ["id"]), ondelete="CASCADE"
    )
    active = "status IN ('pending', 'running')"
    for name, columns, unique, predicate in (
        ("uq_workflow_executions_entity_fire", "entity_type, entity_id, scheduled_for, retry_attempt", True, ENTITY),
        ("uq_workflow_executions_entity_running", "entity_type, entity_id", True, f"{ENTITY} AND status = 'running'"),
        ("ix_workflow_executions_active_of_entity", "entity_type, entity_id", False, f"{ENTITY} AND {active}"),
        ("uq_workflow_executions_fire", "scheduled_job_id, scheduled_for, retry_attempt", True, "trigger <> 'manual'"),
        (
            "uq_workflow_executions_no_overlap",
            "scheduled_job_id",
            True,
            f"exclusive AND NOT queued AND {active}",
        ),
        ("ix_workflow_executions_active", "scheduled_job_id", False, active),
        ("ix_workflow_executions_running", "worker_id", False, "status = 'running'"),
        ("ix_workflow_executions_pending", "due_at", False, "status = 'pending' AND NOT queued"),
        ("ix_workflow_executions_awaiting", "deadline_at", False, "awaiting"),
        ("ix_workflow_executions_running_of_workflow", "workflow_id", False, "status = 'running'"),
        ("ix_workflow_executions_newest_of_job", "scheduled_job_id, scheduled_for", False, ""),
        ("ix_workflow_executions_newest_of_workflow", "workflow_id, scheduled_for", False, ""),
        ("ix_workflow_executions_newest", "scheduled_for", False, ""),
        ("ix_workflow_executions_newest_of_owner", "user_profile_id, scheduled_for", False, ""),
    ):
        op.create_index(
            name,
            "workflow_executions",
            columns.split(", "),
            unique=unique,
            postgresql_where=sa.text(predicate) if predicate else None,
        )
    _spread_results()


ENTITY = "entity_type IS NOT NULL"


def _spread_results() -> None:
    op.create_table(
        "node_results",
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("output", sa.dialects.postgresql.JSONB(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "node_id", name="pk_node_results"),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["workflow_executions.id"], name="fk_node_results_execution_id", ondelete="CASCADE"
        ),
    )
    op.execute(
        "INSERT INTO node_results SELECT e.id, n.* FROM workflow_executions AS e "
        "CROSS JOIN LATERAL jsonb_to_recordset(e.results) AS n(node_id text, type text, status text, output jsonb, "
        "error text, started_at timestamptz, finished_at timestamptz)"
    )
    op.drop_column("workflow_executions", "results")


def _join_ledger() -> None:
    op.execute("CREATE TABLE joined (LIKE ledger_entries INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    op.execute("INSERT INTO joined SELECT * FROM ledger_entries")
    op.drop_table("ledger_entries")
    op.execute("ALTER TABLE joined RENAME TO ledger_entries")
    op.execute("ALTER TABLE ledger_entries ADD COLUMN id bigint GENERATED BY DEFAULT AS IDENTITY")
    op.create_primary_key("pk_ledger_entries", "ledger_entries", ["id"])
    op.create_foreign_key(
        *("fk_ledger_entries_scheduled_job_id", "ledger_entries", "scheduled_jobs", ["scheduled_job_id"], ["id"]),
        ondelete="CASCADE",
    )
    for column in ("first_slot", "last_slot"):
        op.create_unique_constraint(
            f"uq_ledger_entries_scheduled_job_id_{column}", "ledger_entries", ["scheduled_job_id", column]
        )
