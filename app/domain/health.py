"""Health: how a schedule does, from what became of its slots."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.specs import is_duration

# A tick that is overdue for longer makes its schedule late.
LATE_AFTER = timedelta(seconds=5)
# A schedule that has been late for so many intervals, but at least so long, is silent.
SILENT_INTERVALS = 3
SILENT_AFTER = timedelta(seconds=30)


class Health(StrEnum):
    """The words for a schedule's health."""

    HEALTHY = "healthy"
    # Its tick is overdue.
    LATE = "late"
    # Its last run that ended did not succeed.
    FAILING = "failing"
    # Its tick is overdue for so long that nothing seems to fire it.
    SILENT = "silent"
    NEVER_RAN = "never_ran"
    PAUSED = "paused"
    DEAD = "dead"
    # Paused by Carillon: its spec is not valid any more.
    INVALID = "invalid"
    DONE = "done"


class HealthFacts(msgspec.Struct, frozen=True):
    """What the health of a schedule depends on beside the time."""

    # What it is unless its tick is overdue.
    usual: Health
    # None if no tick is pending.
    due_at: datetime | None
    silent_at: datetime | None

    def at(self, now: datetime) -> Health:
        """Return the health at a moment."""
        if self.due_at is None or self.silent_at is None or now - self.due_at <= LATE_AFTER:
            return self.usual
        return Health.SILENT if now >= self.silent_at else Health.LATE


_BY_STATUS = {Status.PAUSED: Health.PAUSED, Status.DONE: Health.DONE, Status.DEAD: Health.DEAD}


def health_facts(job: ScheduledJob) -> HealthFacts:
    """Return what a schedule's health depends on beside the time."""
    if job.status_reason is Reason.INVALID_SPEC:
        return HealthFacts(Health.INVALID, None, None)
    if job.status is not Status.ACTIVE:
        return HealthFacts(_BY_STATUS.get(job.status, Health.PAUSED), None, None)
    due_at = job.next_run_at
    return HealthFacts(_usual(job), due_at, None if due_at is None else due_at + _patience(job))


def health_of(job: ScheduledJob, now: datetime) -> Health:
    """Return the health of a schedule at a moment."""
    return health_facts(job).at(now)


def is_failing(job: ScheduledJob) -> bool:
    """Return whether the last run of a schedule that ended did not succeed."""
    failed, succeeded = job.last_error_at, job.last_success_at
    return failed is not None and (succeeded is None or failed > succeeded)


def _usual(job: ScheduledJob) -> Health:
    if is_failing(job):
        return Health.FAILING
    return Health.NEVER_RAN if job.last_attempt_at is None else Health.HEALTHY


def _patience(job: ScheduledJob) -> timedelta:
    """Return for how long a tick is overdue before its schedule is silent."""
    return max(SILENT_AFTER, SILENT_INTERVALS * _interval(job))


def _interval(job: ScheduledJob) -> timedelta:
    """Return the time between the pending slot and the next one; zero if there is none, or it cannot be found."""
    if job.next_slot is None:
        return timedelta()
    if job.interval_seconds is not None and is_duration(job.interval_seconds):
        return timedelta(seconds=job.interval_seconds)
    if job.spec.problem:
        return timedelta()
    following = job.cadence.first_after(job.next_slot)
    return timedelta() if following is None else following - job.next_slot
