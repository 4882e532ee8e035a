"""Series whose next part is published at times of their own."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.plugin import ScheduledJobConfig
from carillon_cms.content import PUBLISH

DUE = text(
    "SELECT * FROM cms_series WHERE active AND next_at <= :until ORDER BY next_at, id LIMIT :limit OFFSET :offset "
    "FOR UPDATE SKIP LOCKED"
)
WRITTEN = text("UPDATE cms_series SET last_at = :last, next_at = :next, error = :error WHERE id = :id")


class SeriesScheduler:
    """Finds the series that are due."""

    entity_type = "cms.series"

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> list[ScheduledJobConfig]:
        """The earliest first."""
        del now
        rows = await session.execute(DUE, {"until": until, "limit": limit, "offset": offset})
        return [
            ScheduledJobConfig(
                id=f"series-{row.id}",
                entity_id=str(row.id),
                entity_type=self.entity_type,
                job_type=PUBLISH.name,
                job_data={"content_id": row.content_id},
                next_execution_time=row.next_at,
                last_execution_time=row.last_at,
                cron_expression=row.cron,
                interval_minutes=row.minutes,
                timezone=row.timezone,
            )
            for row in rows
        ]

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Last and next times, and errors."""
        for job in jobs:
            times = {"last": job.last_execution_time, "next": job.next_execution_time}
            await session.execute(WRITTEN, {**times, "error": job.error, "id": int(job.entity_id)})
