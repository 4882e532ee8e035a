"""Teams: create, rename and delete them, and decide who belongs to them."""

from functools import partial
from typing import Any

import structlog
from msgspec.structs import replace

from app.domain.access import Actor, TeamRole, require_admin, require_owner, require_team_owner
from app.domain.audit import AuditAction, ObjectType, Subject, differences
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError
from app.persistence import audit, teams, users
from app.persistence.database import Connection, Database
from app.persistence.pagination import Part
from app.persistence.quotas import stored_quotas
from app.persistence.teams import Member, Team
from app.persistence.users import User
from app.services.inputs import IDS, MemberChanges, MemberInput, TeamChanges, TeamInput, given
from app.services.listing import read_views
from app.services.preconditions import require_match, tag_of
from app.services.removal import Fate, Removal, Remover
from app.services.views import MemberList, MemberView, TeamList, TeamView

# Each list reads a page for each team, and each team has quotas of its own.
MOST_TEAMS = 100
# Of users who are not admins.
MOST_OWNED_TEAMS = 10

log = structlog.get_logger(__name__)


class TeamService:
    """Use cases about teams."""

    def __init__(self, database: Database, remover: Remover | None = None) -> None:
        """Delete teams by this remover."""
        self._database = database
        self._remover = remover or Remover(database)

    async def list(self, actor: Actor, part: Part) -> TeamList:
        """Return a page of the teams that the actor belongs to; admins see all."""
        async with self._database.reading() as connection:
            page = await read_views(partial(teams.page, connection, actor), partial(_view, actor), part)
        return TeamList(page.items, page.next_cursor)

    async def create(self, actor: Actor, team: TeamInput) -> TeamView:
        """Create a team, of which the actor is the first owner."""
        async with self._database.transaction() as connection:
            if not actor.sees_all:
                await _require_room(connection, actor.user_id, to_own=True)
            row = await teams.add(connection, team.name)
            if row is None:
                raise ConflictError(f"There is a team '{team.name}' already.")
            await teams.add_member(connection, row.id, actor.user_id, TeamRole.OWNER)
            await audit.record(connection, actor, AuditAction.TEAM_CREATED, _subject(row))
        log.info("team_created", team=row.id, by=actor.user_id)
        return replace(_view(actor, row), role=TeamRole.OWNER)

    async def get(self, actor: Actor, team_id: int) -> TeamView:
        """Return a team."""
        require_owner(actor, team_id, "team")
        async with self._database.reading() as connection:
            return _view(actor, _known(await teams.get(connection, team_id) if team_id in IDS else None))

    async def change(self, actor: Actor, team_id: int, changes: TeamChanges) -> TeamView:
        """Give a team another name, or as an admin other quotas."""
        values = given(changes)
        async with self._database.transaction() as connection:
            before = await _managed(connection, actor, team_id)
            require_match(lambda: tag_of(_view(actor, before)))
            if values.get("name", before.name) != before.name and not await teams.rename(
                connection, team_id, values["name"]
            ):
                raise ConflictError(f"There is a team '{values['name']}' already.")
            if "quotas" in values:
                require_admin(actor)
                await users.change(connection, team_id, {"quotas": values["quotas"].given or None})
            after = await _locked(connection, team_id)
            differing = differences(_audited(before), _audited(after))
            if differing:
                await audit.record(connection, actor, AuditAction.TEAM_CHANGED, _subject(after), changes=differing)
                log.info("team_changed", team=team_id, by=actor.user_id)
        return _view(actor, after)

    async def delete(self, actor: Actor, team_id: int, schedules: Fate | None, to: int | None) -> None:
        """Delete a team. ``schedules`` says what becomes of what it has; without it a team with schedules is kept."""
        async with self._database.transaction() as connection:
            team = await _managed(connection, actor, team_id)
            require_match(lambda: tag_of(_view(actor, team)))
        removal = Removal(
            owner_id=team_id,
            title=f"the team '{team.name}'",
            fate=schedules,
            to=to,
            action=AuditAction.TEAM_DELETED,
            subject=_subject(team),
        )
        heir = await self._remover.remove(actor, removal)
        log.info("team_deleted", team=team_id, by=actor.user_id, schedules=schedules or "none", to=heir)

    async def members(self, actor: Actor, team_id: int, part: Part) -> MemberList:
        """Return a page of a team's members."""
        require_owner(actor, team_id, "team")
        async with self._database.reading() as connection:
            _known(await teams.get(connection, team_id) if team_id in IDS else None)
            page = await read_views(partial(teams.members, connection, team_id), _member_view, part)
        return MemberList(page.items, page.next_cursor)

    async def add_member(self, actor: Actor, team_id: int, member: MemberInput) -> MemberView:
        """Let a user belong to a team."""
        async with self._database.transaction() as connection:
            user = await _named_user(connection, actor, team_id, member)
            team = await _managed(connection, actor, team_id)
            await _require_room(connection, user.id)
            if not await teams.add_member(connection, team_id, user.id, member.role):
                raise ConflictError(f"'{user.username}' belongs to the team already.")
            row = await _member(connection, team_id, user.id)
            await _record(connection, actor, AuditAction.TEAM_MEMBER_ADDED, team, row)
        log.info("team_member_added", team=team_id, user=row.user_profile_id, role=row.role, by=actor.user_id)
        return _member_view(row)

    async def change_member(self, actor: Actor, team_id: int, user_id: int, changes: MemberChanges) -> MemberView:
        """Give a member of a team another role; it holds from the member's next request."""
        role = given(changes).get("role")
        require_team_owner(actor, team_id)
        async with self._database.transaction() as connection:
            await _lock_user(connection, user_id)
            team = await _managed(connection, actor, team_id)
            before = await _member(connection, team_id, user_id)
            require_match(lambda: tag_of(_member_view(before)))
            if role is None:
                return _member_view(before)
            if role is not TeamRole.OWNER:
                await _require_other_owner(connection, team_id, before)
            await teams.change_member(connection, team_id, user_id, role)
            after = await _member(connection, team_id, user_id)
            if after.role is not before.role:
                changed = {"role": {"from": before.role, "to": after.role}}
                await _record(connection, actor, AuditAction.TEAM_MEMBER_CHANGED, team, after, changed)
                log.info("team_member_changed", team=team_id, user=user_id, role=after.role, by=actor.user_id)
        return _member_view(after)

    async def remove_member(self, actor: Actor, team_id: int, user_id: int) -> None:
        """Let a user belong to a team no more. Members may leave by themselves."""
        _require_may_remove(actor, team_id, user_id)
        async with self._database.transaction() as connection:
            await _lock_user(connection, user_id)
            team = await _locked(connection, team_id)
            row = await _member(connection, team_id, user_id)
            require_match(lambda: tag_of(_member_view(row)))
            await _require_other_owner(connection, team_id, row)
            await teams.remove_member(connection, team_id, user_id)
            await _record(connection, actor, AuditAction.TEAM_MEMBER_REMOVED, team, row)
        log.info("team_member_removed", team=team_id, user=user_id, by=actor.user_id)


def _subject(team: Team) -> Subject:
    """Return a team as the subject of an event, which its members may see."""
    return Subject(ObjectType.TEAM, str(team.id), team.name, team.id)


async def _record(
    connection: Connection,
    actor: Actor,
    action: AuditAction,
    team: Team,
    member: Member,
    changes: dict[str, Any] | None = None,
) -> None:
    """Add an event about who belongs to a team."""
    details = {"user_id": member.user_profile_id, "username": member.username, "role": member.role}
    await audit.record(connection, actor, action, _subject(team), changes=changes, details=details)


def _audited(team: Team) -> dict[str, Any]:
    """Return the fields of a team that can be changed."""
    return {"name": team.name, "quotas": team.quotas or {}}


def _view(actor: Actor, team: Team) -> TeamView:
    return TeamView(
        id=team.id,
        name=team.name,
        role=dict(actor.teams).get(team.id),
        created_at=team.created_at,
        quotas=stored_quotas(team.quotas),
    )


def _member_view(member: Member) -> MemberView:
    return MemberView(
        user_id=member.user_profile_id, username=member.username, role=member.role, added_at=member.added_at
    )


def _known(team: Team | None) -> Team:
    if team is None:
        raise NotFoundError("There is no such team.")
    return team


async def _managed(connection: Connection, actor: Actor, team_id: int) -> Team:
    """Lock a team whose owner the actor is."""
    require_team_owner(actor, team_id)
    return await _locked(connection, team_id)


async def _locked(connection: Connection, team_id: int) -> Team:
    return _known(await teams.lock(connection, team_id) if team_id in IDS else None)


async def _lock_user(connection: Connection, user_id: int) -> None:
    """Lock a user before the team: what claims change is locked in this order too."""
    if user_id in IDS:
        await teams.lock_user(connection, user_id)


def _require_may_remove(actor: Actor, team_id: int, user_id: int) -> None:
    """Refuse an actor who is neither an owner of the team nor a member who leaves it."""
    leaves = user_id == actor.user_id and team_id in dict(actor.teams)
    if not leaves:
        require_team_owner(actor, team_id)


async def _named_user(connection: Connection, actor: Actor, team_id: int, member: MemberInput) -> User:
    """Return the user whom a request names by id or by name, locked."""
    require_team_owner(actor, team_id)
    if (member.user_id is None) == (member.username is None):
        raise InvalidError(FieldError("user_id", "Exactly one of `user_id` and `username` is needed."))
    if member.username is not None:
        field, user = "username", await users.find_by_name(connection, member.username)
    else:
        field, user = "user_id", await users.get(connection, member.user_id or 0)
    if user is None or not users.is_person(user):
        raise InvalidError(FieldError(field, "There is no such user."))
    await teams.lock_user(connection, user.id)
    return user


async def _member(connection: Connection, team_id: int, user_id: int) -> Member:
    row = await teams.member(connection, team_id, user_id) if user_id in IDS else None
    if row is None:
        raise NotFoundError("The team has no such member.")
    return row


async def _require_other_owner(connection: Connection, team_id: int, member: Member) -> None:
    """Refuse to leave a team without an owner."""
    is_owner = member.role is TeamRole.OWNER
    if is_owner and not await teams.owners_beside(connection, team_id, member.user_profile_id):
        raise ConflictError(f"'{member.username}' is the only owner of the team. Make another member its owner first.")


async def _require_room(connection: Connection, user_id: int, *, to_own: bool = False) -> None:
    """Refuse one more team for a user who belongs to very many, or owns many."""
    roles = list((await teams.roles_of(connection, user_id)).values())
    if len(roles) >= MOST_TEAMS:
        raise ConflictError(f"The user belongs to {MOST_TEAMS} teams already.")
    if to_own and roles.count(TeamRole.OWNER) >= MOST_OWNED_TEAMS:
        raise ConflictError(f"You own {MOST_OWNED_TEAMS} teams already. Ask an admin to create this one.")
