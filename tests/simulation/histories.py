"""Histories: what people do and what befalls the world, by chance; and short scenes for one fault at a time."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from app.actions.context import ActionContext
from tests.simulation.processes import Process
from tests.simulation.world import Work, World

STORM_SECONDS = 30.0
TIMEOUT_SECONDS = 7
# How often a single worker has to put everything in order.
ONE_IS_LEFT = 0.7
POLICIES = ("skip", "queue", "cancel", "allow")


def some_schedule(random: Random) -> dict[str, Any]:
    """The fields of a schedule."""
    return {
        "interval_seconds": random.choice((3, 5, 8, 13)),
        "if_running": random.choice(POLICIES),
        "jitter_seconds": random.choice((0, 0, 0, 2)),
        "max_queued": random.choice((1, 2)),
        "max_retries": random.choice((0, 1, 2, 2, 8)),
        "total_repeats": random.choice((0, 0, 0, 1, 3)),
        "backoff_base_seconds": random.choice((1, 4)),
        "timeout_seconds": TIMEOUT_SECONDS,
        "misfire_grace_seconds": random.choice((1, 5, 30)),
        "catch_up": random.choice(("skip", "run_once", "run_all")),
    }


def some_work(random: Random) -> Callable[[ActionContext], Work]:
    """Work that takes its time and ends in some way."""
    ends = ("success", "success", "success", "success", "fail", "skipped", "blocked")

    def work(_context: ActionContext) -> Work:
        seconds = random.choice((0.0, 0.0, 0.2, 2.0, 4.0, 6.0, None))
        return Work(seconds, random.choice(ends))

    return work


class RandomHistory:
    """One to three schedules, one to three workers, and whatever happens."""

    def __init__(self, world: World, workflow_id: int) -> None:
        self._world = world
        self._random = world.random
        self._workflow_id = workflow_id
        self._jobs: list[UUID] = []

    async def run(self) -> None:
        """The storm; when it is over, there is a worker."""
        world, random = self._world, self._random
        world.work = some_work(random)
        await world.limit(
            self._workflow_id,
            max_concurrent_runs=random.choice((None, None, None, 1, 2)),
            breaker_threshold=random.choice((None, None, None, 2)),
        )
        for _ in range(random.choice((1, 1, 2))):
            world.start_worker()
        for _ in range(random.choice((1, 2, 3))):
            made = await world.create(self._workflow_id, **some_schedule(random))
            if made is not None:
                self._jobs.append(made)
        while world.stage.loop.time() < STORM_SECONDS:
            await asyncio.sleep(random.choice((0.1, 0.7, 1.5, 3.0, 5.0)))
            await self._event()
        self._clear_up()

    async def _event(self) -> None:
        events = (
            *((self._person, 5), (self._start_worker, 3), (self._kill_worker, 1), (self._drain_worker, 1)),
            *((self._suspend_worker, 1), (self._message, 4), (self._redis_away, 1), (self._flush, 1)),
            *((self._database_away, 1),),
        )
        kinds, weights = zip(*events, strict=True)
        await self._random.choices(kinds, weights)[0]()

    async def _person(self) -> None:
        if not self._jobs:
            return
        world, random, job = self._world, self._random, self._random.choice(self._jobs)
        await random.choices(
            (
                lambda: world.pause(job),
                lambda: world.resume(job),
                lambda: world.revive(job),
                lambda: world.run_now(job),
                lambda: world.change(job, interval_seconds=random.choice((3, 5, 8, 13))),
                lambda: world.change(job, total_repeats=random.choice((0, 2, 5))),
                lambda: world.change(job, if_running=random.choice(POLICIES)),
                lambda: self._delete(job),
            ),
            (4, 5, 3, 3, 2, 2, 2, 1),
        )[0]()

    async def _delete(self, job: UUID) -> None:
        self._jobs.remove(job)
        await self._world.delete(job)

    async def _start_worker(self) -> None:
        if len(self._world.living) < 3:
            self._world.start_worker()

    def _some_worker(self) -> Process | None:
        return self._random.choice(self._world.living) if self._world.living else None

    async def _kill_worker(self) -> None:
        worker = self._some_worker()
        if worker:
            self._world.stage.kill(worker)

    async def _drain_worker(self) -> None:
        worker = self._some_worker()
        if worker:
            self._world.drain(worker)

    async def _suspend_worker(self) -> None:
        worker = self._some_worker()
        if worker:
            self._world.suspend(worker, self._random.choice((2.0, 8.0, 16.0, 25.0)))

    async def _message(self) -> None:
        redis, random = self._world.redis, self._random
        queued, ended = sorted(redis.queue), sorted(redis.ended)
        kind = random.choice(("lose", "repeat", "delay", "early"))
        self._world.stage.note(f"a message: {kind}")
        if kind == "repeat" and ended:
            redis.repeat(random.choice(ended))
        elif kind == "lose" and queued:
            redis.lose(random.choice(queued))
        elif queued:
            redis.delay(random.choice(queued), 10.0 if kind == "delay" else 0.0)

    async def _flush(self) -> None:
        self._world.stage.note("Redis is flushed")
        self._world.redis.flush()

    async def _redis_away(self) -> None:
        self._world.stage.note("Redis is away")
        self._world.redis.away = True
        self._world.stage.loop.call_later(self._random.choice((1.0, 3.0, 6.0)), self._redis_back)

    def _redis_back(self) -> None:
        self._world.stage.note("Redis is back")
        self._world.redis.away = False

    async def _database_away(self) -> None:
        self._world.stage.note("Postgres is away")
        self._world.clock.away = True
        self._world.stage.loop.call_later(self._random.choice((1.0, 4.0)), self._database_back)

    def _database_back(self) -> None:
        self._world.stage.note("Postgres is back")
        self._world.clock.away = False

    def _clear_up(self) -> None:
        world = self._world
        world.stage.calm_down()
        self._redis_back()
        self._database_back()
        if not world.able:
            world.start_worker()
        if self._random.random() < ONE_IS_LEFT:
            for worker in [one for one in world.living if one not in world.able[-1:]]:
                world.stage.kill(worker)


async def random_history(world: World, workflow_id: int) -> None:
    """Whatever happens."""
    await RandomHistory(world, workflow_id).run()


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule and one worker, which is replaced if it dies. Short enough to be played once for every fault."""

    name: str
    # The work of each run in turn; the last one again and again.
    works: tuple[Work, ...]
    values: dict[str, Any]
    seconds: float
    # When the worker is told to end, if it is.
    drained_at: float | None = None

    async def play(self, world: World, workflow_id: int) -> None:
        """From the first slot until whatever the scene is about has happened."""
        left = list(self.works)
        world.work = lambda _context: left.pop(0) if len(left) > 1 else left[0]
        fields = {"interval_seconds": 5, "backoff_base_seconds": 1, "timeout_seconds": TIMEOUT_SECONDS}
        await world.create(workflow_id, **fields | self.values)
        worker = world.start_worker()
        if self.drained_at is not None:
            world.stage.loop.call_later(self.drained_at, lambda: world.drain(worker))
        for _ in range(int(self.seconds * 2)):
            await asyncio.sleep(0.5)
            if not world.able:
                world.start_worker()
        world.stage.calm_down()


SCENES = (
    Scene(name="success", works=(Work(0.3),), values={}, seconds=6),
    Scene(name="retry", works=(Work(0.0, "fail"), Work()), values={"max_retries": 1}, seconds=7),
    Scene(name="death", works=(Work(0.0, "fail"),), values={"max_retries": 0}, seconds=6),
    Scene(name="last_repeat", works=(Work(0.3),), values={"total_repeats": 1}, seconds=6),
    Scene(name="queue", works=(Work(6.0), Work()), values={"if_running": "queue"}, seconds=12),
    Scene(name="cancel", works=(Work(6.0), Work()), values={"if_running": "cancel"}, seconds=11),
    Scene(name="allow", works=(Work(0.0, "fail"), Work()), values={"if_running": "allow"}, seconds=8),
    Scene(name="hand_back", works=(Work(4.0),), values={}, seconds=9, drained_at=5.5),
)
