"""Named limits, their buckets and permits, and the limits that schedules and workflows name"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0037"
down_revision: str | None = "0036"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    """Upgrade the schema."""
    for table in ("workflows", "scheduled_jobs"):
        op.add_column(table, sa.Column("limit", sa.Text(), nullable=True))
        # No row has a value yet: the index is empty, and built at once.
        op.create_index(f"ix_{table}_limit", table, ["limit"], postgresql_where=sa.text('"limit" IS NOT NULL'))
    _create_limits()
    _create_buckets()
    _create_permits()


def downgrade() -> None:
    """Downgrade the schema."""
    for table in ("limit_permits", "limit_buckets", "limits"):
        op.drop_table(table)
    for table in ("workflows", "scheduled_jobs"):
        op.drop_index(f"ix_{table}_limit", table_name=table)
        op.drop_column(table, "limit")


def _create_limits() -> None:
    op.create_table(
        "limits",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("team_id", sa.Integer(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("public", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("max_concurrent", sa.Integer(), nullable=True),
        sa.Column("rate", sa.Text(), nullable=True),
        sa.Column("burst", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.CheckConstraint("max_concurrent >= 1", name=op.f("ck_limits_max_concurrent_positive")),
        sa.CheckConstraint("burst IS NULL OR (burst >= 1 AND rate IS NOT NULL)", name=op.f("ck_limits_burst_of_rate")),
        sa.CheckConstraint("num_nonnulls(max_concurrent, rate) >= 1", name=op.f("ck_limits_has_bound")),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_limits_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
        sa.UniqueConstraint("user_profile_id", "name", name=op.f("uq_limits_user_profile_id_name")),
    )
    op.create_index("ix_limits_public", "limits", ["name"], postgresql_where=sa.text("public"))


def _create_buckets() -> None:
    op.create_table(
        "limit_buckets",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("limit_id", sa.Integer(), nullable=True),
        sa.Column("owner_id", sa.Integer(), nullable=True),
        sa.Column("key", sa.Text(), server_default="", nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("num_nonnulls(limit_id, owner_id) = 1", name=op.f("ck_limit_buckets_one_source")),
        sa.ForeignKeyConstraint(
            ["limit_id"], ["limits.id"], name=op.f("fk_limit_buckets_limit_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["user_profiles.id"], name=op.f("fk_limit_buckets_owner_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limit_buckets")),
    )
    for name, column in (("limit", "limit_id"), ("owner", "owner_id")):
        op.create_index(
            f"uq_limit_buckets_of_{name}",
            "limit_buckets",
            [column, "key"],
            unique=True,
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )


def _create_permits() -> None:
    op.create_table(
        "limit_permits",
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Text(), server_default="", nullable=False),
        sa.Column("bucket_id", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("slot", sa.DateTime(timezone=True), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("entered_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["bucket_id"], ["limit_buckets.id"], name=op.f("fk_limit_permits_bucket_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("execution_id", "node_id", "bucket_id", name=op.f("pk_limit_permits")),
    )
    op.create_index(
        "ix_limit_permits_waiting",
        "limit_permits",
        ["bucket_id", "slot"],
        postgresql_where=sa.text("starts_at IS NULL"),
    )
    op.create_index(
        "ix_limit_permits_held", "limit_permits", ["bucket_id"], postgresql_where=sa.text("starts_at IS NOT NULL")
    )
