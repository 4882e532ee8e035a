"""Notices: who wants to be told of what, and the log of what was told."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Select, delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.notifications import Notice
from app.domain.parts import Part
from app.persistence.pagination import Page, read_page
from app.persistence.tables import DeliveryRow, NotificationRow

_TABLE = NotificationRow.__table__
_DELIVERIES = DeliveryRow.__table__
# Whoever owns the workflow is told, and admins who asked for everything.
_POST = text(
    "INSERT INTO deliveries (notification_id, event, data) "
    "SELECT n.id, p.event, p.data FROM jsonb_to_recordset(CAST(:rows AS jsonb)) "
    "AS p(event text, workflow_id integer, scheduled_job_id uuid, data jsonb) "
    "JOIN workflows AS w ON w.id = p.workflow_id JOIN notifications AS n ON n.active AND n.events ? p.event "
    "AND (n.workflow_id IS NULL OR n.workflow_id = p.workflow_id) "
    "AND (n.scheduled_job_id IS NULL OR n.scheduled_job_id = p.scheduled_job_id) "
    "JOIN user_profiles AS u ON u.id = n.user_profile_id AND (u.role = 'admin' OR u.id = w.user_profile_id)"
)
_RETRY = text(
    "UPDATE deliveries SET status = 'pending', attempts = 0, next_attempt_at = clock_timestamp() WHERE id IN "
    "(SELECT d.id FROM deliveries AS d JOIN notifications AS n ON n.id = d.notification_id WHERE d.status = 'failed' "
    "AND (CAST(:owner AS integer) IS NULL OR n.user_profile_id = :owner) ORDER BY d.id LIMIT :limit)"
)
_PURGE = text(
    "DELETE FROM deliveries WHERE id IN "
    "(SELECT d.id FROM deliveries AS d JOIN notifications AS n ON n.id = d.notification_id "
    "WHERE d.status <> 'pending' AND d.created_at < :before "
    "AND (CAST(:owner AS integer) IS NULL OR n.user_profile_id = :owner) ORDER BY d.id LIMIT :limit)"
)


async def post(connection: AsyncConnection, notices: Sequence[Notice]) -> None:
    """Put notices into the box of everyone who wants them, in the transaction in which they happened."""
    if notices:
        await connection.execute(_POST, {"rows": msgspec.json.encode(notices).decode()})


async def add(connection: AsyncConnection, values: dict[str, Any]) -> Row[Any]:
    """Somebody wants to be told."""
    return (await connection.execute(insert(NotificationRow).values(values).returning(*_TABLE.c))).one()


async def get(connection: AsyncConnection, notification_id: int) -> Row[Any] | None:
    """One wish."""
    found = await connection.execute(select(_TABLE).where(_TABLE.c.id == notification_id))
    row: Row[Any] | None = found.one_or_none()
    return row


async def save(connection: AsyncConnection, notification_id: int, values: dict[str, Any]) -> Row[Any]:
    """Change one."""
    statement = update(NotificationRow).where(_TABLE.c.id == notification_id).values(values)
    return (await connection.execute(statement.returning(*_TABLE.c))).one()


async def remove(connection: AsyncConnection, notification_id: int) -> None:
    """Tell no more, and forget what was told."""
    await connection.execute(delete(NotificationRow).where(_TABLE.c.id == notification_id))


async def page(connection: AsyncConnection, actor: Actor, part: Part) -> Page:
    """The wishes that the actor may see, newest first."""
    query: Select[Any] = select(_TABLE)
    if actor.owner_filter is not None:
        query = query.where(_TABLE.c.user_profile_id == actor.owner_filter)
    return await read_page(connection, query, (_TABLE.c.id,), part)


async def deliveries_of(connection: AsyncConnection, notification_id: int, part: Part) -> Page:
    """The log of deliveries, newest first."""
    query = select(_DELIVERIES).where(_DELIVERIES.c.notification_id == notification_id)
    return await read_page(connection, query, (_DELIVERIES.c.id,), part)


async def retry(connection: AsyncConnection, actor: Actor, limit: int) -> int:
    """Try again what was given up; how many."""
    return (await connection.execute(_RETRY, {"owner": actor.owner_filter, "limit": limit})).rowcount


async def purge(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete old deliveries that are over; how many."""
    values = {"owner": actor.owner_filter, "before": before, "limit": limit}
    return (await connection.execute(_PURGE, values)).rowcount
