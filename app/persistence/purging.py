"""Deleting what is old, a part at a time, the oldest first."""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.identities import first_id_at

# The first attempts of a slot that is to be tried again are still needed.
_EXECUTIONS = text(
    "DELETE FROM workflow_executions WHERE id IN (SELECT e.id FROM workflow_executions AS e "
    "LEFT JOIN scheduled_jobs AS j ON j.id = e.scheduled_job_id "
    "WHERE e.id < :first_kept AND e.finished_at < :before AND j.next_slot IS DISTINCT FROM e.scheduled_for "
    "AND (CAST(:owner AS integer) IS NULL OR e.user_profile_id = :owner) ORDER BY e.id LIMIT :limit)"
)
_ENTRIES = text(
    "DELETE FROM ledger_entries WHERE (scheduled_job_id, first_slot) IN "
    "(SELECT l.scheduled_job_id, l.first_slot FROM ledger_entries AS l "
    "JOIN scheduled_jobs AS j ON j.id = l.scheduled_job_id WHERE l.last_slot < :before "
    "AND (CAST(:owner AS integer) IS NULL OR j.user_profile_id = :owner) ORDER BY l.last_slot LIMIT :limit)"
)


async def executions(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete ended executions, with what their nodes did; how many."""
    values = {"before": before, "first_kept": first_id_at(before), "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_EXECUTIONS, values)).rowcount


async def ledger_entries(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete the account of slots that did not fire; how many entries."""
    values = {"before": before, "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_ENTRIES, values)).rowcount
