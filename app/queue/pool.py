"""Connections to Redis, with the time limits and retries that arq's own settings lack."""

from arq.connections import ArqRedis
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.queue.wire import deserialize, serialize

# What the rest of the program calls it, so that nobody else needs arq for a name.
RedisPool = ArqRedis

CONNECT_TIMEOUT_SECONDS = 2.0
SOCKET_TIMEOUT_SECONDS = 5.0
# One more try, for a pooled connection that a restart of Redis has cut. redis-py nests its retries, so what bounds a
# call is the deadline in `app.queue.bell`.
QUICK_RETRIES = 1
QUICK_BACKOFF_CAP_SECONDS = 0.1
# The stock worker dies of the first error that reaches it: its calls wait out an outage of minutes.
PATIENT_RETRIES = 900
PATIENT_BACKOFF_CAP_SECONDS = 1.0


def open_pool(url: str) -> ArqRedis:
    """A pool for our own code, which copes with errors itself and wants to hear of them soon."""
    return _open(url, QUICK_RETRIES, QUICK_BACKOFF_CAP_SECONDS)


def open_patient_pool(url: str) -> ArqRedis:
    """A pool for the stock arq worker."""
    return _open(url, PATIENT_RETRIES, PATIENT_BACKOFF_CAP_SECONDS)


def _open(url: str, retries: int, backoff_cap: float) -> ArqRedis:
    """Nothing is connected yet; percent-encoded passwords and unix sockets work, as redis-py parses the URL."""
    pool = ConnectionPool.from_url(
        url,
        socket_timeout=SOCKET_TIMEOUT_SECONDS,
        socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
        retry=Retry(ExponentialBackoff(cap=backoff_cap, base=0.02), retries),
        retry_on_error=[RedisConnectionError, RedisTimeoutError, OSError],
    )
    redis = ArqRedis(pool, job_serializer=serialize, job_deserializer=deserialize)
    # The pool is this client's alone, so closing the one closes the other.
    redis.auto_close_connection_pool = True
    return redis
