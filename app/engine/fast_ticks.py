"""Fast ticks: the usual course of a tick, from batch to batch by callbacks.

A tick that fires one run here and now, and a run that succeeds, need no task of their own for claim and settle: the
batches call back. That is a third of what a tick costs a worker. Whatever is unusual is left to the coroutines of
``TickEngine``, which can carry out every tick from each step on.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from app.domain.executions import Execution, ExecutionStatus, Outcome
from app.domain.ticks import Tick
from app.engine.concurrency import Place
from app.engine.queue_port import Delivered, OnEnd, Redeliver
from app.engine.runner import RunEnd
from app.failpoints import failpoint
from app.persistence.execution_rows import Claimed, ClaimResult, Completed, RowLocked, RunResult, Settled, SettleResult

if TYPE_CHECKING:
    from app.engine.ticks import TickEngine

OUTAGE_PAUSE_SECONDS = 2.0


class Background:
    """Coroutines that run in tasks which nothing waits for."""

    def __init__(self) -> None:
        """Start with none."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], on_end: OnEnd) -> None:
        """Run a coroutine in a task, and call ``on_end`` with its error, or with None."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, on_end))

    def _ended(self, on_end: OnEnd, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        on_end(asyncio.CancelledError() if task.cancelled() else task.exception())


class FastTick:
    """One tick, from its message to the end of its run. The methods stand in the order in which they are called."""

    __slots__ = ("_began", "_claimed", "_delivered", "_engine", "_execution", "_on_end", "_place", "_settling", "_tick")

    def __init__(self, engine: "TickEngine", tick: Tick, delivered: Delivered, on_end: OnEnd) -> None:
        """Prepare the tick of a message; ``on_end`` is called once, when nothing is left to do for it."""
        self._engine = engine
        self._tick = tick
        self._delivered = delivered
        self._on_end = on_end
        self._place: Place
        self._claimed: Claimed
        self._execution: Execution
        self._settling: RunResult
        self._began = 0.0

    def begin(self) -> None:
        """Take a place and claim the tick."""
        engine = self._engine
        if not engine.is_ready:
            self._on_end(Redeliver(OUTAGE_PAUSE_SECONDS))
            return
        self._place = engine.places.take()
        failpoint("before_claim")
        engine.claims.submit(self._tick, self._go_on_claimed)

    def _go_on_claimed(self, result: ClaimResult | BaseException) -> None:
        """Ring for the next tick and begin the run."""
        engine = self._engine
        if _is_fatal(result):
            self._end(result)
            return
        if isinstance(result, Completed):
            failpoint("after_claim")
            failpoint("before_plan")
            engine.note_completed(result)
            engine.ring_for_next(result.claimed, self._delivered)
            failpoint("after_plan")
            self._end(None)
            return
        execution = result.execution if isinstance(result, Claimed) and result.is_plain else None
        if execution is None or not isinstance(result, Claimed):
            rest = engine.after_claim(self._tick, result, self._delivered, self._place)
            engine.background.start(rest, self._end)
            return
        failpoint("after_claim")
        failpoint("before_plan")
        self._claimed = result
        self._place.belongs_to(result.job.user_profile_id)
        engine.ring_for_next(result, self._delivered)
        failpoint("after_plan")
        self._execution = execution
        engine.owned[execution.id] = execution.token
        self._began = engine.note_start(execution)
        try:
            engine.runner.start(execution, self._go_on_ended, result.row_versions)
        except Exception as error:  # noqa: BLE001 - a defect: the run must end, or its schedule would wait for ever
            self._go_on_ended(error)

    def _go_on_ended(self, result: RunEnd) -> None:
        """Settle the outcome of the run."""
        if isinstance(result, Outcome):
            failpoint("before_settle")
            engine, claimed = self._engine, self._claimed
            engine.note_end(result, self._began)
            self._settling = RunResult(result, self._execution, claimed.version)
            engine.settles.submit(self._settling, self._go_on_settled)
        elif _is_fatal(result) and not isinstance(result, asyncio.CancelledError):
            self._release(result)
        else:
            self._leave(self._engine.after_run(self._claimed, result, self._began))

    def _go_on_settled(self, result: SettleResult | RowLocked | BaseException) -> None:
        """Count the run, and end."""
        if _is_fatal(result):
            self._release(result)
            return
        engine, outcome = self._engine, self._settling.outcome
        is_success = outcome.status is ExecutionStatus.SUCCESS and not outcome.publishes
        if is_success and isinstance(result, Settled) and result.is_plain:
            failpoint("after_settle")
            engine.note_settled(outcome, result)
            self._release(None)
        else:
            self._leave(engine.after_settle(self._settling, result))

    def _leave(self, rest: Coroutine[Any, Any, None]) -> None:
        """Leave the rest to a coroutine."""
        self._engine.background.start(rest, self._release)

    def _release(self, error: BaseException | None) -> None:
        """Give up the run, which has ended."""
        self._engine.owned.pop(self._execution.id, None)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._place.release()
        self._on_end(error)


def _is_fatal(result: object) -> TypeGuard[BaseException]:
    """Return whether a result says that the task or the process that was to give it ends: nothing more is done here."""
    return isinstance(result, BaseException) and not isinstance(result, Exception)
