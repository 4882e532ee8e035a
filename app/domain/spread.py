"""Spreading load: which schedules to move by some minutes, or to give a jitter, so that peaks become lower."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.forecasts import Buckets, fire_pattern
from app.domain.schedules import ScheduledJob
from app.domain.trigger_event import rfc3339
from app.domain.upcoming import coming_fires

# Buckets of a spread. Shifts are whole multiples of it.
MINUTE = timedelta(minutes=1)
# Schedules that fire more often are everywhere already.
SHORTEST_INTERVAL_SECONDS = 3600.0
_LAST_HOUR = 23
_MINUTES = 60


class Option(msgspec.Struct, frozen=True):
    """A way to change a schedule: the fields to set, and the buckets of its fires then."""

    # How far it moves, to compare options by.
    seconds: int
    fields: dict[str, Any]
    indices: tuple[int, ...]


class Movable(msgspec.Struct, frozen=True):
    """Schedules that fire in the same buckets: one that stands for them, and their ids."""

    job: ScheduledJob
    ids: tuple[UUID, ...]
    indices: tuple[int, ...]


class Move(msgspec.Struct, frozen=True):
    """A schedule to be changed, and how."""

    job_id: UUID
    option: Option


# Returns the ways to change one of the schedules of a group.
Options = Callable[[Movable, UUID], Sequence[Option]]


def spread(
    load: list[int], movables: Sequence[Movable], options: Options, most: int, *, alike: bool = True
) -> list[Move]:
    """Choose changes that lower the peak, until it cannot be lowered or there are ``most``. ``load`` is changed too.

    The schedules in the fullest bucket are moved one by one, each to where the fullest of its new buckets is as empty
    as possible. One that finds no better place is left alone from then on, and so are the others of its group if all of
    them are ``alike``: if they have the same options.
    """
    waiting = [(movable, iter(movable.ids)) for movable in movables]
    by_bucket: dict[int, list[int]] = {}
    for number, movable in enumerate(movables):
        for index in set(movable.indices):
            by_bucket.setdefault(index, []).append(number)
    moves: list[Move] = []
    while len(moves) < most:
        peak = max(range(len(load)), key=lambda bucket: load[bucket])
        numbers = by_bucket.get(peak, [])
        if not numbers:
            break
        movable, ids = waiting[numbers[-1]]
        job_id = next(ids, None)
        option = None if job_id is None else _best(load, peak, movable, options(movable, job_id))
        if job_id is None or option is None:
            if job_id is None or alike:
                numbers.pop()
            continue
        _apply(load, movable.indices, -1)
        _apply(load, option.indices, 1)
        moves.append(Move(job_id, option))
    return moves


def _best(load: list[int], peak: int, movable: Movable, options: Sequence[Option]) -> Option | None:
    """Return the option with the lowest load in its fullest bucket; None if none is below the peak."""
    _apply(load, movable.indices, -1)
    fullest = [max((load[index] for index in option.indices), default=0) + 1 for option in options]
    _apply(load, movable.indices, 1)
    choices = [
        (fires, option.seconds, number)
        for number, (fires, option) in enumerate(zip(fullest, options, strict=True))
        if fires < load[peak]
    ]
    return options[min(choices)[2]] if choices else None


def _apply(load: list[int], indices: Iterable[int], by: int) -> None:
    for index in indices:
        load[index] += by


def shift_options(job: ScheduledJob, max_shift: timedelta, buckets: Buckets) -> list[Option]:
    """Return the shifts of a schedule by whole minutes that keep every fire on its day, the smallest first."""
    fires = [fire.at for fire in coming_fires(job, 0, buckets.since, buckets.until)]
    found: list[Option] = []
    most = max_shift // MINUTE
    for minutes in sorted(range(-most, most + 1), key=abs):
        fields = shifted_fields(job, minutes) if minutes else None
        if fields is None or not _stays_on_days(job, fires, minutes * MINUTE):
            continue
        indices = [buckets.index(fire + minutes * MINUTE) for fire in fires]
        if all(0 <= index < buckets.count for index in indices) and _fires_so(job, fields, indices, buckets):
            found.append(Option(abs(minutes) * _MINUTES, fields, tuple(indices)))
    return found


def shifted_fields(job: ScheduledJob, minutes: int) -> dict[str, Any] | None:
    """Return the fields that move a schedule by some minutes; None if nothing simple does."""
    if job.cron is not None:
        expression = _shifted_cron(job.cron, minutes)
        return None if expression is None else {"cron": expression}
    if job.interval_seconds is None or job.interval_seconds < SHORTEST_INTERVAL_SECONDS or job.cadence_slot is None:
        return None
    # Intervals are counted from a start in the future: they can only be moved to later times.
    return {"start_at": rfc3339(job.cadence_slot + minutes * MINUTE)} if minutes > 0 else None


def _shifted_cron(expression: str, minutes: int) -> str | None:
    """Return an expression some minutes later, or earlier if ``minutes`` is negative; it must stay within its day."""
    minute, hours, *rest = expression.split()
    if not minute.isdecimal():
        return None
    carried, moved = divmod(int(minute) + minutes, _MINUTES)
    if carried:
        numbers = hours.split(",")
        if not all(number.isdecimal() and 0 <= int(number) + carried <= _LAST_HOUR for number in numbers):
            return None
        hours = ",".join(str(int(number) + carried) for number in numbers)
    return " ".join((str(moved), hours, *rest))


def _stays_on_days(job: ScheduledJob, fires: Iterable[datetime], shift: timedelta) -> bool:
    local = job.spec.hours.zone.local
    return all(local(fire).date() == local(fire + shift).date() for fire in fires)


def _fires_so(job: ScheduledJob, fields: dict[str, Any], indices: Sequence[int], buckets: Buckets) -> bool:
    """Return whether a changed expression has the fires that are expected of it, whatever window and clocks do."""
    if "cron" not in fields:
        return not (job.only_between or job.not_on or job.names_calendars)
    first = buckets.since - timedelta.resolution
    changed = replace(job, cron=fields["cron"], anchor_at=first, start_at=None)
    changed = replace(changed, cadence_slot=changed.cadence.first_after(first))
    return sorted(indices) == sorted(fire_pattern(changed, 0, buckets).elements())


def jitter_option(job: ScheduledJob, max_jitter: timedelta, buckets: Buckets) -> list[Option]:
    """Return the longest jitter that a schedule may have without moving a fire to another day, if there is one."""
    if job.interval_seconds is not None:
        # Intervals begin at moments of their own: they are spread already.
        return []
    fires = list(coming_fires(job, 0, buckets.since, buckets.until))
    longest = min([max_jitter, *_until_midnight(job, (fire.slot for fire in fires))])
    seconds = longest // timedelta(seconds=1)
    if seconds <= job.jitter_seconds:
        return []
    changed = replace(job, jitter_seconds=seconds)
    indices = [buckets.index(fire.at) for fire in coming_fires(changed, 0, buckets.since, buckets.until)]
    return [Option(seconds, {"jitter_seconds": seconds}, tuple(indices))] if len(indices) == len(fires) else []


def _until_midnight(job: ScheduledJob, slots: Iterable[datetime]) -> Iterator[timedelta]:
    zone = job.spec.hours.zone
    for slot in slots:
        wall = zone.local(slot)
        yield timedelta(days=1) - timedelta(hours=wall.hour, minutes=wall.minute, seconds=wall.second)
