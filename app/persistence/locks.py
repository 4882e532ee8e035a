"""Locks that cannot stick: a row with a lease, never a lock of a connection."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_TAKE = text(
    "INSERT INTO locks (name, owner, expires_at) "
    "VALUES (:name, :owner, clock_timestamp() + make_interval(secs => :seconds)) "
    "ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at "
    "WHERE locks.expires_at < clock_timestamp() OR locks.owner = EXCLUDED.owner RETURNING name"
)
_RENEW = text(
    "UPDATE locks SET expires_at = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE name = :name AND owner = :owner AND expires_at > clock_timestamp() RETURNING name"
)
# Whoever takes or uses a lock holds this for the length of its transaction, so that others need not wait for it.
_IN_USE = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 1))")
_USE = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 1))")
_RELEASE = text("DELETE FROM locks WHERE name = :name AND owner = :owner")


async def take(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Take a lock that is free, or whose lease has run out; False if someone else holds it, without waiting."""
    if not (await connection.execute(_IN_USE, {"name": name})).scalar_one():
        return False
    taken = await connection.execute(_TAKE, {"name": name, "owner": owner, "seconds": seconds})
    return taken.one_or_none() is not None


async def renew(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Keep a lock that is still ours; False if its lease had run out."""
    renewed = await connection.execute(_RENEW, {"name": name, "owner": owner, "seconds": seconds})
    return renewed.one_or_none() is not None


async def use(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Keep a lock that is still ours, and let nobody take it before this transaction ends; False if it is lost."""
    await connection.execute(_USE, {"name": name})
    return await renew(connection, name, owner, seconds)


async def release(connection: AsyncConnection, name: str, owner: UUID) -> None:
    """Let it go."""
    await connection.execute(_RELEASE, {"name": name, "owner": owner})
