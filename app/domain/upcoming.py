"""The coming fires of schedules: the slots that are expected between two moments, each with its due time."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from app.domain.planning import due_time
from app.domain.schedule_lifecycle import returned
from app.domain.schedules import ScheduledJob, Status
from app.domain.skips import is_slot

NO_SKIPS: frozenset[datetime] = frozenset()


class Fire(msgspec.Struct, frozen=True, order=True):
    """A slot that is expected to fire: when it is due, and the slot itself, which differs by the jitter."""

    at: datetime
    slot: datetime


class ComingFire(msgspec.Struct, frozen=True):
    """A fire of one of several schedules."""

    job: ScheduledJob
    fire: Fire


def coming_fires(
    job: ScheduledJob,
    active_runs: int,
    since: datetime,
    until: datetime,
    skipped: Collection[datetime] = NO_SKIPS,
) -> Iterator[Fire]:
    """Yield the fires that are due from ``since`` on and before ``until``, in their order.

    ``active_runs`` are those that may still count as repeats. A schedule whose pause ends by itself fires after it.
    ``skipped`` are the slots that people asked to leave out: they do not fire, and take no repeat.
    """
    if job.paused_until is not None:
        job = returned(job, active_runs)
    for slot in _expected_from(job, active_runs, since, skipped):
        at = due_time(job, slot)
        if at >= until:
            return
        if at >= since:
            yield Fire(at, slot)


def _expected_from(
    job: ScheduledJob, active_runs: int, since: datetime, skipped: Collection[datetime]
) -> Iterator[datetime]:
    """Yield the expected slots from the last one on that may be due at or after a moment."""
    slot = job.cadence_slot
    if job.status is not Status.ACTIVE or job.spec_problem or slot is None:
        return
    cadence = job.cadence
    left = job.total_repeats - job.current_repeat - active_runs if job.is_limited else None
    # A slot is due before the next one comes: no earlier slot than the last one up to the moment can be due after it.
    latest = cadence.latest_at(since)
    if latest is not None and latest > slot:
        if left is not None:
            passed = cadence.count(slot, latest) - 1
            left -= passed - sum(slot <= moment < latest and is_slot(job, moment) for moment in skipped)
        slot = latest
    following: datetime | None = slot
    if job.next_attempt and job.next_run_at is not None and slot <= job.next_run_at:
        # A pending retry holds the cadence: the slots up to it are skipped.
        following = cadence.first_after(job.next_run_at)
    while following is not None and (left is None or left > 0):
        if following not in skipped:
            yield following
            left = None if left is None else left - 1
        following = cadence.first_after(following)


def merged_fires(
    jobs: Iterable[ScheduledJob],
    active_runs: Mapping[UUID, int],
    since: datetime,
    until: datetime,
    is_enough: Callable[[], bool] = lambda: False,
    skipped: Mapping[UUID, Collection[datetime]] | None = None,
) -> Iterator[ComingFire]:
    """Yield the fires of several schedules in the order of their due times, those of one moment by schedule.

    ``skipped`` are the slots of some schedules that do not fire. A schedule is left out if ``is_enough`` returns true
    before its first fire is known.
    """
    heap: list[tuple[Fire, int, ScheduledJob, Iterator[Fire]]] = []
    skipped = skipped or {}
    for job in jobs:
        if heap and is_enough():
            break
        fires = coming_fires(job, active_runs.get(job.id, 0), since, until, skipped.get(job.id, NO_SKIPS))
        _push(heap, job, fires)
    while heap:
        fire, _, job, fires = heapq.heappop(heap)
        yield ComingFire(job, fire)
        _push(heap, job, fires)


def _push(heap: list[tuple[Fire, int, ScheduledJob, Iterator[Fire]]], job: ScheduledJob, fires: Iterator[Fire]) -> None:
    fire = next(fires, None)
    if fire is not None:
        heapq.heappush(heap, (fire, job.id.int, job, fires))
