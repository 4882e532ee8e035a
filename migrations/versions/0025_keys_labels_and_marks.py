"""Keys and labels of schedules and workflows, the hosts that workflows call, and what marks a schedule"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the index afterwards.
MOST_ROWS = 10_000
# Rows are looked up by their keys, whatever the statistics say. As in 0007.
LOOKED_UP = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
OBJECTS = ("scheduled_jobs", "workflows")
# The extension may be missing where it is not allowed to be created: then texts are searched without an index.
TRIGRAMS = (
    "DO $$ BEGIN CREATE EXTENSION IF NOT EXISTS pg_trgm; EXCEPTION WHEN insufficient_privilege OR undefined_file "
    "OR feature_not_supported THEN RAISE NOTICE 'pg_trgm is not available: %', SQLERRM; END $$"
)
# Of a schedule: it never ran; or its last run that ended did not succeed.
NEVER_RAN = "{0}.last_attempt_at IS NULL"
FAILING = "{0}.last_error_at IS NOT NULL AND ({0}.last_success_at IS NULL OR {0}.last_error_at > {0}.last_success_at)"
MARK = f"(CASE WHEN {FAILING} THEN 'failing' WHEN {NEVER_RAN} THEN 'never_ran' END)"
OR_UPDATE = (
    "ON CONFLICT (id) DO UPDATE SET mark = EXCLUDED.mark, user_profile_id = EXCLUDED.user_profile_id, "
    "workflow_id = EXCLUDED.workflow_id, created_at = EXCLUDED.created_at"
)
COLUMNS = "(id, mark, user_profile_id, workflow_id, created_at)"


def upgrade() -> None:
    """Upgrade the schema."""
    op.execute(TRIGRAMS)
    for table in OBJECTS:
        op.add_column(table, sa.Column("key", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("labels", postgresql.JSONB(), server_default="{}", nullable=False))
        op.create_index(
            f"uq_{table}_key",
            table,
            ["user_profile_id", "key"],
            unique=True,
            postgresql_where=sa.text("key IS NOT NULL"),
        )
    # The transaction of the last change that is no tick: its row has the same ``xmin`` until something else is written.
    op.add_column("scheduled_jobs", sa.Column("edited_xid", sa.BigInteger(), nullable=True))
    op.execute("ALTER TABLE scheduled_jobs ALTER COLUMN edited_xid SET DEFAULT pg_current_xact_id()::text::bigint")
    op.add_column("workflows", sa.Column("target_hosts", sa.Text(), server_default="", nullable=False))
    op.execute(
        "UPDATE workflows AS w SET target_hosts = h.hosts FROM (SELECT o.id, string_agg(DISTINCT lower(m[1]), ' ') "
        "AS hosts FROM workflows AS o, regexp_matches(o.nodes::text, 'https?://([^/:\"?#\\\\{} ]+)', 'gi') AS m "
        "GROUP BY o.id) AS h WHERE h.id = w.id"
    )
    _create_marks()
    _create_indexes()


def _create_marks() -> None:
    op.create_table(
        "schedule_marks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("mark IN ('failing', 'never_ran')", name=op.f("ck_schedule_marks_mark_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_marks")),
    )
    op.create_index("ix_schedule_marks_newest", "schedule_marks", ["mark", "created_at", "id"])
    op.create_index("ix_schedule_marks_owner", "schedule_marks", ["user_profile_id", "mark", "created_at", "id"])
    values = f"j.id, {MARK.format('j')}, j.user_profile_id, j.workflow_id, j.created_at"
    marked = f"({FAILING.format('j')} OR {NEVER_RAN.format('j')})"
    op.execute(f"INSERT INTO schedule_marks {COLUMNS} SELECT {values} FROM scheduled_jobs AS j WHERE {marked}")  # noqa: S608
    op.execute(
        f"CREATE FUNCTION add_schedule_marks() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO schedule_marks {COLUMNS} SELECT {values} FROM written AS j WHERE {marked} "
        f"{OR_UPDATE}; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER mark_after_insert AFTER INSERT ON scheduled_jobs REFERENCING NEW TABLE AS written "
        "FOR EACH STATEMENT EXECUTE FUNCTION add_schedule_marks()"
    )
    new = MARK.format("NEW")
    op.execute(
        f"CREATE FUNCTION keep_schedule_mark() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"IF {new} IS NULL THEN DELETE FROM schedule_marks WHERE id = NEW.id; "
        f"ELSE INSERT INTO schedule_marks {COLUMNS} VALUES (NEW.id, {new}, NEW.user_profile_id, NEW.workflow_id, "
        f"NEW.created_at) {OR_UPDATE}; END IF; RETURN NULL; END $$"
    )
    # For the few rows whose mark changes: of all others only the condition is looked at.
    op.execute(
        "CREATE TRIGGER mark_after_update AFTER UPDATE ON scheduled_jobs FOR EACH ROW "
        f"WHEN ({MARK.format('OLD')} IS DISTINCT FROM {new} OR ({new} IS NOT NULL AND "
        "(OLD.user_profile_id, OLD.workflow_id) IS DISTINCT FROM (NEW.user_profile_id, NEW.workflow_id))) "
        "EXECUTE FUNCTION keep_schedule_mark()"
    )
    op.execute(
        f"CREATE FUNCTION forget_schedule_marks() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        "DELETE FROM schedule_marks AS t USING gone WHERE t.id = gone.id; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER mark_after_delete AFTER DELETE ON scheduled_jobs REFERENCING OLD TABLE AS gone "
        "FOR EACH STATEMENT EXECUTE FUNCTION forget_schedule_marks()"
    )


def _create_indexes() -> None:
    bind = op.get_bind()
    has_trigrams = bind.execute(sa.text("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'")).scalar_one()
    few = "SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS few"
    for table in OBJECTS:
        if bind.execute(sa.text(few.format(table, MOST_ROWS + 1))).scalar_one() > MOST_ROWS:
            continue
        op.create_index(
            f"ix_{table}_labels",
            table,
            ["labels"],
            postgresql_using="gin",
            postgresql_ops={"labels": "jsonb_path_ops"},
            postgresql_where=sa.text("labels <> '{}'"),
        )
        op.create_index(f"ix_{table}_name", table, [sa.text('name COLLATE "C"'), "id"])
        if has_trigrams:
            texts = ["name", "key"] if table == "scheduled_jobs" else ["name", "key", "target_hosts"]
            op.create_index(
                f"ix_{table}_texts",
                table,
                texts,
                postgresql_using="gin",
                postgresql_ops=dict.fromkeys(texts, "gin_trgm_ops"),
            )


def downgrade() -> None:
    """Downgrade the schema."""
    for event in ("insert", "update", "delete"):
        op.execute(f"DROP TRIGGER mark_after_{event} ON scheduled_jobs")
    op.execute("DROP FUNCTION add_schedule_marks, keep_schedule_mark, forget_schedule_marks")
    op.drop_table("schedule_marks")
    op.drop_column("workflows", "target_hosts")
    op.drop_column("scheduled_jobs", "edited_xid")
    for table in OBJECTS:
        for name in ("labels", "name", "texts"):
            op.drop_index(f"ix_{table}_{name}", table_name=table, if_exists=True)
        op.drop_index(f"uq_{table}_key", table_name=table)
        op.drop_column(table, "labels")
        op.drop_column(table, "key")
