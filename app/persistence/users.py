"""Users, their tokens (only hashes are stored), and how many objects each user has."""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import PLUGIN_NAMES, Actor, OwnerKind, Role
from app.domain.errors import NotFoundError
from app.domain.limits import Quota
from app.persistence.pagination import Page, Part, read_one, read_page, read_written
from app.persistence.sql_batches import fetch
from app.persistence.tables import ApiToken, UserProfile

_USERS = UserProfile.__table__
_TOKENS = ApiToken.__table__

BUILT_IN_ADMIN = "admin"
_BY_PREFIX = (
    "SELECT t.prefix, t.token_hash, u.id, u.username, u.role, u.kind FROM unnest($1::text[]) AS wanted(prefix) "
    "JOIN api_tokens AS t ON t.prefix = wanted.prefix JOIN user_profiles AS u ON u.id = t.user_profile_id"
)
_BY_NAME = "SELECT id, username, role, kind FROM user_profiles WHERE username = $1"
SECRET_BYTES = 32
PREFIX_BYTES = 8
TOKEN_MARK = "carillon"  # noqa: S105 - the first part of every token, so that scanners recognise one


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user as it is stored."""

    id: int
    username: str
    role: str
    kind: str
    created_at: datetime


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored, without its hash."""

    id: int
    name: str
    prefix: str
    created_at: datetime


class FreshToken(msgspec.Struct, frozen=True):
    """A token at the one moment when it is known: what to show, what to store."""

    token: str
    prefix: str
    token_hash: bytes


def make_token() -> FreshToken:
    """256 random bits behind a random prefix to look it up by."""
    prefix = secrets.token_hex(PREFIX_BYTES)
    token = f"{TOKEN_MARK}_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return FreshToken(token, prefix, hash_token(token))


def hash_token(token: str) -> bytes:
    """A fast hash is right here: the token itself has 256 bits of entropy, there is nothing to guess."""
    return hashlib.sha256(token.encode()).digest()


async def find_by_tokens(connection: AsyncConnection, tokens: Sequence[str]) -> list[Actor | None]:
    """Whose tokens these are; compared in constant time."""
    prefixes = [_prefix(token) for token in tokens]
    rows = await fetch(connection, _BY_PREFIX, prefixes)
    found = {row["prefix"]: row for row in rows}
    return [_owner_of(token, found.get(prefix)) for token, prefix in zip(tokens, prefixes, strict=True)]


async def built_in_admin(connection: AsyncConnection) -> Actor | None:
    """Who acts with the token of the settings."""
    rows = await fetch(connection, _BY_NAME, BUILT_IN_ADMIN)
    return _actor(rows[0]) if rows else None


def may_be_token(token: str) -> bool:
    """Return whether a text has the form of a token: others need not be looked up."""
    return bool(_prefix(token))


def _prefix(token: str) -> str:
    """What a token is looked up by; nothing is found by a blank."""
    parts = token.split("_", 2)
    is_ours = len(parts) == 3 and parts[0] == TOKEN_MARK and len(parts[1]) == PREFIX_BYTES * 2  # noqa: PLR2004
    return parts[1] if is_ours and parts[1].isascii() and "\x00" not in parts[1] else ""


def _owner_of(token: str, row: Any) -> Actor | None:
    if row is None or not hmac.compare_digest(row["token_hash"], hash_token(token)):
        return None
    return _actor(row)


def _actor(row: Any) -> Actor:
    return as_actor(row["id"], row["username"], row["role"], row["kind"])


def to_actor(user: User) -> Actor:
    """Return a user as the actor of a request or a run."""
    return as_actor(user.id, user.username, user.role, user.kind)


@lru_cache(maxsize=1000)
def as_actor(user_id: int, username: str, role: str, kind: str) -> Actor:
    """Return the same actor from the values of its columns."""
    return Actor(user_id, username, Role(role), OwnerKind(kind))


async def get(connection: AsyncConnection, user_id: int) -> User | None:
    """Return a user, or None."""
    return await read_one(connection, select(_USERS).where(_USERS.c.id == user_id), User)


async def names(connection: AsyncConnection, ids: set[int]) -> dict[int, str]:
    """Return the names of these users by id; unknown ids are left out."""
    rows = await connection.execute(select(_USERS.c.id, _USERS.c.username).where(_USERS.c.id.in_(sorted(ids))))
    return {row.id: row.username for row in rows}


async def find_by_name(connection: AsyncConnection, username: str) -> User | None:
    """Return the user of a name, or None."""
    return await read_one(connection, select(_USERS).where(_USERS.c.username == username), User)


async def owner(connection: AsyncConnection, username: str) -> Actor:
    """Return the user of a name, which must not be a plugin, as an actor."""
    user = await find_by_name(connection, username)
    if user is None or user.kind != OwnerKind.USER:
        raise NotFoundError(f"There is no user '{username}'.")
    return to_actor(user)


async def page(connection: AsyncConnection, part: Part) -> Page[User]:
    """Return a page of all users, in the order of their ids."""
    return await read_page(connection, select(_USERS), User, (_USERS.c.id,), part, ascending=True)


async def add(connection: AsyncConnection, username: str, role: Role) -> User | None:
    """Create a user; None if the name is taken."""
    statement = upsert(UserProfile).values(username=username, role=role)
    statement = statement.on_conflict_do_nothing(index_elements=["username"])
    return await read_one(connection, statement.returning(*_USERS.c), User)


async def plugin(connection: AsyncConnection, name: str) -> Actor:
    """Return a plugin as an actor; its profile is created when it is first asked for."""
    values = {"username": f"{PLUGIN_NAMES}{name}", "role": Role.MEMBER, "kind": OwnerKind.PLUGIN}
    await connection.execute(upsert(UserProfile).values(values).on_conflict_do_nothing(index_elements=["username"]))
    return to_actor(await read_written(connection, select(_USERS).where(_USERS.c.username == values["username"]), User))


async def add_token(connection: AsyncConnection, user_id: int, name: str, fresh: FreshToken) -> Token:
    """Store a token's hash."""
    values = {"user_profile_id": user_id, "name": name, "prefix": fresh.prefix, "token_hash": fresh.token_hash}
    return await read_written(connection, insert(ApiToken).values(values).returning(*_TOKENS.c), Token)


async def tokens_of(connection: AsyncConnection, user_id: int, part: Part) -> Page[Token]:
    """Return a page of a user's tokens, without their hashes."""
    query = select(_TOKENS.c.id, _TOKENS.c.name, _TOKENS.c.prefix, _TOKENS.c.created_at)
    query = query.where(_TOKENS.c.user_profile_id == user_id)
    return await read_page(connection, query, Token, (_TOKENS.c.id,), part, ascending=True)


async def delete_token(connection: AsyncConnection, token_id: int) -> bool:
    """Delete a token; return whether there was one."""
    return (await connection.execute(delete(ApiToken).where(_TOKENS.c.id == token_id))).rowcount == 1


# A lock for each kind and user. Taken before any row is locked, kinds in this order and users by their ids.
_KEYS = {Quota.WORKFLOWS: 1, Quota.SCHEDULES: 2, Quota.WEBHOOKS: 3, Quota.NOTIFICATIONS: 4}
_TABLES = {
    Quota.WORKFLOWS: "workflows",
    Quota.SCHEDULES: "scheduled_jobs",
    Quota.WEBHOOKS: "webhooks",
    Quota.NOTIFICATIONS: "notifications",
}
# Two keys of 32 bits: these locks share no number with those of one key of 64 bits.
_LOCK = "SELECT pg_advisory_xact_lock($1, owner) FROM unnest($2::int[]) AS owner"
_COUNTS = {
    quota: f"SELECT user_profile_id, count(*) FROM {table} WHERE user_profile_id = ANY($1) GROUP BY 1"  # noqa: S608
    for quota, table in _TABLES.items()
}


async def lock_and_count(connection: AsyncConnection, quota: Quota, user_ids: Collection[int]) -> dict[int, int]:
    """Return how many of a kind these users have. Others who ask wait until the transaction ends."""
    wanted = sorted(set(user_ids))
    await fetch(connection, _LOCK, _KEYS[quota], wanted)
    # In a statement that begins after the locks are held, so that it sees what their last holders committed.
    found = dict(await fetch(connection, _COUNTS[quota], wanted))
    return {user_id: found.get(user_id, 0) for user_id in wanted}
