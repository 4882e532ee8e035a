"""Entities: rows of other tables that fire by their own times. When they run next, and when a failed run is retried."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain.backoff import DEFAULT_BACKOFF
from app.domain.errors import InvalidError
from app.domain.executions import FAILURES, Entity, EntityWork, ExecutionStatus
from app.domain.settle import is_poison
from app.domain.specs import Spec, canonical

ONE_KIND = "Exactly one of a cron expression and an interval in minutes is needed."


class ScheduledJobConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A job of an entity: what to run, and when.

    ``job_type`` names an action of the catalog and ``job_data`` is its configuration. Without ``user_profile_id`` it
    runs on behalf of the plugin that provides the entity scheduler. ``error`` says why no further run can be planned.
    """

    id: str
    entity_id: str
    entity_type: str
    job_type: str
    job_data: dict[str, Any] = msgspec.field(default_factory=dict)
    next_execution_time: datetime | None
    last_execution_time: datetime | None = None
    cron_expression: str | None = None
    interval_minutes: int | None = None
    timezone: str = "UTC"
    active: bool = True
    name: str = ""
    user_profile_id: int | None = None
    timeout_seconds: int = 600
    max_retries: int = 3
    error: str = ""

    @property
    def entity(self) -> Entity:
        """Return the entity as its executions carry it."""
        work = EntityWork(
            name=self.name or f"{self.entity_type} {self.entity_id}",
            action=self.job_type,
            config=self.job_data,
            max_retries=self.max_retries,
        )
        return Entity(self.entity_type, self.entity_id, work)


def with_next_time(job: ScheduledJobConfig, now: datetime) -> ScheduledJobConfig:
    """Return the job after its due run, with the next time that lies in the future.

    Intervals keep their phase, and times that have passed meanwhile are not caught up. If no time can be planned, there
    is none, and ``error`` says why.
    """
    slot = job.next_execution_time or now
    try:
        upcoming = first_time(job, anchor=slot, after=max(slot, now))
    except ValueError as error:
        return replace(job, next_execution_time=None, error=str(error))
    return replace(job, last_execution_time=slot, next_execution_time=upcoming, error="")


def first_time(job: ScheduledJobConfig, anchor: datetime, after: datetime) -> datetime:
    """Return the first time after ``after``, intervals counted from ``anchor``; ``ValueError`` if there is none."""
    if (job.cron_expression is None) == (job.interval_minutes is None):
        raise ValueError(ONE_KIND)
    interval = None if job.interval_minutes is None else job.interval_minutes * 60
    given = {"interval_seconds": interval, "cron": job.cron_expression, "timezone": job.timezone}
    try:
        upcoming = Spec(**canonical(given)).slots(anchor).next(after)
    except InvalidError as error:
        raise ValueError(" ".join(problem.message for problem in error.errors)) from None
    if upcoming is None:
        raise ValueError("The cron expression has no time in the future. Change it, or switch the job off.")
    return upcoming


def retry_at(
    entity: Entity, status: ExecutionStatus, attempt: int, now: datetime, times_lost: int = 0
) -> datetime | None:
    """Return when a run of an entity is retried, or None if it is not; ``attempt`` counts from 0."""
    if status not in FAILURES or attempt >= entity.work.max_retries or is_poison(times_lost):
        return None
    return now + DEFAULT_BACKOFF.delay(attempt + 1)
