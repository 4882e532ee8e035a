"""The pending tick of a schedule: set, replaced and dropped. Each change moves the generation."""

from datetime import datetime

from msgspec.structs import replace

from app.domain.schedules import Reason, ScheduledJob, Status, moved


def with_tick(job: ScheduledJob, slot: datetime) -> ScheduledJob:
    """Plan the first attempt at ``slot`` of the cadence."""
    return replace(
        job, next_slot=slot, next_run_at=slot, next_attempt=0, cadence_slot=slot, generation=job.generation + 1
    )


def with_retry(job: ScheduledJob, slot: datetime, attempt: int, due: datetime) -> ScheduledJob:
    """Replace the pending tick by another attempt at ``slot``; the cadence waits where it is."""
    return replace(job, next_slot=slot, next_run_at=due, next_attempt=attempt, generation=job.generation + 1)


def without_tick(job: ScheduledJob) -> ScheduledJob:
    """Drop the pending tick, a retry too; no further slot is expected."""
    return replace(
        job, next_slot=None, next_run_at=None, next_attempt=0, cadence_slot=None, generation=job.generation + 1
    )


def finished(job: ScheduledJob, reason: Reason) -> ScheduledJob:
    """The schedule has nothing left to do."""
    return moved(without_tick(job), Status.DONE, reason)


def planned(job: ScheduledJob, slot: datetime | None, active_runs: int) -> ScheduledJob:
    """Plan ``slot`` next, unless the runs under way use up the repeats or the cadence has ended.

    With runs under way, an ended schedule stays active until the last of them settles.
    """
    if not job.expects_more(active_runs):
        return without_tick(job)
    if slot is not None:
        return with_tick(job, slot)
    return without_tick(job) if active_runs else finished(job, Reason.END_REACHED)


def resumed_cadence(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Go on with the first slot after now; a pending retry is dropped, and a schedule at its limit is done."""
    if job.limit_reached:
        return finished(job, Reason.REPEAT_LIMIT)
    return planned(job, job.cadence.first_after(now), active_runs)


def anchored(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Count the slots anew: from ``start_at`` if that is to come, else one interval from now."""
    first = job.start_at if job.start_at is not None and job.start_at > now else now + job.cadence.interval
    return replace(job, anchor_at=first)


def anchored_at_start(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Count the slots from ``start_at`` where there is one, be it past: its phase is what was asked for."""
    return anchored(job, now) if job.start_at is None else replace(job, anchor_at=job.start_at)
