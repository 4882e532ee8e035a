"""Names and keys of schedules in a narrow table, for searches"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0046"
down_revision: str | None = "0045"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows ``carillon migrate`` builds the indexes afterwards.
MOST_ROWS = 10_000
# Rows are looked up by their keys, whatever the statistics say. As in 0007.
LOOKED_UP = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
COLUMNS = "(id, user_profile_id, workflow_id, created_at, name, searched)"
VALUES = (
    "{0}.id, {0}.user_profile_id, {0}.workflow_id, {0}.created_at, {0}.name, "
    "lower(coalesce({0}.key, '')) || E'\\n' || lower({0}.name)"
)
OR_UPDATE = (
    "ON CONFLICT (id) DO UPDATE SET user_profile_id = EXCLUDED.user_profile_id, workflow_id = EXCLUDED.workflow_id, "
    "created_at = EXCLUDED.created_at, name = EXCLUDED.name, searched = EXCLUDED.searched"
)
WRITTEN = ("user_profile_id", "workflow_id", "name", "key")


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "schedule_texts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("workflow_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("searched", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_texts")),
    )
    op.execute(f"INSERT INTO schedule_texts {COLUMNS} SELECT {VALUES.format('j')} FROM scheduled_jobs AS j")  # noqa: S608
    _follow_schedules()
    _create_indexes()
    op.execute("ANALYZE schedule_texts")


def _follow_schedules() -> None:
    """Make triggers that copy every change. A tick writes none of the columns, and fires none of them."""
    op.execute(
        f"CREATE FUNCTION add_schedule_texts() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO schedule_texts {COLUMNS} SELECT {VALUES.format('j')} FROM written AS j {OR_UPDATE}; "
        "RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER texts_after_insert AFTER INSERT ON scheduled_jobs REFERENCING NEW TABLE AS written "
        "FOR EACH STATEMENT EXECUTE FUNCTION add_schedule_texts()"
    )
    op.execute(
        f"CREATE FUNCTION keep_schedule_texts() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO schedule_texts {COLUMNS} VALUES ({VALUES.format('NEW')}) {OR_UPDATE}; RETURN NULL; END $$"
    )
    old, new = (", ".join(f"{row}.{name}" for name in WRITTEN) for row in ("OLD", "NEW"))
    op.execute(
        f"CREATE TRIGGER texts_after_update AFTER UPDATE OF {', '.join(WRITTEN)} ON scheduled_jobs FOR EACH ROW "
        f"WHEN (({old}) IS DISTINCT FROM ({new})) EXECUTE FUNCTION keep_schedule_texts()"
    )
    op.execute(
        f"CREATE FUNCTION forget_schedule_texts() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        "DELETE FROM schedule_texts AS t USING gone WHERE t.id = gone.id; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER texts_after_delete AFTER DELETE ON scheduled_jobs REFERENCING OLD TABLE AS gone "
        "FOR EACH STATEMENT EXECUTE FUNCTION forget_schedule_texts()"
    )


def _create_indexes() -> None:
    bind = op.get_bind()
    few = sa.text("SELECT count(*) FROM (SELECT FROM schedule_texts LIMIT :most) AS few").bindparams(most=MOST_ROWS + 1)
    if bind.execute(few).scalar_one() > MOST_ROWS:
        return
    for name, columns in (
        ("name", ["name", "id"]),
        ("owner_name", ["user_profile_id", "name", "id"]),
        ("workflow_name", ["workflow_id", "name", "id"]),
    ):
        op.create_index(f"ix_schedule_texts_{name}", "schedule_texts", columns, postgresql_include=["searched"])
    if bind.execute(sa.text("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'")).scalar_one():
        op.create_index(
            "ix_schedule_texts_searched",
            "schedule_texts",
            ["searched"],
            postgresql_using="gin",
            postgresql_ops={"searched": "gin_trgm_ops"},
        )


def downgrade() -> None:
    """Downgrade the schema."""
    for event in ("insert", "update", "delete"):
        op.execute(f"DROP TRIGGER texts_after_{event} ON scheduled_jobs")
    op.execute("DROP FUNCTION add_schedule_texts, keep_schedule_texts, forget_schedule_texts")
    op.drop_table("schedule_texts")
