"""The plan of an edit: what a change of a schedule would do to its coming fires, before it is made."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from app.domain.declarations import same
from app.domain.errors import PlanDiffersError
from app.domain.schedule_lifecycle import CADENCE_FIELDS
from app.domain.schedules import EDITABLE, ScheduledJob, Status
from app.domain.spec_preview import spec_warnings
from app.domain.trigger_event import rfc3339
from app.domain.upcoming import NO_SKIPS, Fire, coming_fires

# How long a plan can be referred to.
PLAN_LIFETIME = timedelta(minutes=10)
# How many fires are compared, before and after. A schedule that fires more often is compared for a shorter time.
MOST_FIRES = 2_000


class MovedFire(msgspec.Struct, frozen=True):
    """A fire that comes at another time than it would without the edit."""

    before: Fire
    after: Fire


class FireChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the fires that are due before ``until``."""

    until: datetime
    kept: int
    added: tuple[Fire, ...]
    removed: tuple[Fire, ...]
    moved: tuple[MovedFire, ...]

    @property
    def changed(self) -> int:
        """Return how many fires are not kept."""
        return len(self.added) + len(self.removed) + len(self.moved)


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit gives up beside single fires."""

    # How many of the repeats that ``total_repeats`` still allows will not come.
    repeats: int
    # Whether a pending retry is dropped.
    retry: bool
    # The days of the schedule's time zone that had fires and have none any more.
    days: tuple[date, ...]


class EditPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit would do."""

    # The changed fields, each with ``from`` and ``to``.
    changes: dict[str, Any]
    # Whether a fire is due at once.
    fires_now: bool
    status: tuple[Status, Status]
    next_run_at: tuple[datetime | None, datetime | None]
    fires: FireChanges
    lost: Losses
    warnings: tuple[str, ...]

    @property
    def changes_nothing(self) -> bool:
        """Return whether fields, state and fires stay as they are."""
        is_new = self.next_run_at[0] != self.next_run_at[1]
        return not (self.changes or self.fires.changed or self.status[0] is not self.status[1] or is_new)


class Horizon(msgspec.Struct, frozen=True):
    """What a plan looks at: the time from now on, until when, and how many fires at most."""

    now: datetime
    until: datetime
    most_fires: int = MOST_FIRES


def plan_edit(
    before: ScheduledJob,
    after: ScheduledJob,
    active_runs: int,
    horizon: Horizon,
    skipped: Collection[datetime] = NO_SKIPS,
) -> EditPlan:
    """Compare a schedule with what an edit now would make of it; ``skipped`` slots fire neither before nor after it."""
    now = horizon.now
    old, new = (_fires(job, active_runs, horizon, skipped) for job in (before, after))
    old, new, until = _until_both_are_known(old, new, horizon)
    lost = Losses(
        repeats=max(0, _repeats_left(before, active_runs) - _repeats_left(after, active_runs)),
        retry=before.next_attempt > 0 and after.next_attempt == 0,
        days=tuple(sorted({_day(after, fire) for fire in old} - {_day(after, fire) for fire in new})),
    )
    return EditPlan(
        changes=_changes(before, after),
        fires_now=_fires_now(after, now),
        status=(before.status, after.status),
        next_run_at=(before.next_run_at, after.next_run_at),
        fires=_compared(after, old, new, until),
        lost=lost,
        warnings=tuple(_warnings(before, after, lost, now)),
    )


def plan_creation(new: ScheduledJob, horizon: Horizon) -> EditPlan:
    """Return what the creation of a schedule would do: all its fires are added."""
    fires, _, until = _until_both_are_known(_fires(new, 0, horizon, NO_SKIPS), [], horizon)
    return EditPlan(
        changes={},
        fires_now=_fires_now(new, horizon.now),
        status=(new.status, new.status),
        next_run_at=(None, new.next_run_at),
        fires=FireChanges(until=until, kept=0, added=tuple(fires), removed=(), moved=()),
        lost=Losses(repeats=0, retry=False, days=()),
        warnings=tuple(_spec_warnings(new, horizon.now)),
    )


def _fires_now(after: ScheduledJob, now: datetime) -> bool:
    return after.status is Status.ACTIVE and after.next_run_at is not None and after.next_run_at <= now


def _compared(after: ScheduledJob, old: Sequence[Fire], new: Sequence[Fire], until: datetime) -> FireChanges:
    kept = set(old) & set(new)
    removed = [fire for fire in old if fire not in kept]
    added = [fire for fire in new if fire not in kept]
    moved = list(_moved(after, removed, added))
    gone, come = {pair.before for pair in moved}, {pair.after for pair in moved}
    return FireChanges(
        until=until,
        kept=len(kept),
        added=tuple(fire for fire in added if fire not in come),
        removed=tuple(fire for fire in removed if fire not in gone),
        moved=tuple(moved),
    )


def _fires(job: ScheduledJob, active_runs: int, horizon: Horizon, skipped: Collection[datetime]) -> list[Fire]:
    """Return the coming fires, one more than are compared if there are so many."""
    return list(islice(coming_fires(job, active_runs, horizon.now, horizon.until, skipped), horizon.most_fires + 1))


def _until_both_are_known(
    old: Sequence[Fire], new: Sequence[Fire], horizon: Horizon
) -> tuple[list[Fire], list[Fire], datetime]:
    """Return the fires without and with the edit, and until when; earlier if there are too many of one."""
    most = horizon.most_fires
    until = min([horizon.until, *(fires[most].at for fires in (old, new) if len(fires) > most)])
    return [fire for fire in old if fire.at < until], [fire for fire in new if fire.at < until], until


def _moved(job: ScheduledJob, removed: Sequence[Fire], added: Sequence[Fire]) -> Iterator[MovedFire]:
    """Yield the fires that move.

    The same slot with another jitter has moved. On days on which as many fires vanish as appear, each has moved to the
    next in their order; otherwise nobody could say which went where.
    """
    slots = {fire.slot: fire for fire in added}
    same_slot = [MovedFire(fire, slots[fire.slot]) for fire in removed if fire.slot in slots]
    yield from same_slot
    gone, come = {pair.before for pair in same_slot}, {pair.after for pair in same_slot}
    by_day: dict[date, tuple[list[Fire], list[Fire]]] = defaultdict(lambda: ([], []))
    for side, fires, known in ((0, removed, gone), (1, added, come)):
        for fire in fires:
            if fire not in known:
                by_day[_day(job, fire)][side].append(fire)
    for old, new in by_day.values():
        if len(old) == len(new):
            yield from map(MovedFire, old, new)


def _day(job: ScheduledJob, fire: Fire) -> date:
    return job.spec.hours.zone.local(fire.slot).date()


def _repeats_left(job: ScheduledJob, active_runs: int) -> int:
    """Return how many repeats ``total_repeats`` still allows; 0 without a limit."""
    if not job.is_limited or job.status in {Status.DONE, Status.DEAD}:
        return 0
    return max(0, job.total_repeats - job.current_repeat - active_runs)


def _changes(before: ScheduledJob, after: ScheduledJob) -> dict[str, Any]:
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in EDITABLE)
    return {name: {"from": old, "to": new} for name, old, new in pairs if not same(old, new)}


def _warnings(before: ScheduledJob, after: ScheduledJob, lost: Losses, now: datetime) -> Iterator[str]:
    if lost.retry and before.next_slot is not None:
        yield f"The pending retry of the slot {rfc3339(before.next_slot)} is dropped."
    if before.status is not after.status:
        yield f"The schedule becomes {after.status}{f' ({after.status_reason})' if after.status_reason else ''}."
    elif after.status is not Status.ACTIVE:
        yield f"The schedule is {after.status}: nothing fires."
    is_overdue = before.next_run_at is not None and before.next_run_at <= now
    if is_overdue and before.next_slot is not None and after.next_slot != before.next_slot:
        yield f"The slot {rfc3339(before.next_slot)} is overdue. It does not fire after the edit."
    if any(not same(getattr(before, name), getattr(after, name)) for name in (*CADENCE_FIELDS, "end_at")):
        yield from _spec_warnings(after, now)


def _spec_warnings(job: ScheduledJob, now: datetime) -> Iterable[str]:
    return spec_warnings(
        job.spec,
        anchor=job.anchor_at,
        start_at=job.start_at,
        end_at=job.end_at,
        timeout_seconds=job.timeout_seconds,
        now=now,
    )


def change_digests(job: ScheduledJob, values: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each new value that differs from the schedule's own, by which two edits are compared."""
    differing = {name: value for name, value in values.items() if not same(getattr(job, name), value)}
    return {name: _digest(value) for name, value in differing.items()}


def _digest(value: Any) -> str:
    value = value.astimezone(UTC) if isinstance(value, datetime) else value
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]


def require_planned(planned: Mapping[str, str], asked: Mapping[str, str]) -> None:
    """Refuse an edit that is not the planned one, by the digests of both; the error names the fields."""
    names = sorted(name for name in {*planned, *asked} if planned.get(name) != asked.get(name))
    if names:
        raise PlanDiffersError(*names)
