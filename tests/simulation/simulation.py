"""Plays histories, one after another, and looks whether the promises were kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import asyncpg
import pytest

from app.embedded import EmbeddedPostgres
from app.persistence.database import Database
from tests.simulation.faults import Fault, Faults, OneFault, Storm
from tests.simulation.histories import TIMEOUT_SECONDS, Scene, random_history
from tests.simulation.postgres import CLOCK
from tests.simulation.promises import (
    SECOND,
    Account,
    accounts,
    astray,
    broken_calls,
    broken_guard,
    broken_promises,
    has_moved_on,
    is_full,
    not_going_on,
)
from tests.simulation.virtual_time import VirtualLoop
from tests.simulation.world import EDGES, NODES, RECOVERY_SECONDS, World

# How often is looked whether everything goes on again.
GLANCE_SECONDS = 3.0
# Longer than any process has been up.
BOOTED_SECONDS = 1000.0
STORM_CHANCE = 0.01
# Not DELETE: where rows come to lie, and so the order in which they are found, shall be the same in every history.
CLEAR = (
    "TRUNCATE scheduled_jobs, workflow_executions, ledger_entries, due_ticks, active_executions, workers, mishaps, "
    "circuit_breakers, circuit_breaker_transitions, schedule_revisions, deleted_histories, unsuccessful_executions, "
    "limits CASCADE"
)
WORKFLOW = (
    "INSERT INTO workflows (user_profile_id, owner_id, name, nodes, edges) "
    "SELECT u.id, u.id::text, 'w', $1::jsonb, $2::jsonb FROM user_profiles AS u WHERE u.id = 1 RETURNING id"
)

# Units of work that a worker repeats, be there work or not.
IDLE_UNITS = frozenset(
    {
        *("renew_lease", "find_lost", "find_without_callback", "find_invalid_specs", "find_overdue"),
        *("ring_pending", "start_pending", "forget_workers"),
    }
)
# The same with Redis; SimulatedRedis names these.
IDLE = IDLE_UNITS | {"deliver", "remembers"}
# The first thing that is done for a slot that is due.
CLAIM = "claim_fast"

T = TypeVar("T")
Play = Callable[[World, int], Awaitable[None]]


class BrokenPromiseError(AssertionError):
    """A history in which a promise was not kept, with all that happened in it."""


class _Complaints(logging.Handler):
    """What the product logs as an error: nothing in a simulation is one."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


def _matters(where: str) -> bool:
    """Whether a point is on the way of a run; what merely looks for work comes by again and again."""
    return where.partition(" ")[2].partition(":")[0] not in IDLE


class Simulation:
    """One database and one loop for all histories, and the product's sources of chance and time in our hands."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres
        self._loop = VirtualLoop()
        self._patch = pytest.MonkeyPatch()
        self._complaints = _Complaints()
        self._name = f"simulation_{uuid4().hex}"
        self._world: World
        self._database: Database
        self._connection: asyncpg.Connection
        self._workflow_id: int

    def __enter__(self) -> Self:
        self._run(self._open())
        logging.getLogger("app").addHandler(self._complaints)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()
        logging.getLogger("app").removeHandler(self._complaints)
        self._run(self._close())
        self._loop.close()

    def play_random(self, seed: int) -> list[str]:
        """A history by chance; its trace."""
        random = Random(seed)
        return self.play(f"SIMULATION_SEED={seed}", random_history, random, Storm(random, STORM_CHANCE))

    def points_of(self, scene: Scene) -> dict[int, str]:
        """Return the points of a scene by number, from where its first slot is due on."""
        noted = OneFault()
        self.play(scene.name, scene.play, Random(0), noted)
        points = dict(enumerate(noted.points, 1))
        first = next(number for number, where in points.items() if where.endswith(f"{CLAIM}: begin"))
        return {number: where for number, where in points.items() if number >= first and _matters(where)}

    def play_scene(self, scene: Scene, number: int, fault: Fault) -> list[str]:
        """A scene with one fault; its trace."""
        name = f"SIMULATION_SCENE={scene.name}/{number}/{fault}"
        return self.play(name, scene.play, Random(0), OneFault(number, fault))

    def play(self, name: str, play: Play, random: Random, faults: Faults) -> list[str]:
        """A history; its trace, or ``BrokenPromiseError``."""
        self._loop.begin_anew()
        self._complaints.heard.clear()
        self._world = World(self._loop, self._database, self._connection, random, faults)
        self._take_over(self._world)
        broken = self._run(self._history(play))
        trace = self._world.stage.trace
        if broken:
            raise BrokenPromiseError("\n".join([name, *broken, "", "The history:", *trace, "", name, *broken]))
        return trace

    async def _history(self, play: Play) -> list[str]:
        world = self._world
        try:
            await world.limit(self._workflow_id, max_concurrent_runs=None, breaker_threshold=None)
            await play(world, self._workflow_id)
            broken = await self._recover()
            await self._come_to_rest()
            found = await self._accounts()
            broken += await self._asked(lambda: astray(self._connection))
        except Exception as error:  # noqa: BLE001 - whatever it is, the trace shall be seen
            return [f"the simulation failed: {error!r}"]
        finally:
            await world.end()
            await self._asked(lambda: self._connection.execute(CLEAR))
        broken += [problem for account in found for problem in broken_promises(account)]
        broken += [*broken_calls(world, found), *broken_guard(found, world.max_runs)]
        return [*broken, *world.crashed(), *self._complaints.heard]

    async def _recover(self) -> list[str]:
        """Nothing goes wrong until all have moved on, or recovery has had its time; what stands still then."""
        before = {account.row["id"]: account.row["generation"] for account in await self._accounts()}
        wrong = await self._asked(lambda: astray(self._connection))
        if wrong:
            return wrong
        suspended = max((worker.stopped_until for worker in self._world.living), default=0.0)
        deadline = max(suspended, self._loop.time()) + RECOVERY_SECONDS
        while True:
            await asyncio.sleep(GLANCE_SECONDS)
            found = await self._accounts()
            owned = {run for worker in self._world.living for run in self._world.engines[worker].owned}
            busy = is_full(found, self._world.max_runs)
            standing = [line for one in found for line in not_going_on(one, owned, self._now(), is_full=busy)]
            moved = all(has_moved_on(account, before) for account in found)
            if self._loop.time() >= deadline or (moved and not standing and self._loop.time() > suspended):
                return standing

    async def _come_to_rest(self) -> None:
        """Everything is paused, which accounts for the slots that have come due, and what runs comes to its end."""
        for account in await self._accounts():
            if account.row["status"] == "active":
                await self._world.pause(account.row["id"])
        for _ in range(10):
            if all(run.finished is not None for account in await self._accounts() for run in account.runs):
                return
            await asyncio.sleep(TIMEOUT_SECONDS)

    async def _accounts(self) -> list[Account]:
        return await self._asked(lambda: accounts(self._connection, self._now()))

    async def _asked(self, question: Callable[[], Awaitable[T]]) -> T:
        with self._loop.question():
            return await question()

    def _now(self) -> int:
        return int(self._loop.time() * SECOND) + SECOND // 1000

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _open(self) -> None:
        with self._loop.question():
            folder = str(self._postgres.socket_folder)
            server = await asyncpg.connect(host=folder, user="carillon", database="postgres")
            await server.execute(f"CREATE DATABASE {self._name} TEMPLATE carillon")
            await server.close()
            self._connection = await asyncpg.connect(host=folder, user="carillon", database=self._name)
            await self._connection.execute(CLOCK)
            graph = (str(NODES).replace("'", '"'), str(EDGES).replace("'", '"'))
            self._workflow_id = await self._connection.fetchval(WORKFLOW, *graph)
            self._database = Database(self._postgres.url.replace("/carillon?", f"/{self._name}?"))

    async def _close(self) -> None:
        with self._loop.question():
            await self._database.close()
            await self._connection.close()
            folder = str(self._postgres.socket_folder)
            server = await asyncpg.connect(host=folder, user="carillon", database="postgres")
            await server.execute(f"DROP DATABASE {self._name} WITH (FORCE)")
            await server.close()

    def _take_over(self, world: World) -> None:
        patch = self._patch.setattr
        patch("app.clock.now", world.stage.now)
        patch("app.clock.monotonic", lambda: BOOTED_SECONDS + self._loop.time())
        patch("app.worker.wire_worker", world.wire_worker)
        patch("app.engine.worker_runtime.uniform", world.random.uniform)
        for module in (
            "services.schedules",
            "engine.manual_runs",
            "engine.leases",
            "engine.entity_polling",
            "queue.worker",
        ):
            patch(f"app.{module}.uuid4", world.uuid4)
