"""An HTTP client that sends any bytes, as hostile clients do."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import msgspec

PATIENCE_SECONDS = 60.0
RESET = (ConnectionResetError, BrokenPipeError)


class RawConnection:
    """A connection that sends and receives bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *pieces: bytes) -> bool:
        """Send bytes; False if the server has closed the connection."""
        try:
            for piece in pieces:
                self._writer.write(piece)
                await asyncio.wait_for(self._writer.drain(), PATIENCE_SECONDS)
        except RESET:
            return False
        return not self._writer.is_closing()

    async def until_closed(self) -> bytes:
        """Wait until the server closes the connection, and return everything that it sent."""
        received = b""
        with suppress(*RESET):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while piece := await self._reader.read(65536):
                    received += piece
        return received

    async def answer(self) -> tuple[int, bytes]:
        """Read one answer with a Content-Length, and return its status and body."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            return int(head[9:12]), await self._reader.readexactly(length)

    def stop_reading(self) -> None:
        """Stop reading what the server sends."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined] # it can be read from

    def close(self) -> None:
        """Close the connection at once, without sending what is still buffered."""
        self._writer.transport.abort()


@asynccontextmanager
async def raw_connection(url: str, address: str = "127.0.0.1") -> AsyncIterator[RawConnection]:
    """Open a connection from this address to the server of a URL until the block ends."""
    parts = urlsplit(url)
    client = socket.socket()
    # The kernel shall not read megabytes for a client that reads nothing.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    client.bind((address, 0))
    client.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(client, (parts.hostname, parts.port))
    except BaseException:
        client.close()
        raise
    connection = RawConnection(*await asyncio.open_connection(sock=client))
    try:
        yield connection
    finally:
        connection.close()


def status_of(received: bytes) -> int:
    """Return the status of the first answer in these bytes, or 0 if there is none."""
    return int(received[9:12]) if received.startswith(b"HTTP/1.1 ") else 0


def code_of(received: bytes) -> str:
    """Return the ``code`` of the problem document in these bytes."""
    return str(msgspec.json.decode(received.partition(b"\r\n\r\n")[2])["code"])
