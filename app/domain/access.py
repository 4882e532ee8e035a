"""Who may see and change what. Not yours and not there look the same from outside."""

from enum import StrEnum

import msgspec

from app.domain.errors import ForbiddenError, ForeignWorkflowError, NotFoundError


class Role(StrEnum):
    """Admins see and change everything, members what is theirs."""

    ADMIN = "admin"
    MEMBER = "member"


class OwnerKind(StrEnum):
    """Who owns things: a user, be it a person or a service, or a plugin."""

    USER = "user"
    PLUGIN = "plugin"


# No user's name can hold a colon, so that nobody is taken for a plugin.
PLUGIN_NAMES = "plugin:"


class Actor(msgspec.Struct, frozen=True):
    """On whose behalf something is done."""

    user_id: int
    username: str
    role: Role
    kind: OwnerKind = OwnerKind.USER

    @property
    def owner_id(self) -> str:
        """What its kind knows it by: a user's number, a plugin's name."""
        return self.username.removeprefix(PLUGIN_NAMES) if self.kind is OwnerKind.PLUGIN else str(self.user_id)

    @property
    def sees_all(self) -> bool:
        """Whether ownership does not limit this actor."""
        return self.role is Role.ADMIN

    @property
    def owner_filter(self) -> int | None:
        """The owner whose rows this actor sees, or None for everybody's."""
        return None if self.sees_all else self.user_id

    def may_use(self, owner_id: int | None) -> bool:
        """Whether what belongs to this owner, or to nobody, is there for this actor."""
        return owner_id is not None and (self.sees_all or owner_id == self.user_id)


# What two different members have in common: nothing. No user has this id.
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
    """Refuse a workflow of another user than the schedule's owner, unless the request names that user."""
    if named is None and workflow_owner == schedule_owner:
        return
    if named != workflow_owner:
        raise ForeignWorkflowError(workflow_owner)


def require_admin(actor: Actor) -> None:
    """Refuse everyone but admins."""
    if not actor.sees_all:
        raise ForbiddenError


def require_owner(actor: Actor, owner_id: int | None, what: str) -> None:
    """Refuse what belongs to someone else, or to nobody, as if it did not exist."""
    if not actor.may_use(owner_id):
        raise NotFoundError(f"There is no such {what}.")
