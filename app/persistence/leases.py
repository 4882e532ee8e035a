"""Leases of workers, locks with a lease, and switches: rows that all processes share, by the database's clock."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_REGISTER = text(
    "INSERT INTO workers (id, name, lease_expires_at) "
    "VALUES (:id, :name, clock_timestamp() + make_interval(secs => :seconds))"
)
# A lease that has run out is not renewed: its executions may be lost already.
_RENEW_WORKER = text(
    "UPDATE workers SET lease_expires_at = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE id = :id AND lease_expires_at > clock_timestamp()"
)
# As an expression, to be read along with other things.
LEASE_HOLDS = "EXISTS (SELECT FROM workers WHERE id = {worker} AND lease_expires_at > clock_timestamp())"
_HOLDS = text(f"SELECT {LEASE_HOLDS.format(worker=':id')}")
_RELEASE_WORKER = text("DELETE FROM workers WHERE id = :id")
_FORGET = text(
    "DELETE FROM workers AS w WHERE w.lease_expires_at < clock_timestamp() - interval '1 hour' "
    "AND NOT EXISTS (SELECT FROM active_executions AS e WHERE e.worker_id = w.id)"
)


async def register_worker(connection: AsyncConnection, worker_id: UUID, name: str, lease_seconds: float) -> None:
    """A worker begins its life, with a lease."""
    await connection.execute(_REGISTER, {"id": worker_id, "name": name, "seconds": lease_seconds})


async def renew_worker(connection: AsyncConnection, worker_id: UUID, lease_seconds: float) -> bool:
    """Extend a lease that still holds; False if it has run out."""
    renewed = await connection.execute(_RENEW_WORKER, {"id": worker_id, "seconds": lease_seconds})
    return renewed.rowcount == 1


async def worker_holds(connection: AsyncConnection, worker_id: UUID) -> bool:
    """Whether a lease holds, by the database's clock."""
    return bool((await connection.execute(_HOLDS, {"id": worker_id})).scalar_one())


async def release_worker(connection: AsyncConnection, worker_id: UUID) -> None:
    """A worker ends; what it may still hold is lost from now on."""
    await connection.execute(_RELEASE_WORKER, {"id": worker_id})


async def forget_expired_workers(connection: AsyncConnection) -> int:
    """Remove workers that ended long ago without a word."""
    return (await connection.execute(_FORGET)).rowcount


_TAKE_LOCK = text(
    "INSERT INTO locks (name, owner, expires_at) "
    "VALUES (:name, :owner, clock_timestamp() + make_interval(secs => :seconds)) "
    "ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at "
    "WHERE locks.expires_at < clock_timestamp() OR locks.owner = EXCLUDED.owner RETURNING name"
)
_RENEW_LOCK = text(
    "UPDATE locks SET expires_at = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE name = :name AND owner = :owner AND expires_at > clock_timestamp() RETURNING name"
)
# Whoever takes or uses a lock holds this for the length of its transaction, so that others need not wait for it.
_IN_USE = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 1))")
_USE = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 1))")
_RELEASE_LOCK = text("DELETE FROM locks WHERE name = :name AND owner = :owner")


async def take_lock(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Take a lock that is free, or whose lease has run out; False if someone else holds it, without waiting."""
    if not (await connection.execute(_IN_USE, {"name": name})).scalar_one():
        return False
    taken = await connection.execute(_TAKE_LOCK, {"name": name, "owner": owner, "seconds": seconds})
    return taken.one_or_none() is not None


async def renew_lock(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Keep a lock that is still ours; False if its lease had run out."""
    renewed = await connection.execute(_RENEW_LOCK, {"name": name, "owner": owner, "seconds": seconds})
    return renewed.one_or_none() is not None


async def use_lock(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Keep a lock that is still ours, and let nobody take it before this transaction ends; False if it is lost."""
    await connection.execute(_USE, {"name": name})
    return await renew_lock(connection, name, owner, seconds)


async def release_lock(connection: AsyncConnection, name: str, owner: UUID) -> None:
    """Let it go."""
    await connection.execute(_RELEASE_LOCK, {"name": name, "owner": owner})


# As an expression, to be read along with other things. Without a row it is on.
SCHEDULES_ENABLED = "coalesce((SELECT s.is_on FROM switches AS s WHERE s.name = 'schedules_enabled'), true)"
_READ = text(f"SELECT {SCHEDULES_ENABLED}")
_TURN = text(
    "INSERT INTO switches (name, is_on) VALUES ('schedules_enabled', :is_on) "
    "ON CONFLICT (name) DO UPDATE SET is_on = EXCLUDED.is_on, changed_at = clock_timestamp()"
)


async def schedules_enabled(connection: AsyncConnection) -> bool:
    """Whether schedules are on, as far as the switch says."""
    return bool((await connection.execute(_READ)).scalar_one())


async def turn_schedules(connection: AsyncConnection, *, on: bool) -> None:
    """Turn them on or off."""
    await connection.execute(_TURN, {"is_on": on})
