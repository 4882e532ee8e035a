"""The audit log, and the addresses that tokens were used from"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor_id", sa.Integer(), nullable=True),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("actor", "on_behalf_of")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("via", "action", "object_type")),
        sa.Column("object_id", sa.Text(), nullable=True),
        sa.Column("object_name", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Integer(), nullable=True),
        sa.Column("changes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("request_id", "address")),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
        postgresql_partition_by="RANGE (id)",
    )
    # The default partition, for rows of weeks without a partition. Workers create the weekly ones as time passes.
    op.execute("CREATE TABLE audit_events_rest PARTITION OF audit_events DEFAULT")
    for name, columns in (
        ("actor_id", ["actor_id"]),
        ("actor", ["actor"]),
        ("owner", ["owner_id"]),
        ("object", ["object_type", "object_id"]),
        ("action", ["action"]),
    ):
        op.create_index(f"ix_audit_events_newest_of_{name}", "audit_events", [*columns, "id"])
    op.create_table(
        "token_addresses",
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["api_tokens.id"], name="fk_token_addresses_token_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_id", "address", name="pk_token_addresses"),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("token_addresses")
    op.drop_table("audit_events")
