"""The bell: wake-ups into Redis with a result for each, the connections they use, and whether Redis takes writes."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

import structlog
from arq.connections import ArqRedis
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app import clock
from app.observability.logs import Outage
from app.observability.metrics import BELL_ERRORS, BELL_PROBLEM
from app.queue.scripts import PROBE, RING
from app.queue.wire import (
    BODY_EXTRA_MS,
    CANCEL_CHANNEL,
    EPOCH_KEY,
    FILLING_KEY,
    PROBE_KEY,
    QUEUE,
    WAKE_CHANNEL,
    Wake,
    deserialize,
    serialize,
)

RING_BATCH = 500
# A Redis that does not answer within this is away.
CALL_SECONDS = 2.0


# What can be wrong with Redis, by kind, and how that is said.
PROBLEMS = {
    "unreachable": "It cannot be reached.",
    "timeout": "It does not answer in time, or its writes are paused.",
    "full": "It is full and refuses writes (maxmemory).",
    "read_only": "It is a replica and refuses writes.",
    "wrong_type": "A key that Carillon uses holds a value of another type.",
    "refused": "It refuses writes.",
}
# Redis begins an error with a word for its kind.
_KINDS = {"OOM": "full", "READONLY": "read_only", "WRONGTYPE": "wrong_type"}


class BellUnreachableError(Exception):
    """Redis cannot be reached, or does not take what it is given."""

    code = "redis_unavailable"

    def __init__(self, detail: str, kind: str = "unreachable") -> None:
        """``kind`` is one of ``PROBLEMS``."""
        self.kind = kind
        super().__init__(detail)

    @property
    def sentence(self) -> str:
        """What is wrong, for people."""
        return PROBLEMS[self.kind]


def _kind_of(error: Exception) -> str:
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "timeout"
    if not isinstance(error, ResponseError):
        return "unreachable"
    # redis-py takes the word off the errors that have a class of their own; scripts put it behind theirs.
    if isinstance(error, ReadOnlyError):
        return "read_only"
    if isinstance(error, OutOfMemoryError):
        return "full"
    return next((kind for word, kind in _KINDS.items() if word in str(error)), "refused")


@asynccontextmanager
async def bell_errors() -> AsyncIterator[None]:
    """Everything that goes wrong with Redis, a hang too, is the same to us: the bell does not ring now."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except (RedisError, OSError) as error:
        BELL_ERRORS.inc()
        raise BellUnreachableError(f"{type(error).__name__}: {error}", _kind_of(error)) from error


class Bell:
    """Rings for ticks and executions. Ringing twice for the same state is one message."""

    def __init__(self, redis: ArqRedis) -> None:
        """Use the connections of a pool that someone else closes."""
        self._redis = redis
        self._ring = redis.register_script(RING)
        self._probe = redis.register_script(PROBE)

    async def ring(self, wakes: Sequence[Wake], now: datetime) -> list[bool]:
        """Queue these messages; for each, whether it was queued now (False: it was there already)."""
        answers: list[bool] = []
        now_ms = int(now.timestamp() * 1000)
        for start in range(0, len(wakes), RING_BATCH):
            given: list[str | int] = []
            bodies: list[bytes] = []
            for wake in wakes[start : start + RING_BATCH]:
                score, body = wake.score(), wake.body()
                given += (wake.id, score, max(0, score - now_ms) + BODY_EXTRA_MS, len(body))
                bodies.append(body)
            args = [serialize(given), b"".join(bodies)]
            async with bell_errors():
                answers += map(bool, await self._ring(keys=[QUEUE, WAKE_CHANNEL], args=args))
        return answers

    async def call_off(self, execution_ids: Iterable[UUID]) -> None:
        """Tell the workers that these executions are no longer theirs."""
        async with bell_errors():
            for execution_id in execution_ids:
                await self._redis.publish(CANCEL_CHANNEL, str(execution_id))

    async def remembers(self) -> bool:
        """Whether Redis still holds what was queued: a flush or an empty restart takes the epoch along."""
        async with bell_errors():
            return bool(await self._redis.exists(EPOCH_KEY))

    async def begin_filling(self) -> None:
        """Everything that is planned is going to be queued; a flush in the midst of it takes this mark along."""
        async with bell_errors():
            await self._redis.set(FILLING_KEY, "1")

    async def begin_epoch(self) -> bool:
        """Everything that is planned has been queued; False if a flush came in between, and it is not."""
        async with bell_errors():
            if not await self._redis.exists(FILLING_KEY):
                return False
            await self._redis.set(EPOCH_KEY, "1")
            return True

    async def ping(self) -> None:
        """Raise ``BellUnreachableError`` unless Redis takes a write, as a ring is one."""
        async with bell_errors():
            await self._probe(keys=[QUEUE, PROBE_KEY], args=[])


# Together they bound how long a sick Redis goes unnoticed.
PROBE_SECONDS = 0.5
PROBE_TIMEOUT_SECONDS = 1.0
# A sickness of this length may have cost messages that somebody else wanted to queue, an API for example.
LONG_SECONDS = 2.0

log = structlog.get_logger(__name__)


class BellHealth:
    """What this process knows of Redis. Any failed call makes it sick; only a successful write makes it well again."""

    def __init__(self, bell: Bell) -> None:
        """Redis is taken for well until something fails."""
        self._bell = bell
        self._outage = Outage(log, away="redis_away", back="redis_back")
        self._sick_since = 0.0
        # Whether messages were not queued while it was sick.
        self.rings_failed = False
        # Set while Redis is sick, for whoever wants to act at once.
        self.sick = asyncio.Event()
        # What is wrong, for people.
        self.problem = ""
        # Whether messages may be missing from a Redis that is well again.
        self.may_lack_messages = False

    async def probe(self) -> float:
        """Write once; the seconds until the next time."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                await self._bell.ping()
        except TimeoutError:
            self.failed(BellUnreachableError(f"no answer to a write within {PROBE_TIMEOUT_SECONDS:.0f} s", "timeout"))
        except BellUnreachableError as error:
            self.failed(error)
        else:
            self._recovered()
        return PROBE_SECONDS

    def failed(self, error: BellUnreachableError) -> None:
        """A call to Redis has failed for this reason."""
        if not self.sick.is_set():
            self._sick_since = clock.monotonic()
            self.sick.set()
        self.problem = error.sentence
        for kind in PROBLEMS:
            BELL_PROBLEM.labels(kind).set(kind == error.kind)
        self._outage.report("redis", str(error))

    def ring_failed(self, error: BellUnreachableError) -> None:
        """The same, and messages were not queued."""
        self.rings_failed = True
        self.failed(error)

    def _recovered(self) -> None:
        if not self.sick.is_set():
            return
        long = clock.monotonic() - self._sick_since >= LONG_SECONDS
        self.may_lack_messages = self.may_lack_messages or self.rings_failed or long
        self.rings_failed = False
        self.problem = ""
        for kind in PROBLEMS:
            BELL_PROBLEM.labels(kind).set(0)
        self.sick.clear()
        self._outage.clear("redis")


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
