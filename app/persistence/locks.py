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
_RELEASE = text("DELETE FROM locks WHERE name = :name AND owner = :owner")


async def take(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Take a lock that is free, or whose lease has run out; False if someone else holds it."""
    taken = await connection.execute(_TAKE, {"name": name, "owner": owner, "seconds": seconds})
    return taken.one_or_none() is not None


async def renew(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Keep a lock that is still ours; False if its lease had run out."""
    renewed = await connection.execute(_RENEW, {"name": name, "owner": owner, "seconds": seconds})
    return renewed.one_or_none() is not None


async def release(connection: AsyncConnection, name: str, owner: UUID) -> None:
    """Let it go."""
    await connection.execute(_RELEASE, {"name": name, "owner": owner})
