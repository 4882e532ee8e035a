"""The change that a plan was made for"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0041"
down_revision: str | None = "0040"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.add_column("edit_plans", sa.Column("changes", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_column("edit_plans", "changes")
