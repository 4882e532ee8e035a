"""Leases of agents, their tokens, and the schedules that were made with them"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0036"
down_revision: str | None = "0035"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "agent_leases",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.Column("agent", sa.String(200), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("max_schedules", sa.Integer(), nullable=False),
        sa.Column("max_runs", sa.Integer(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("min_interval_seconds", sa.Integer(), nullable=False),
        sa.Column("max_writes", sa.Integer(), nullable=False),
        sa.Column("workflows", postgresql.JSONB(), server_default="[]", nullable=False),
        sa.Column("review", sa.Text(), nullable=False),
        sa.Column("at_end", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("spent_runs", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("writes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("exhausted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("review IN ('after', 'before', 'none')", name=op.f("ck_agent_leases_review_known")),
        sa.CheckConstraint("at_end IN ('delete', 'pause')", name=op.f("ck_agent_leases_at_end_known")),
        sa.CheckConstraint(
            "max_schedules >= 0 AND max_runs >= 0 AND max_writes >= 0", name=op.f("ck_agent_leases_bounds_not_negative")
        ),
        sa.CheckConstraint("spent_runs >= 0 AND writes >= 0", name=op.f("ck_agent_leases_spent_not_negative")),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_agent_leases_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_leases")),
    )
    op.create_index("ix_agent_leases_user_profile_id", "agent_leases", ["user_profile_id"])
    op.create_index(
        "ix_agent_leases_open", "agent_leases", ["expires_at"], postgresql_where=sa.text("ended_at IS NULL")
    )
    # The foreign keys are part of the columns: Postgres does not look through the tables for them.
    op.execute(
        "ALTER TABLE scheduled_jobs ADD COLUMN lease_id integer CONSTRAINT fk_scheduled_jobs_lease_id "
        "REFERENCES agent_leases (id) ON DELETE SET NULL, "
        "ADD COLUMN lease_ends_at timestamptz, ADD COLUMN lease_runs integer NOT NULL DEFAULT 0"
    )
    op.create_index(
        "ix_scheduled_jobs_lease", "scheduled_jobs", ["lease_id"], postgresql_where=sa.text("lease_id IS NOT NULL")
    )
    op.execute(
        "ALTER TABLE api_tokens ADD COLUMN lease_id integer CONSTRAINT fk_api_tokens_lease_id "
        "REFERENCES agent_leases (id) ON DELETE CASCADE"
    )
    op.create_index("ix_api_tokens_lease_id", "api_tokens", ["lease_id"])
    # The runs that a deleted schedule has made stay spent, whoever deletes it.
    op.execute(
        "CREATE FUNCTION keep_spent_runs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "UPDATE agent_leases SET spent_runs = spent_runs + OLD.lease_runs WHERE id = OLD.lease_id; "
        "RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER spent_after_delete AFTER DELETE ON scheduled_jobs FOR EACH ROW "
        "WHEN (OLD.lease_id IS NOT NULL) EXECUTE FUNCTION keep_spent_runs()"
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.execute("DROP TRIGGER spent_after_delete ON scheduled_jobs")
    op.execute("DROP FUNCTION keep_spent_runs")
    op.drop_column("api_tokens", "lease_id")
    for name in ("lease_runs", "lease_ends_at", "lease_id"):
        op.drop_column("scheduled_jobs", name)
    op.drop_table("agent_leases")
