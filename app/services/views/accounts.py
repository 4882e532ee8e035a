"""Views of users, tokens, secrets and signing keys."""

from datetime import datetime
from typing import Literal

import msgspec

from app.domain.access import OwnerKind, Role
from app.persistence.users import User
from app.services.inputs import Instant
from app.services.listing import Encoded


class UserView(msgspec.Struct, kw_only=True):
    """A user."""

    id: int
    username: str
    role: Role
    kind: OwnerKind
    created_at: Instant


class UserList(msgspec.Struct):
    """All users."""

    items: list[Encoded[UserView]]
    next_cursor: str | None


class TokenView(msgspec.Struct, kw_only=True):
    """A token, without what proves it."""

    id: int
    name: str
    prefix: str
    created_at: Instant


class FreshTokenView(TokenView, kw_only=True):
    """A token, this once with its text."""

    token: str


class TokenList(msgspec.Struct):
    """The tokens of a user."""

    items: list[Encoded[TokenView]]
    next_cursor: str | None


def user_view(user: User) -> UserView:
    """Return the view of a user."""
    return UserView(
        id=user.id, username=user.username, role=Role(user.role), kind=OwnerKind(user.kind), created_at=user.created_at
    )


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """A secret. ``shared_to_you`` marks those of others that you may use."""

    name: str
    owner: int
    shared_to_you: bool
    # None, for one that lends a secret of the environment: the hosts that the environment names.
    allowed_hosts: list[str] | None
    shared_with: Literal["all"] | list[int]
    created_at: datetime
    updated_at: datetime


class SecretPage(msgspec.Struct, frozen=True):
    """A part of the list."""

    items: list[SecretView]
    next_cursor: str | None


class PreviousKeyView(msgspec.Struct, kw_only=True):
    """The key before the one in use; calls are signed with it too until it retires."""

    key_id: str
    key: str
    retires_at: Instant


class SigningKeyView(msgspec.Struct, kw_only=True):
    """The key that signs your calls, in the form of Standard Webhooks."""

    key_id: str
    key: str
    previous: PreviousKeyView | None
