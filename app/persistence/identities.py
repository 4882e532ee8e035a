"""Users of identity providers, by issuer and subject."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, Role
from app.persistence.sql_batches import fetch
from app.persistence.tables import IdentityRow
from app.persistence.users import OWNER, owner_actor

Key = tuple[str, str]

_BY_KEY = (
    f"SELECT i.id AS identity_id, i.issuer, i.subject, i.claims_at, u.disabled_at, {OWNER} "  # noqa: S608
    "FROM unnest($1::text[], $2::text[]) AS given(issuer, subject) "
    "JOIN identities AS i ON i.issuer = given.issuer AND i.subject = given.subject "
    "JOIN user_profiles AS u ON u.id = i.user_profile_id"
)
_HAS = "SELECT FROM identities WHERE user_profile_id = $1 AND issuer = $2 LIMIT 1"
# The first key differs from those of the quotas' locks.
_LOCK = "SELECT pg_advisory_xact_lock(20, hashtext($1))"
_CLAIMS_AT = "UPDATE identities SET claims_at = $2 WHERE id = $1 AND claims_at <= $2 RETURNING id"
_SET_ROLE = "UPDATE user_profiles SET role = $2 WHERE id = $1 AND role <> $2 RETURNING id"
# A row that another process is just writing to is left out: nobody waits, and nobody waits for each other.
_SEEN = (
    "UPDATE identities AS i SET last_seen_at = u.at FROM unnest($1::int[], $2::timestamptz[]) AS u(id, at), "
    "(SELECT id FROM identities WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED) AS free "
    "WHERE i.id = u.id AND free.id = i.id AND i.last_seen_at < u.at"
)


class KnownIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The user of an identity, and when the newest claims were issued that were applied."""

    id: int
    actor: Actor
    is_disabled: bool
    claims_at: datetime


async def find(connection: AsyncConnection, keys: Sequence[Key]) -> dict[Key, KnownIdentity]:
    """Return the known ones among these pairs of issuer and subject."""
    rows = await fetch(connection, _BY_KEY, [issuer for issuer, _ in keys], [subject for _, subject in keys])
    return {(row["issuer"], row["subject"]): _known(row) for row in rows}


def _known(row: Any) -> KnownIdentity:
    return KnownIdentity(
        id=row["identity_id"],
        actor=owner_actor(row),
        is_disabled=row["disabled_at"] is not None,
        claims_at=row["claims_at"],
    )


async def has(connection: AsyncConnection, user_id: int, issuer: str) -> bool:
    """Return whether a user has an identity of an issuer."""
    return bool(await fetch(connection, _HAS, user_id, issuer))


async def lock(connection: AsyncConnection, key: Key) -> None:
    """Let other transactions that lock the same pair of issuer and subject wait until this one ends."""
    await fetch(connection, _LOCK, "\n".join(key))


async def add(connection: AsyncConnection, key: Key, user_id: int, claims_at: datetime) -> None:
    """Store the identity of a user."""
    issuer, subject = key
    values = {"issuer": issuer, "subject": subject, "user_profile_id": user_id, "claims_at": claims_at}
    await connection.execute(insert(IdentityRow).values(values))


async def take_claims(connection: AsyncConnection, identity_id: int, issued_at: datetime) -> bool:
    """Note when claims were issued that are now applied; return False if newer ones were applied before."""
    return bool(await fetch(connection, _CLAIMS_AT, identity_id, issued_at))


async def set_role(connection: AsyncConnection, user_id: int, role: Role) -> bool:
    """Give a user a role; return whether it is another one."""
    return bool(await fetch(connection, _SET_ROLE, user_id, role))


async def note_use(connection: AsyncConnection, moments: Mapping[int, datetime]) -> None:
    """Store when identities were last seen, by their ids."""
    await fetch(connection, _SEEN, list(moments), list(moments.values()))
