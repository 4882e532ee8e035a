"""Keys that sign the tokens of calls"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0022"
down_revision: str | None = "0021"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "oidc_keys",
        sa.Column("kid", sa.String(length=64), nullable=False),
        sa.Column("algorithm", sa.Text(), server_default="RS256", nullable=False),
        sa.Column("private_key", sa.Text(), nullable=False),
        sa.Column("public_key", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("activates_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("retires_at", _moment(), nullable=True),
        sa.CheckConstraint("algorithm = 'RS256'", name=op.f("ck_oidc_keys_algorithm_known")),
        sa.PrimaryKeyConstraint("kid", name=op.f("pk_oidc_keys")),
    )
    op.create_index(
        "uq_oidc_keys_newest",
        "oidc_keys",
        ["algorithm"],
        unique=True,
        postgresql_where=sa.text("retires_at IS NULL"),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("oidc_keys")


def _moment() -> sa.DateTime:
    return sa.DateTime(timezone=True)
