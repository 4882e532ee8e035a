"""Keys of schedules and workflows: which object of an owner a key stands for."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence.sql_batches import fetch

# The first key differs from those of quotas and identities. In one order everywhere, so that no two transactions wait
# for each other.
_LOCK = "SELECT pg_advisory_xact_lock(21, hashed) FROM unnest($1::int[]) AS hashed ORDER BY hashed"
_HASHES = "SELECT DISTINCT hashtext(k) AS hashed FROM unnest($1::text[]) AS k ORDER BY hashed"
_SCHEDULE = "SELECT id FROM scheduled_jobs WHERE user_profile_id = $1 AND key = $2"
_WORKFLOW = "SELECT id FROM workflows WHERE user_profile_id = $1 AND key = $2"
_TAKEN = (
    "SELECT g.owner, g.key FROM unnest($1::int[], $2::text[]) AS g(owner, key) "
    "JOIN scheduled_jobs AS j ON j.user_profile_id = g.owner AND j.key = g.key"
)


async def lock(connection: AsyncConnection, wanted: Iterable[tuple[int, str]]) -> None:
    """Let other transactions that lock one of these keys of an owner wait until this one ends."""
    texts = sorted({f"{owner}/{key}" for owner, key in wanted})
    if texts:
        hashes = [row["hashed"] for row in await fetch(connection, _HASHES, texts)]
        await fetch(connection, _LOCK, hashes)


async def taken(connection: AsyncConnection, wanted: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return those of these pairs of owner and key that a schedule has."""
    pairs = list(wanted)
    if not pairs:
        return set()
    rows = await fetch(connection, _TAKEN, [owner for owner, _ in pairs], [key for _, key in pairs])
    return {(row["owner"], row["key"]) for row in rows}


async def schedule_of(connection: AsyncConnection, owner: int, key: str) -> UUID | None:
    """Return the id of an owner's schedule by its key, or None."""
    rows = await fetch(connection, _SCHEDULE, owner, key)
    return rows[0]["id"] if rows else None


async def workflow_of(connection: AsyncConnection, owner: int, key: str) -> int | None:
    """Return the id of an owner's workflow by its key, or None."""
    rows = await fetch(connection, _WORKFLOW, owner, key)
    return rows[0]["id"] if rows else None
