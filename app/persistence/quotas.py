"""How many objects users have, counted in such a way that concurrent requests cannot both take the last place."""

from collections.abc import Collection

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.quotas import Quota
from app.persistence.sql_batches import fetch

# A lock for each kind and user. Taken before any row is locked, kinds in this order and users by their ids.
_KEYS = {Quota.WORKFLOWS: 1, Quota.SCHEDULES: 2, Quota.WEBHOOKS: 3, Quota.NOTIFICATIONS: 4}
_TABLES = {
    Quota.WORKFLOWS: "workflows",
    Quota.SCHEDULES: "scheduled_jobs",
    Quota.WEBHOOKS: "webhooks",
    Quota.NOTIFICATIONS: "notifications",
}
# Two keys of 32 bits: these locks share no number with those of one key of 64 bits.
_LOCK = "SELECT pg_advisory_xact_lock($1, owner) FROM unnest($2::int[]) AS owner"
_COUNTS = {
    quota: f"SELECT user_profile_id, count(*) FROM {table} WHERE user_profile_id = ANY($1) GROUP BY 1"  # noqa: S608
    for quota, table in _TABLES.items()
}


async def lock_and_count(connection: AsyncConnection, quota: Quota, user_ids: Collection[int]) -> dict[int, int]:
    """Return how many of a kind these users have. Others who ask wait until the transaction ends."""
    wanted = sorted(set(user_ids))
    await fetch(connection, _LOCK, _KEYS[quota], wanted)
    # In a statement that begins after the locks are held, so that it sees what their last holders committed.
    found = dict(await fetch(connection, _COUNTS[quota], wanted))
    return {user_id: found.get(user_id, 0) for user_id in wanted}
