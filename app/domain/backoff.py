"""How long a failed run waits before it is tried again."""

from datetime import timedelta

from app.domain.schedules import ScheduledJob

CAP_SECONDS = 24 * 3600
# Where neither a base is set nor the slots lie at one distance.
DEFAULT_BASE_SECONDS = 60
CAP_INTERVALS = 10
# 2 to this power is beyond every cap; it keeps the numbers small however many retries are allowed.
MAX_EXPONENT = 32


def backoff(job: ScheduledJob, retry: int) -> timedelta:
    """The delay before retry number ``retry`` (from 1): base x 2^(retry-1), capped."""
    base: float
    cap: float
    if job.backoff_base_seconds is not None:
        base, cap = job.backoff_base_seconds, CAP_SECONDS
    elif job.interval_seconds is not None:
        base, cap = job.interval_seconds, job.interval_seconds * CAP_INTERVALS
    else:
        base, cap = DEFAULT_BASE_SECONDS, CAP_SECONDS
    return timedelta(seconds=min(base * 2 ** min(retry - 1, MAX_EXPONENT), cap))
