"""Users and tokens."""

from typing import Any

import msgspec
from sqlalchemy import Row

from app.domain.access import OwnerKind, Role
from app.services.inputs import Instant


class UserView(msgspec.Struct, kw_only=True):
    """A user."""

    id: int
    username: str
    role: Role
    kind: OwnerKind
    created_at: Instant


class UserList(msgspec.Struct):
    """All users."""

    items: list[UserView]
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

    items: list[TokenView]
    next_cursor: str | None


def user_view(row: Row[Any]) -> UserView:
    """A user as callers see it."""
    return UserView(
        id=row.id, username=row.username, role=Role(row.role), kind=OwnerKind(row.kind), created_at=row.created_at
    )
