"""Kinds beside the texts of schedules, texts of one or two characters, and texts beside the states of schedules"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0048"
down_revision: str | None = "0047"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# Beyond this many rows ``carillon migrate`` builds the indexes afterwards.
MOST_ROWS = 10_000
# Rows are looked up by their keys, whatever the statistics say. As in 0007.
LOOKED_UP = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
# The columns of ``schedule_texts`` but the id, each with its value, and the columns of ``scheduled_jobs`` that it is of.
COPIED = {
    "user_profile_id": ("{0}.user_profile_id", ("user_profile_id",)),
    "workflow_id": ("{0}.workflow_id", ("workflow_id",)),
    "created_at": ("{0}.created_at", ()),
    "name": ("{0}.name", ("name",)),
    "searched": ("lower(coalesce({0}.key, '')) || E'\\n' || lower({0}.name)", ("key",)),
}
KIND = (
    "CASE WHEN {0}.interval_seconds IS NOT NULL THEN 'interval' WHEN {0}.cron IS NOT NULL THEN 'cron' "
    "WHEN {0}.every = 'rrule' THEN 'rrule' WHEN {0}.every IS NOT NULL THEN 'monthly' ELSE 'once' END"
)
WITH_KIND = {**COPIED, "kind": (KIND, ("interval_seconds", "cron", "every"))}
KINDS = ("cron", "interval", "monthly", "once", "rrule")
SHORT_PARTS = """
CREATE FUNCTION short_parts(given text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 500 AS $$
DECLARE
    characters text[] := string_to_array(given, NULL);
    parts text[] := characters;
    one text;
    before text := '';
BEGIN
    FOREACH one IN ARRAY characters LOOP
        parts := parts || (before || one);
        before := one;
    END LOOP;
    RETURN parts;
END $$
"""
SEARCHED = "((lower(COALESCE(key, ''::text)) || chr(10)) || lower(name::text))"
RESTING = "status <> 'active'"
OWNED = {"": [], "owner_": ["user_profile_id"]}


def upgrade() -> None:
    """Upgrade the schema."""
    op.execute(SHORT_PARTS)
    _write_again(WITH_KIND)
    has_trigrams = _has_trigrams()
    if _few("scheduled_jobs"):
        _create_text_indexes(has_trigrams=has_trigrams)
        op.create_index(
            "ix_schedule_texts_kind",
            "schedule_texts",
            ["kind", "user_profile_id", "name", "id"],
            postgresql_include=["searched", "created_at"],
        )
        op.create_index(
            "ix_schedule_texts_short", "schedule_texts", [sa.text("short_parts(searched)")], postgresql_using="gin"
        )
    _replace_indexes_of_schedules(has_trigrams=has_trigrams)
    op.execute("ANALYZE schedule_texts")


def _write_again(copied: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    """Write all rows of ``schedule_texts`` again, without indexes, and let triggers copy these columns from then on."""
    for event in ("insert", "update", "delete"):
        op.execute(f"DROP TRIGGER texts_after_{event} ON scheduled_jobs")
    op.execute("DROP FUNCTION add_schedule_texts, keep_schedule_texts, forget_schedule_texts")
    op.execute("TRUNCATE schedule_texts")
    for name in ("name", "owner_name", "workflow_name", "searched", "kind", "short"):
        op.drop_index(f"ix_schedule_texts_{name}", table_name="schedule_texts", if_exists=True)
    if copied is WITH_KIND:
        op.add_column("schedule_texts", sa.Column("kind", sa.Text(collation="C"), nullable=False))
        known = ", ".join(f"'{kind}'" for kind in KINDS)
        op.create_check_constraint(op.f("ck_schedule_texts_kind_known"), "schedule_texts", f"kind IN ({known})")
    else:
        op.drop_column("schedule_texts", "kind")
    columns, values = _copying(copied)
    op.execute(f"INSERT INTO schedule_texts {columns} SELECT {values.format('j')} FROM scheduled_jobs AS j")  # noqa: S608
    _follow_schedules(copied)


def _copying(copied: dict[str, tuple[str, tuple[str, ...]]]) -> tuple[str, str]:
    """Return the columns, and their values of a row whose name is put in."""
    return f"(id, {', '.join(copied)})", ", ".join(("{0}.id", *(value for value, _ in copied.values())))


def _follow_schedules(copied: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    """Make triggers that copy every change. A tick writes none of the columns, and fires none of them."""
    columns, values = _copying(copied)
    or_update = f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in copied)}"
    op.execute(
        f"CREATE FUNCTION add_schedule_texts() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO schedule_texts {columns} SELECT {values.format('j')} FROM written AS j {or_update}; "
        "RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER texts_after_insert AFTER INSERT ON scheduled_jobs REFERENCING NEW TABLE AS written "
        "FOR EACH STATEMENT EXECUTE FUNCTION add_schedule_texts()"
    )
    op.execute(
        f"CREATE FUNCTION keep_schedule_texts() RETURNS trigger LANGUAGE plpgsql {LOOKED_UP} AS $$ BEGIN "  # noqa: S608
        f"INSERT INTO schedule_texts {columns} VALUES ({values.format('NEW')}) {or_update}; RETURN NULL; END $$"
    )
    written = [name for _, names in copied.values() for name in names]
    old, new = (", ".join(f"{row}.{name}" for name in written) for row in ("OLD", "NEW"))
    op.execute(
        f"CREATE TRIGGER texts_after_update AFTER UPDATE OF {', '.join(written)} ON scheduled_jobs FOR EACH ROW "
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


def _replace_indexes_of_schedules(*, has_trigrams: bool) -> None:
    """Replace three indexes by such as have the texts in the words of ``schedule_texts``."""
    for name in ("texts", "resting_newest", "owner_resting"):
        op.drop_index(f"ix_scheduled_jobs_{name}", table_name="scheduled_jobs", if_exists=True)
    if not _few("scheduled_jobs"):
        return
    for prefix, owner in OWNED.items():
        op.create_index(
            f"ix_scheduled_jobs_{prefix}resting_texts",
            "scheduled_jobs",
            [*owner, "status", "created_at", "id", sa.text(SEARCHED)],
            postgresql_where=sa.text(RESTING),
            postgresql_include=["status_reason", "name", "key"],
        )
    if has_trigrams:
        op.create_index(
            "ix_scheduled_jobs_searched",
            "scheduled_jobs",
            [sa.literal_column(SEARCHED).label("searched")],
            postgresql_using="gin",
            postgresql_ops={"searched": "gin_trgm_ops"},
        )


def _create_text_indexes(*, has_trigrams: bool) -> None:
    for name, columns in (
        ("name", ["name", "id"]),
        ("owner_name", ["user_profile_id", "name", "id"]),
        ("workflow_name", ["workflow_id", "name", "id"]),
    ):
        op.create_index(f"ix_schedule_texts_{name}", "schedule_texts", columns, postgresql_include=["searched"])
    if has_trigrams:
        op.create_index(
            "ix_schedule_texts_searched",
            "schedule_texts",
            ["searched"],
            postgresql_using="gin",
            postgresql_ops={"searched": "gin_trgm_ops"},
        )


def _few(table: str) -> bool:
    few = sa.text(f"SELECT count(*) FROM (SELECT FROM {table} LIMIT :most) AS few").bindparams(most=MOST_ROWS + 1)  # noqa: S608
    return bool(op.get_bind().execute(few).scalar_one() <= MOST_ROWS)


def _has_trigrams() -> bool:
    installed = op.get_bind().execute(sa.text("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'"))
    return bool(installed.scalar_one())


def downgrade() -> None:
    """Downgrade the schema."""
    has_trigrams, few = _has_trigrams(), _few("scheduled_jobs")
    _write_again(COPIED)
    op.execute("DROP FUNCTION short_parts")
    for name in ("searched", "resting_texts", "owner_resting_texts"):
        op.drop_index(f"ix_scheduled_jobs_{name}", table_name="scheduled_jobs", if_exists=True)
    if not few:
        return
    _create_text_indexes(has_trigrams=has_trigrams)
    for name, owner in (("resting_newest", []), ("owner_resting", ["user_profile_id"])):
        op.create_index(
            f"ix_scheduled_jobs_{name}",
            "scheduled_jobs",
            [*owner, "status", "created_at", "id"],
            postgresql_where=sa.text(RESTING),
            postgresql_include=["status_reason"],
        )
    if has_trigrams:
        texts = ["name", "key"]
        op.create_index(
            "ix_scheduled_jobs_texts",
            "scheduled_jobs",
            texts,
            postgresql_using="gin",
            postgresql_ops=dict.fromkeys(texts, "gin_trgm_ops"),
        )
