"""The simulated world: workers, people, and the work that is done."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

import app.worker
from app.actions.catalog import Action, ActionFailedError, Blocked, Catalog, Skipped
from app.actions.context import ActionContext
from app.actions.secrets import SecretStore
from app.config import Settings, load_settings
from app.domain.access import Actor, Role
from app.domain.errors import CarillonError
from app.domain.limits import DEFAULT_CAPS
from app.engine.bulk_operations import OperationRunner
from app.engine.concurrency import Places
from app.engine.entity_polling import Poller
from app.engine.housekeeping import Housekeeper
from app.engine.leases import WorkerLease
from app.engine.limit_gate import LimitGate
from app.engine.node_resources import CallbackIssuer, SecretFinder
from app.engine.notifications import NotificationSender
from app.engine.recovery import Reconciler
from app.engine.ringing import BellHealth, Ringer
from app.engine.runner import Actions, Runner
from app.engine.ticks import TickEngine
from app.engine.worker_runtime import WorkerRuntime
from app.persistence.database import Database
from app.queue.bell import Bell
from app.services.executions import ManualRunService
from app.services.inputs import NoteInput, PauseInput, RunInput, ScheduleChanges, ScheduleInput
from app.services.schedules import ScheduleService
from app.services.views import ScheduleView
from app.wiring import WorkerParts
from tests.simulation.faults import Faults
from tests.simulation.postgres import Clock, SimulatedDatabase
from tests.simulation.processes import PROCESS, Killed, Process, Stage
from tests.simulation.redis import RedisClient, SimulatedRedis
from tests.simulation.virtual_time import VirtualLoop

LEASE_SECONDS = 12.0
RECONCILE_SECONDS = 8.0
DRAIN_SECONDS = 2.0
# What is lost is found within lease and reconcile, which comes up to a fifth late; then it is set going.
RECOVERY_SECONDS = LEASE_SECONDS + 1.2 * RECONCILE_SECONDS + 3.0
ACTION = "sim.work"
NODES = [{"id": "start", "type": "trigger_schedule"}, {"id": "work", "type": ACTION}]
NAMED_LIMIT = "INSERT INTO limits (user_profile_id, name, rate, burst) VALUES (1, $1, $2, $3)"
LIMIT = "UPDATE workflows SET max_concurrent_runs = $2, breaker_threshold = $3, breaker_reset_seconds = 5 WHERE id = $1"
EDGES = [{"from": "start", "to": "work"}]

SETTINGS: Settings = load_settings(
    {
        "CARILLON_LEASE_SECONDS": str(LEASE_SECONDS),
        "CARILLON_RECONCILE_SECONDS": str(RECONCILE_SECONDS),
        "CARILLON_DRAIN_SECONDS": str(DRAIN_SECONDS),
    }
)


class Work(msgspec.Struct):
    """What the work does: how long it takes, for ever if that is None, and how it ends."""

    seconds: float | None = 0.0
    end: str = "success"


class Call(msgspec.Struct):
    """The outside has been called."""

    worker: str
    schedule: UUID | None
    slot: str
    attempt: int
    execution: UUID
    claimed_at: str
    begun: float
    # When the work was done; and when it was left, done or not.
    ended: float | None = None
    left: float | None = None


class _Nothing(msgspec.Struct):
    """The action needs no configuration."""


class _Unused:
    """A part that no history reaches: any use of it is a defect of the simulation."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the simulation has nothing that could answer '{name}'")


UNUSED: Any = _Unused()


class _NoPost(NotificationSender):
    """There is nobody to be told."""

    async def run_once(self) -> int:
        await asyncio.Event().wait()
        return 0


class _NoOperations(OperationRunner):
    """No operations on many schedules."""

    async def step(self) -> float:
        await asyncio.Event().wait()
        return 0.0


class _NoHouse(Housekeeper):
    """There is nothing to be kept in order."""

    async def step(self) -> float:
        await asyncio.Event().wait()
        return 0.0


class World:
    """One history."""

    def __init__(
        self, loop: VirtualLoop, database: Database, connection: asyncpg.Connection, random: Random, faults: Faults
    ) -> None:
        self.random = random
        self.stage = Stage(loop, random, faults)
        self.clock = Clock(connection, self.stage)
        self.redis = SimulatedRedis(self.stage)
        self.calls: list[Call] = []
        self.work: Callable[[ActionContext], Work] = lambda _context: Work()
        self.workers: dict[Process, asyncio.Task[None]] = {}
        self.engines: dict[Process, TickEngine] = {}
        # Schedules that somebody deleted, with when that was known for sure.
        self.deleted: dict[UUID, float] = {}
        # How many scheduled runs the workflow lets through at once.
        self.max_runs: int | None = None
        self.admin = Actor(1, "admin", Role.ADMIN)
        self._database = database
        self._connection = connection
        self._stopping: dict[Process, asyncio.Event] = {}
        self._born = 0
        self._api = Process("api", is_worker=False)
        database, ringer = self.database_of(self._api), Ringer(Bell(self.redis_of(self._api)))
        self.schedules = ScheduleService(database, ringer)
        self._manual_runs = ManualRunService(database, ringer)

    def database_of(self, process: Process) -> SimulatedDatabase:
        """The database as a process sees it."""
        return SimulatedDatabase(self._database, self.stage, self.clock, process)

    def redis_of(self, process: Process) -> Any:
        """Redis as a process sees it: only as much of a client as the product calls."""
        return RedisClient(self.redis, process)

    def uuid4(self) -> UUID:
        """In place of the one that is random."""
        return UUID(int=self.random.getrandbits(128), version=4)

    # Workers

    @asynccontextmanager
    async def wire_worker(self, settings: Settings) -> AsyncIterator[WorkerParts]:
        """In place of ``app.wiring.wire_worker``: the same parts on the stores of this world."""
        process = PROCESS.get()
        database, redis = self.database_of(process), self.redis_of(process)
        bell = Bell(redis)
        bell_health = BellHealth(bell)
        ringer = Ringer(bell, bell_health)
        lease = WorkerLease(database, settings.lease_seconds)
        lease.name = process.name
        runner = Runner(database, self._actions(database, ringer), lease)
        engine = self.engines[process] = TickEngine(
            database, ringer, runner, lease, places=Places(settings.worker_concurrency)
        )
        reconciler = Reconciler(database, bell, bell_health, ringer, engine, settings.lease_seconds)
        poller = Poller(database, ringer, (), poll_seconds=3600, batch_size=1, lease_seconds=1)
        runtime = WorkerRuntime(
            lease,
            reconciler,
            runner,
            engine,
            _NoPost(database, UNUSED),
            poller,
            _NoHouse(database, keep_days=0),
            _NoOperations(database, ringer, DEFAULT_CAPS),
            bell_health,
            lease_seconds=settings.lease_seconds,
            reconcile_seconds=settings.reconcile_seconds,
        )
        yield WorkerParts(
            redis=redis, bell_health=bell_health, engine=engine, reconciler=reconciler, runtime=runtime, plugins=UNUSED
        )

    def start_worker(self) -> Process:
        """A new process."""
        self._born += 1
        process = Process(f"w{self._born}", is_worker=True)
        self._stopping[process] = asyncio.Event()
        self.stage.note(f"{process.name} starts")
        work = app.worker.run_worker(SETTINGS, self._stopping[process])
        self.workers[process] = self.stage.run(process, work)
        return process

    @property
    def living(self) -> list[Process]:
        """The workers that there are now."""
        return [process for process, task in self.workers.items() if not process.dead and not task.done()]

    @property
    def able(self) -> list[Process]:
        """The workers that neither stand still nor are about to end."""
        now = self.stage.loop.time()
        return [one for one in self.living if one.stopped_until <= now and not self._stopping[one].is_set()]

    def drain(self, process: Process) -> None:
        """SIGTERM."""
        self.stage.note(f"{process.name} is told to end")
        self._stopping[process].set()

    def suspend(self, process: Process, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later: it goes on as if nothing had happened."""
        self.stage.note(f"{process.name} stands still for {seconds:.1f} s")
        process.stopped_until = self.stage.loop.time() + seconds
        self.stage.loop.call_later(seconds, lambda: None)

    async def end(self) -> None:
        """All workers are gone."""
        for process in self.living:
            self.stage.kill(process)
        await asyncio.gather(*self.workers.values(), return_exceptions=True)

    def crashed(self) -> list[str]:
        """Workers that ended by themselves, which none should."""
        found = []
        for process, task in self.workers.items():
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None and not process.dead:
                found.append(f"{process.name} ended by itself: {error!r}")
        return found

    # Work

    def _actions(self, database: SimulatedDatabase, ringer: Ringer) -> Actions:
        return Actions(
            catalog=Catalog([Action(name=ACTION, config=_Nothing, handler=self._do_work)]),
            http=UNUSED,
            secrets=SecretFinder(database, SecretStore({})),
            callbacks=CallbackIssuer(database, ""),
            limits=LimitGate(database, ringer),
            ports_for=lambda _actor: UNUSED,
            plugin_for=lambda _origin: UNUSED,
        )

    async def _do_work(self, _config: _Nothing, context: ActionContext) -> Any:
        """Take some time, then end in some way."""
        process = PROCESS.get()
        await self.stage.reach(process, "work: begins")
        context.require_lease()
        work = self.work(context)
        call = Call(
            worker=process.name,
            schedule=context.scheduled_job_id,
            slot=context.event["scheduled_for"],
            attempt=context.attempt,
            execution=context.execution_id,
            claimed_at=context.event["fired_at"],
            begun=self.stage.loop.time(),
        )
        self.calls.append(call)
        self.stage.note(f"{process.name} is called for {call.slot[11:]} attempt {call.attempt}: {work}")
        try:
            await (asyncio.sleep(work.seconds) if work.seconds is not None else asyncio.Event().wait())
            await self.stage.reach(process, "work: ends")
            call.ended = self.stage.loop.time()
        finally:
            call.left = self.stage.loop.time()
        if work.end == "fail":
            raise ActionFailedError("as it should")
        return {"skipped": Skipped("nothing to do"), "blocked": Blocked("not now")}.get(work.end)

    # People

    async def ask(self, words: str, request: Callable[[], Awaitable[Any]]) -> Any:
        """Somebody asks the API for something; None if it did not come to that, or nobody knows."""
        self.stage.note(f"people: {words}")
        try:
            return await self.stage.run(self._api, _awaited(request()))
        except (CarillonError, Killed) as error:
            self.stage.note(f"people: {words}: {type(error).__name__}")
            return None

    async def limit(self, workflow_id: int, *, max_concurrent_runs: int | None, breaker_threshold: int | None) -> None:
        """Give the workflow a guard and a breaker, or neither."""
        self.stage.note(f"the workflow: max_concurrent_runs={max_concurrent_runs}, {breaker_threshold=}")
        self.max_runs = max_concurrent_runs
        with self.stage.loop.question():
            await self._connection.execute(LIMIT, workflow_id, max_concurrent_runs, breaker_threshold)

    async def named_limit(self, name: str, rate: str, burst: int) -> None:
        """Create a limit that schedules can name."""
        self.stage.note(f"the limit {name}: {rate=}, {burst=}")
        with self.stage.loop.question():
            await self._connection.execute(NAMED_LIMIT, name, rate, burst)

    async def create(self, workflow_id: int, **values: Any) -> UUID | None:
        """A new schedule."""
        wanted = msgspec.convert({"name": "s", "workflow_id": workflow_id, **values}, ScheduleInput)
        made: ScheduleView | None = await self.ask(
            f"create {values}", lambda: self.schedules.create(self.admin, wanted)
        )
        return made.id if made else None

    async def pause(self, job_id: UUID) -> Any:
        """Pause it."""
        return await self.ask(f"pause {job_id}", lambda: self.schedules.pause(self.admin, job_id, PauseInput()))

    async def resume(self, job_id: UUID) -> Any:
        """Resume it."""
        return await self.ask(f"resume {job_id}", lambda: self.schedules.resume(self.admin, job_id, NoteInput()))

    async def revive(self, job_id: UUID) -> Any:
        """Revive it."""
        return await self.ask(f"revive {job_id}", lambda: self.schedules.revive(self.admin, job_id))

    async def change(self, job_id: UUID, **values: Any) -> Any:
        """Edit it."""
        changes = msgspec.convert(values, ScheduleChanges)
        return await self.ask(f"change {job_id} {values}", lambda: self.schedules.change(self.admin, job_id, changes))

    async def delete(self, job_id: UUID) -> None:
        """Delete it."""

        async def delete() -> bool:
            await self.schedules.delete(self.admin, job_id)
            return True

        if await self.ask(f"delete {job_id}", delete):
            self.deleted[job_id] = self.stage.loop.time()

    async def run_now(self, job_id: UUID) -> Any:
        """Run it by hand."""
        return await self.ask(f"run {job_id}", lambda: self._manual_runs.run(self.admin, job_id, RunInput()))


async def _awaited(wanted: Awaitable[Any]) -> Any:
    return await wanted
