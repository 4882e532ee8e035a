"""Forecasts of load: how many fires fall into which bucket of time, and how long their runs will be busy."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby, islice

import msgspec

from app.domain.calendars import Calendar
from app.domain.schedules import ScheduledJob, Status
from app.domain.upcoming import NO_SKIPS, coming_fires

# A bucket is quiet if it has at most this share of the fires of the peak.
QUIET_SHARE = 0.1
# So many quiet spans are told, the longest ones.
MOST_QUIET = 20
# So many spans of calendars are told, the first ones.
MOST_CLOSED = 100
_MICROSECOND = timedelta(microseconds=1)


class GroupBy(StrEnum):
    """What a forecast can be told apart by."""

    SCHEDULE = "schedule"
    WORKFLOW = "workflow"
    OWNER = "owner"
    HOST = "host"


class Buckets(msgspec.Struct, frozen=True):
    """Equal stretches of time from ``since`` on; the last one ends at ``until`` and may be shorter."""

    since: datetime
    until: datetime
    length: timedelta

    @property
    def count(self) -> int:
        """Return how many there are."""
        return -((self.since - self.until) // self.length)

    def at(self, index: int) -> datetime:
        """Return the beginning of a bucket."""
        return self.since + index * self.length

    def index(self, moment: datetime) -> int:
        """Return the bucket of a moment."""
        return (moment - self.since) // self.length


class Peak(msgspec.Struct, frozen=True):
    """The bucket with the most fires."""

    at: datetime
    fires: int


class Load:
    """Fires and busy seconds by bucket, collected from many schedules."""

    def __init__(self, buckets: Buckets) -> None:
        """Begin with nothing."""
        self.buckets = buckets
        self._fires = [0.0] * buckets.count
        self._busy = [0.0] * buckets.count

    def add(self, pattern: Mapping[int, float], schedules: int, busy_seconds: float) -> None:
        """Add schedules that fire in a pattern; ``busy_seconds`` is what one fire of all of them takes."""
        for index, fires in pattern.items():
            self._fires[index] += fires * schedules
            self._busy[index] += fires * busy_seconds

    @property
    def fires(self) -> list[int]:
        """Return the fires by bucket, as whole numbers that add up to the same."""
        rounded, exact, told = [], 0.0, 0
        for fires in self._fires:
            exact += fires
            rounded.append(round(exact) - told)
            told += rounded[-1]
        return rounded

    @property
    def busy_seconds(self) -> list[float]:
        """Return the seconds that the runs of each bucket's fires take, to a millisecond."""
        return [round(seconds, 3) for seconds in self._busy]


def fire_pattern(
    job: ScheduledJob, active_runs: int, buckets: Buckets, skipped: Collection[datetime] = NO_SKIPS
) -> Counter[int]:
    """Return how many fires of a schedule fall into which bucket, by their due times; ``skipped`` slots do not fire."""
    if _is_even(job):
        return _even_pattern(job, active_runs, buckets, skipped)
    fires = coming_fires(job, active_runs, buckets.since, buckets.until, skipped)
    return Counter(buckets.index(fire.at) for fire in fires)


def _is_even(job: ScheduledJob) -> bool:
    """Return whether slots are at equal distances, so that they need no search."""
    is_free = not (job.only_between or job.not_on or job.jitter_seconds or job.next_attempt or job.names_calendars)
    return job.interval_seconds is not None and is_free and job.end_at is None and job.status is Status.ACTIVE


def _even_pattern(job: ScheduledJob, active_runs: int, buckets: Buckets, skipped: Collection[datetime]) -> Counter[int]:
    interval = round((job.interval_seconds or 0) * 1_000_000)
    if job.cadence_slot is None:
        return Counter()
    offset = (job.cadence_slot - buckets.since) // _MICROSECOND
    end = (buckets.until - buckets.since) // _MICROSECOND
    moments = sorted((moment - buckets.since) // _MICROSECOND for moment in skipped)
    left_out = [moment for moment in moments if moment >= offset and (moment - offset) % interval == 0]
    if job.is_limited:
        left = job.total_repeats - job.current_repeat - active_runs
        end = min(end, _end_of_repeats(offset, max(0, left), interval, left_out))
    first = offset if offset >= 0 else offset % interval
    length = buckets.length // _MICROSECOND
    pattern = Counter(slot // length for slot in range(first, end, interval))
    pattern.subtract(moment // length for moment in left_out if first <= moment < end)
    return +pattern


def _end_of_repeats(offset: int, repeats: int, interval: int, left_out: Iterable[int]) -> int:
    """Return when the last of some repeats is over: each slot that is left out before puts it off by one."""
    end = offset + repeats * interval
    for moment in left_out:
        end += interval if moment < end else 0
    return end


def expected_pattern(job: ScheduledJob, active_runs: int, buckets: Buckets) -> dict[int, float]:
    """Return the fires that many schedules like this one have in each bucket on average.

    The jitter of each is another; together they are spread evenly over its length.
    """
    plain = msgspec.structs.replace(job, jitter_seconds=0, next_attempt=0)
    jitter = timedelta(seconds=job.jitter_seconds)
    pattern: Counter[int] = Counter()
    shares: dict[int, float] = {}
    slots = [fire.at for fire in coming_fires(plain, active_runs, buckets.since - jitter, buckets.until)]
    for slot, following in zip(slots, [*slots[1:], None], strict=True):
        length = jitter if following is None else min(jitter, following - slot)
        first, last = buckets.index(slot), buckets.index(slot + length - _MICROSECOND)
        if first == last >= 0:
            pattern[first] += 1
            continue
        for index in range(max(0, first), min(last + 1, buckets.count)):
            begin, end = max(slot, buckets.at(index)), min(slot + length, buckets.at(index + 1), buckets.until)
            shares[index] = shares.get(index, 0.0) + (end - begin) / length
    return {index: pattern[index] + shares.get(index, 0.0) for index in {*pattern, *shares} if index < buckets.count}


def peak_of(buckets: Buckets, fires: Sequence[int]) -> Peak:
    """Return the first of the buckets with the most fires."""
    index = max(range(len(fires)), key=lambda bucket: fires[bucket])
    return Peak(buckets.at(index), fires[index])


def quiet_spans(buckets: Buckets, fires: Sequence[int]) -> list[tuple[datetime, datetime]]:
    """Return the longest spans in which little fires, in the order of time."""
    most = max(fires) * QUIET_SHARE
    spans = list(_runs(number <= most for number in fires))
    longest = sorted(spans, key=lambda span: span[0] - span[1])
    return [
        (buckets.at(first), min(buckets.at(end), buckets.until)) for first, end in sorted(islice(longest, MOST_QUIET))
    ]


class ClosedSpan(msgspec.Struct, frozen=True, order=True):
    """A span in which a calendar leaves slots out, with the calendar's name and its entry."""

    since: datetime
    until: datetime
    calendar: str
    entry: str


def closed_spans(jobs: Iterable[ScheduledJob], since: datetime, until: datetime) -> list[ClosedSpan]:
    """Return the spans that the calendars of schedules leave out, in the order of time."""
    # Many schedules share a calendar, whose hash takes long: its dates may be thousands.
    shared = {id(calendar): calendar for job in jobs for calendar in job.calendars.excluded}
    usable = [calendar for calendar in set(shared.values()) if not calendar.problem]
    spans = sorted(span for calendar in usable for span in _spans_of(calendar, since, until))
    return spans[:MOST_CLOSED]


def _spans_of(calendar: Calendar, since: datetime, until: datetime) -> Iterator[ClosedSpan]:
    moment = since
    for _ in range(MOST_CLOSED):
        if moment >= until:
            return
        entry, end = calendar.entry_at(moment), calendar.until(moment)
        if entry is not None:
            yield ClosedSpan(moment, min(end, until), calendar.name, entry)
        moment = end


def _runs(flags: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end, excluded, of each run of true values."""
    position = 0
    for flag, members in groupby(flags):
        length = len(list(members))
        if flag:
            yield position, position + length
        position += length
