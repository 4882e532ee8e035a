"""Whether Redis takes what it is given: judged by a write, as a Redis that is full or a replica still answers reads."""

import asyncio

import structlog

from app import clock
from app.observability.metrics import BELL_PROBLEM
from app.observability.outages import Outage
from app.queue.bell import PROBLEMS, Bell, BellAwayError

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
            self.failed(BellAwayError(f"no answer to a write within {PROBE_TIMEOUT_SECONDS:.0f} s", "timeout"))
        except BellAwayError as error:
            self.failed(error)
        else:
            self._recovered()
        return PROBE_SECONDS

    def failed(self, error: BellAwayError) -> None:
        """A call to Redis has failed for this reason."""
        if not self.sick.is_set():
            self._sick_since = clock.monotonic()
            self.sick.set()
        self.problem = error.sentence
        for kind in PROBLEMS:
            BELL_PROBLEM.labels(kind).set(kind == error.kind)
        self._outage.missed("redis", str(error))

    def ring_failed(self, error: BellAwayError) -> None:
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
        self._outage.found("redis")
