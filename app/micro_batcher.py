"""Batching: callers ask one at a time, and what is asked at the same time is done in one call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Generic, TypeVar

import structlog

from app.domain.errors import UnavailableError

T = TypeVar("T")
R = TypeVar("R")

SMALL, LARGE = 40, 200

log = structlog.get_logger(__name__)


class MicroBatcher(Generic[T, R]):
    """Gathers what is asked within one turn of the loop, or while earlier batches are on their way.

    Alone, a question is on its way at once; under load, batches grow by themselves. One item that spoils its batch
    fails alone.
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
        """``act`` answers a list of items with a list of the same length; ``shared`` errors are nobody's own fault."""
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
        try:
            answers = await self._act([item for item, _ in batch])
        except self._shared as error:
            for _, future in batch:
                _fail(future, error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who asked are told
            await self._one_by_one(batch, error)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if future is not None and not future.done():
                    future.set_result(answer)

    async def _one_by_one(self, batch: Sequence[tuple[T, asyncio.Future[R] | None]], error: BaseException) -> None:
        if len(batch) == 1 or not isinstance(error, Exception):
            for _, future in batch:
                _fail(future, error)
            return
        detail = f"{type(error).__name__}: {error}"[:500]
        log.warning("batch_retried_individually", batch=self._name, count=len(batch), error=detail)
        for pair in batch:
            await self._answer([pair])


def _fail(future: asyncio.Future[R] | None, error: BaseException) -> None:
    if future is not None and not future.done():
        future.set_exception(error)


async def batch_or_each(
    act: Callable[[Sequence[T]], Awaitable[list[R]]],
    items: Sequence[T],
    event: str,
    failed: Callable[[T, Exception], Awaitable[None]],
    named: Callable[[T], dict[str, str]],
) -> list[R]:
    """Act on all items in one transaction; if one of them spoils it, on each in its own, so that it fails alone."""
    try:
        return await act(items)
    except UnavailableError:
        raise
    except Exception:
        log.exception(event, count=len(items))
    results: list[R] = []
    for item in items:
        try:
            results += await act([item])
        except UnavailableError:
            raise
        except Exception as error:
            log.exception(event, **named(item))
            await failed(item, error)
    return results
