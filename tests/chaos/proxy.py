"""A proxy between two processes, on sockets of this machine, that can be told to misbehave."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

CHUNK = 65536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


class Proxy:
    """Passes bytes on, unless a fault is set. ``heal`` makes it honest again; broken connections stay broken."""

    def __init__(self, connect: Connect) -> None:
        """Connect to the other side in this way."""
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.delay = 0.0
        self.cut_after: int | None = None
        self.refusing = False

    async def listen_unix(self, path: Path) -> Self:
        """Be found at a path."""
        self._server = await asyncio.start_unix_server(self._accept, path)
        return self

    async def listen_tcp(self) -> int:
        """Be found on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def reset(self) -> None:
        """Break every connection, as a host that has gone."""
        for writer in list(self._writers):
            writer.transport.abort()

    def swallow(self) -> None:
        """Take everything and pass nothing on, as a network that drops packets."""
        self._open.clear()

    def heal(self) -> None:
        """Pass on again what comes, at once; whatever was swallowed on the way comes late, as TCP has it."""
        self.delay, self.cut_after, self.refusing = 0.0, None, False
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await source.read(CHUNK):
                await self._open.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if self.cut_after is not None:
                    data, self.cut_after = data[: self.cut_after], self.cut_after - len(data)
                    if self.cut_after <= 0:
                        sink.write(data)
                        self.cut_after = None
                        break
                sink.write(data)
                await sink.drain()
        self._writers.discard(sink)
        sink.transport.abort() if self.refusing else sink.close()


def to_unix(path: Callable[[], Path]) -> Connect:
    """Connect to a socket at a path."""

    async def connect() -> Streams:
        return await asyncio.open_unix_connection(path())

    return connect


def to_port(port: Callable[[], int]) -> Connect:
    """Connect to a port of loopback."""

    async def connect() -> Streams:
        return await asyncio.open_connection("127.0.0.1", port())

    return connect
