"""Keeps one child running: started, waited for, started again."""

import asyncio

from app.clock import monotonic
from app.embedded.child import Child, RestartPolicy, exit_words
from app.embedded.child_process import RunningChild
from app.embedded.output import Output

# As a shell would say it; the machine has no process or memory to spare.
NOT_STARTED = 126


class Keeper:
    """One child's place among the running processes, over all its lives."""

    def __init__(self, child: Child, policy: RestartPolicy, output: Output) -> None:
        """Start keeping it; needs a running event loop."""
        self.child = child
        self.exits = 0
        self.last_exit = ""
        self._policy = policy
        self._output = output
        self._running: RunningChild | None = None
        self._task = asyncio.create_task(self._keep())

    async def stop(self, hasten: asyncio.Event) -> None:
        """Keep it no longer, and end it."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._running is not None:
            await self._running.stop(hasten)

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            started = monotonic()
            code = await self._live()
            self.exits += 1
            self.last_exit = exit_words(code)
            pause = self._policy.pause_after(pause, monotonic() - started)
            await asyncio.sleep(pause)

    async def _live(self) -> int:
        """One life, from start to end."""
        try:
            self._running = await RunningChild.start(self.child, self._output)
        except OSError as error:
            self._output.say(f"{self.child.name} cannot be started: {error.strerror}", "red")
            return NOT_STARTED
        self._report_restart(self._running.pid)
        code = await self._running.wait()
        self._running = None
        return code

    def _report_restart(self, pid: int) -> None:
        if self.exits:
            self._output.say(f"{self.child.name} {self.last_exit}; started again (pid {pid})", "yellow")
