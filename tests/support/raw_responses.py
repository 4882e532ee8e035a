"""A server that answers every request with raw bytes, and counts its connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

# Answers a request, which is its head and its body, on a connection.
Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """Reads requests on each connection and calls the handler with them, until one side closes the connection."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.port = 0
        self.requests: list[bytes] = []
        self.connections = 0
        self.open: dict[asyncio.StreamWriter, asyncio.Event] = {}

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        self.open[writer] = closed = asyncio.Event()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    request = await _request(reader)
                    self.requests.append(request)
                    await self.handler(request, writer)
        finally:
            del self.open[writer]
            writer.transport.abort()
            closed.set()

    async def all_closed(self) -> None:
        """Wait until no connection is open."""
        for closed in tuple(self.open.values()):
            await closed.wait()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    _, found, rest = head.lower().partition(b"content-length: ")
    return head + (await reader.readexactly(int(rest.partition(b"\r\n")[0])) if found else b"")


@asynccontextmanager
async def raw_server(handler: Handler, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[RawServer]:
    """Run a server until the block ends, by default on a free port."""
    raw = RawServer(handler)
    server = await asyncio.start_server(raw.serve, host, port)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        for writer in raw.open:
            writer.transport.abort()
        await raw.all_closed()
        await server.wait_closed()


def always(*pieces: bytes) -> Handler:
    """Answer each request with these bytes and keep the connection."""

    async def handle(_request: bytes, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return handle
