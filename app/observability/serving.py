"""The HTTP server of a worker: /metrics for Prometheus, /health/live and /health/ready for probes."""

import asyncio
import errno
import hmac
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from app.observability.metrics import CONTENT_TYPE, exposition

MOST_HEAD_BYTES = 16 * 1024
# For one request and its response. A connection serves one request: probes and Prometheus ask every few seconds.
CONNECTION_SECONDS = 30.0

log = structlog.get_logger(__name__)

# As a host, the addresses of both families.
ALL_ADDRESSES = "::"
BACKLOG = 2048
# A host and a port, or the path of a unix socket.
Address = tuple[str, int] | Path


class Health(msgspec.Struct, frozen=True):
    """Whether a process can work, and the details as a JSON body."""

    is_ready: bool
    body: bytes


class Answers(Protocol):
    """The source of the answers to probes and Prometheus."""

    async def live(self) -> bool:
        """Return False if the process should be restarted."""

    async def ready(self) -> Health:
        """Return whether the process can work now."""

    async def metrics(self) -> bytes:
        """Return the metrics in Prometheus's text format."""


class OwnAnswers:
    """The answers of this process about itself."""

    def __init__(self, health: Callable[[], Health]) -> None:
        """Take readiness from this function."""
        self._health = health

    async def live(self) -> bool:
        """Return True: a process that can answer is alive."""
        return True

    async def ready(self) -> Health:
        """Return what the process knows about its own health."""
        return self._health()

    async def metrics(self) -> bytes:
        """Return all metrics of this process."""
        return exposition()


@asynccontextmanager
async def serving(address: Address, answers: Answers, metrics_token: str = "") -> AsyncIterator[None]:
    """Serve the answers for the duration of the block; /metrics requires the bearer token if one is set."""
    open_connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_serve(reader, writer, answers, metrics_token))
        open_connections.add(task)
        task.add_done_callback(open_connections.discard)

    if isinstance(address, Path):
        server = await asyncio.start_unix_server(accept, address, limit=MOST_HEAD_BYTES)
    elif address[0] == ALL_ADDRESSES:
        server = await asyncio.start_server(accept, sock=listen_on_all(address[1]), limit=MOST_HEAD_BYTES)
    else:
        server = await asyncio.start_server(accept, *address, limit=MOST_HEAD_BYTES)
    try:
        yield
    finally:
        server.close()
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers, metrics_token: str
) -> None:
    """Answer one request and close the connection."""
    try:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(CONNECTION_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _response_or_error(head, answers, metrics_token))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
    finally:
        writer.transport.abort()


async def _response_or_error(head: bytes, answers: Answers, metrics_token: str) -> bytes:
    """Return the response to the request with this head; 500 if the process has a defect."""
    try:
        return await _response(head, answers, metrics_token)
    except Exception:
        log.exception("request_failed")
        return _encoded(HTTPStatus.INTERNAL_SERVER_ERROR, b"")


async def _response(head: bytes, answers: Answers, metrics_token: str) -> bytes:
    """Return the response to the request with this head."""
    request_line, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = request_line.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method not in {"GET", "HEAD"}:
        response = _encoded(HTTPStatus.METHOD_NOT_ALLOWED, b"", "Allow: GET, HEAD")
    elif path == "/health/live":
        is_alive = await answers.live()
        body = msgspec.json.encode({"status": "ok" if is_alive else "stuck"})
        response = _encoded(_status(is_ok=is_alive), body, "Content-Type: application/json")
    elif path == "/health/ready":
        health = await answers.ready()
        response = _encoded(_status(is_ok=health.is_ready), health.body, "Content-Type: application/json")
    elif path != "/metrics":
        response = _encoded(HTTPStatus.NOT_FOUND, b"")
    elif metrics_token and not _has_token(lines, metrics_token):
        response = _encoded(HTTPStatus.UNAUTHORIZED, b"", "WWW-Authenticate: Bearer")
    else:
        response = _encoded(HTTPStatus.OK, await answers.metrics(), f"Content-Type: {CONTENT_TYPE}")
    return response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else response


def _status(*, is_ok: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE


def _encoded(status: HTTPStatus, body: bytes, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status} {status.phrase}", *headers, f"Content-Length: {len(body)}", "Connection: close")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def _has_token(lines: list[str], token: str) -> bool:
    """Return whether the headers have the bearer token."""
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def listen_on_all(port: int) -> socket.socket:
    """Return a socket for clients of both address families; of IPv4 alone where the machine has no IPv6.

    asyncio and uvicorn would listen on IPv6 alone.
    """
    try:
        return socket.create_server((ALL_ADDRESSES, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)  # noqa: S104 - what the setting asks for
