"""One living child process: its output is relayed line by line, and it can be waited for and stopped."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Self

from app.embedded.child import Child
from app.embedded.output import Output

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
