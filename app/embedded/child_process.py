"""One supervised child process: its command, its output, how it is stopped and when it is restarted."""

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Self

import msgspec
from rich.console import Console
from rich.text import Text

from app.clock import monotonic
from app.embedded.accounts import Account

LAUNCHER = Path(__file__).with_name("launch.py")
UNCHANGED_ACCOUNT = Account(-1, -1)
# The exit code of a shell for a program that it cannot start. Here the machine has no process or memory left.
CANNOT_START = 126
CHUNK_BYTES = 65536
# How long to read on after the child's exit. Grandchildren may hold the pipe open; they are not waited for.
FINAL_OUTPUT_SECONDS = 0.5
# The time limit of each stop step after the operator has asked to stop a second time.
HASTENED_SECONDS = 0.3
PREFIX_WIDTH = 8
STYLES = {"postgres": "blue", "valkey": "magenta", "migrate": "yellow", "api": "green", "worker": "cyan"}


class StopStep(msgspec.Struct, frozen=True):
    """A signal, and the time the child has to exit before the next, harsher one is sent."""

    signal: Signals
    seconds: float


# The API and the worker drain within 3 s; with the time that the servers need after them, everything stops within 10 s.
DRAIN_STEPS = (StopStep(SIGTERM, 6.0), StopStep(SIGKILL, 5.0))


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program with its arguments, environment, folder and account."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path | None = None
    account: Account | None = None
    # What the kernel sends to the child when this process dies, even by kill -9.
    death_signal: Signals = SIGKILL
    # Whether the child waits for the lock on its folder and holds it while it runs.
    exclusive: bool = False

    def launcher_argv(self) -> list[str]:
        """Return the command that starts the program through the launcher.

        Start it from the main thread: the kernel sends the death signal when the thread that started the child ends.
        """
        account = self.account or UNCHANGED_ACCOUNT
        numbers = (os.getpid(), self.death_signal, account.uid, account.gid, self.exclusive)
        return [sys.executable, "-IS", str(LAUNCHER), *(str(int(number)) for number in numbers), *self.argv]


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A child process: the prefix of its output lines, its command and how it is stopped."""

    name: str
    command: Command
    stop_steps: tuple[StopStep, ...] = DRAIN_STEPS
    # Output lines that contain any of these are not shown.
    muted: tuple[str, ...] = ()


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before a child that exited is started again: longer each time, until it runs for a while."""

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    # A child that ran for this long counts as healthy, and the pauses start over.
    settled_seconds: float = 30.0
    # A child that exits this often before everything is ready fails ``carillon up``: restarting does not help it.
    starts_before_ready: int = 5

    def pause_after(self, previous_pause: float, ran_seconds: float) -> float:
        """Return how long to wait before the next start."""
        if previous_pause == 0 or ran_seconds >= self.settled_seconds:
            return self.first_seconds
        return min(previous_pause * 2, self.longest_seconds)


def describe_exit(code: int) -> str:
    """Return how a process exited, as text for the operator."""
    return f"exited with signal {Signals(-code).value}" if code < 0 else f"exited with code {code}"


class PipeSafeConsole(Console):
    """A console that stops printing when the reader of its pipe is gone, and does not exit."""

    def on_broken_pipe(self) -> None:
        """Do what rich does, except for exiting."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()


class Output:
    """The output of ``carillon up``: one line per event, in colour on a terminal."""

    def __init__(self, console: Console) -> None:
        """Print on this console."""
        self._console = console

    @property
    def is_terminal(self) -> bool:
        """Whether the output goes to a terminal."""
        return self._console.is_terminal

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line of ``carillon up`` itself."""
        self._print(Text(text, style=style))

    def relay(self, name: str, line: str) -> None:
        """Print a line of a child after its name; the line keeps its own colours."""
        prefix = (f"{name:<{PREFIX_WIDTH}} | ", STYLES.get(name, "white"))
        self._print(Text.assemble(prefix, Text.from_ansi(line)))

    def _print(self, text: Text) -> None:
        try:
            # Soft-wrapped: a long line stays one line, so that it can be searched for.
            self._console.print(text, soft_wrap=True)
        except OSError:
            # The terminal was closed; SIGHUP follows.
            self._console.quiet = True


def standard_output() -> Output:
    """Return an output on stdout. Characters that its encoding lacks are escaped: printing must never fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Output(PipeSafeConsole(file=sys.stdout, highlight=False))


class RunningChild:
    """A child that has been started. Create it with ``start``."""

    def __init__(self, child: Child, process: asyncio.subprocess.Process, relay: asyncio.Task[None]) -> None:
        """Hold the process and the task that relays its output."""
        self._child = child
        self._process = process
        self._relay = relay

    @classmethod
    async def start(cls, child: Child, output: Output) -> Self:
        """Start the child in a session of its own, so that Ctrl-C in the terminal reaches only this process."""
        reading, writing = os.pipe()
        try:
            process = await _spawn(child, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(child, process, asyncio.create_task(_relay_lines(reading, child, output)))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait until the child has exited and its last lines are printed; return its exit code."""
        code = await self._process.wait()
        await asyncio.wait({self._relay}, timeout=FINAL_OUTPUT_SECONDS)
        self._relay.cancel()
        return code

    async def stop(self, hasten: asyncio.Event) -> None:
        """Send the signals of the stop steps until the child exits. Does nothing if it has exited already."""
        for step in self._child.stop_steps:
            if self._process.returncode is None:
                self._process.send_signal(step.signal)
            if await self._exits_within(step.seconds, hasten):
                return

    async def _exits_within(self, seconds: float, hasten: asyncio.Event) -> bool:
        """Return whether the child exits in time; setting ``hasten`` ends the waiting early."""
        exited = asyncio.create_task(self.wait())
        hastened = asyncio.create_task(hasten.wait())
        limit, awaited = (HASTENED_SECONDS, {exited}) if hasten.is_set() else (seconds, {exited, hastened})
        await asyncio.wait(awaited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        has_exited = exited.done()
        exited.cancel()
        hastened.cancel()
        return has_exited


async def _spawn(child: Child, output: int) -> asyncio.subprocess.Process:
    """Start the process with a pipe of our own: with asyncio's, waiting for the exit can wait for grandchildren too."""
    return await asyncio.create_subprocess_exec(
        *child.command.launcher_argv(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=child.command.cwd,
        env=child.command.env,
        start_new_session=True,
    )


async def _relay_lines(pipe: int, child: Child, output: Output) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(pipe, "rb", 0))
    try:
        async for raw_line in _lines(reader):
            line = raw_line.decode(errors="replace")
            if not any(part in line for part in child.muted):
                output.relay(child.name, line)
    finally:
        transport.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines without their line ends; a line that never ends is cut, so that it does not fill the memory."""
    rest = b""
    while chunk := await reader.read(CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > CHUNK_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


class Restarter:
    """Runs one child and starts it again whenever it exits, until it is stopped."""

    def __init__(self, child: Child, policy: RestartPolicy, output: Output) -> None:
        """Start the child in the background; needs a running event loop."""
        self.child = child
        self.exits = 0
        self.last_exit = ""
        self._policy = policy
        self._output = output
        self._running: RunningChild | None = None
        self._task = asyncio.create_task(self._run_forever())

    async def stop(self, hasten: asyncio.Event) -> None:
        """Stop restarting the child, then stop the child."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._running is not None:
            await self._running.stop(hasten)

    async def _run_forever(self) -> None:
        pause = 0.0
        while True:
            started = monotonic()
            code = await self._run_once()
            self.exits += 1
            self.last_exit = describe_exit(code)
            pause = self._policy.pause_after(pause, monotonic() - started)
            await asyncio.sleep(pause)

    async def _run_once(self) -> int:
        """Run the child until it exits; return its exit code."""
        try:
            self._running = await RunningChild.start(self.child, self._output)
        except OSError as error:
            self._output.print_line(f"{self.child.name} cannot be started: {error.strerror}", "red")
            return CANNOT_START
        if self.exits:
            restarted = f"{self.child.name} {self.last_exit}; started again (pid {self._running.pid})"
            self._output.print_line(restarted, "yellow")
        code = await self._running.wait()
        self._running = None
        return code
