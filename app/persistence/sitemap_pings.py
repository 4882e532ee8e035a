"""Pings of the sitemap: a row that says whether one is wanted, and the entity scheduler that makes runs of it.

The transaction in which a publishing run ends marks the row. The run of the ping is then planned at once, or by the
next poll of entities. A ping that is planned and has not started covers everything that is published before it starts.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import literal_column, null, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from app.domain.entity_jobs import ScheduledJobConfig
from app.domain.executions import PendingRun
from app.persistence import entity_runs, leases, users
from app.persistence.entity_runs import Due
from app.persistence.tables import SitemapPingRow

ENTITY_TYPE = "core.sitemap"
ENTITY_ID = "sitemap"
ACTION = "core.ping_sitemap"
SWITCH = "ping_sitemap_on_run"
# Between the starts of two pings.
SPACING = timedelta(minutes=1)
_NEXT = timedelta(milliseconds=1)
TIMEOUT_SECONDS = 50
MAX_RETRIES = 3

_TABLE = SitemapPingRow.__table__
_IS_ON = f"coalesce((SELECT s.is_on FROM switches AS s WHERE s.name = '{SWITCH}'), false)"  # noqa: S608
# A ping whose slot lies in the future is still to start.
_WANT = text(
    "UPDATE sitemap_pings SET wanted_at = clock_timestamp() WHERE wanted_at IS NULL "  # noqa: S608
    f"AND (last_slot IS NULL OR last_slot <= clock_timestamp()) AND {_IS_ON}"
)
_WANT_AGAIN = text(f"UPDATE sitemap_pings SET wanted_at = clock_timestamp() WHERE {_IS_ON}")  # noqa: S608
_LOCK_WANTED = text(
    "SELECT wanted_at, last_slot, urls FROM sitemap_pings WHERE wanted_at IS NOT NULL FOR UPDATE SKIP LOCKED"
)
# Read after the row is locked. The latest executions of the entity include all attempts of the latest ping.
_SITUATION = text(
    f"SELECT {_IS_ON} AND {leases.SCHEDULES_ENABLED} AS is_on, "  # noqa: S608
    "EXISTS (SELECT FROM active_executions WHERE entity_type = :type AND entity_id = :id) AS is_active, "
    "(SELECT max(e.started_at) FROM (SELECT started_at FROM workflow_executions "
    f"WHERE entity_type = :type AND entity_id = :id ORDER BY id DESC LIMIT {2 * (1 + MAX_RETRIES)}) AS e) AS last_start"
)
_ENTITY = {"type": ENTITY_TYPE, "id": ENTITY_ID}


class SitemapSettings(msgspec.Struct, frozen=True):
    """Whether publishing runs are followed by a ping, and the URLs of pings; None for those of the environment."""

    is_on: bool
    urls: list[str] | None


async def want(connection: AsyncConnection) -> None:
    """Mark that a ping is wanted, unless pings are switched off or one is still to start."""
    await connection.execute(_WANT)


async def want_again(connection: AsyncConnection) -> None:
    """Mark that a ping is wanted in place of one that was planned and did not start."""
    await connection.execute(_WANT_AGAIN)


class SitemapScheduler:
    """Plans the ping that is wanted: a minute after the last one at the earliest, and one at a time."""

    entity_type = ENTITY_TYPE
    description = "Pings of the sitemap: calls that follow publishing runs."

    def __init__(self, default_urls: Sequence[str] = (), *, enabled: bool = True) -> None:
        """Ping the default URLs where no others are stored. Unless ``enabled``, nothing is planned."""
        self._default_urls = list(default_urls)
        self._enabled = enabled

    async def plan(self, connection: AsyncConnection) -> PendingRun | None:
        """Write the run of the ping that is wanted. Return it, or None if there is none or it has to wait."""
        job = await self._wanted_job(connection)
        if job is None or job.next_execution_time is None or job.user_profile_id is None:
            return None
        await _planned(connection, job.next_execution_time)
        runs = await entity_runs.add(connection, [Due(job, job.next_execution_time, job.user_profile_id)])
        return runs[0] if runs else None

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> list[ScheduledJobConfig]:
        """Return the ping that is wanted, if there is one."""
        del now, until, limit
        # The only row; with an offset it was returned before.
        job = None if offset else await self._wanted_job(await session.connection())
        return [] if job is None else [job]

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Store that the ping is planned."""
        for job in jobs:
            if job.last_execution_time is not None:
                await _planned(await session.connection(), job.last_execution_time)

    async def _wanted_job(self, connection: AsyncConnection) -> ScheduledJobConfig | None:
        row = (await connection.execute(_LOCK_WANTED)).one_or_none()
        if row is None or not self._enabled:
            return None
        urls = self._default_urls if row.urls is None else row.urls
        situation = (await connection.execute(_SITUATION, _ENTITY)).one()
        admin = await users.built_in_admin(connection)
        if not urls or not situation.is_on or situation.is_active or admin is None:
            return None
        # Behind the last slot: one slot has one run, also if that was cancelled before it started.
        earliest = (situation.last_start and situation.last_start + SPACING, row.last_slot and row.last_slot + _NEXT)
        slot = max(moment for moment in (row.wanted_at, *earliest) if moment is not None)
        return _job(slot, urls, admin.user_id)


def _job(slot: datetime | None, urls: list[str], user_profile_id: int | None) -> ScheduledJobConfig:
    return ScheduledJobConfig(
        id=f"{ENTITY_TYPE}-{ENTITY_ID}",
        entity_id=ENTITY_ID,
        entity_type=ENTITY_TYPE,
        job_type=ACTION,
        job_data={"urls": urls},
        next_execution_time=slot,
        # The poller needs a cadence; the time that it computes from it is not stored.
        interval_minutes=1,
        name="Sitemap ping",
        user_profile_id=user_profile_id,
        timeout_seconds=TIMEOUT_SECONDS,
        max_retries=MAX_RETRIES,
    )


async def _planned(connection: AsyncConnection, slot: datetime) -> None:
    await connection.execute(update(SitemapPingRow).values(wanted_at=None, last_slot=slot))


async def read_settings(connection: AsyncConnection) -> SitemapSettings:
    """Return the settings of pings."""
    row: Any = (await connection.execute(select(literal_column(_IS_ON).label("is_on"), _TABLE.c.urls))).one()
    return SitemapSettings(row.is_on, row.urls)


async def turn(connection: AsyncConnection, *, on: bool) -> None:
    """Turn pings on or off. Off, the one that is wanted or planned is dropped."""
    await leases.turn_switch(connection, SWITCH, on=on)
    if not on:
        # Locked before the row of pings, as a settle does.
        await entity_runs.withdraw(
            connection, ENTITY_TYPE, ENTITY_ID, "Cancelled before it ran: pings were turned off."
        )
        await connection.execute(update(SitemapPingRow).values(wanted_at=None, last_slot=None))


async def set_urls(connection: AsyncConnection, urls: list[str] | None, default_urls: Sequence[str]) -> None:
    """Store the URLs of pings, for the planned one too; None for those of the environment."""
    used = list(default_urls) if urls is None else urls
    if used:
        await entity_runs.replace_work(connection, _job(None, used, None))
    elif await entity_runs.withdraw(connection, ENTITY_TYPE, ENTITY_ID, "Cancelled before it ran: no URLs are left."):
        # It runs when there are URLs again.
        await want_again(connection)
    await connection.execute(update(SitemapPingRow).values(urls=null() if urls is None else urls))
