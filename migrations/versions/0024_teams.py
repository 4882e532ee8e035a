"""Teams own objects, users belong to teams"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

OWNED = ("workflows", "scheduled_jobs", "webhooks", "notifications", "secrets")


def upgrade() -> None:
    """Upgrade the schema."""
    op.create_table(
        "teams",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        _moment("created_at"),
        sa.ForeignKeyConstraint(["id"], ["user_profiles.id"], name=op.f("fk_teams_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("name", name=op.f("uq_teams_name")),
    )
    op.create_table(
        "team_members",
        sa.Column("team_id", sa.Integer(), nullable=False),
        sa.Column("user_profile_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        # True if the claims of an identity provider made the user a member, and may end that too.
        sa.Column("by_claims", sa.Boolean(), server_default=sa.false(), nullable=False),
        _moment("added_at"),
        sa.CheckConstraint(
            "role IN ('editor', 'operator', 'owner', 'viewer')", name=op.f("ck_team_members_role_known")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_team_members_team_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["user_profile_id"], ["user_profiles.id"], name=op.f("fk_team_members_user_profile_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("team_id", "user_profile_id", name=op.f("pk_team_members")),
    )
    op.create_index("ix_team_members_user_profile_id", "team_members", ["user_profile_id"])
    # Without a foreign key: a team's objects refer to its profile, which is deleted with the team.
    for table in OWNED:
        op.add_column(table, sa.Column("team_id", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema."""
    for table in reversed(OWNED):
        op.drop_column(table, "team_id")
    op.drop_table("team_members")
    op.drop_table("teams")


def _moment(name: str) -> sa.Column[sa.DateTime]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False)
