"""The supervisor of ``carillon up``: start processes in order, restart those that exit, stop them in reverse order."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from app.clock import monotonic
from app.embedded.child_process import Child, Output, Restarter, RestartPolicy, RunningChild, describe_exit
from app.embedded.errors import ChildFailed

POLL_SECONDS = 0.05
REMINDER_SECONDS = 15.0

# Returns what is still missing, as text, or None if nothing is. It may block: it is called in a thread.
Probe = Callable[[], str | None]
# SIGHUP means that the terminal was closed.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """The parent of all processes of ``carillon up``. Run it in the main thread: the children die with that thread."""

    def __init__(self, output: Output, policy: RestartPolicy | None = None) -> None:
        """Print what happens on this output."""
        self._output = output
        self._policy = policy or RestartPolicy()
        self._tiers: list[list[Restarter]] = []
        self._stopping = False
        self._hasten = asyncio.Event()

    async def run(self, bring_up: Callable[["Supervisor"], Awaitable[None]]) -> None:
        """Start everything by ``bring_up``, keep it running until a signal arrives, then stop all children."""
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
        """Start children together. They are stopped together, before those that were started by earlier calls."""
        self._tiers.append([Restarter(child, self._policy, self._output) for child in children])

    async def run_to_end(self, child: Child) -> None:
        """Run a child until it exits; raise an error if it fails."""
        running = await RunningChild.start(child, self._output)
        try:
            code = await running.wait()
        finally:
            await running.stop(self._hasten)
        if code:
            raise ChildFailed(f"{child.name} {describe_exit(code)}; see its output above")

    async def wait_for(self, what: str, probe: Probe) -> None:
        """Wait until the probe finds nothing missing; print at times what is missing; fail if a child keeps exiting."""
        reminder = monotonic() + REMINDER_SECONDS
        while (missing := await asyncio.to_thread(probe)) is not None:
            self._fail_if_a_child_keeps_exiting()
            if monotonic() > reminder:
                self._output.print_line(f"Still waiting for {what}: {missing}", "yellow")
                reminder = monotonic() + REMINDER_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    async def _work(self, bring_up: Callable[["Supervisor"], Awaitable[None]]) -> None:
        await bring_up(self)
        # From here on the restarters do the work, until a signal cancels this task.
        await asyncio.get_running_loop().create_future()

    def _fail_if_a_child_keeps_exiting(self) -> None:
        for restarter in (restarter for tier in self._tiers for restarter in tier):
            if restarter.exits >= self._policy.starts_before_ready:
                raise ChildFailed(
                    f"{restarter.child.name} does not start: it was tried {restarter.exits} times and "
                    f"{restarter.last_exit}; see its output above"
                )

    async def _stop_all(self) -> None:
        self._stopping = True
        for tier in reversed(self._tiers):
            await asyncio.gather(*(restarter.stop(self._hasten) for restarter in tier))

    @contextmanager
    def _signals(self, work: asyncio.Future[None]) -> Iterator[None]:
        """Stop at the first signal, faster at the second. Under nohup a closed terminal does not stop anything."""
        loop = asyncio.get_running_loop()
        handled = [number for number in STOP_SIGNALS if not _is_ignored(number)]
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, work)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _on_signal(self, work: asyncio.Future[None]) -> None:
        if self._stopping:
            self._hasten.set()
            return
        self._stopping = True
        self._output.print_line("Stopping ... (Ctrl-C again to stop faster)", "yellow")
        work.cancel()


def _is_ignored(number: signal.Signals) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
