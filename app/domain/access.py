"""Access: who may see and change what. An object of another user is reported like one that does not exist."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from app.domain.errors import (
    FeedTokenError,
    ForbiddenError,
    ForeignWorkflowError,
    InsufficientScopeError,
    NotFoundError,
    OutsideLeaseError,
    RestrictedError,
    UnauthenticatedError,
)


class Role(StrEnum):
    """The roles of users: admins see and change everything, members their own objects."""

    ADMIN = "admin"
    MEMBER = "member"


class OwnerKind(StrEnum):
    """The kinds of owners: a user (a person or a service), or a plugin."""

    USER = "user"
    PLUGIN = "plugin"


# The prefix of plugins' user names. Names of users cannot contain a colon, so no user can pose as a plugin.
PLUGIN_NAMES = "plugin:"
# The prefix of teams' user names: a team owns objects as a user does, and nobody can log in as a team.
TEAM_NAMES = "team:"


# What a team may be called.
TEAM_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.@ -]{0,199}"


class Scope(StrEnum):
    """What a token may be used for. They are cumulative: each includes those before it."""

    READ = "read"
    # Pause, resume, revive, run, cancel, reset, skip, backfill.
    OPERATE = "operate"
    WRITE = "write"
    # Users, settings, tokens of others.
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Return how much it includes."""
        return _RANKS[self]

    def includes(self, other: "Scope") -> bool:
        """Return whether this scope allows what needs the other."""
        return self.rank >= other.rank


_RANKS = {scope: rank for rank, scope in enumerate(Scope)}
_SCOPE_OF_ROLE = {Role.ADMIN: Scope.ADMIN, Role.MEMBER: Scope.WRITE}


class TokenKind(StrEnum):
    """What tokens are made for."""

    API = "api"
    # To read calendars: such a token can be part of an address, and is accepted nowhere else.
    FEED = "feed"


class TeamRole(StrEnum):
    """The roles of users in a team."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    # Also decides who belongs to the team.
    OWNER = "owner"


# The role of members whose identity provider names a team and no role.
ROLE_BY_CLAIM = TeamRole.EDITOR
_SCOPE_OF_TEAM_ROLE = {
    TeamRole.VIEWER: Scope.READ,
    TeamRole.OPERATOR: Scope.OPERATE,
    TeamRole.EDITOR: Scope.WRITE,
    TeamRole.OWNER: Scope.WRITE,
}


def scope_of_role(role: Role) -> Scope:
    """Return the highest scope that a role allows."""
    return _SCOPE_OF_ROLE[role]


def lesser(one: Scope, other: Scope) -> Scope:
    """Return the lesser of two scopes."""
    return one if other.includes(one) else other


def highest(scopes: Iterable[Scope]) -> Scope:
    """Return the scope that includes all of these."""
    return max(scopes, key=lambda scope: scope.rank)


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a token is restricted to; an empty field does not restrict."""

    # Pairs of name and value, all of which a schedule or a workflow must have.
    labels: tuple[tuple[str, str], ...] = ()
    # Of the file that declares the schedule or the workflow.
    namespace: str = ""
    workflow_ids: tuple[int, ...] = ()

    def leaves(self, workflow_id: int, labels: Mapping[str, str]) -> bool:
        """Return whether a schedule that no file declares is within the reach of the token."""
        is_labelled = all(labels.get(name) == value for name, value in self.labels)
        return is_labelled and not self.namespace and (not self.workflow_ids or workflow_id in self.workflow_ids)


class Reach(msgspec.Struct, frozen=True):
    """Whose objects a list has, and of which workflows; None for all. They have these labels and this namespace."""

    owners: tuple[int, ...] | None
    workflow_ids: tuple[int, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    namespace: str = ""

    @property
    def is_restricted(self) -> bool:
        """Return whether it is that of a token that is restricted to some objects, or of one workflow."""
        return self.workflow_ids is not None or self.is_of_some_schedules

    @property
    def is_of_some_schedules(self) -> bool:
        """Return whether it has some schedules of a workflow and leaves others out."""
        return bool(self.labels or self.namespace)

    def of_workflow(self, workflow_id: int | None) -> "Reach":
        """Return what of it belongs to one workflow; None: all of it."""
        if workflow_id is None:
            return self
        reaches = self.workflow_ids is None or workflow_id in self.workflow_ids
        return msgspec.structs.replace(self, workflow_ids=(workflow_id,) if reaches else ())

    @property
    def sources(self) -> list["Source"]:
        """Return the sources that make up the list: one for each workflow, or else one for each owner."""
        if self.owners == ():
            return []
        if self.workflow_ids is not None:
            return [Source(self.owners, workflow_id) for workflow_id in dict.fromkeys(self.workflow_ids)]
        return [Source(None)] if self.owners is None else [Source((owner,)) for owner in self.owners]


class Source(msgspec.Struct, frozen=True):
    """A part of a list that is read by itself: what these owners have, of one workflow; None for any."""

    owners: tuple[int, ...] | None
    workflow_id: int | None = None

    @property
    def owner(self) -> int | None:
        """Return the owner if there is only one."""
        return self.owners[0] if self.owners is not None and len(self.owners) == 1 else None


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a new object, by the names of the columns."""

    user_profile_id: int
    owner_kind: OwnerKind
    owner_id: str
    # The owner's id again if the owner is a team.
    team_id: int | None


class Grant(msgspec.Struct, frozen=True):
    """The lease that a token belongs to, and the agent that it was granted to."""

    lease_id: int
    agent: str


class Actor(msgspec.Struct, frozen=True):
    """The user or plugin on whose behalf something is done, and how far the token reaches that was used for it."""

    user_id: int
    username: str
    role: Role
    kind: OwnerKind = OwnerKind.USER
    # What the token allows; without a token (a run, a command of an operator), all that the role allows.
    token_scope: Scope = Scope.ADMIN
    # What the call needs that is being carried out.
    needs: Scope = Scope.READ
    # The teams that the user belongs to, by their ids, each with the user's role in it.
    teams: tuple[tuple[int, TeamRole], ...] = ()
    restriction: Restriction | None = None
    # None unless a stored token was used.
    token_id: int | None = None
    token_kind: TokenKind = TokenKind.API
    # When the token ends that was used, or with which the session was begun; None: never.
    ends_at: datetime | None = None
    # The session of the browser that the request came from.
    session_id: int | None = None
    # None unless the token was made for an agent.
    grant: Grant | None = None

    @property
    def author(self) -> str:
        """Return the name by which histories and the audit log know the actor."""
        return self.username if self.grant is None else f"agent:{self.grant.agent} for {self.username}"

    @property
    def owner_id(self) -> str:
        """Return the id within its kind: the number of a user, the name of a plugin."""
        return self.username.removeprefix(PLUGIN_NAMES) if self.kind is OwnerKind.PLUGIN else str(self.user_id)

    @property
    def scope(self) -> Scope:
        """Return the highest scope that both the role and the token allow."""
        return lesser(_SCOPE_OF_ROLE[self.role], self.token_scope)

    @property
    def sees_all(self) -> bool:
        """Return whether the actor may see the objects of all owners."""
        return self.role is Role.ADMIN

    @property
    def team_id(self) -> int | None:
        """Return the actor's id if the actor is a team, as in the runs of a team's schedules."""
        return self.user_id if self.kind is OwnerKind.USER and self.username.startswith(TEAM_NAMES) else None

    @property
    def owner_filter(self) -> int | None:
        """Return the actor as the only owner whose rows are looked at, or None for the rows of all owners."""
        return None if self.sees_all else self.user_id

    def reach(self, team_id: int | None = None) -> Reach:
        """Return the objects that the actor sees, of this team alone if one is named."""
        owners = None if self.sees_all else (self.user_id, *(team for team, _ in self.teams))
        if team_id is not None:
            owners = (team_id,) if _sees(self, team_id) else ()
        within = self.restriction or Restriction()
        return Reach(owners, within.workflow_ids or None, within.labels, within.namespace)

    def usable(self) -> Reach:
        """Return the objects to which the actor may do what the call needs."""
        seen = self.reach()
        if seen.owners is None:
            return seen
        usable = (owner for owner in seen.owners if _verdict(self, self.needs, owner) is Verdict.ALLOWED)
        return msgspec.structs.replace(seen, owners=tuple(usable))

    def may_use(self, owner_id: int | None, *, is_within: bool = False) -> bool:
        """Return whether the actor may use an object of this owner; None means that the object does not exist."""
        return decide(self, self.needs, owner_id, is_within=is_within) is Verdict.ALLOWED


class Verdict(StrEnum):
    """The answer to whether an actor may do something to an object."""

    ALLOWED = "allowed"
    # Reported as if the object did not exist.
    HIDDEN = "hidden"
    # The object is visible, but the token or the role in its team does not reach far enough.
    INSUFFICIENT_SCOPE = "insufficient_scope"


def decide(actor: Actor, needs: Scope, owner_id: int | None, *, is_within: bool = False) -> Verdict:
    """Decide whether an actor may do what needs a scope to an object of this owner; None: there is no such object.

    ``is_within`` says whether the restriction of the token leaves the object: a restricted token reaches no other.
    """
    if actor.restriction is not None and not is_within:
        return Verdict.HIDDEN
    return _verdict(actor, needs, owner_id)


def _verdict(actor: Actor, needs: Scope, owner_id: int | None) -> Verdict:
    """Decide by the owner alone."""
    if owner_id is None or not _sees(actor, owner_id):
        return Verdict.HIDDEN
    if not actor.scope.includes(needs):
        return Verdict.INSUFFICIENT_SCOPE
    if actor.sees_all or owner_id == actor.user_id:
        return Verdict.ALLOWED
    in_team = _SCOPE_OF_TEAM_ROLE[dict(actor.teams)[owner_id]]
    return Verdict.ALLOWED if in_team.includes(needs) else Verdict.INSUFFICIENT_SCOPE


def _sees(actor: Actor, owner_id: int) -> bool:
    return actor.sees_all or owner_id == actor.user_id or owner_id in dict(actor.teams)


def owner_for(actor: Actor, team_id: int | None) -> Owner:
    """Return the owner of an object that the actor creates: a team in which the actor may write, or the actor."""
    if team_id is None:
        return Owner(
            user_profile_id=actor.user_id, owner_kind=actor.kind, owner_id=actor.owner_id, team_id=actor.team_id
        )
    # Whether a restricted token may create an object is a question of the object's workflow, not of its owner.
    require_owner(msgspec.structs.replace(actor, restriction=None), team_id, "team")
    return Owner(user_profile_id=team_id, owner_kind=OwnerKind.USER, owner_id=str(team_id), team_id=team_id)


def require_team_owner(actor: Actor, team_id: int) -> None:
    """Refuse an actor who may not decide who belongs to a team: its owners and admins may."""
    require_owner(actor, team_id, "team")
    if not actor.sees_all and dict(actor.teams)[team_id] is not TeamRole.OWNER:
        raise ForbiddenError("This requires the role `owner` in the team.")


# The actor of a run whose two owners have no rights in common: such a run fails. No user has the id 0.
NOBODY = Actor(0, "nobody", Role.MEMBER)


def lesser_rights(schedule_owner: Actor, workflow_owner: Actor) -> Actor:
    """Return the actor whose rights a run has: only what both owners may do.

    The workflow's owner edits the nodes, the schedule's owner chooses when they run and with which payload. With the
    rights of one of them alone, a run would lend these rights to the other. What a team and a user who may write in it
    have in common are the rights of the team.
    """
    if workflow_owner.sees_all or workflow_owner.user_id == schedule_owner.user_id:
        return schedule_owner
    if schedule_owner.sees_all or _writes_in(schedule_owner, workflow_owner.user_id):
        return workflow_owner
    return schedule_owner if _writes_in(workflow_owner, schedule_owner.user_id) else NOBODY


def _writes_in(actor: Actor, team_id: int) -> bool:
    role = dict(actor.teams).get(team_id)
    return role is not None and _SCOPE_OF_TEAM_ROLE[role].includes(Scope.WRITE)


def require_workflow_owner(schedule_owner: int, workflow_owner: int, named: int | None) -> None:
    """Raise ``ForeignWorkflowError`` unless the workflow belongs to the named user, by default the schedule's owner."""
    if named is None and workflow_owner == schedule_owner:
        return
    if named != workflow_owner:
        raise ForeignWorkflowError(workflow_owner)


def outlives(ends_at: datetime | None, other: datetime | None) -> bool:
    """Return whether something that ends at a moment ends later than something else; None means never."""
    return other is not None and (ends_at is None or ends_at > other)


def require_kind(actor: Actor, *, reads_feeds: bool) -> None:
    """Raise ``FeedTokenError`` for a token that reads calendars, unless the call does so."""
    if actor.token_kind is TokenKind.FEED and not reads_feeds:
        raise FeedTokenError


def feed_reader(actor: Actor) -> Actor:
    """Return the actor of a token that stood in an address; refuse tokens that were not made for that."""
    if actor.token_kind is not TokenKind.FEED:
        raise UnauthenticatedError("Only a token of the kind `feed` may be part of an address.")
    return actor


def require_labels(actor: Actor, labels: Mapping[str, str]) -> None:
    """Refuse a new schedule that the restriction of the actor's token would not leave."""
    restriction = actor.restriction
    if restriction is None:
        return
    missing = [f"`{name}={value}`" for name, value in restriction.labels if labels.get(name) != value]
    if missing:
        raise RestrictedError(f"This token is restricted to schedules with the labels {', '.join(missing)}.")
    if restriction.namespace:
        raise RestrictedError("This token is restricted to what files of a namespace declare. Change the file.")


def require_scope(actor: Actor, needs: Scope) -> None:
    """Raise ``InsufficientScopeError`` if the role or the token does not allow it."""
    if not _SCOPE_OF_ROLE[actor.role].includes(needs):
        raise InsufficientScopeError(needs, f"This needs the scope `{needs}`, which users with your role do not have.")
    if not actor.token_scope.includes(needs):
        raise InsufficientScopeError(needs)


def require_granted(actor: Actor, lease_id: int | None) -> None:
    """Refuse an agent what changes a schedule of another lease, or of none."""
    grant = actor.grant
    if grant is not None and actor.needs is not Scope.READ and grant.lease_id != lease_id:
        raise OutsideLeaseError(
            f"The lease {grant.lease_id} lets you change only the schedules that were made with it. You can read this "
            "one; a person can change it, with a token of their own."
        )


def require_graph_editor(actor: Actor) -> None:
    """Refuse a restricted token the nodes and edges of workflows.

    Nodes act with the rights of the workflow's owner: through them, the token would reach what it is restricted from.
    """
    if actor.restriction is not None:
        raise RestrictedError(
            "This token is restricted to some workflows: it can use them, and cannot change their `nodes` and `edges`, "
            "which act with all rights of the owner. Use a token without a restriction."
        )


def require_admin(actor: Actor) -> None:
    """Refuse an actor who is not an admin, or whose token does not reach that far."""
    require_scope(actor, Scope.ADMIN)


def require_owner(actor: Actor, owner_id: int | None, what: str, *, is_within: bool = False) -> None:
    """Refuse what the actor may not do to an object of this owner: ``NotFoundError`` if the actor may not see it."""
    verdict = decide(actor, actor.needs, owner_id, is_within=is_within)
    if verdict is Verdict.HIDDEN:
        raise NotFoundError(f"There is no such {what}.")
    if verdict is Verdict.INSUFFICIENT_SCOPE:
        raise InsufficientScopeError(actor.needs)
