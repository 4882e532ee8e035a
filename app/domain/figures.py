"""Figures over time: which minutes are derived when, and percentiles of lateness from counted buckets."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)
# Four buckets for each doubling: a percentile is right to a tenth.
BUCKETS_PER_DOUBLING = 4
# A minute is derived again at these ages, for runs that started or ended late, retries for example.
AGES = (timedelta(minutes=10), timedelta(hours=1), timedelta(hours=6), timedelta(hours=24))
# How far back the figures go that are derived where there are none yet, and how many minutes are derived in one go.
FIRST_FIGURES = timedelta(hours=24)
MOST_MINUTES = 60


def minute_of(moment: datetime) -> datetime:
    """Return the beginning of a moment's minute."""
    return moment.replace(second=0, microsecond=0)


def new_minutes(newest: datetime | None, now: datetime) -> list[datetime]:
    """Return the minutes to derive next, oldest first. The two newest that are known were not over then."""
    last = minute_of(now)
    first = last - (MOST_MINUTES - 1) * MINUTE if newest is None else newest - MINUTE
    count = min(MOST_MINUTES, (last - first) // MINUTE + 1)
    return [first + number * MINUTE for number in range(count)]


def earlier_minutes(oldest: datetime, now: datetime) -> list[datetime]:
    """Return the minutes before the oldest known one that are derived next: figures are filled back for a day."""
    count = min(MOST_MINUTES, (oldest - minute_of(now - FIRST_FIGURES)) // MINUTE)
    return [oldest - number * MINUTE for number in range(count, 0, -1)]


def percentile_ms(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the lateness in milliseconds that this share of the runs does not exceed, from counts by bucket."""
    total = sum(buckets.values())
    passed = 0
    for bucket in sorted(buckets):
        passed += buckets[bucket]
        if passed >= share * total:
            return middle_ms(bucket)
    return None


def middle_ms(bucket: int) -> float:
    """Return the middle of a bucket in milliseconds; the first bucket holds what is less than one."""
    return 0.5 if bucket == 0 else round(float(2 ** ((bucket - 0.5) / BUCKETS_PER_DOUBLING)), 1)


def merged(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by name."""
    sums: dict[str, int] = {}
    for one in counts:
        for name, number in one.items():
            sums[name] = sums.get(name, 0) + number
    return sums
