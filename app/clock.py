"""The only module that reads the clock. Code that decides takes ``now`` as an argument instead.

Whether a tick is due is decided by the database's clock. This one is for logs, timestamps in responses and waiting.
"""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Return seconds that never jump, for leases and deadlines inside this process."""
    return time.monotonic()


def thread_seconds() -> float:
    """Return the CPU seconds that this thread has used; time in which the machine stalls does not count."""
    return time.thread_time()
