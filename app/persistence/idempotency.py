"""Answers to requests with an idempotency key, by the user and the key."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from sqlalchemy import delete, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.idempotency import StoredAnswer
from app.persistence.sql_batches import fetch
from app.persistence.tables import IdempotencyKeyRow

_TABLE = IdempotencyKeyRow.__table__
_CLAIM = (
    "INSERT INTO idempotency_keys (user_profile_id, key, request_hash) VALUES ($1, $2, $3) "
    "ON CONFLICT (user_profile_id, key) DO NOTHING RETURNING key"
)
_READ = (
    "SELECT request_hash, began_at, status, headers::text AS headers, body FROM idempotency_keys "
    "WHERE user_profile_id = $1 AND key = $2"
)
# Only one of those who find an old claim takes it over.
_TAKE_OVER = (
    "UPDATE idempotency_keys SET request_hash = $3, began_at = clock_timestamp(), status = NULL, body = NULL "
    "WHERE user_profile_id = $1 AND key = $2 AND began_at = $4 RETURNING key"
)
_DROP = text(
    "DELETE FROM idempotency_keys WHERE ctid IN "
    "(SELECT ctid FROM idempotency_keys WHERE began_at < :before LIMIT :limit)"
)


async def claim(connection: AsyncConnection, user_id: int, key: str, request_hash: bytes) -> bool:
    """Note that a request with a key begins; return False if the key is known."""
    return bool(await fetch(connection, _CLAIM, user_id, key, request_hash))


async def read(connection: AsyncConnection, user_id: int, key: str) -> StoredAnswer | None:
    """Return what is known of a key, or None."""
    rows = await fetch(connection, _READ, user_id, key)
    if not rows:
        return None
    values = dict(rows[0])
    return StoredAnswer(**values | {"headers": msgspec.json.decode(values["headers"])})


async def take_over(
    connection: AsyncConnection, user_id: int, key: str, request_hash: bytes, began_at: datetime
) -> bool:
    """Begin a request anew whose key is known; return False if another one was faster."""
    return bool(await fetch(connection, _TAKE_OVER, user_id, key, request_hash, began_at))


async def finish(
    connection: AsyncConnection, user_id: int, key: str, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Store the answer to a request."""
    values = {"status": status, "headers": dict(headers), "body": body}
    where = (_TABLE.c.user_profile_id == user_id, _TABLE.c.key == key)
    await connection.execute(update(IdempotencyKeyRow).where(*where).values(values))


async def release(connection: AsyncConnection, user_id: int, key: str) -> None:
    """Forget a key: its request may be carried out again."""
    await connection.execute(delete(IdempotencyKeyRow).where(_TABLE.c.user_profile_id == user_id, _TABLE.c.key == key))


async def drop_old(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete some keys from before a moment; return how many."""
    return (await connection.execute(_DROP, {"before": before, "limit": limit})).rowcount
