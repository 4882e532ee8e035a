"""Entities: rows of other tables that fire by their own times. When they run next, and when a failed run is retried."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from app.domain.backoff import DEFAULT_BACKOFF
from app.domain.errors import InvalidError
from app.domain.executions import FAILURES, Entity, EntityWork, ExecutionStatus
from app.domain.settle import is_poison
from app.domain.specs import Spec, canonical

ONE_KIND = "At most one of a cron expression and an interval in minutes may be given."
NO_KIND = "A cron expression or an interval in minutes is needed."

UTC = "UTC"
_INT_MAX = 2**31 - 1

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class ScheduledJobConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A job of an entity: what to run, and when.

    ``job_type`` names an action of the catalog and ``job_data`` is its configuration. Without ``user_profile_id`` it
    runs on behalf of the plugin that provides the entity scheduler. ``timezone`` None is UTC, ``active`` None is True.
    Without ``cron_expression`` and ``interval_minutes`` it runs once. ``error`` says why no further run can be planned.
    """

    id: str
    entity_id: str
    entity_type: str
    job_type: str
    job_data: dict[str, Any] = msgspec.field(default_factory=dict)
    next_execution_time: _Moment | None
    last_execution_time: datetime | None = None
    cron_expression: str | None = None
    interval_minutes: int | None = None
    timezone: str | None = UTC
    active: bool | None = True
    name: str = ""
    user_profile_id: int | None = None
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=_INT_MAX)] = 600
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=_INT_MAX)] = 3
    error: str = ""

    @property
    def is_one_off(self) -> bool:
        """Return whether the job has no times after the due one."""
        return self.cron_expression is None and self.interval_minutes is None

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


class Planned(msgspec.Struct, frozen=True):
    """A due job as it is stored after planning, and whether its due time is run."""

    job: ScheduledJobConfig
    runs: bool


def is_due(job: ScheduledJobConfig, until: datetime) -> bool:
    """Return whether a job is due at ``until``. One with a wrong value counts as due, so that its error is stored."""
    if wrong_value(job):
        return True
    return job.active is not False and job.next_execution_time is not None and job.next_execution_time <= until


def planned(job: ScheduledJobConfig, now: datetime) -> Planned:
    """Return a due job with the next time that lies in the future, and without one if it is a one-off.

    Intervals keep their phase, and times that have passed meanwhile are not caught up. If no time can be planned, there
    is none, and ``error`` says why. A job that is written wrongly is not run either. One whose timezone is unknown is:
    its due time was planned while the timezone was known, and timezones vanish without an edit.
    """
    slot = job.next_execution_time
    mistake = _mistake(job)
    if mistake or slot is None:
        return Planned(stopped(job, mistake or "A job needs a time."), runs=False)
    try:
        upcoming = None if job.is_one_off else first_time(job, anchor=slot, after=max(slot, now))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one job must not stop the others
        reason = str(error) or type(error).__name__
        return Planned(replace(stopped(job, reason), last_execution_time=slot), runs=True)
    return Planned(replace(job, last_execution_time=slot, next_execution_time=upcoming, error=""), runs=True)


def stopped(job: ScheduledJobConfig, error: str) -> ScheduledJobConfig:
    """Return a job without a next time, with the reason."""
    return replace(job, next_execution_time=None, error=error)


def planned_anew(job: ScheduledJobConfig, now: datetime) -> ScheduledJobConfig | None:
    """Return a stopped job with its next time, or None if it still has none."""
    if _mistake(job) or job.is_one_off:
        return None
    try:
        upcoming = first_time(job, anchor=job.last_execution_time or now, after=now)
    except Exception:  # noqa: BLE001 - as in ``planned``
        return None
    return replace(job, next_execution_time=upcoming, error="")


def wrong_value(job: ScheduledJobConfig) -> str:
    """Return which field has a value of a wrong type or out of range, or an empty string.

    Constructing a struct checks no types, and plugins take values from tables of any kind.
    """
    values = {name: _plain_time(value) for name, value in msgspec.structs.asdict(job).items()}
    try:
        msgspec.convert(values, ScheduledJobConfig, builtin_types=(datetime,))
    except msgspec.ValidationError as error:
        return f"{error}.".replace("`$.", "`")
    try:
        msgspec.json.encode(job.job_data)
    except (TypeError, ValueError) as error:
        return f"`job_data` cannot be written as JSON: {error}."
    return ""


def _plain_time(value: Any) -> Any:
    """Return a time of a subclass, as libraries for dates have them, as a plain one; other values as they are."""
    if not isinstance(value, datetime) or type(value) is datetime:
        return value
    return datetime.fromisoformat(value.isoformat())


def _mistake(job: ScheduledJobConfig) -> str:
    """Return what the author of the job has to correct, or an empty string; an unknown timezone is not among it."""
    wrong = wrong_value(job)
    if wrong:
        return wrong
    if job.cron_expression is not None and job.interval_minutes is not None:
        return ONE_KIND
    return _spec_error({name: value for name, value in _spec(job).items() if name != "timezone"})


def _spec(job: ScheduledJobConfig) -> dict[str, Any]:
    interval = None if job.interval_minutes is None else job.interval_minutes * 60
    timezone = UTC if job.timezone is None else job.timezone
    return {"interval_seconds": interval, "cron": job.cron_expression, "timezone": timezone}


def _spec_error(given: dict[str, Any]) -> str:
    try:
        canonical(given)
    except InvalidError as error:
        return " ".join(problem.message for problem in error.errors)
    return ""


def first_time(job: ScheduledJobConfig, anchor: datetime, after: datetime) -> datetime:
    """Return the first time after ``after``, intervals counted from ``anchor``; ``ValueError`` if there is none."""
    if job.is_one_off:
        raise ValueError(NO_KIND)
    given = _spec(job)
    error = _spec_error(given)
    if error:
        raise ValueError(error)
    upcoming = Spec(**canonical(given)).slots(anchor).next(after)
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
