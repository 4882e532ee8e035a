"""Users of identity providers, by issuer and subject"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | None = "0020"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "identities",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("created_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("last_seen_at", _moment(), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("claims_at", _moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identities"),
        sa.UniqueConstraint("issuer", "subject", name="uq_identities_issuer_subject"),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name="fk_identities_user_profile_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_identities_user_profile_id", "identities", ["user_profile_id"])


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("identities")


def _moment() -> sa.DateTime:
    return sa.DateTime(timezone=True)
