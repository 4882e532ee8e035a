"""Supervised child processes: their command, their output, and the rule by which they are restarted."""

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import AsyncIterator, Callable
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


class StopStep(msgspec.Struct, frozen=True):
    """One signal and how long it may take before the next, harsher one."""

    signal: Signals
    seconds: float


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program with its arguments and surroundings."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path | None = None
    account: Account | None = None
    # What the kernel sends it when our process is gone, even by kill -9.
    death_signal: Signals = SIGKILL
    # Whether it shall wait for, and then hold, the lock of its folder.
    exclusive: bool = False

    def launcher_argv(self) -> list[str]:
        """The command by way of the launcher. To be run by our main thread: the death signal watches that one."""
        account = self.account or UNCHANGED_ACCOUNT
        numbers = (os.getpid(), self.death_signal, account.uid, account.gid, self.exclusive)
        return [sys.executable, "-IS", str(LAUNCHER), *(str(int(number)) for number in numbers), *self.argv]


# The API and the worker drain in 3 s; with what the servers take after them all ends within 10 s.
DRAIN_STEPS = (StopStep(SIGTERM, 6.0), StopStep(SIGKILL, 5.0))


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, under which name its lines appear, and how it is stopped."""

    name: str
    command: Command
    stop_steps: tuple[StopStep, ...] = DRAIN_STEPS
    # Lines with any of these are not shown.
    muted: tuple[str, ...] = ()


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A child that ends is started again after a pause, a longer one each time, until it has lived for a while."""

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    settled_seconds: float = 30.0
    # Before all is ready a child that ends this often is given up: something is wrong that waiting does not mend.
    starts_before_ready: int = 5

    def pause_after(self, previous_pause: float, lived_seconds: float) -> float:
        """How long to wait before the next start."""
        if previous_pause == 0 or lived_seconds >= self.settled_seconds:
            return self.first_seconds
        return min(previous_pause * 2, self.longest_seconds)


def exit_words(code: int) -> str:
    """How a process ended, for people."""
    return f"exited with signal {Signals(-code).value}" if code < 0 else f"exited with code {code}"


PREFIX_WIDTH = 8
STYLES = {"postgres": "blue", "valkey": "magenta", "migrate": "yellow", "api": "green", "worker": "cyan"}


class QuietableConsole(Console):
    """A console that falls silent when its reader has gone; the work goes on."""

    def on_broken_pipe(self) -> None:
        """Do what rich does, except for ending the process."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()


class Output:
    """One line per event, in colour on a terminal, plain elsewhere."""

    def __init__(self, console: Console) -> None:
        """Print on this console."""
        self._console = console

    @property
    def is_terminal(self) -> bool:
        """Whether a person is watching."""
        return self._console.is_terminal

    def say(self, text: str, style: str = "") -> None:
        """Print a line of our own."""
        self._print(Text(text, style=style))

    def relay(self, name: str, line: str) -> None:
        """Print a child's line; colours that it chose stay."""
        prefix = (f"{name:<{PREFIX_WIDTH}} | ", STYLES.get(name, "white"))
        self._print(Text.assemble(prefix, Text.from_ansi(line)))

    def _print(self, text: Text) -> None:
        try:
            # Soft-wrapped: a line stays one line, however wide, and can be searched for.
            self._console.print(text, soft_wrap=True)
        except OSError:
            # The terminal is gone; the signal that says so is under way.
            self._console.quiet = True


def standard_output() -> Output:
    """Our own standard output. What its encoding lacks is escaped: a child's odd letter must not stop us."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Output(QuietableConsole(file=sys.stdout, highlight=False))


CHUNK_BYTES = 65536
# After its end: grandchildren may hold the pipe open, and they are not waited for.
LAST_WORDS_SECONDS = 0.5
# What a signal gets once the operator has asked twice.
HASTENED_SECONDS = 0.3


class RunningChild:
    """A started child. Made by ``start``."""

    def __init__(self, child: Child, process: asyncio.subprocess.Process, relay: asyncio.Task[None]) -> None:
        """Hold what belongs to one process."""
        self._child = child
        self._process = process
        self._relay = relay

    @classmethod
    async def start(cls, child: Child, output: Output) -> Self:
        """Run the child, in a session of its own so that a terminal's Ctrl-C reaches only us."""
        reading, writing = os.pipe()
        try:
            process = await _spawn(child, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return cls(child, process, asyncio.create_task(_relay(reading, _shown(child, output))))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def wait(self) -> int:
        """Its exit code, when it has ended and its last lines are out."""
        code = await self._process.wait()
        await asyncio.wait({self._relay}, timeout=LAST_WORDS_SECONDS)
        self._relay.cancel()
        return code

    async def stop(self, hasten: asyncio.Event) -> None:
        """End it, gently at first. Nothing happens if it has ended."""
        for step in self._child.stop_steps:
            if self._process.returncode is None:
                self._process.send_signal(step.signal)
            if await self._ends_within(step.seconds, hasten):
                return

    async def _ends_within(self, seconds: float, hasten: asyncio.Event) -> bool:
        """Whether it ends in time; asking to hasten cuts the time short."""
        end = asyncio.create_task(self.wait())
        asked = asyncio.create_task(hasten.wait())
        limit, awaited = (HASTENED_SECONDS, {end}) if hasten.is_set() else (seconds, {end, asked})
        await asyncio.wait(awaited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        ended = end.done()
        end.cancel()
        asked.cancel()
        return ended


async def _spawn(child: Child, output: int) -> asyncio.subprocess.Process:
    """Our own pipe rather than asyncio's: with that, waiting for the process can also wait for its grandchildren."""
    return await asyncio.create_subprocess_exec(
        *child.command.launcher_argv(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=child.command.cwd,
        env=child.command.env,
        start_new_session=True,
    )


def _shown(child: Child, output: Output) -> Callable[[str], None]:
    def show(line: str) -> None:
        if not any(part in line for part in child.muted):
            output.relay(child.name, line)

    return show


async def _relay(pipe: int, show: Callable[[str], None]) -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(pipe, "rb", 0))
    try:
        async for line in _lines(reader):
            show(line.decode(errors="replace"))
    finally:
        transport.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines without their ends; an endless one is cut rather than kept in memory."""
    rest = b""
    while chunk := await reader.read(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > CHUNK_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


# As a shell would say it; the machine has no process or memory to spare.
NOT_STARTED = 126


class Restarter:
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
