"""Leases of workers, locks with a lease, and the switch for schedules: rows that all processes share.

Locks are rows with a lease, not advisory locks of a session. The work under a lock takes longer than a transaction and
uses many connections of a pool, and behind PgBouncer a session is not ours alone. A process that dies releases nothing,
but its lease expires by the database's clock, so that a lock cannot stay taken.
"""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_REGISTER = text(
    "INSERT INTO workers (id, name, lease_expires_at) "
    "VALUES (:id, :name, clock_timestamp() + make_interval(secs => :seconds))"
)
# A lease that has expired is not renewed: its executions may have been settled as lost.
_RENEW_WORKER = text(
    "UPDATE workers SET lease_expires_at = clock_timestamp() + make_interval(secs => :seconds) "
    "WHERE id = :id AND lease_expires_at > clock_timestamp()"
)
# An SQL expression for other queries.
LEASE_HOLDS = "EXISTS (SELECT FROM workers WHERE id = {worker} AND lease_expires_at > clock_timestamp())"
_HOLDS = text(f"SELECT {LEASE_HOLDS.format(worker=':id')}")
_RELEASE_WORKER = text("DELETE FROM workers WHERE id = :id")
_FORGET_WORKERS = text(
    "DELETE FROM workers AS w WHERE w.lease_expires_at < clock_timestamp() - interval '1 hour' "
    "AND NOT EXISTS (SELECT FROM active_executions AS e WHERE e.worker_id = w.id)"
)


async def register_worker(connection: AsyncConnection, worker_id: UUID, name: str, lease_seconds: float) -> None:
    """Add a worker with a new lease."""
    await connection.execute(_REGISTER, {"id": worker_id, "name": name, "seconds": lease_seconds})


async def renew_worker(connection: AsyncConnection, worker_id: UUID, lease_seconds: float) -> bool:
    """Extend a lease that is still valid. Return False if it has expired."""
    renewed = await connection.execute(_RENEW_WORKER, {"id": worker_id, "seconds": lease_seconds})
    return renewed.rowcount == 1


async def worker_holds(connection: AsyncConnection, worker_id: UUID) -> bool:
    """Return whether a worker's lease is valid by the database's clock."""
    return bool((await connection.execute(_HOLDS, {"id": worker_id})).scalar_one())


async def release_worker(connection: AsyncConnection, worker_id: UUID) -> None:
    """Remove a worker that ends. Executions that it still holds are lost from now on."""
    await connection.execute(_RELEASE_WORKER, {"id": worker_id})


async def forget_expired_workers(connection: AsyncConnection) -> int:
    """Remove workers whose lease expired long ago and that hold no executions. Return how many."""
    return (await connection.execute(_FORGET_WORKERS)).rowcount


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
# A transaction that takes or uses a lock also holds this advisory lock until it ends. So another process that wants the
# lock learns at once that it is in use, and does not wait for the row.
_IN_USE = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 1))")
_USE = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 1))")
_RELEASE_LOCK = text("DELETE FROM locks WHERE name = :name AND owner = :owner")


async def take_lock(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Take a lock that is free or whose lease has expired. Return False at once if another owner holds it."""
    if not (await connection.execute(_IN_USE, {"name": name})).scalar_one():
        return False
    taken = await connection.execute(_TAKE_LOCK, {"name": name, "owner": owner, "seconds": seconds})
    return taken.one_or_none() is not None


async def renew_lock(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Extend the lease of a lock. Return False if it had expired."""
    renewed = await connection.execute(_RENEW_LOCK, {"name": name, "owner": owner, "seconds": seconds})
    return renewed.one_or_none() is not None


async def use_lock(connection: AsyncConnection, name: str, owner: UUID, seconds: float) -> bool:
    """Extend the lease of a lock and keep others from taking it until this transaction ends; False if it is lost."""
    await connection.execute(_USE, {"name": name})
    return await renew_lock(connection, name, owner, seconds)


async def release_lock(connection: AsyncConnection, name: str, owner: UUID) -> None:
    """Release a lock, if this owner still holds it."""
    await connection.execute(_RELEASE_LOCK, {"name": name, "owner": owner})


# The name of the switch for all schedules, and an SQL expression for other queries. Without a row the switch is on.
SCHEDULES_SWITCH = "schedules_enabled"
SCHEDULES_ENABLED = "coalesce((SELECT s.is_on FROM switches AS s WHERE s.name = 'schedules_enabled'), true)"
_READ_SWITCH = text(f"SELECT {SCHEDULES_ENABLED}")
_LOCK_SWITCHES = text("SELECT pg_advisory_xact_lock(hashtextextended('switches', 1))")
_WRITE_SWITCH = text(
    "INSERT INTO switches (name, is_on) VALUES (:name, :is_on) "
    "ON CONFLICT (name) DO UPDATE SET is_on = EXCLUDED.is_on, changed_at = clock_timestamp()"
)


async def schedules_enabled(connection: AsyncConnection) -> bool:
    """Return whether the switch for schedules is on."""
    return bool((await connection.execute(_READ_SWITCH)).scalar_one())


async def lock_switches(connection: AsyncConnection) -> None:
    """Let other changes of the settings wait until this transaction ends."""
    await connection.execute(_LOCK_SWITCHES)


async def turn_switch(connection: AsyncConnection, name: str, *, on: bool) -> None:
    """Turn a switch on or off, such as that of all schedules."""
    await connection.execute(_WRITE_SWITCH, {"name": name, "is_on": on})
