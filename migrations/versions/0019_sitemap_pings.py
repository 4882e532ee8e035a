"""Pings of the sitemap after publishing runs"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0019"
down_revision: str | None = "0018"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "sitemap_pings",
        sa.Column("id", sa.Integer(), server_default="1", nullable=False),
        sa.Column("urls", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("wanted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_slot", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_sitemap_pings_only_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sitemap_pings")),
    )
    op.execute("INSERT INTO sitemap_pings (id) VALUES (1)")


def downgrade() -> None:
    """Downgrade the schema."""
    op.execute("DELETE FROM switches WHERE name = 'ping_sitemap_on_run'")
    op.drop_table("sitemap_pings")
