"""Calendars that files declare"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0044"
down_revision: str | None = "0043"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "managed_calendars",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("calendar_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["calendar_id"], ["calendars.id"], name=op.f("fk_managed_calendars_calendar_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_managed_calendars")),
        sa.UniqueConstraint("calendar_id", name=op.f("uq_managed_calendars_calendar_id")),
    )


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_table("managed_calendars")
