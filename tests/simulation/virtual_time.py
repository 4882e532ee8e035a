"""An event loop whose time stands still until nothing is left to do, and then jumps to whatever comes next."""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

# Postgres answers sooner than this, or the simulation itself is stuck: a lock that nobody gives back.
STUCK_SECONDS = 30.0
# Too little to matter, enough to tell timers apart.
APART_SECONDS = 1e-11


class StuckError(Exception):
    """Nothing can happen any more: the simulation itself is at fault."""


class _Selector(selectors.DefaultSelector):
    """Asked to wait, it lets the world go on instead, unless an answer of Postgres is on its way."""

    def __init__(self) -> None:
        super().__init__()
        # How many questions to Postgres are open; without one, nothing can be heard.
        self.questions = 0
        self.go_on: Callable[[float | None], None] = lambda _timeout: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.questions:
            answers = super().select(0 if timeout == 0 else STUCK_SECONDS)
            if timeout == 0 or answers:
                return answers
            raise StuckError("Postgres does not answer")
        if timeout != 0:
            self.go_on(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock moves only while no callback is ready, no question to Postgres is open and nobody wants to go on.

    That, and that one task at a time is let go, is what makes a history the same whenever it is run.
    """

    def __init__(self) -> None:
        self._moment = 0.0
        self._timers: list[asyncio.TimerHandle] = []
        # Lets one of those go on who wait to; False if nobody does.
        self.let_one_go: Callable[[], bool] = lambda: False
        self._asking = _Selector()
        self._asking.go_on = self._go_on
        super().__init__(self._asking)
        # Timers that are told apart never come together: that would depend on how many others were made between them.
        self._clock_resolution = APART_SECONDS / 2

    def time(self) -> float:
        """Seconds since the beginning of the history."""
        return self._moment

    def begin_anew(self) -> None:
        """Another history begins."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._moment = 0.0

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """At a time that no other timer has: those of one moment come in the order in which they were made."""
        timer = super().call_at(when + len(self._timers) * APART_SECONDS, callback, *args, context=context)
        self._timers.append(timer)
        return timer

    @contextmanager
    def question(self) -> Iterator[None]:
        """While this lasts, Postgres is being asked: time stands still and nobody else is let go."""
        self._asking.questions += 1
        try:
            yield
        finally:
            self._asking.questions -= 1

    @contextmanager
    def no_question(self) -> Iterator[None]:
        """Within a question: others go on meanwhile."""
        self._asking.questions -= 1
        try:
            yield
        finally:
            self._asking.questions += 1

    def _go_on(self, timeout: float | None) -> None:
        if self.let_one_go():
            return
        if timeout is None:
            raise StuckError("everybody waits for somebody else")
        self._moment += timeout
