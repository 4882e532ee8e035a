"""Runs processes in the order given, keeps them running, and stops them in the reverse order on a signal."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from app.clock import monotonic
from app.embedded.child_process import Child, Output, Restarter, RestartPolicy, RunningChild, exit_words
from app.embedded.errors import ChildFailed

POLL_SECONDS = 0.05
REMINDER_SECONDS = 15.0

# What is still missing, in words; None when nothing is. It may block: it is asked in a thread.
Probe = Callable[[], str | None]
# SIGHUP: the terminal was closed.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """The parent of all processes of ``carillon up``. Runs in the main thread, which its children die with."""

    def __init__(self, output: Output, policy: RestartPolicy | None = None) -> None:
        """Report on this output."""
        self._output = output
        self._policy = policy or RestartPolicy()
        self._tiers: list[list[Restarter]] = []
        self._stopping = False
        self._hasten = asyncio.Event()

    async def run(self, bring_up: Callable[["Supervisor"], Awaitable[None]]) -> None:
        """Bring everything up, keep it running until a signal asks to stop, and leave nothing running."""
        work = asyncio.ensure_future(self._work(bring_up))
        with self._signals(work):
            try:
                await asyncio.wait({work})
            finally:
                work.cancel()
                await self._stop_all()
        if not work.cancelled():
            work.result()

    def keep_running(self, *children: Child) -> None:
        """Start children side by side. They are stopped together, before those that were started earlier."""
        self._tiers.append([Restarter(child, self._policy, self._output) for child in children])

    async def complete(self, child: Child) -> None:
        """Run a child to its end; a bad end is an error."""
        running = await RunningChild.start(child, self._output)
        try:
            code = await running.wait()
        finally:
            await running.stop(self._hasten)
        if code:
            raise ChildFailed(f"{child.name} {exit_words(code)}; its lines above say why")

    async def until(self, what: str, probe: Probe) -> None:
        """Wait until nothing is missing; now and then say what is. Children that cannot live are an error."""
        reminder = monotonic() + REMINDER_SECONDS
        while (missing := await asyncio.to_thread(probe)) is not None:
            self._give_up_on_the_failing()
            if monotonic() > reminder:
                self._output.say(f"Still waiting for {what}: {missing}", "yellow")
                reminder = monotonic() + REMINDER_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    async def _work(self, bring_up: Callable[["Supervisor"], Awaitable[None]]) -> None:
        await bring_up(self)
        # From here on the keepers do the work, until a signal cancels this.
        await asyncio.get_running_loop().create_future()

    def _give_up_on_the_failing(self) -> None:
        for keeper in (keeper for tier in self._tiers for keeper in tier):
            if keeper.exits >= self._policy.starts_before_ready:
                raise ChildFailed(
                    f"{keeper.child.name} does not start: it was tried {keeper.exits} times and {keeper.last_exit}; "
                    "its lines above say why"
                )

    async def _stop_all(self) -> None:
        self._stopping = True
        for tier in reversed(self._tiers):
            await asyncio.gather(*(keeper.stop(self._hasten) for keeper in tier))

    @contextmanager
    def _signals(self, work: asyncio.Future[None]) -> Iterator[None]:
        """The first signal stops the work; another one hastens the stop. Under nohup a closed terminal is ignored."""
        loop = asyncio.get_running_loop()
        heeded = [number for number in STOP_SIGNALS if not _is_ignored(number)]
        for number in heeded:
            loop.add_signal_handler(number, self._on_signal, work)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)

    def _on_signal(self, work: asyncio.Future[None]) -> None:
        if self._stopping:
            self._hasten.set()
            return
        self._stopping = True
        self._output.say("Stopping ... (once more to hasten it)", "yellow")
        work.cancel()


def _is_ignored(number: signal.Signals) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
