"""Processes of the simulated world, the points at which they can be stopped, and who goes on next."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

from tests.simulation.faults import Calm, Fault, Faults
from tests.simulation.virtual_time import VirtualLoop

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
T = TypeVar("T")
Work = Coroutine[Any, Any, T] | Generator[Any, None, T]
SLOW_SECONDS = (0.05, 0.3, 1.0, 3.0, 9.0)


class Killed(BaseException):
    """The process is no more. Not an Exception, as nothing in the product may survive it."""


class Process:
    """A worker, or the API. What it starts belongs to it, and dies with it."""

    def __init__(self, name: str, *, is_worker: bool) -> None:
        self.name = name
        self.is_worker = is_worker
        self.dead = False
        # Until then it stands still as a whole, as if its machine had been suspended.
        self.stopped_until = 0.0
        self.tasks: set[asyncio.Task[Any]] = set()


PROCESS: ContextVar[Process] = ContextVar("PROCESS")


class Stage:
    """Lets the tasks of all processes go on one at a time, in an order that the seed decides."""

    def __init__(self, loop: VirtualLoop, random: Random, faults: Faults) -> None:
        self.loop = loop
        self.random = random
        self.faults = faults
        self.trace: list[str] = []
        self._number = 0
        self._waiting: list[tuple[Process, asyncio.Future[None]]] = []
        loop.let_one_go = self._let_one_go
        loop.set_task_factory(self._new_task)

    def now(self) -> datetime:
        """The virtual time."""
        return START + timedelta(seconds=self.loop.time())

    def note(self, words: str) -> None:
        """A line of the trace, by which a history can be followed."""
        self.trace.append(f"{self.loop.time():9.3f}  {words}")

    def calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.faults = Calm()
        self.note("-- faults stop --")

    def run(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start something in a process."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.loop.create_task(work, context=context)

    async def reach(self, process: Process, where: str) -> Fault | None:
        """A point where the process waits: it goes on when it is its turn, with what goes wrong there."""
        fault = await self._turn(process, where)
        if fault is Fault.SLOW:
            await asyncio.sleep(self.random.choice(SLOW_SECONDS))
            await self._turn(process, where, may_fail=False)
            return None
        return fault

    def pass_by(self, process: Process, where: str) -> Fault | None:
        """A point where the process can be stopped, while nobody else may go on: it holds locks."""
        return self._fault_at(process, where)

    def kill(self, process: Process) -> None:
        """End it at once."""
        process.dead = True
        self.note(f"{process.name} is killed")
        for task in process.tasks - {asyncio.current_task()}:
            task.cancel()

    async def _turn(self, process: Process, where: str, *, may_fail: bool = True) -> Fault | None:
        if process.dead:
            raise Killed
        turn = self.loop.create_future()
        entry = (process, turn)
        self._waiting.append(entry)
        try:
            await turn
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        return self._fault_at(process, where) if may_fail else None

    def _fault_at(self, process: Process, where: str) -> Fault | None:
        if process.dead:
            raise Killed
        self._number += 1
        fault = self.faults.at(self._number, f"{process.name} {where}")
        self.note(f"#{self._number} {process.name} {where}{f'  <<< {fault}' if fault else ''}")
        if fault is Fault.KILL:
            if process.is_worker:
                self.kill(process)
            raise Killed
        return fault

    def _let_one_go(self) -> bool:
        now = self.loop.time()
        able = [entry for entry in self._waiting if entry[0].stopped_until <= now]
        if not able:
            return False
        chosen = self.random.choice(able)
        self._waiting.remove(chosen)
        if not chosen[1].done():
            chosen[1].set_result(None)
        return True

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Work[T], /, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(work, loop=loop, context=context)
        process = (context or copy_context()).get(PROCESS)
        if process is not None:
            process.tasks.add(task)
            task.add_done_callback(process.tasks.discard)
            task.add_done_callback(_look_at)
        return task


def _look_at(task: asyncio.Task[Any]) -> None:
    """What nobody asks for any more is not complained of."""
    if not task.cancelled():
        task.exception()
