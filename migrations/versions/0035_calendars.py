"""Calendars of schedules"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0035"
down_revision: str | None = "0034"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

NOW = sa.text("clock_timestamp()")
# Beyond this many rows the table would be blocked for too long: ``carillon migrate`` builds the index afterwards.
MOST_ROWS = 10_000
COUNT = f"SELECT count(*) FROM (SELECT FROM scheduled_jobs LIMIT {MOST_ROWS + 1}) AS few"  # noqa: S608 - constants
LISTS = ("exclude_calendars", "only_calendars")


def upgrade() -> None:
    """Upgrade the schema."""
    for name in LISTS:
        op.add_column("scheduled_jobs", sa.Column(name, postgresql.JSONB(), server_default="[]", nullable=False))
    versions = sa.Column("calendar_versions", postgresql.JSONB(), server_default="{}", nullable=False)
    op.add_column("scheduled_jobs", versions)
    if op.get_bind().execute(sa.text(COUNT)).scalar_one() <= MOST_ROWS:
        op.create_index(
            "ix_scheduled_jobs_calendars",
            "scheduled_jobs",
            ["calendar_versions"],
            postgresql_using="gin",
            postgresql_where=sa.text("calendar_versions <> '{}'"),
        )
    op.create_table(
        "calendar_contents",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("dates", postgresql.JSONB(), nullable=False),
        sa.Column("ics", sa.Text(), nullable=True),
        sa.Column("holidays", sa.Text(), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_calendar_contents")),
    )
    op.create_index(op.f("ix_calendar_contents_used_at"), "calendar_contents", ["used_at"])
    _create_calendars()
    op.create_table(
        "calendar_replans",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Uuid(), nullable=True),
        sa.Column("user_profile_id", sa.Integer(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calendar_replans")),
    )


def _create_calendars() -> None:
    op.create_table(
        "calendars",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("team_id", sa.Integer(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("public", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.CheckConstraint("name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'", name=op.f("ck_calendars_name_known")),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_calendars_user_profile_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["digest"], ["calendar_contents.digest"], name=op.f("fk_calendars_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calendars")),
        sa.UniqueConstraint("user_profile_id", "name", name=op.f("uq_calendars_user_profile_id_name")),
    )
    op.create_index(op.f("ix_calendars_name"), "calendars", ["name"])
    op.create_index(op.f("ix_calendars_digest"), "calendars", ["digest"])
    op.create_index("uq_calendars_public_name", "calendars", ["name"], unique=True, postgresql_where=sa.text("public"))


def downgrade() -> None:
    """Downgrade the schema. Schedules that name calendars stay, with a spec that is not valid."""
    op.drop_table("calendar_replans")
    op.drop_table("calendars")
    op.drop_table("calendar_contents")
    op.execute("DROP INDEX IF EXISTS ix_scheduled_jobs_calendars")
    for name in (*LISTS, "calendar_versions"):
        op.drop_column("scheduled_jobs", name)
