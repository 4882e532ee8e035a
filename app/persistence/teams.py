"""Teams and who belongs to them. A team is also a profile of a user, by which it owns objects; nobody logs in as it."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec
import structlog
from sqlalchemy import Select, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import TEAM_NAMES, Actor, Role, TeamRole
from app.persistence.pagination import Page, Part, read_all, read_one, read_page, read_written
from app.persistence.tables import TeamExclusionRow, TeamMemberRow, TeamRow, UserProfile

_TEAMS = TeamRow.__table__
_MEMBERS = TeamMemberRow.__table__
_EXCLUSIONS = TeamExclusionRow.__table__
_USERS = UserProfile.__table__
# A team with the quotas of its profile.
_WITH_QUOTAS = select(_TEAMS, _USERS.c.quotas).join(_USERS, _USERS.c.id == _TEAMS.c.id)

log = structlog.get_logger(__name__)


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """A stored team."""

    id: int
    name: str
    created_at: datetime
    quotas: dict[str, int] | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A user in a team."""

    user_profile_id: int
    username: str
    role: TeamRole
    added_at: datetime


async def get(connection: AsyncConnection, team_id: int) -> Team | None:
    """Return a team, or None."""
    return await read_one(connection, _WITH_QUOTAS.where(_TEAMS.c.id == team_id), Team)


async def lock_user(connection: AsyncConnection, user_id: int) -> None:
    """Lock a user against other changes of the teams that the user belongs to. To be called before a team is locked."""
    await connection.execute(select(_USERS.c.id).where(_USERS.c.id == user_id).with_for_update(key_share=True))


async def lock(connection: AsyncConnection, team_id: int) -> Team | None:
    """Lock a team against other changes of it and of its members, and return it, or None."""
    query = _WITH_QUOTAS.where(_TEAMS.c.id == team_id)
    return await read_one(connection, query.with_for_update(of=_USERS, key_share=True), Team)


async def existing(connection: AsyncConnection, ids: Collection[int]) -> set[int]:
    """Return those of these ids that are teams. They are locked: none is deleted before the transaction ends."""
    # The profile is locked, not the team: a deletion begins with the profile, and would wait for the team.
    query = select(_TEAMS.c.id).join(_USERS, _USERS.c.id == _TEAMS.c.id).where(_TEAMS.c.id.in_(sorted(ids)))
    locked = query.order_by(_TEAMS.c.id).with_for_update(of=_USERS, read=True, key_share=True)
    return set((await connection.execute(locked)).scalars())


async def of_names(connection: AsyncConnection, names: Collection[str]) -> list[Team]:
    """Return the teams that have one of these names."""
    return await read_all(connection, select(_TEAMS).where(_TEAMS.c.name.in_(sorted(names))), Team)


async def page(connection: AsyncConnection, actor: Actor, part: Part) -> Page[Team]:
    """Return a page of the teams that the actor belongs to, or for admins of all, in the order of their ids."""
    query: Select[Any] = _WITH_QUOTAS
    if not actor.sees_all:
        query = query.where(_TEAMS.c.id.in_([team for team, _ in actor.teams]))
    return await read_page(connection, query, Team, (_TEAMS.c.id,), part, ascending=True)


async def add(connection: AsyncConnection, name: str) -> Team | None:
    """Create a team with its profile; None if the name is taken."""
    profile = upsert(UserProfile).values(username=f"{TEAM_NAMES}{name}", role=Role.MEMBER)
    profile = profile.on_conflict_do_nothing(index_elements=["username"])
    team_id = (await connection.execute(profile.returning(_USERS.c.id))).scalar_one_or_none()
    if team_id is None:
        return None
    return await read_written(connection, upsert(TeamRow).values(id=team_id, name=name).returning(*_TEAMS.c), Team)


async def rename(connection: AsyncConnection, team_id: int, name: str) -> Team | None:
    """Give a team that this transaction has locked another name; None if the name is taken."""
    taken = select(_TEAMS.c.id).where(_TEAMS.c.name == name, _TEAMS.c.id != team_id)
    # Two teams that take one name at the same time would wait for each other's row otherwise.
    await connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})
    if (await connection.execute(taken)).scalar_one_or_none() is not None:
        return None
    await connection.execute(update(UserProfile).where(_USERS.c.id == team_id).values(username=f"{TEAM_NAMES}{name}"))
    return await read_written(
        connection, update(TeamRow).where(_TEAMS.c.id == team_id).values(name=name).returning(*_TEAMS.c), Team
    )


_SHOWN = (_MEMBERS.c.user_profile_id, _USERS.c.username, _MEMBERS.c.role, _MEMBERS.c.added_at)


def _members(team_id: int) -> Select[Any]:
    with_names = _MEMBERS.join(_USERS, _USERS.c.id == _MEMBERS.c.user_profile_id)
    return select(*_SHOWN).select_from(with_names).where(_MEMBERS.c.team_id == team_id)


async def members(connection: AsyncConnection, team_id: int, part: Part) -> Page[Member]:
    """Return a page of a team's members, in the order of their ids."""
    return await read_page(connection, _members(team_id), Member, (_MEMBERS.c.user_profile_id,), part, ascending=True)


async def member(connection: AsyncConnection, team_id: int, user_id: int) -> Member | None:
    """Return a member of a team, or None."""
    return await read_one(connection, _members(team_id).where(_MEMBERS.c.user_profile_id == user_id), Member)


async def add_member(connection: AsyncConnection, team_id: int, user_id: int, role: TeamRole) -> bool:
    """Let a user belong to a team; return False if the user does already."""
    values = {"team_id": team_id, "user_profile_id": user_id, "role": role}
    statement = upsert(TeamMemberRow).values(values).on_conflict_do_nothing()
    is_new = (await connection.execute(statement)).rowcount == 1
    if is_new:
        await connection.execute(delete(TeamExclusionRow).where(*_is(team_id, user_id, _EXCLUSIONS)))
        await _touch(connection, user_id)
    return is_new


async def change_member(connection: AsyncConnection, team_id: int, user_id: int, role: TeamRole) -> None:
    """Give a member of a team a role, which claims do not change."""
    await connection.execute(update(TeamMemberRow).where(*_is(team_id, user_id)).values(role=role, by_claims=False))
    await _touch(connection, user_id)


async def remove_member(connection: AsyncConnection, team_id: int, user_id: int) -> None:
    """Let a user belong to a team no more, whatever claims say, until the user is added by hand."""
    await connection.execute(delete(TeamMemberRow).where(*_is(team_id, user_id)))
    values = {"team_id": team_id, "user_profile_id": user_id}
    await connection.execute(upsert(TeamExclusionRow).values(values).on_conflict_do_nothing())
    await _touch(connection, user_id)


async def _touch(connection: AsyncConnection, user_id: int) -> None:
    """Give a user's row a new version, so that workers read the user's teams again."""
    await connection.execute(update(UserProfile).where(_USERS.c.id == user_id).values(role=_USERS.c.role))


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    """What claims have changed: the user's role in a team before and after; None for no member."""

    team: Team
    before: TeamRole | None
    after: TeamRole | None


async def apply_claims(
    connection: AsyncConnection, user_id: int, wanted: Mapping[str, TeamRole], most: int
) -> list[MemberChange]:
    """Let a user belong to the teams of these names, and to no others that earlier claims named.

    What people decided stays: who was added, and who was removed. Names that no team has are left alone, and so are
    teams beyond ``most``. A team keeps its last owner.
    """
    await lock_user(connection, user_id)
    mine = select(*_TEAMS.c, _MEMBERS.c.role, _MEMBERS.c.by_claims).where(_MEMBERS.c.user_profile_id == user_id)
    rows = (await connection.execute(mine.join(_TEAMS, _TEAMS.c.id == _MEMBERS.c.team_id))).all()
    members = {row.id for row in rows if not row.by_claims}
    decided = members | await _excluded_from(connection, user_id)
    before = {_team(row): TeamRole(row.role) for row in rows if row.by_claims}
    named = [team for team in await of_names(connection, wanted) if team.id not in decided]
    after = {team: wanted[team.name] for team in named[: max(0, most - len(members))]}
    changes = [
        MemberChange(team=team, before=before.get(team), after=after.get(team))
        for team in sorted({*before, *after}, key=lambda team: team.id)
        if before.get(team) is not after.get(team)
    ]
    applied = [change for change in changes if await _apply_change(connection, user_id, change)]
    if applied:
        await _touch(connection, user_id)
    return applied


async def _excluded_from(connection: AsyncConnection, user_id: int) -> set[int]:
    query = select(_EXCLUSIONS.c.team_id).where(_EXCLUSIONS.c.user_profile_id == user_id)
    return set((await connection.execute(query)).scalars())


def _team(row: Any) -> Team:
    return Team(id=row.id, name=row.name, created_at=row.created_at)


async def _apply_change(connection: AsyncConnection, user_id: int, change: MemberChange) -> bool:
    """Apply what claims say about one team; return False if it would leave the team without an owner."""
    team_id = change.team.id
    if change.before is TeamRole.OWNER:
        await lock(connection, team_id)
        if not await owners_beside(connection, team_id, user_id):
            log.warning("team_owner_kept", team=team_id, user=user_id)
            return False
    if change.after is None:
        await connection.execute(delete(TeamMemberRow).where(*_is(team_id, user_id)))
        return True
    values = {"team_id": team_id, "user_profile_id": user_id, "role": change.after, "by_claims": True}
    statement = upsert(TeamMemberRow).values(values)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=[_MEMBERS.c.team_id, _MEMBERS.c.user_profile_id], set_={"role": change.after}
        )
    )
    return True


async def owners_beside(connection: AsyncConnection, team_id: int, user_id: int) -> int:
    """Return how many owners a team has besides a user."""
    query = (
        select(func.count())
        .select_from(_MEMBERS)
        .where(_MEMBERS.c.team_id == team_id, _MEMBERS.c.role == TeamRole.OWNER, _MEMBERS.c.user_profile_id != user_id)
    )
    return int((await connection.execute(query)).scalar_one())


async def roles_of(connection: AsyncConnection, user_id: int) -> dict[int, TeamRole]:
    """Return the teams that a user belongs to, each with the user's role; locked, so that they can be counted."""
    await lock_user(connection, user_id)
    rows = await connection.execute(
        select(_MEMBERS.c.team_id, _MEMBERS.c.role).where(_MEMBERS.c.user_profile_id == user_id)
    )
    return {row.team_id: TeamRole(row.role) for row in rows}


_ONLY_OWNED = text(
    "SELECT t.name FROM team_members AS m JOIN teams AS t ON t.id = m.team_id "
    "WHERE m.user_profile_id = :user AND m.role = 'owner' AND NOT EXISTS (SELECT FROM team_members AS o "
    "WHERE o.team_id = m.team_id AND o.role = 'owner' AND o.user_profile_id <> :user) ORDER BY t.id LIMIT 1"
)


async def only_owned_by(connection: AsyncConnection, user_id: int) -> str | None:
    """Return the name of a team that has no owner besides this user, or None."""
    name: str | None = (await connection.execute(_ONLY_OWNED, {"user": user_id})).scalar_one_or_none()
    return name


def _is(team_id: int, user_id: int, table: Any = _MEMBERS) -> tuple[Any, Any]:
    return table.c.team_id == team_id, table.c.user_profile_id == user_id
