"""Users, their tokens (only hashes are stored), and how many objects each user has."""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import delete, func, insert, select, true, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import (
    PLUGIN_NAMES,
    TEAM_NAMES,
    Actor,
    Grant,
    OwnerKind,
    Restriction,
    Role,
    Scope,
    TeamRole,
    TokenKind,
    highest,
)
from app.domain.errors import NotFoundError
from app.domain.limits import Quota
from app.persistence.pagination import Page, Part, read_one, read_page, read_written
from app.persistence.sql_batches import fetch
from app.persistence.tables import ApiToken, UserProfile

_USERS = UserProfile.__table__
_TOKENS = ApiToken.__table__

BUILT_IN_ADMIN = "admin"
# The columns of a token's owner with the owner's teams, and of what the token allows; lists and JSON as text, which is
# parsed once for all requests.
TEAMS = (
    "(SELECT string_agg(m.team_id || ':' || m.role, ',' ORDER BY m.team_id) FROM team_members AS m "
    "WHERE m.user_profile_id = {}.id)"
)
OWNER = f"u.id, u.username, u.role, u.kind, {TEAMS.format('u')} AS teams"
TOKEN_TERMS = (
    "t.id AS token_id, t.kind AS token_kind, CAST(t.scopes AS text) AS scopes, "  # noqa: S105 - SQL
    "CAST(t.restriction AS text) AS restriction, t.expires_at, t.lease_id, "
    "(SELECT l.agent FROM agent_leases AS l WHERE l.id = t.lease_id) AS agent"
)
_BY_PREFIX = (
    f"SELECT t.prefix, t.token_hash, {OWNER}, {TOKEN_TERMS} FROM unnest($1::text[]) AS tokens(prefix) "  # noqa: S608
    "JOIN api_tokens AS t ON t.prefix = tokens.prefix JOIN user_profiles AS u ON u.id = t.user_profile_id "
    "WHERE u.disabled_at IS NULL AND coalesce(t.expires_at > clock_timestamp(), true)"
)
_BY_NAME = f"SELECT {OWNER} FROM user_profiles AS u WHERE username = $1 AND disabled_at IS NULL"  # noqa: S608
_NO_HASH = bytes(hashlib.sha256().digest_size)
SECRET_BYTES = 32
PREFIX_BYTES = 8
TOKEN_MARK = "carillon"  # noqa: S105 - the first part of every token, so that scanners recognise one


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A stored user."""

    id: int
    username: str
    role: str
    kind: str
    created_at: datetime
    disabled_at: datetime | None
    quotas: dict[str, int] | None = None


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A stored token, without its hash. Without scopes it has those of the user's role."""

    id: int
    user_profile_id: int
    name: str
    prefix: str
    kind: str
    scopes: list[Scope] | None
    restriction: Restriction | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    lease_id: int | None


class TokenTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a new token may be used for, and until when."""

    name: str
    kind: TokenKind = TokenKind.API
    scopes: list[Scope] | None = None
    restriction: Restriction | None = None
    expires_at: datetime | None = None
    # None unless it is made for an agent.
    lease_id: int | None = None


class FreshToken(msgspec.Struct, frozen=True):
    """A new token: the text, which is shown once, and the prefix and hash, which are stored."""

    token: str
    prefix: str
    token_hash: bytes


def make_token() -> FreshToken:
    """Return a new token: 256 random bits behind a random prefix by which it is looked up."""
    prefix = secrets.token_hex(PREFIX_BYTES)
    token = f"{TOKEN_MARK}_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return FreshToken(token, prefix, hash_token(token))


def shown_prefix(prefix: str) -> str:
    """Return the beginning of a token, which people compare with the tokens that they have."""
    return f"{TOKEN_MARK}_{prefix}"


def hash_token(token: str) -> bytes:
    """Return the hash that is stored. A fast hash is enough: 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode()).digest()


async def find_by_tokens(connection: AsyncConnection, tokens: Sequence[str]) -> list[Actor | None]:
    """Return the owner of each token, or None for an unknown one. Hashes are compared in constant time."""
    prefixes = [_prefix(token) for token in tokens]
    rows = await fetch(connection, _BY_PREFIX, prefixes)
    by_prefix = {row["prefix"]: row for row in rows}
    return [_owner_of(token, by_prefix.get(prefix)) for token, prefix in zip(tokens, prefixes, strict=True)]


async def built_in_admin(connection: AsyncConnection) -> Actor | None:
    """Return the user that the token of the settings stands for."""
    rows = await fetch(connection, _BY_NAME, BUILT_IN_ADMIN)
    return owner_actor(rows[0]) if rows else None


def may_be_token(token: str) -> bool:
    """Return whether a text has the form of a token, so that it is worth looking up."""
    return bool(_prefix(token))


def _prefix(token: str) -> str:
    """Return the prefix by which a token is looked up; "" for a text that is not a token, which matches no row."""
    parts = token.split("_", 2)
    is_ours = len(parts) == 3 and parts[0] == TOKEN_MARK and len(parts[1]) == PREFIX_BYTES * 2  # noqa: PLR2004
    return parts[1] if is_ours and parts[1].isascii() and "\x00" not in parts[1] else ""


def _owner_of(token: str, row: Any) -> Actor | None:
    """Return the owner of a token; compare hashes also for an unknown one, which then takes as long as a wrong one."""
    is_right = hmac.compare_digest(_NO_HASH if row is None else row["token_hash"], hash_token(token))
    return token_actor(row) if row is not None and is_right else None


def owner_actor(row: Any) -> Actor:
    """Return the actor of a row with the columns of ``OWNER``."""
    return as_actor(row["id"], row["username"], row["role"], row["kind"], row["teams"])


def token_actor(row: Any) -> Actor:
    """Return the owner of a token as the actor of a request, with what the token allows; without a token, all."""
    owner = owner_actor(row)
    if row["token_id"] is None:
        return owner
    terms = (row["token_kind"], row["scopes"], row["restriction"], row["expires_at"])
    actor = _with_token(owner, row["token_id"], *terms)
    # A token of a lease is few calls' and not worth a cache of its own.
    is_agents = row["lease_id"] is not None
    return msgspec.structs.replace(actor, grant=Grant(row["lease_id"], row["agent"])) if is_agents else actor


@lru_cache(maxsize=1000)
def _with_token(
    owner: Actor, token_id: int, kind: str, scopes: str | None, restriction: str | None, ends_at: datetime | None
) -> Actor:
    given = None if scopes is None else msgspec.json.decode(scopes, type=list[Scope])
    return msgspec.structs.replace(
        owner,
        token_id=token_id,
        token_kind=TokenKind(kind),
        ends_at=ends_at,
        token_scope=Scope.ADMIN if given is None else highest(given),
        restriction=None if restriction is None else msgspec.json.decode(restriction, type=Restriction),
    )


def to_actor(user: User) -> Actor:
    """Return a user as the actor of a request or a run."""
    return as_actor(user.id, user.username, user.role, user.kind)


@lru_cache(maxsize=1000)
def as_actor(user_id: int, username: str, role: str, kind: str, teams: str | None = None) -> Actor:
    """Return the actor with these columns, the same object for the same values; ``teams`` is ``ID:ROLE,ID:ROLE``."""
    return Actor(user_id, username, Role(role), OwnerKind(kind), teams=_teams(teams))


def _teams(listed: str | None) -> tuple[tuple[int, TeamRole], ...]:
    pairs = (one.split(":") for one in listed.split(",")) if listed else ()
    return tuple((int(team), TeamRole(role)) for team, role in pairs)


def is_person(user: User) -> bool:
    """Return whether a profile is that of a person or a service, who can log in: no plugin and no team."""
    return user.kind == OwnerKind.USER and not user.username.startswith(TEAM_NAMES)


def is_team(user: User) -> bool:
    """Return whether a profile is that of a team."""
    return user.kind == OwnerKind.USER and user.username.startswith(TEAM_NAMES)


async def lock(connection: AsyncConnection, user_id: int) -> None:
    """Let other transactions that lock the same user wait until this one ends."""
    await connection.execute(select(_USERS.c.id).where(_USERS.c.id == user_id).with_for_update(key_share=True))


async def get(connection: AsyncConnection, user_id: int) -> User | None:
    """Return a user, or None."""
    return await read_one(connection, select(_USERS).where(_USERS.c.id == user_id), User)


_BY_ID = f"SELECT {OWNER} FROM user_profiles AS u WHERE u.id = $1 AND u.disabled_at IS NULL"  # noqa: S608


async def acting(connection: AsyncConnection, user_id: int) -> Actor | None:
    """Return a user with their teams as an actor; None if the user is disabled or gone."""
    rows = await fetch(connection, _BY_ID, user_id)
    return owner_actor(rows[0]) if rows else None


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
    """Return a page of all users, without teams, in the order of their ids."""
    query = select(_USERS).where(_USERS.c.username.not_like(f"{TEAM_NAMES}%"))
    return await read_page(connection, query, User, (_USERS.c.id,), part, ascending=True)


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


_SHOWN = tuple(_TOKENS.c[name] for name in Token.__struct_fields__)


async def add_token(connection: AsyncConnection, user_id: int, terms: TokenTerms, fresh: FreshToken) -> Token:
    """Store a token's hash and terms."""
    values = {**msgspec.to_builtins(terms), "expires_at": terms.expires_at, "user_profile_id": user_id}
    secret = {"prefix": fresh.prefix, "token_hash": fresh.token_hash}
    return await read_written(connection, insert(ApiToken).values(values | secret).returning(*_SHOWN), Token)


async def tokens_of(connection: AsyncConnection, user_id: int, part: Part) -> Page[Token]:
    """Return a page of a user's tokens, without their hashes."""
    query = select(*_SHOWN).where(_TOKENS.c.user_profile_id == user_id)
    return await read_page(connection, query, Token, (_TOKENS.c.id,), part, ascending=True)


async def lock_token(connection: AsyncConnection, token_id: int) -> Token | None:
    """Lock a token and return it, or None."""
    return await read_one(connection, select(*_SHOWN).where(_TOKENS.c.id == token_id).with_for_update(), Token)


async def count_live_tokens(connection: AsyncConnection, user_id: int) -> int:
    """Return how many tokens of a user have not ended."""
    is_live = func.coalesce(_TOKENS.c.expires_at > func.clock_timestamp(), true())
    query = select(func.count()).select_from(_TOKENS).where(_TOKENS.c.user_profile_id == user_id, is_live)
    return (await connection.execute(query)).scalar_one()


async def end_tokens_of_lease(connection: AsyncConnection, lease_id: int, at: datetime | None) -> None:
    """Let the tokens of a lease end at another moment; None: now, for good."""
    of_lease = _TOKENS.c.lease_id == lease_id
    change_or_delete = delete(ApiToken) if at is None else update(ApiToken).values(expires_at=at)
    await connection.execute(change_or_delete.where(of_lease))


async def is_replaced(connection: AsyncConnection, token_id: int) -> bool:
    """Return whether another token was made in the place of a token."""
    query = select(_TOKENS.c.replaced_at).where(_TOKENS.c.id == token_id)
    return (await connection.execute(query)).scalar_one_or_none() is not None


async def end_replaced_token(connection: AsyncConnection, token_id: int, at: datetime) -> None:
    """Let a token that is replaced end at a moment, unless it ends before."""
    sooner = func.least(func.coalesce(_TOKENS.c.expires_at, at), at)
    values = {"expires_at": sooner, "replaced_at": func.clock_timestamp()}
    await connection.execute(update(ApiToken).where(_TOKENS.c.id == token_id).values(values))


async def delete_token(connection: AsyncConnection, token_id: int) -> bool:
    """Delete a token, and with it the sessions that were made from it; return whether there was one."""
    return (await connection.execute(delete(ApiToken).where(_TOKENS.c.id == token_id))).rowcount == 1


async def delete_ended_tokens(connection: AsyncConnection, before: datetime) -> None:
    """Delete the tokens that ended before a moment."""
    await connection.execute(delete(ApiToken).where(_TOKENS.c.expires_at < before))


# A row that another process is just writing the same into is left out: nobody waits, and nobody waits for each other.
_USED = (
    "UPDATE api_tokens AS t SET last_used_at = u.at FROM unnest($1::int[], $2::timestamptz[]) AS u(id, at), "
    "(SELECT id FROM api_tokens WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED) AS free "
    "WHERE t.id = u.id AND free.id = t.id AND coalesce(t.last_used_at < u.at, true)"
)


async def note_use(connection: AsyncConnection, moments: Mapping[int, datetime]) -> None:
    """Store when tokens were last used, by their ids."""
    await fetch(connection, _USED, list(moments), list(moments.values()))


async def change(connection: AsyncConnection, user_id: int, values: Mapping[str, Any]) -> User | None:
    """Give a user other values; return the user, or None."""
    statement = update(UserProfile).where(_USERS.c.id == user_id).values(**values).returning(*_USERS.c)
    return await read_one(connection, statement, User)


# A lock for each kind and user. It is taken before any row is locked, kinds in this order and users by their ids: one
# order everywhere, so that no two transactions wait for each other.
_KEYS = {Quota.WORKFLOWS: 1, Quota.SCHEDULES: 2, Quota.WEBHOOKS: 3, Quota.NOTIFICATIONS: 4}
_TABLES = {
    Quota.WORKFLOWS: "workflows",
    Quota.SCHEDULES: "scheduled_jobs",
    Quota.WEBHOOKS: "webhooks",
    Quota.NOTIFICATIONS: "notifications",
}
# Advisory locks with two keys of 32 bits never collide with those with one key of 64 bits.
_LOCK = "SELECT pg_advisory_xact_lock($1, owner) FROM unnest($2::int[]) AS owner"
_COUNTS = {
    quota: f"SELECT user_profile_id, count(*) FROM {table} WHERE user_profile_id = ANY($1) GROUP BY 1"  # noqa: S608
    for quota, table in _TABLES.items()
}


# The kinds that can be counted, in the order in which they are locked.
COUNTED = tuple(_KEYS)


async def lock_and_count(connection: AsyncConnection, quota: Quota, user_ids: Collection[int]) -> dict[int, int]:
    """Return how many of a kind these users have. Other transactions that ask wait until this one ends."""
    ids = sorted(set(user_ids))
    await fetch(connection, _LOCK, _KEYS[quota], ids)
    # In a statement that begins after the locks are held, so that it sees what their last holders committed.
    counts = dict(await fetch(connection, _COUNTS[quota], ids))
    return {user_id: counts.get(user_id, 0) for user_id in ids}
