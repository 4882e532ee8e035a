"""Access: who may see and change what. An object of another user is reported like one that does not exist."""

from enum import StrEnum

import msgspec

from app.domain.errors import ForbiddenError, ForeignWorkflowError, NotFoundError


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


class Actor(msgspec.Struct, frozen=True):
    """The user or plugin on whose behalf something is done."""

    user_id: int
    username: str
    role: Role
    kind: OwnerKind = OwnerKind.USER

    @property
    def owner_id(self) -> str:
        """Return the id within its kind: the number of a user, the name of a plugin."""
        return self.username.removeprefix(PLUGIN_NAMES) if self.kind is OwnerKind.PLUGIN else str(self.user_id)

    @property
    def sees_all(self) -> bool:
        """Return whether the actor may see the objects of all owners."""
        return self.role is Role.ADMIN

    @property
    def owner_filter(self) -> int | None:
        """Return the owner whose rows this actor sees, or None for the rows of all owners."""
        return None if self.sees_all else self.user_id

    def may_use(self, owner_id: int | None) -> bool:
        """Return whether the actor may use an object of this owner; None means that the object does not exist."""
        return owner_id is not None and (self.sees_all or owner_id == self.user_id)


# The actor of a run whose two owners have no rights in common. No user has the id 0.
NOBODY = Actor(0, "nobody", Role.MEMBER)


def lesser_rights(schedule_owner: Actor, workflow_owner: Actor) -> Actor:
    """Return the actor whose rights a run has: only what both owners may do.

    The workflow's owner edits the nodes, the schedule's owner chooses when they run and with which payload. With the
    rights of one of them alone, a run would lend these rights to the other.
    """
    if workflow_owner.sees_all or workflow_owner.user_id == schedule_owner.user_id:
        return schedule_owner
    return workflow_owner if schedule_owner.sees_all else NOBODY


def require_workflow_owner(schedule_owner: int, workflow_owner: int, named: int | None) -> None:
    """Raise ``ForeignWorkflowError`` unless the workflow belongs to the named user, by default the schedule's owner."""
    if named is None and workflow_owner == schedule_owner:
        return
    if named != workflow_owner:
        raise ForeignWorkflowError(workflow_owner)


def require_admin(actor: Actor) -> None:
    """Raise ``ForbiddenError`` unless the actor is an admin."""
    if not actor.sees_all:
        raise ForbiddenError


def require_owner(actor: Actor, owner_id: int | None, what: str) -> None:
    """Raise ``NotFoundError`` if the object belongs to another user, or does not exist."""
    if not actor.may_use(owner_id):
        raise NotFoundError(f"There is no such {what}.")
