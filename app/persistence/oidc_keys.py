"""The keys that sign the tokens of calls. The newest key has no end; a successor ends the keys before it."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.call_tokens import PUBLISHED_AFTER, KeyTerm

# Without their private parts, which only a process that signs needs to read.
_READ = text("SELECT kid, activates_at, retires_at, public_key FROM oidc_keys ORDER BY activates_at, kid")
_READ_PRIVATE = text("SELECT kid, private_key FROM oidc_keys WHERE kid = ANY(:kids)")
_ADD_FIRST = text(
    "INSERT INTO oidc_keys (kid, private_key, public_key) VALUES (:kid, :private_key, CAST(:public_key AS jsonb)) "
    "ON CONFLICT DO NOTHING"
)
# Zero rows: another process has replaced that key.
_RETIRE = text(
    "UPDATE oidc_keys SET retires_at = :activates_at WHERE kid = :before AND retires_at IS NULL RETURNING kid"
)
# A key that was published and was still to sign later retires with the others.
_RETIRE_EARLIER = text("UPDATE oidc_keys SET retires_at = :activates_at WHERE retires_at > :activates_at")
_ADD = text(
    "INSERT INTO oidc_keys (kid, private_key, public_key, activates_at) "
    "VALUES (:kid, :private_key, CAST(:public_key AS jsonb), :activates_at)"
)
_REMOVE = text("DELETE FROM oidc_keys WHERE retires_at < clock_timestamp() - make_interval(secs => :seconds)")


class NewKey(msgspec.Struct, frozen=True):
    """A key that is not stored yet; ``public_key`` is its JWK. The private part is hidden from logs."""

    kid: str
    private_key: str
    public_key: dict[str, Any]

    def __repr__(self) -> str:
        """Return the id alone."""
        return f"NewKey({self.kid!r})"


class OidcKey(KeyTerm, frozen=True, kw_only=True):
    """A stored key without its private part; ``public_key`` is a JWK."""

    public_key: dict[str, Any]


async def read(connection: AsyncConnection) -> list[OidcKey]:
    """Return all keys, those that activate first at the beginning."""
    return [OidcKey(**row) for row in (await connection.execute(_READ)).mappings()]


async def read_private(connection: AsyncConnection, kids: list[str]) -> dict[str, str]:
    """Return the private parts of these keys in PEM, by id."""
    rows = await connection.execute(_READ_PRIVATE, {"kids": kids})
    return {row.kid: row.private_key for row in rows}


async def add_first(connection: AsyncConnection, key: NewKey) -> bool:
    """Store a key that signs at once, unless there is one already. Return whether it was stored."""
    return (await connection.execute(_ADD_FIRST, _values(key))).rowcount == 1


async def add_successor(connection: AsyncConnection, before: str, key: NewKey, activates_at: datetime) -> bool:
    """Store a key that replaces the newest one, ``before``. Return False if another process has replaced it."""
    moment = {"activates_at": activates_at}
    if not (await connection.execute(_RETIRE, {"before": before, **moment})).all():
        return False
    await connection.execute(_RETIRE_EARLIER, moment)
    await connection.execute(_ADD, {**_values(key), **moment})
    return True


async def remove_unpublished(connection: AsyncConnection) -> None:
    """Delete the keys whose last tokens have expired."""
    await connection.execute(_REMOVE, {"seconds": PUBLISHED_AFTER.total_seconds()})


def _values(key: NewKey) -> dict[str, str]:
    public_key = msgspec.json.encode(key.public_key).decode()
    return {"kid": key.kid, "private_key": key.private_key, "public_key": public_key}
