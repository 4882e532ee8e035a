"""Batching: callers ask one at a time, and what is asked at the same time is done in one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Generic, TypeVar

import structlog

T = TypeVar("T")
R = TypeVar("R")

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
    ) -> None:
        """Take ``act``, which answers a list of items with a list of the same length; ``shared`` errors fail all."""
        self._name = name
        self._act = act
        self._shared = shared
        self._most = most
        self._at_once = at_once
        self._waiting: list[tuple[T, asyncio.Future[R] | None]] = []
        self._going: dict[asyncio.Task[None], int] = {}
        self._is_due = False
        # A batch is part of nothing that one of those who ask in it is part of: neither of a span nor of a log's names.
        self._context = copy_context()

    def ask(self, item: T) -> asyncio.Future[R]:
        """The answer to this item, to be awaited."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if not self._is_due:
            self._plan()
        return future

    def tell(self, item: T) -> None:
        """The same without an answer; nobody hears how it went."""
        self._waiting.append((item, None))
        if not self._is_due:
            self._plan()

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._waiting and not self._going

    async def quiet(self) -> None:
        """Wait until all that was asked has been answered."""
        while self._waiting or self._going:
            await (asyncio.wait(self._going) if self._going else asyncio.sleep(0))

    def _plan(self) -> None:
        if self._waiting and self._may_go():
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go, context=self._context)

    def _may_go(self) -> bool:
        """Small batches go side by side, for the sake of those who wait, and so do large ones; others grow first."""
        if not self._going:
            return True
        if len(self._going) >= self._at_once:
            return False
        return len(self._waiting) >= LARGE or sum(self._going.values()) + len(self._waiting) <= SMALL

    def _go(self) -> None:
        self._is_due = False
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        if batch:
            task = asyncio.create_task(self._answer(batch))
            self._going[task] = len(batch)
            task.add_done_callback(self._gone)
        self._plan()

    def _gone(self, task: asyncio.Task[None]) -> None:
        del self._going[task]
        if not self._is_due:
            self._plan()

    async def _answer(self, batch: Sequence[tuple[T, asyncio.Future[R] | None]]) -> None:
        answers: Sequence[R | BaseException]
        try:
            answers = await batch_or_alone(self._name, self._act, [item for item, _ in batch], self._shared)
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who asked are told
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future is None or future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


async def batch_or_alone(
    name: str,
    act: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    items: Sequence[T],
    shared: tuple[type[Exception], ...],
) -> list[R | Exception]:
    """Act on all items at once; if that fails, on each alone, so that only the bad ones fail.

    Each place of the list holds the result of its item, or its error. ``shared`` errors are no item's own: one that
    fails the whole batch is raised.
    """
    try:
        return list(await act(items))
    except shared:
        raise
    except Exception as error:  # noqa: BLE001 - it is the answer to the items that it belongs to
        if len(items) == 1:
            return [error]
        message = f"{type(error).__name__}: {error}"[:500]
        log.warning("batch_retried_individually", batch=name, count=len(items), error=message)
    return [await _alone(act, item) for item in items]


async def _alone(act: Callable[[Sequence[T]], Awaitable[Sequence[R]]], item: T) -> R | Exception:
    try:
        (result,) = await act([item])
    except Exception as error:  # noqa: BLE001 - it is the answer to this item
        return error
    return result
