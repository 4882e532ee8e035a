"""Backoff: how long a failed run or delivery waits before it is tried again. The only place that computes delays."""

from datetime import timedelta

import msgspec

from app.domain.schedules import ScheduledJob

_DAY_SECONDS = 24 * 3600
# Where the interval is the base, the delay grows to this many intervals.
CAP_INTERVALS = 10
# 2 to this power is beyond every cap: the numbers stay small however many retries are allowed.
_MAX_EXPONENT = 32


class Backoff(msgspec.Struct, frozen=True):
    """Delays that double from a base up to a cap."""

    base_seconds: float
    cap_seconds: float

    def delay(self, retry: int) -> timedelta:
        """Return the delay before retry number ``retry`` (from 1): base x 2^(retry-1), capped."""
        return timedelta(seconds=min(self.base_seconds * 2 ** min(retry - 1, _MAX_EXPONENT), self.cap_seconds))


# Entities, and schedules with neither a base of their own nor slots at one distance.
DEFAULT_BACKOFF = Backoff(base_seconds=60, cap_seconds=_DAY_SECONDS)
DELIVERY_BACKOFF = Backoff(base_seconds=5, cap_seconds=3600)


def schedule_backoff(job: ScheduledJob) -> Backoff:
    """Return the backoff of a schedule: its own base, else its interval, else the default."""
    if job.backoff_base_seconds is not None:
        return Backoff(job.backoff_base_seconds, _DAY_SECONDS)
    if job.interval_seconds is not None:
        return Backoff(job.interval_seconds, job.interval_seconds * CAP_INTERVALS)
    return DEFAULT_BACKOFF
