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
    """A page of the list of users."""

    items: list[Encoded[UserView]]
    next_cursor: str | None


class TokenView(msgspec.Struct, kw_only=True):
    """A token, without its text."""

    id: int
    name: str
    prefix: str
    created_at: Instant


class FreshTokenView(TokenView, kw_only=True):
    """A new token with its text, which is shown only once."""

    token: str


class TokenList(msgspec.Struct):
    """A page of a user's tokens."""

    items: list[Encoded[TokenView]]
    next_cursor: str | None


def user_view(user: User) -> UserView:
    """Return the view of a user."""
    return UserView(
        id=user.id, username=user.username, role=Role(user.role), kind=OwnerKind(user.kind), created_at=user.created_at
    )


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value. ``shared_to_you`` marks those of other users that you may use."""

    name: str
    owner: int
    shared_to_you: bool
    allowed_hosts: list[str] | None
    shared_with: Literal["all"] | list[int]
    created_at: datetime
    updated_at: datetime


class SecretPage(msgspec.Struct, frozen=True):
    """A page of the list of secrets."""

    items: list[SecretView]
    next_cursor: str | None


class PreviousKeyView(msgspec.Struct, kw_only=True):
    """The previous key; calls are signed with it too until it retires."""

    key_id: str
    key: str
    retires_at: Instant


class SigningKeyView(msgspec.Struct, kw_only=True):
    """The key that signs your calls, in the form of Standard Webhooks."""

    key_id: str
    key: str
    previous: PreviousKeyView | None
