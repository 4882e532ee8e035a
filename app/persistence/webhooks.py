"""Webhooks: Carillon's built-in entities, and the scheduler that finds those that are due."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from app.domain.entity_jobs import ScheduledJobConfig
from app.persistence.pagination import Page, Part, read_all, read_of_owners, read_one, read_page, read_written
from app.persistence.tables import WebhookRow

ENTITY_TYPE = "webhook"

_TABLE = WebhookRow.__table__
_SET_TIMES = (
    update(WebhookRow)
    .where(_TABLE.c.id == bindparam("webhook_id"))
    .values(
        last_execution_at=bindparam("last"),
        next_execution_at=bindparam("next"),
        last_error=bindparam("error"),
    )
)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A stored webhook."""

    id: int
    user_profile_id: int
    name: str
    url: str
    method: str
    headers: dict[str, Any]
    payload: dict[str, Any]
    cron: str | None
    interval_minutes: int | None
    timezone: str
    active: bool
    timeout_seconds: int
    max_retries: int
    last_execution_at: datetime | None
    next_execution_at: datetime | None
    last_error: str
    created_at: datetime
    updated_at: datetime
    team_id: int | None = None


class WebhookScheduler:
    """Finds the webhooks that are due."""

    entity_type = ENTITY_TYPE
    description = "Webhooks: URLs that are called at their own times."

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> list[ScheduledJobConfig]:
        """Return the due webhooks, earliest first. One that is being changed is left to the next poll."""
        del now
        query = select(_TABLE).where(_TABLE.c.active, _TABLE.c.next_execution_at <= until)
        query = query.order_by(_TABLE.c.next_execution_at, _TABLE.c.id).limit(limit).offset(offset)
        due = query.with_for_update(skip_locked=True)
        return [to_job(webhook) for webhook in await read_all(await session.connection(), due, Webhook)]

    async def find_stopped_jobs(self, session: AsyncSession, limit: int, offset: int) -> list[ScheduledJobConfig]:
        """Return the active webhooks that have no next time: their timezone is unknown, or was."""
        query = select(_TABLE).where(_TABLE.c.active, _TABLE.c.next_execution_at.is_(None))
        stopped = query.order_by(_TABLE.c.id).limit(limit).offset(offset).with_for_update(skip_locked=True)
        return [to_job(webhook) for webhook in await read_all(await session.connection(), stopped, Webhook)]

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Store the next time of each webhook, or why there is none."""
        times = [
            {
                "webhook_id": int(job.entity_id),
                "last": job.last_execution_time,
                "next": job.next_execution_time,
                "error": job.error,
            }
            for job in jobs
        ]
        await (await session.connection()).execute(_SET_TIMES, times)


def to_job(row: Webhook) -> ScheduledJobConfig:
    """Return a webhook as a job that calls its URL."""
    config: dict[str, Any] = {"url": row.url, "method": row.method, "headers": row.headers}
    if row.payload:
        config["json"] = row.payload
    return ScheduledJobConfig(
        id=f"{ENTITY_TYPE}-{row.id}",
        entity_id=str(row.id),
        entity_type=ENTITY_TYPE,
        job_type="core.http_request",
        job_data=config,
        next_execution_time=row.next_execution_at,
        last_execution_time=row.last_execution_at,
        cron_expression=row.cron,
        interval_minutes=row.interval_minutes,
        timezone=row.timezone,
        active=row.active,
        name=row.name,
        user_profile_id=row.user_profile_id,
        timeout_seconds=row.timeout_seconds,
        max_retries=row.max_retries,
    )


async def add(connection: AsyncConnection, values: dict[str, Any]) -> Webhook:
    """Create a webhook."""
    return await read_written(connection, insert(WebhookRow).values(values).returning(*_TABLE.c), Webhook)


async def get(connection: AsyncConnection, webhook_id: int) -> Webhook | None:
    """Return a webhook, or None."""
    return await read_one(connection, select(_TABLE).where(_TABLE.c.id == webhook_id), Webhook)


async def lock(connection: AsyncConnection, webhook_id: int) -> Webhook | None:
    """Lock a webhook against other changes and against polling, and return it, or None."""
    return await read_one(connection, select(_TABLE).where(_TABLE.c.id == webhook_id).with_for_update(), Webhook)


async def save(connection: AsyncConnection, webhook_id: int, values: dict[str, Any]) -> Webhook:
    """Change a webhook that this transaction has locked."""
    changed = {**values, "updated_at": func.clock_timestamp()}
    statement = update(WebhookRow).where(_TABLE.c.id == webhook_id).values(changed)
    return await read_written(connection, statement.returning(*_TABLE.c), Webhook)


async def remove(connection: AsyncConnection, webhook_id: int) -> None:
    """Delete a webhook."""
    await connection.execute(delete(WebhookRow).where(_TABLE.c.id == webhook_id))


async def page(connection: AsyncConnection, owners: Sequence[int] | None, part: Part) -> Page[Webhook]:
    """Return a page of the webhooks of these owners, newest first."""

    async def read(owner: int | None, part: Part) -> Page[Webhook]:
        query: Select[Any] = select(_TABLE)
        if owner is not None:
            query = query.where(_TABLE.c.user_profile_id == owner)
        return await read_page(connection, query, Webhook, (_TABLE.c.id,), part)

    return await read_of_owners(owners, part, read)
