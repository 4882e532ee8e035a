"""Quotas of single users and teams"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0042"
down_revision: str | None = "0041"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("user_profiles", sa.Column("quotas", postgresql.JSONB(), nullable=True))
    op.create_index("ix_user_profiles_quotas", "user_profiles", ["id"], postgresql_where=sa.text("quotas IS NOT NULL"))


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_index("ix_user_profiles_quotas", table_name="user_profiles")
    op.drop_column("user_profiles", "quotas")
