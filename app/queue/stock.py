"""The settings with which the stock ``arq`` worker is safe on our queue."""

from typing import Any

from arq.worker import func

from app.queue.pool import open_patient_pool
from app.queue.wire import EXECUTE, QUEUE, RUN, deserialize, serialize
from app.queue.worker import WakeFunction

# A claim that meets an outage is put back again and again: no number of tries may drop it.
MAX_TRIES = 1_000_000
# Runs end by their own timeout; this only bounds what arq itself would wait for.
JOB_TIMEOUT_SECONDS = 7 * 24 * 3600
POLL_SECONDS = 0.1


def stock_settings(
    redis_url: str, execute: WakeFunction, run: WakeFunction, on_startup: Any, on_shutdown: Any, concurrency: int
) -> dict[str, Any]:
    """What ``arq app.worker.WorkerSettings`` reads.

    No results are kept (a kept one blocks its id), running jobs never fill the window that is read, and the pool
    waits out an outage of Redis.
    """
    return {
        "functions": [func(execute, name=EXECUTE), func(run, name=RUN)],  # type: ignore[arg-type]  # arq wants kwargs
        "queue_name": QUEUE,
        "redis_pool": open_patient_pool(redis_url),
        "on_startup": on_startup,
        "on_shutdown": on_shutdown,
        "job_serializer": serialize,
        "job_deserializer": deserialize,
        "max_jobs": concurrency,
        "queue_read_limit": concurrency * 10,
        "poll_delay": POLL_SECONDS,
        "keep_result": 0,
        "max_tries": MAX_TRIES,
        "job_timeout": JOB_TIMEOUT_SECONDS,
        "allow_abort_jobs": False,
        "log_results": False,
    }
