"""Near ticks: what a worker delivers by its own timer, and what it leaves to the messages.

Covers app.engine.near_ticks.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from app import clock
from app.config import Settings
from app.domain.ticks import Tick
from app.engine.near_ticks import HORIZON_SECONDS, MOST_TICKS, RELIEF_PART, TAKE_OVER, NearTicks
from app.engine.queue_port import EXECUTE, Delivered, OnEnd, Redeliver, Wake
from app.queue.bell import RedisPool
from app.queue.message_format import QUEUE
from tests.support.carillon import Carillon, until, working

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


class Deliveries:
    """Remembers the ticks that were delivered, in their order."""

    def __init__(self, places: int = 100) -> None:
        self.seen: list[int] = []
        self.ids: list[str] = []
        self.problems: list[Exception] = []
        self.near = NearTicks(self.begin, lambda: places)

    def begin(self, tick: Tick, delivered: Delivered, on_end: OnEnd) -> None:
        """Handle a tick, and end with the error that the test wants."""
        self.seen.append(tick.generation)
        self.ids.append(delivered.id)
        on_end(self.problems.pop() if self.problems else None)

    def keep(self, number: int, seconds: float) -> bool:
        """Keep a tick that is due in so many seconds."""
        tick = Tick(uuid4(), number)
        due = NOW + timedelta(seconds=seconds)
        return self.near.keep(tick, Wake(f"m{number}", EXECUTE, (str(tick.job_id), number), due), NOW)

    async def wait_for(self, count: int) -> list[int]:
        """Wait until so many were delivered."""

        async def came() -> bool:
            return len(self.seen) >= count

        await until(came)
        return self.seen


async def test_ticks_are_delivered_in_the_order_of_their_due_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the ids of their messages, whatever the order in which they were kept; none is early."""
    deliveries = Deliveries()
    began = clock.monotonic()
    with monkeypatch.context() as patch:
        # All are kept at one moment, however long this machine takes.
        patch.setattr("app.clock.monotonic", lambda: began)
        assert all(deliveries.keep(number, seconds) for number, seconds in ((3, 0.06), (1, 0.02), (2, 0.04)))
    assert [1, 2, 3] == await deliveries.wait_for(3)
    assert ["m1", "m2", "m3"] == deliveries.ids
    assert clock.monotonic() - began >= 0.06


async def test_a_tick_that_is_due_already_is_delivered_at_once() -> None:
    """It may have become due while its schedule was being claimed."""
    deliveries = Deliveries()
    deliveries.keep(1, -5)
    assert [1] == await deliveries.wait_for(1)


async def test_far_ticks_are_left_to_their_messages() -> None:
    """And so are those that are too many."""
    deliveries = Deliveries()
    assert not deliveries.keep(1, HORIZON_SECONDS + 1)
    for number in range(MOST_TICKS):
        assert deliveries.keep(number, 200)
    assert not deliveries.keep(MOST_TICKS, 200)
    assert MOST_TICKS == len(deliveries.near.close())


@pytest.fixture
def long_relief(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overloaded worker keeps no ticks for longer than a machine stalls."""
    monkeypatch.setattr("app.engine.near_ticks.RELIEF_SECONDS", 600)


@pytest.mark.usefixtures("long_relief")
async def test_ticks_without_a_place_wait_for_one() -> None:
    """Meanwhile a part of the next ticks is left to other workers, and no messages are asked for."""
    deliveries = Deliveries(places=1)
    assert deliveries.keep(1, 0)
    assert deliveries.keep(2, 0)
    deliveries.near._deliver_due()
    assert [1] == deliveries.seen
    assert deliveries.near.is_behind
    assert not deliveries.keep(RELIEF_PART, 10)
    assert deliveries.keep(RELIEF_PART + 1, 10)
    assert [1, 2] == await deliveries.wait_for(2)
    assert not deliveries.near.is_behind


@pytest.mark.usefixtures("long_relief")
async def test_a_late_worker_leaves_a_part_of_its_ticks_to_others() -> None:
    """It is overloaded, and other workers may not be."""
    deliveries = Deliveries()
    assert deliveries.keep(1, 0.001)
    # The event loop is busy for longer than a tick may be late.
    until_late = asyncio.get_running_loop().time() + 0.1
    while asyncio.get_running_loop().time() < until_late:
        pass
    await deliveries.wait_for(1)
    kept = [deliveries.keep(number, 10) for number in range(2, 2 + 2 * RELIEF_PART)]
    assert len(kept) - 2 == kept.count(True)


async def test_a_tick_is_delivered_again_soon_or_left_to_its_message() -> None:
    """Soon if the delay is shorter than that of the message. Any other error is logged, and the message comes."""
    deliveries = Deliveries()
    deliveries.problems = [RuntimeError("a defect"), Redeliver(TAKE_OVER.total_seconds()), Redeliver(0.001)]
    deliveries.keep(1, 0)
    deliveries.keep(2, 0.01)
    with capture_logs() as events:

        async def is_logged() -> bool:
            return bool(events)

        await until(is_logged)
    assert [1, 1, 2] == sorted(deliveries.seen)
    assert ["near_tick_failed"] == [event["event"] for event in events]


async def test_a_closed_timer_returns_what_it_kept() -> None:
    """The messages, for other workers, and nothing is kept any more."""
    deliveries = Deliveries()
    deliveries.keep(1, 5)
    deliveries.keep(2, 6)
    assert ["m1", "m2"] == [wake.id for wake in deliveries.near.close()]
    assert not deliveries.keep(3, 1)
    assert [] == deliveries.near.close()


async def scores(redis: RedisPool, schedule: UUID) -> list[float]:
    """The times at which the messages of a schedule are due."""
    entries = await redis.zrange(QUEUE, 0, -1, withscores=True)
    return [score for name, score in entries if str(schedule).encode() in name]


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_worker_fires_its_next_ticks_without_their_messages(
    carillon: Carillon, settings: Settings, redis: RedisPool, *, is_flushed: bool
) -> None:
    """In Redis there is one message for the next tick, due later than it; if it is gone the tick fires all the same.

    When the worker ends, the message is due in time for other workers.
    """
    schedule = await carillon.schedule(interval_seconds=2)

    async def has_late_message() -> bool:
        shown = await carillon.call("GET", f"/schedules/{schedule['id']}/")
        due = datetime.fromisoformat(shown["next_run_at"]).timestamp() * 1000
        found = await scores(redis, UUID(schedule["id"]))
        return len(found) == 1 and abs(found[0] - due - TAKE_OVER.total_seconds() * 1000) < 2

    async with working(settings):
        await carillon.until_succeeded(schedule, 1)
        await until(has_late_message)
        if is_flushed:
            await redis.flushall()
        runs = await carillon.until_succeeded(schedule, 3)
    assert {"schedule"} == {run["trigger"] for run in runs}
    shown = await carillon.call("GET", f"/schedules/{schedule['id']}/")
    due = datetime.fromisoformat(shown["next_run_at"]).timestamp() * 1000
    # After a flush everything is queued again, and the same tick may have another message.
    assert any(abs(score - due) < 2 for score in await scores(redis, UUID(schedule["id"])))
