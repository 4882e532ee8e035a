"""What people do to a schedule: create, edit, pause, resume, revive."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from app.domain.declarations import same
from app.domain.errors import FieldError, InvalidError, WrongStateError
from app.domain.limits import DEFAULT_CAPS, Caps
from app.domain.planning import (
    finished,
    one_shot_has_outcome,
    paused_as_invalid,
    planned,
    stopped,
    with_anchor,
    with_first_slot,
    with_start_anchor,
    with_tick,
)
from app.domain.schedules import Reason, ScheduledJob, Status, with_status
from app.domain.specs import KINDS, require_kind

# A change to one of these counts the slots from a new anchor.
PHASE_FIELDS = frozenset({*KINDS, "start_at"})
# A change to one of these changes the cadence as well, but keeps the anchor: slots that remain do not move.
CADENCE_FIELDS = PHASE_FIELDS | {"timezone", "only_between", "not_on", "exclude_calendars", "only_calendars"}
# The fields that can finish a schedule, or make a finished one active again.
LIMITS = frozenset({"total_repeats", "end_at", "at", "after", "rrule"})


def created(draft: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return a new schedule with its first slot planned; one that ends before its first slot is done at once."""
    anchored = with_start_anchor(draft, now)
    # One that awaits review begins as paused.
    return with_first_slot(anchored, 0, now) if draft.status is Status.ACTIVE else anchored


def paused(job: ScheduledJob) -> ScheduledJob:
    """Return the schedule without a pending tick or retry; its counters stay."""
    _require(job, Status.ACTIVE, "pause")
    return stopped(job, Status.PAUSED, Reason.MANUAL)


def paused_until(job: ScheduledJob, until: datetime | None, now: datetime) -> ScheduledJob:
    """Return the schedule paused until a time, or until it is resumed. A pause that lasts gets another end, or none."""
    if until is not None and until <= now:
        raise InvalidError(FieldError("until", "The time is past. Choose a later one."))
    may_move = job.status is Status.PAUSED and job.status_reason is Reason.MANUAL
    if may_move and (until is not None or job.paused_until is not None):
        return job if job.paused_until == until else replace(job, paused_until=until)
    return replace(paused(job), paused_until=until)


def returned(job: ScheduledJob, active_runs: int) -> ScheduledJob:
    """Return the schedule as the end of its pause leaves it, with the first slot from that time on as its tick.

    Slots that have passed since are due: ``catch_up`` decides about them. A cron time at the very end of the pause
    lies outside of it, and so does one of a rule. A spec that has become invalid keeps the schedule paused.
    """
    if job.paused_until is None:
        raise AssertionError(f"the pause of schedule {job.id} has no end")
    if job.spec.problem:
        error = f"The spec is no longer valid: {job.spec.problem}"
        invalid = replace(job, status_reason=Reason.INVALID_SPEC, paused_until=None)
        return replace(invalid, last_error=error, last_error_at=job.paused_until)
    has_wall_times = job.cron is not None or job.rrule is not None
    since = job.paused_until - timedelta.resolution if has_wall_times else job.paused_until
    return resumed(job, active_runs, since)


def resumed(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return the paused schedule as active, with a new slot; the retry count is kept."""
    _require(job, Status.PAUSED, "resume")
    _require_lease(job, now, "resume")
    if job.spec.problem:
        raise WrongStateError(f"Cannot resume a job whose spec is not valid: {job.spec.problem}")
    active = with_status(job, Status.ACTIVE, Reason.NONE)
    if job.status_reason is Reason.INVALID_SPEC:
        active = replace(active, last_error="", last_error_at=None)
    fresh = active if job.is_one_shot and one_shot_has_outcome(job) else with_anchor(active, now)
    return with_first_slot(fresh, active_runs, now)


def revived(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return the dead schedule as active, with all its retries; a one-shot whose time has passed fires now."""
    _require(job, Status.DEAD, "revive")
    _require_lease(job, now, "revive")
    alive = with_anchor(replace(with_status(job, Status.ACTIVE, Reason.NONE), current_retry=0, dead_at=None), now)
    if alive.is_one_shot and not alive.spec.problem:
        alive = replace(alive, anchor_at=alive.spec.opening(max(alive.anchor_at, now)) or now)
    return with_first_slot(alive, active_runs, now)


def edited(
    job: ScheduledJob, changes: dict[str, Any], active_runs: int, now: datetime, caps: Caps = DEFAULT_CAPS
) -> ScheduledJob:
    """Return the schedule with new values; equal values change nothing. An edit never fires slots of the past."""
    changes = {name: value for name, value in changes.items() if not same(getattr(job, name), value)}
    if not changes:
        return job
    changed = _reanchored(replace(job, **changes), changes, now)
    if job.lease_ends_at is not None and (changed.end_at is None or changed.end_at > job.lease_ends_at):
        changed = replace(changed, end_at=job.lease_ends_at)
    _require_sound(changed, changes, now, caps)
    if job.status is Status.DEAD:
        return changed
    if job.status is Status.DONE:
        return _armed_again(changed, changes, active_runs, now)
    if changed.limit_reached:
        return finished(changed, Reason.REPEAT_LIMIT)
    if job.status is Status.PAUSED:
        repaired = job.status_reason is Reason.INVALID_SPEC and not changed.spec.problem
        return resumed(changed, active_runs, now) if repaired else changed
    return paused_as_invalid(changed, now) if changed.spec.problem else _replanned(changed, changes, active_runs, now)


def with_new_calendars(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return a schedule after its calendars were replaced by others, with a pending tick that fits them.

    A retry stays: it belongs to a slot that was expected. A schedule that had no slot left goes on if it has one now.
    """
    if job.status is Status.PAUSED:
        repaired = job.status_reason is Reason.INVALID_SPEC and not job.spec.problem
        return resumed(job, active_runs, now) if repaired else job
    if job.status is Status.DONE and job.status_reason in {Reason.END_REACHED, Reason.EXHAUSTED}:
        return _goes_on(job, active_runs, now)
    return _replanned_by_calendars(job, active_runs, now) if job.status is Status.ACTIVE else job


def _replanned_by_calendars(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    if job.spec.problem:
        return paused_as_invalid(job, now)
    if job.next_attempt:
        return job if job.cadence_slot is None else replace(job, cadence_slot=job.cadence.first_after(now))
    if job.next_slot is not None and job.next_slot <= now and job.spec.calendars.allows(job.next_slot):
        # It is due: it fires, and plans the slot after it.
        return job
    planned_anew = with_first_slot(job, active_runs, now)
    same = (planned_anew.next_slot, planned_anew.next_run_at) == (job.next_slot, job.next_run_at)
    return job if same and planned_anew.status is Status.ACTIVE else planned_anew


def _goes_on(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
    """Return a finished schedule as active if it has another slot, else as it is."""
    if job.spec.problem or job.limit_reached or (job.is_one_shot and one_shot_has_outcome(job)):
        return job
    armed = with_first_slot(with_status(job, Status.ACTIVE, Reason.NONE), active_runs, now)
    return armed if armed.next_slot is not None else job


def problems(job: ScheduledJob, now: datetime) -> list[FieldError]:
    """Return why a schedule cannot begin now: its time has passed, or it has no slots at all."""
    if job.spec.problem:
        return [_spec_error(job)]
    if job.at is not None:
        return _problems_of_moment(job, job.at, now) or _never(job, now)
    return _never(job, now)


def _spec_error(job: ScheduledJob) -> FieldError:
    """Return the error of a spec that is not valid, at the field that is to blame."""
    if not job.calendars.problem:
        return FieldError(job.kind, job.spec.problem)
    bad = [calendar.name for calendar in (*job.calendars.excluded, *job.calendars.only) if calendar.problem]
    name = next(iter((*job.calendars.missing, *bad)))
    field = "exclude_calendars" if name in job.exclude_calendars else "only_calendars"
    return FieldError(field, job.calendars.problem)


def require_calendars(job: ScheduledJob) -> None:
    """Refuse a schedule that names a calendar which it cannot use."""
    if job.calendars.problem:
        raise InvalidError(_spec_error(job))


def _problems_of_moment(job: ScheduledJob, at: datetime, now: datetime) -> list[FieldError]:
    if at < now - timedelta(seconds=job.misfire_grace_seconds):
        return [FieldError("at", "The time is past by more than `misfire_grace_seconds`. Choose a later one.")]
    if job.start_at is not None and at < job.start_at:
        return [FieldError("at", "The time is before `start_at`. Choose a later one.")]
    if one_shot_has_outcome(job):
        return [FieldError("at", "A slot at or after this time has its outcome already. Choose a later time.")]
    return []


def _never(job: ScheduledJob, now: datetime) -> list[FieldError]:
    """Return an error if the spec has no slot at all, whatever ``end_at`` says."""
    if job.is_one_shot:
        comes = job.spec.allows(job.anchor_at)
    else:
        # The anchor itself may be the only slot, such as that of a rule with COUNT=1 that starts later.
        comes = replace(job, end_at=None).cadence.first_after(now) is not None
    if comes:
        return []
    restrictions = ("only_between", "not_on", "exclude_calendars", "only_calendars")
    field = next((name for name in restrictions if getattr(job, name)), job.kind)
    return [FieldError(field, "The spec has no slot: every time that it names is excluded or does not exist.")]


def _require_sound(job: ScheduledJob, changes: dict[str, Any], now: datetime, caps: Caps) -> None:
    """Refuse an edit whose result is not valid. Fields that it does not change are not checked again."""
    require_kind({name: getattr(job, name) for name in KINDS})
    errors = caps.errors(changes)
    if {"start_at", "end_at"} & changes.keys() and job.start_at and job.end_at and job.end_at < job.start_at:
        errors.append(FieldError("end_at", "The end must not be before start_at."))
    if PHASE_FIELDS & changes.keys():
        errors += problems(job, now)
    elif CADENCE_FIELDS & changes.keys() and not (job.is_one_shot and one_shot_has_outcome(job)):
        errors += [_spec_error(job)] if job.spec.problem else _never(job, now)
    if errors:
        raise InvalidError(*errors)


def _replanned(job: ScheduledJob, changes: dict[str, Any], active_runs: int, now: datetime) -> ScheduledJob:
    """Return an active schedule after an edit, with a pending tick that fits its cadence and its limits."""
    if CADENCE_FIELDS & changes.keys() or job.next_run_at is None:
        return with_first_slot(job, active_runs, now)
    is_last_retry = job.lease_id is not None and job.next_attempt
    if not job.expects_more(active_runs) and not is_last_retry:
        return planned(job, None, active_runs)
    if job.end_at is not None and job.next_run_at > job.end_at and (job.next_attempt or _past_end(job)):
        return planned(job, None, active_runs)
    if job.cadence_slot is None and LIMITS & changes.keys():
        # The retry of what was the last repeat is pending; now there are further slots, which wait for it.
        return replace(job, cadence_slot=job.cadence.first_after(now))
    # The jitter of the last slot before the end has no next slot that bounds it.
    has_other_jitter = "jitter_seconds" in changes or (job.jitter_seconds and "end_at" in changes)
    if has_other_jitter and not job.next_attempt and job.next_slot is not None:
        return with_tick(job, job.next_slot)
    return job


def _past_end(job: ScheduledJob) -> bool:
    """Return whether the pending slot itself, without its jitter, lies after the end."""
    return job.end_at is not None and job.next_slot is not None and job.next_slot > job.end_at


def _reanchored(job: ScheduledJob, changes: dict[str, Any], now: datetime) -> ScheduledJob:
    if "start_at" in changes:
        return with_start_anchor(job, now)
    return with_anchor(job, now) if PHASE_FIELDS & changes.keys() else job


def _armed_again(job: ScheduledJob, changes: dict[str, Any], active_runs: int, now: datetime) -> ScheduledJob:
    """Return a finished schedule as active if an edit of its limits leaves it something to do."""
    if not LIMITS & changes.keys() or job.limit_reached or job.spec.problem:
        return job
    fresh = job if job.is_one_shot else with_anchor(job, now)
    armed = with_first_slot(with_status(fresh, Status.ACTIVE, Reason.NONE), active_runs, now)
    return armed if armed.status is Status.ACTIVE else job


def _require_lease(job: ScheduledJob, now: datetime, verb: str) -> None:
    """Refuse to let a schedule go on whose lease has ended."""
    if job.lease_ends_at is not None and job.lease_ends_at <= now:
        raise WrongStateError(
            f"Cannot {verb} job: its lease {job.lease_id} has ended. Extend the lease, or adopt the schedule "
            f"(POST /api/v1/leases/{job.lease_id}/adopt/)."
        )


def _require(job: ScheduledJob, status: Status, verb: str) -> None:
    if job.status is not status:
        raise WrongStateError(f"Cannot {verb} job with status '{job.status}'.")
