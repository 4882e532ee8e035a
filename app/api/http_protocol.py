"""HTTP/1.1 for clients that may be hostile: uvicorn's httptools protocol with limits on bytes, time and connections.

uvicorn alone buffers a request's head without a limit, waits forever for the rest of a request, and keeps a response
forever that the client does not read.
"""

import asyncio
from enum import Enum
from http import HTTPStatus
from typing import Any, ClassVar, Protocol, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.problems import PROBLEM_TYPE, RETRY_AFTER_SECONDS, problem
from app.api.requests import STREAM, TrustedProxies
from app.domain.client_addresses import UNKNOWN, counted_as
from app.observability import metrics

TICK_SECONDS = 1.0


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what a client may use before it is authenticated."""

    # The request line and all headers.
    head_bytes: int = 32 * 1024
    head_seconds: int = 10
    body_seconds: int = 30
    # Longer than most clients and proxies keep an idle connection, so that they do not use one that was just closed.
    idle_seconds: int = 75
    # How long a response may wait until the client reads it.
    answer_seconds: int = 30
    connections: int = 4096
    connections_per_address: int = 512


class Connection(Protocol):
    """A connection that the register checks once a second."""

    def check(self, tick: int) -> None:
        """Close the connection if it has taken too long."""


class ConnectionRegister:
    """All open connections of one process, counted by address, and one timer for all of them.

    Time is counted in ticks of at least a second, so that no client's time passes while the process itself stalls.
    One timer for all costs less than starting and cancelling one for each request.
    """

    def __init__(self, limits: HttpLimits, proxies: TrustedProxies) -> None:
        """Start without connections."""
        self.limits = limits
        self.tick = 0
        self._proxies = proxies
        self._open: dict[Connection, str] = {}
        self._by_address: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection, address: str) -> bool:
        """Register a connection from this address; False if there are too many already."""
        key = "" if self._proxies.trusts(address) else counted_as(address)
        count = self._by_address.get(key, 0)
        if len(self._open) >= self.limits.connections or (key and count >= self.limits.connections_per_address):
            return False
        self._open[connection] = key
        self._by_address[key] = count + 1
        self._start_timer()
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that was closed; one that was never registered is ignored."""
        key = self._open.pop(connection, None)
        if key is None:
            return
        self._by_address[key] -= 1
        if not self._by_address[key]:
            del self._by_address[key]

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        self.tick += 1
        if self._open:
            self._start_timer()
        for connection in list(self._open):
            connection.check(self.tick)


# How much of a body is parsed at once, so that a pipelined request behind it is noticed after at most so many bytes.
SLICE_BYTES = 16 * 1024
# How much of a response a client must read within ``answer_seconds``.
READ_BYTES = 256 * 1024
# Requests that may wait behind one another on one connection.
MAX_PIPELINED = 32
# After a refusal the client's remaining bytes are read and dropped, so that the refusal is not lost to a reset.
LINGER_SECONDS = 2
LINGER_BYTES = 1024 * 1024
# One-byte chunks have five bytes around each; a body with more than this around it is an attack (endless trailers).
CHUNK_OVERHEAD = 8

# How the head of a response begins.
_HEAD = b"HTTP/1.1 "

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: ("malformed", "The request is not valid HTTP/1.1."),
    HTTPStatus.REQUEST_TIMEOUT: (
        "request_timeout",
        "The request did not arrive in time. Send it again.",
    ),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        "head_too_large",
        "The request line and headers are too large. Send fewer or shorter headers.",
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: ("too_many_connections", "There are too many connections. Try again later."),
}


def _refusal(status: HTTPStatus) -> bytes:
    content = msgspec.json.encode(problem(status, *_REFUSALS[status]))
    retry = f"retry-after: {RETRY_AFTER_SECONDS}\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
        f"content-length: {len(content)}\r\n{retry}x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + content


REFUSALS = {status: _refusal(status) for status in _REFUSALS}


class Phase(Enum):
    """What a connection is waiting for."""

    NEW = "new"
    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"
    IDLE = "idle"
    # Nothing more is read: the last response is being sent, or an error was sent.
    LAST_ANSWER = "last answer"
    REFUSED = "refused"


# Module-level names, because in Python 3.11 looking up a member in its enum costs ten times as much.
NEW, HEAD, BODY, ANSWER, IDLE, LAST_ANSWER, REFUSED = Phase


class JoinedWrites:
    """A transport that sends the head of a response together with what follows at once.

    uvicorn writes them one after the other, and uvloop makes a system call of each.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Hold nothing back yet."""
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Send bytes, but hold a head back until the next ones, at the longest until the loop goes on."""
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_HEAD):
            self._held = data
            self._loop.call_soon(self._send_held)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close after all that was written."""
        self._send_held()
        self._transport.close()

    def write_eof(self) -> None:
        """End the sending side after all that was written."""
        self._send_held()
        self._transport.write_eof()

    def _send_held(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        """Return what the transport itself has."""
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """One connection. ``limited_protocol`` sets what all connections of a server share."""

    register: ClassVar[ConnectionRegister]
    allowed_seconds: ClassVar[dict[Phase, float]]

    def __init__(self, *args: Any, **options: Any) -> None:
        """Wait for the first byte."""
        super().__init__(*args, **options)
        self._phase = NEW
        # When the phase began.
        self._since = self.register.tick
        # Bytes of the current head, raw and decoded bytes of the current body, bytes dropped after a refusal.
        self._head_bytes = self._raw_bytes = self._body_bytes = self._dropped_bytes = 0
        self._heads = self._taken = 0
        # The request that is being processed, or was last.
        self._answered: Any = None
        # Since when the client reads too little of a response: the tick, and what was read and what was left then.
        self._unread: tuple[int, int, int] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", JoinedWrites(transport, self.loop))
        if not self.register.add(self, self.client[0] if self.client else UNKNOWN):
            _count(HTTPStatus.SERVICE_UNAVAILABLE)
            transport.write(REFUSALS[HTTPStatus.SERVICE_UNAVAILABLE])
            transport.close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Remember which request is being processed: uvicorn itself knows only the newest of a pipeline."""
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection, and stop writing the response: each write would leave a traceback in the log."""
        self.register.remove(self)
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Finish the current response, but end a stream at once: it would hold the whole process up."""
        if self._answered is not None and not self._answered.response_complete and _is_stream(self._answered):
            self.transport.close()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, never more of a head than is allowed."""
        while data:
            if self._phase is REFUSED or self._phase is LAST_ANSWER:
                self._drop(data)
                return
            in_body = self._phase is BODY
            room = SLICE_BYTES if in_body else self.register.limits.head_bytes - self._head_bytes
            if room <= 0:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                continue
            piece, data = data[:room], data[room:]
            if in_body:
                self._take_body(piece)
            else:
                self._take_head(piece)

    def _take_head(self, piece: bytes) -> None:
        if self._phase is not HEAD:
            self._phase = HEAD
            self._since = self.register.tick
        heads = self._heads
        self._parse(piece)
        if self._phase is HEAD and heads == self._heads:
            self._head_bytes += len(piece)

    def _take_body(self, piece: bytes) -> None:
        heads = self._heads
        self._parse(piece)
        if self._phase is not BODY or heads != self._heads:
            return
        self._raw_bytes += len(piece)
        if self._raw_bytes > CHUNK_OVERHEAD * self._body_bytes + self.register.limits.head_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self.cycle.response_complete:
            self._drop(piece)

    def _parse(self, piece: bytes) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # There is nothing to upgrade to. The request is processed without it, and nothing is read after it.
            self.cycle.keep_alive = False
            self._enter(LAST_ANSWER)
            return
        except httptools.HttpParserError:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        # uvicorn makes a scope when a request begins, and a cycle of it when its head is complete.
        if self._phase is ANSWER and self.scope is not self.cycle.scope:
            self._enter(HEAD)

    def _drop(self, data: bytes) -> None:
        """Drop bytes that are not needed; close the connection of a client that sends too many of them."""
        self._dropped_bytes += len(data)
        if self._dropped_bytes > LINGER_BYTES:
            self.transport.abort()

    # Callbacks of the parser.
    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("Too many requests are waiting on one connection.")
        super().on_headers_complete()
        self._heads += 1
        self._head_bytes = self._raw_bytes = self._body_bytes = 0
        self._phase = BODY
        self._since = self.register.tick

    def on_body(self, body: bytes) -> None:
        """Count a part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        super().on_message_complete()
        self._phase = ANSWER
        if self.cycle.response_complete:
            self._enter(IDLE)

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or wait for one; like uvicorn's method, but without a timer."""
        self.server_state.total_requests += 1
        self._taken += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._phase is ANSWER:
            self._phase = IDLE
            self._since = self.register.tick

    # Timeouts.
    def check(self, tick: int) -> None:
        """Close the connection if the client has taken too long."""
        if self._leaves_answers_unread(tick):
            metrics.HTTP_REFUSED.labels("not_read").inc()
            self.transport.abort()
        elif tick - self._since <= self.allowed_seconds[self._phase]:
            return
        elif self.flow.read_paused or (self._phase is HEAD and self._is_answering()):
            # The delay is ours: we have paused reading.
            self._since = tick
        else:
            self._end_late()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self.register.tick

    def _leaves_answers_unread(self, tick: int) -> bool:
        """Return whether the client has read next to nothing of a response for too long."""
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
            return False
        if self._unread is None or self._unread[1] != self._taken or left <= self._unread[2] - READ_BYTES:
            self._unread = (tick, self._taken, left)
        return tick - self._unread[0] > self.register.limits.answer_seconds

    def resume_writing(self) -> None:
        """Note that the client has read most of what was waiting for it."""
        self._taken += 1
        super().resume_writing()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _end_late(self) -> None:
        if self._phase is HEAD or (self._phase is BODY and self._is_answering()):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        elif self._phase is REFUSED:
            self.transport.abort()
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        """Send an error and close, or only close if another response is being sent."""
        _count(status)
        is_open = self.cycle is None or self.cycle.response_complete
        waits_for_body = self._phase is BODY and not self.pipeline and not self.cycle.response_started
        self._enter(REFUSED)
        if self.transport.is_closing():
            return
        if is_open or waits_for_body:
            self.transport.write(REFUSALS[status])
            self.transport.write_eof()
        else:
            self.transport.close()
        self._disconnect()

    def _disconnect(self) -> None:
        """Tell the application, which waits for a body, that none will come."""
        if self._is_answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()


def _is_stream(cycle: Any) -> bool:
    return bool(cycle.scope.get("state", {}).get(STREAM))


def _count(status: HTTPStatus) -> None:
    metrics.HTTP_REFUSED.labels(_REFUSALS[status][0]).inc()


def limited_protocol(limits: HttpLimits, proxies: TrustedProxies) -> type[LimitedProtocol]:
    """Make the protocol of one server, with a register of its own."""

    class Protocol(LimitedProtocol):
        register = ConnectionRegister(limits, proxies)
        allowed_seconds: ClassVar[dict[Phase, float]] = {
            NEW: limits.head_seconds,
            HEAD: limits.head_seconds,
            BODY: limits.body_seconds,
            ANSWER: float("inf"),
            IDLE: limits.idle_seconds,
            LAST_ANSWER: float("inf"),
            REFUSED: LINGER_SECONDS,
        }

    return Protocol
