"""Near ticks: the next ticks of schedules that this worker has just fired, delivered by a timer of its own.

A healthy worker needs no message for them, which saves a call to Redis for each tick. Their messages are queued all the
same, due a moment later: if this worker dies, stalls or is overloaded, any worker gets them, and nothing here is a
record of anything. The message of the tick after that takes the place of an unneeded one.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush

import msgspec
import structlog

from app import clock
from app.domain.ticks import Tick
from app.engine.queue_port import Delivered, OnEnd, Redeliver, Wake

# How long after its due time the message of a near tick is delivered to any worker.
TAKE_OVER = timedelta(milliseconds=500)
# Ticks that are due later than this are left to their messages, and so are those beyond this number.
HORIZON_SECONDS = 300.0
MOST_TICKS = 20_000
# Ticks are delivered together at most once in this time: claims of several ticks cost little more than one.
GAP_SECONDS = 0.004
# A worker that delivers a tick this late is overloaded. For a while it leaves a part of the ticks to their messages, so
# that other workers get them: the worker that fires a schedule keeps its next ticks. If it left all of them and were
# alone, each would cost it two more calls to Redis just when it has no time for them.
OVERLOADED_SECONDS = 0.05
RELIEF_SECONDS = 1.0
# One tick of so many.
RELIEF_PART = 8
# How often a worker without a free place looks for one.
FULL_SECONDS = 0.01

log = structlog.get_logger(__name__)


class NearTick(msgspec.Struct, frozen=True, gc=False):
    """A tick, and the message that is queued for it."""

    tick: Tick
    wake: Wake


class NearTicks:
    """A timer for many ticks. It belongs to one event loop."""

    def __init__(self, begin: Callable[[Tick, Delivered, OnEnd], None], free_places: Callable[[], int]) -> None:
        """Call ``begin`` for ticks that are due, as many as there are free places; others wait for a place."""
        self._begin = begin
        self._free_places = free_places
        # By the time at which each is due, on this process's monotonic clock; the number keeps the order of equal ones.
        self._kept: list[tuple[float, int, NearTick]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._delivered_at = 0.0
        self._overloaded_until = 0.0
        # Whether ticks are due that found no place. They go before messages, some of which are their own.
        self.is_behind = False
        self._is_closed = False

    def keep(self, tick: Tick, wake: Wake, now: datetime) -> bool:
        """Deliver a tick when its message is due, by the database's clock ``now``. False if it is left to the message.

        If it is kept, the message is to be queued ``TAKE_OVER`` later.
        """
        seconds = (wake.due - now).total_seconds()
        at = clock.monotonic()
        if self._is_closed or seconds > HORIZON_SECONDS or len(self._kept) >= MOST_TICKS:
            return False
        if at < self._overloaded_until and tick.generation % RELIEF_PART == 0:
            return False
        self._push(NearTick(tick, wake), max(0.0, seconds))
        return True

    def close(self) -> list[Wake]:
        """Deliver no more ticks. Return the messages of those that were kept, which other workers shall get in time."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        wakes = [near.wake for *_, near in self._kept]
        self._kept.clear()
        return wakes

    def _push(self, near: NearTick, seconds: float) -> None:
        at = clock.monotonic() + seconds
        self._number += 1
        heappush(self._kept, (at, self._number, near))
        if self._timer is None or at < self._timer_at:
            self._set_timer(at)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at = max(at, self._delivered_at + GAP_SECONDS)
        # In whole milliseconds, rounded up: uvloop rounds to the nearest one, and a timer must not come too early.
        seconds = math.ceil(max(0.0, at - clock.monotonic()) * 1000) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._deliver_due)

    def _deliver_due(self) -> None:
        self._timer = None
        now = self._delivered_at = clock.monotonic()
        free = self._free_places()
        while self._kept and self._kept[0][0] <= now and free > 0:
            at, _, near = heappop(self._kept)
            if now - at > OVERLOADED_SECONDS:
                self._overloaded_until = now + RELIEF_SECONDS
            free -= 1
            self._begin(near.tick, Delivered(near.wake.id), partial(self._ended, near))
        self.is_behind = bool(self._kept) and self._kept[0][0] <= now
        if self.is_behind:
            self._overloaded_until = now + RELIEF_SECONDS
        if self._kept:
            self._set_timer(now + FULL_SECONDS if self.is_behind else self._kept[0][0])

    def _ended(self, near: NearTick, error: BaseException | None) -> None:
        """Deliver a tick again if that was asked for. After any error its message is still queued, and comes soon."""
        if isinstance(error, Redeliver):
            if not self._is_closed and error.seconds < TAKE_OVER.total_seconds():
                self._push(near, error.seconds)
        elif isinstance(error, Exception):
            log.error("near_tick_failed", schedule=str(near.tick.job_id), exc_info=error)
