"""Removals from teams by hand, which claims do not undo; known kinds of tokens"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "team_exclusions",
        sa.Column("team_id", sa.Integer(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column(
            "removed_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_team_exclusions_team_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["user_profile_id"],
            ["user_profiles.id"],
            name=op.f("fk_team_exclusions_user_profile_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("team_id", "user_profile_id", name=op.f("pk_team_exclusions")),
    )
    op.create_index("ix_team_exclusions_user_profile_id", "team_exclusions", ["user_profile_id"])
    op.create_check_constraint(op.f("ck_api_tokens_kind_known"), "api_tokens", "kind IN ('api', 'feed')")


def downgrade() -> None:
    """Downgrade the schema."""
    op.drop_constraint(op.f("ck_api_tokens_kind_known"), "api_tokens")
    op.drop_table("team_exclusions")
