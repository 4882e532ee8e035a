"""What people do to a schedule: create, edit, pause, resume, revive."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.domain.errors import WrongStateError
from app.domain.planning import (
    anchored,
    anchored_at_start,
    finished,
    planned,
    resumed_cadence,
    without_tick,
)
from app.domain.schedules import Reason, ScheduledJob, Status, moved

# A change to one of these is a new cadence.
CADENCE_FIELDS = frozenset({"interval_seconds", "start_at"})
# What can finish a schedule, and arm it again.
LIMITS = frozenset({"total_repeats", "end_at"})


def created(draft: ScheduledJob, now: datetime) -> ScheduledJob:
    """A new schedule with its first slot planned; one that ends before it begins is done at once."""
    return resumed_cadence(anchored_at_start(draft, now), 0, now)


def paused(job: ScheduledJob) -> ScheduledJob:
    """Nothing is pending any more, a retry neither; the counters stay."""
    _require(job, Status.ACTIVE, "pause")
    return moved(without_tick(job), Status.PAUSED, Reason.MANUAL)


def resumed(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Active again with a fresh slot, one interval from now; the retry count is kept."""
    _require(job, Status.PAUSED, "resume")
    return resumed_cadence(anchored(moved(job, Status.ACTIVE, Reason.NONE), now), active_runs, now)


def revived(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """A dead schedule starts again with all its retries."""
    _require(job, Status.DEAD, "revive")
    alive = replace(moved(job, Status.ACTIVE, Reason.NONE), current_retry=0, dead_at=None)
    return resumed_cadence(anchored(alive, now), active_runs, now)


def edited(job: ScheduledJob, changes: dict[str, Any], active_runs: int, now: datetime) -> ScheduledJob:
    """The schedule with new values. Values that are the same change nothing; edits never fire retroactively."""
    real = {name: value for name, value in changes.items() if getattr(job, name) != value}
    if not real:
        return job
    changed = _reanchored(replace(job, **real), real, now)
    if job.status is Status.DEAD:
        return changed
    if job.status is Status.DONE:
        return _armed_again(changed, real, active_runs, now)
    if changed.limit_reached:
        return finished(changed, Reason.REPEAT_LIMIT)
    if job.status is Status.PAUSED:
        return changed
    return _replanned(changed, real, active_runs, now)


def _replanned(job: ScheduledJob, changes: dict[str, Any], active_runs: int, now: datetime) -> ScheduledJob:
    """An active schedule after an edit: its pending tick again fits its cadence and its limits."""
    if CADENCE_FIELDS & changes.keys():
        return resumed_cadence(job, active_runs, now)
    if job.next_run_at is None:
        return resumed_cadence(job, active_runs, now)
    if not job.expects_more(active_runs):
        return without_tick(job)
    if job.end_at is not None and job.next_run_at > job.end_at:
        return planned(job, None, active_runs)
    if job.cadence_slot is None and LIMITS & changes.keys():
        # The retry of what was the last repeat is pending; now there are slots for it to hold up.
        return replace(job, cadence_slot=job.cadence.first_after(now))
    return job


def _reanchored(job: ScheduledJob, changes: dict[str, Any], now: datetime) -> ScheduledJob:
    if "start_at" in changes:
        return anchored_at_start(job, now)
    return anchored(job, now) if CADENCE_FIELDS & changes.keys() else job


def _armed_again(job: ScheduledJob, changes: dict[str, Any], active_runs: int, now: datetime) -> ScheduledJob:
    """A finished schedule goes on if an edit of its limits leaves it something to do."""
    if not LIMITS & changes.keys() or job.limit_reached or anchored(job, now).cadence.first_after(now) is None:
        return job
    return resumed_cadence(anchored(moved(job, Status.ACTIVE, Reason.NONE), now), active_runs, now)


def _require(job: ScheduledJob, status: Status, verb: str) -> None:
    if job.status is not status:
        raise WrongStateError(f"Cannot {verb} job with status '{job.status}'.")
