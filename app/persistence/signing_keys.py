"""Keys that sign the calls of an owner: one in use, and for a while after a rotation the one before."""

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence.sql_batches import fetch

KEY_BYTES = 32
# For so long after a rotation calls are signed with both keys.
OVERLAP_HOURS = 24

_READ = (
    "SELECT user_profile_id, key FROM signing_keys WHERE user_profile_id = ANY($1::int[]) "
    "AND (retires_at IS NULL OR retires_at > clock_timestamp()) ORDER BY id DESC"
)
_KEYS_OF = text(
    "SELECT key_id, key, retires_at FROM signing_keys WHERE user_profile_id = :owner "
    "AND (retires_at IS NULL OR retires_at > clock_timestamp()) ORDER BY id DESC"
)
_ADD = text(
    "INSERT INTO signing_keys (user_profile_id, key_id, key) VALUES (:owner, :key_id, :key) "
    "ON CONFLICT (user_profile_id) WHERE retires_at IS NULL DO NOTHING"
)
# Rotations of one owner come one after another.
_LOCK = text("SELECT id FROM user_profiles WHERE id = :owner FOR NO KEY UPDATE")
_FORGET_PREVIOUS = text("DELETE FROM signing_keys WHERE user_profile_id = :owner AND retires_at IS NOT NULL")
_RETIRE = text(
    "UPDATE signing_keys SET retires_at = clock_timestamp() + make_interval(hours => :hours) "
    "WHERE user_profile_id = :owner AND retires_at IS NULL"
)


class SigningKey(msgspec.Struct, frozen=True):
    """A key, and until when it is used; the one in use has no end."""

    key_id: str
    key: str
    retires_at: datetime | None


async def ensure(connection: AsyncConnection, owner_id: int) -> bool:
    """Make a key for an owner who has none; whether one was made."""
    key = "whsec_" + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    values = {"owner": owner_id, "key_id": f"key_{secrets.token_hex(8)}", "key": key}
    return (await connection.execute(_ADD, values)).rowcount == 1


async def rotate(connection: AsyncConnection, owner_id: int) -> None:
    """Let a new key take the place of the one in use, which is kept for a while. Older ones are forgotten."""
    await connection.execute(_LOCK, {"owner": owner_id})
    await ensure(connection, owner_id)
    await connection.execute(_FORGET_PREVIOUS, {"owner": owner_id})
    await connection.execute(_RETIRE, {"owner": owner_id, "hours": OVERLAP_HOURS})
    await ensure(connection, owner_id)


async def keys_of(connection: AsyncConnection, owner_id: int) -> list[SigningKey]:
    """The keys of an owner that are in use, newest first."""
    rows = await connection.execute(_KEYS_OF, {"owner": owner_id})
    return [SigningKey(row.key_id, row.key, row.retires_at) for row in rows]


async def read_many(connection: AsyncConnection, owner_ids: Sequence[int]) -> dict[int, list[str]]:
    """The keys of several owners that are in use, newest first; nothing for an owner without one."""
    found: dict[int, list[str]] = {}
    for owner_id, key in await fetch(connection, _READ, list(set(owner_ids))):
        found.setdefault(owner_id, []).append(key)
    return found
