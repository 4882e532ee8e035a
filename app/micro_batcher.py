"""Micro-batches: callers submit single items, and items that come at the same time are handled by one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar

import structlog

T = TypeVar("T")
R = TypeVar("R")
# Called once, with the result of an item or with its error.
OnResult = Callable[[R | BaseException], None]

# Items. Batches that are small together, and large batches, may run side by side.
SMALL, LARGE = 40, 200

log = structlog.get_logger(__name__)


class MicroBatcher(Generic[T, R]):
    """Gathers the items that are submitted within one turn of the event loop, or while earlier batches are running.

    A single item is acted on at once; under load, batches grow by themselves. An item that fails its batch fails alone.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        shared: tuple[type[Exception], ...] = (),
        most: int = 500,
        at_once: int = 2,
        linger_seconds: float = 0.0,
    ) -> None:
        """Call ``act`` with lists of items; it returns a list of the same length. ``shared`` errors fail a whole batch.

        A batch holds at most ``most`` items, and at most ``at_once`` batches run side by side. A batch starts
        ``linger_seconds`` after its first item, so that items that can wait cost less.
        """
        self._name = name
        self._act = act
        self._shared = shared
        self._most = most
        self._at_once = at_once
        self._linger_seconds = linger_seconds
        self._waiting: list[tuple[T, OnResult[R] | None]] = []
        self._running: dict[asyncio.Task[None], int] = {}
        self._is_planned = False
        # A batch serves many callers, so it must not inherit the trace span and log fields of the one that started it.
        self._context = copy_context()

    def ask(self, item: T) -> asyncio.Future[R]:
        """Submit an item. Return a future of its result."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.submit(item, partial(resolve, future))
        return future

    def tell(self, item: T) -> None:
        """Submit an item without waiting for its result. An error is not reported."""
        self.submit(item, None)

    def submit(self, item: T, on_result: OnResult[R] | None) -> None:
        """Submit an item. Its result, or its error, is handed to ``on_result``, which must not raise."""
        self._waiting.append((item, on_result))
        if not self._is_planned:
            self._plan()

    @property
    def is_idle(self) -> bool:
        """Whether no item is waiting or being handled."""
        return not self._waiting and not self._running

    async def quiet(self) -> None:
        """Wait until all submitted items have been handled."""
        while self._waiting or self._running:
            await (asyncio.wait(self._running) if self._running else asyncio.sleep(self._linger_seconds))

    def _plan(self) -> None:
        if self._waiting and self._may_start():
            self._is_planned = True
            loop = asyncio.get_running_loop()
            if self._linger_seconds:
                loop.call_later(self._linger_seconds, self._start, context=self._context)
            else:
                loop.call_soon(self._start, context=self._context)

    def _may_start(self) -> bool:
        """Return whether a batch may start now.

        Small batches run side by side, to keep the latency low, and so do large ones, to keep the throughput high.
        Medium ones wait and grow until a running batch has ended.
        """
        if not self._running:
            return True
        if len(self._running) >= self._at_once:
            return False
        return len(self._waiting) >= LARGE or sum(self._running.values()) + len(self._waiting) <= SMALL

    def _start(self) -> None:
        self._is_planned = False
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        if batch:
            task = asyncio.create_task(self._handle(batch))
            self._running[task] = len(batch)
            task.add_done_callback(self._ended)
        self._plan()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not self._is_planned:
            self._plan()

    async def _handle(self, batch: Sequence[tuple[T, OnResult[R] | None]]) -> None:
        waiting = [on_result for _, on_result in batch]

        def hand_over(index: int, result: R | BaseException) -> None:
            on_result, waiting[index] = waiting[index], None
            if on_result is None:
                return
            try:
                on_result(result)
            except Exception:
                # One caller's defect is not the batch's: the others still get their results.
                log.exception("batch_result_refused", batch=self._name)

        try:
            await batch_or_alone(self._name, self._act, [item for item, _ in batch], self._shared, hand_over)
        except BaseException as error:  # noqa: BLE001 - it is passed on to the callers that have no result yet
            for index in range(len(batch)):
                hand_over(index, error)


def resolve(future: asyncio.Future[R], result: R | BaseException) -> None:
    """Set the result or the error of a future, unless it is done."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


async def batch_or_alone(
    name: str,
    act: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    items: Sequence[T],
    shared: tuple[type[Exception], ...],
    on_result: Callable[[int, R | Exception], None] = lambda _index, _result: None,
) -> list[R | Exception]:
    """Call ``act`` with all items; if that fails, with each alone, so that only the bad ones fail.

    Return the result or the error of each item, in their order; ``on_result`` gets each as soon as it is known.
    ``shared`` errors, such as an unreachable database, are no item's own: one that fails the whole batch is raised, and
    one that meets an item alone is the error of all items that are left.
    """
    try:
        results: list[R | Exception] = list(await act(items))
    except shared:
        raise
    except Exception as error:  # noqa: BLE001 - each item is tried alone below
        if len(items) > 1:
            message = f"{type(error).__name__}: {error}"[:500]
            log.warning("batch_retried_individually", batch=name, count=len(items), error=message)
            return await _each_alone(act, items, shared, on_result)
        results = [error]
    for index, result in enumerate(results):
        on_result(index, result)
    return results


async def _each_alone(
    act: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    items: Sequence[T],
    shared: tuple[type[Exception], ...],
    on_result: Callable[[int, R | Exception], None],
) -> list[R | Exception]:
    results: list[R | Exception] = []
    outage: Exception | None = None
    for index, item in enumerate(items):
        # An outage is not met once for each item: a host that does not answer costs seconds every time.
        result = await _alone(act, item) if outage is None else outage
        if isinstance(result, shared):
            outage = result
        # Not at the end of the batch: what is claimed has to run at once.
        on_result(index, result)
        results.append(result)
    return results


async def _alone(act: Callable[[Sequence[T]], Awaitable[Sequence[R]]], item: T) -> R | Exception:
    try:
        (result,) = await act([item])
    except Exception as error:  # noqa: BLE001 - it is the result of this item
        return error
    return result
