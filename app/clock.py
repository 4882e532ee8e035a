"""The one module that reads the clock. Everything that decides is handed ``now`` instead.

Due times are judged by the database's clock; this one serves logs, timestamps in answers and waiting.
"""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The current instant, aware, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds that never jump, for leases and deadlines inside this process."""
    return time.monotonic()


def thread_seconds() -> float:
    """Seconds of the processor that this thread has used: a machine that stalls does not count."""
    return time.thread_time()
