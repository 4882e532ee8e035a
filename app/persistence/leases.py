"""Workers and their leases, by the database's clock."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_REGISTER = text(
    "INSERT INTO workers (id, name, lease_expires_at) "
    "VALUES (:id, :name, clock_timestamp() + make_interval(secs => :seconds))"
)
# A lease that has run out is not renewed: its executions may be lost already.
_RENEW = text(
    "UPDATE workers SET lease_expires_at = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE id = :id AND lease_expires_at > clock_timestamp()"
)
# As an expression, to be read along with other things.
LEASE_HOLDS = "EXISTS (SELECT FROM workers WHERE id = {worker} AND lease_expires_at > clock_timestamp())"
_HOLDS = text(f"SELECT {LEASE_HOLDS.format(worker=':id')}")
_RELEASE = text("DELETE FROM workers WHERE id = :id")
_FORGET = text(
    "DELETE FROM workers AS w WHERE w.lease_expires_at < clock_timestamp() - interval '1 hour' "
    "AND NOT EXISTS (SELECT FROM active_executions AS e WHERE e.worker_id = w.id)"
)


async def register(connection: AsyncConnection, worker_id: UUID, name: str, lease_seconds: float) -> None:
    """A worker begins its life, with a lease."""
    await connection.execute(_REGISTER, {"id": worker_id, "name": name, "seconds": lease_seconds})


async def renew(connection: AsyncConnection, worker_id: UUID, lease_seconds: float) -> bool:
    """Extend a lease that still holds; False if it has run out."""
    renewed = await connection.execute(_RENEW, {"id": worker_id, "seconds": lease_seconds})
    return renewed.rowcount == 1


async def holds(connection: AsyncConnection, worker_id: UUID) -> bool:
    """Whether a lease holds, by the database's clock."""
    return bool((await connection.execute(_HOLDS, {"id": worker_id})).scalar_one())


async def release(connection: AsyncConnection, worker_id: UUID) -> None:
    """A worker ends; what it may still hold is lost from now on."""
    await connection.execute(_RELEASE, {"id": worker_id})


async def forget_expired(connection: AsyncConnection) -> int:
    """Remove workers that ended long ago without a word."""
    return (await connection.execute(_FORGET)).rowcount
