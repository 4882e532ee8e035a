"""Sessions know when their credential ends, tokens when they were replaced, users their addresses"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

MOMENTS = (
    ("api_tokens", "replaced_at"),
    ("sessions", "credential_ends_at"),
    ("session_codes", "credential_ends_at"),
)


def upgrade() -> None:
    """Upgrade the schema."""
    for table, name in MOMENTS:
        op.add_column(table, sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "user_addresses",
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_profile_id"],
            ["user_profiles.id"],
            name=op.f("fk_user_addresses_user_profile_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_profile_id", "address", name=op.f("pk_user_addresses")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("user_addresses")
    for table, name in reversed(MOMENTS):
        op.drop_column(table, name)
