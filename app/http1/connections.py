"""Connections: opened to one of the given addresses, with TLS where the URL says so, and kept for a few seconds."""

import asyncio
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from app.http1.requests import Request, Target
from app.http1.response import (
    ExchangeError,
    IncompleteResponseError,
    InvalidResponseError,
    Response,
    ResponseReader,
)

CONNECT_SECONDS = 10.0
# The next address is tried beside the first if that has not answered in this time.
FALLBACK_SECONDS = 0.25
# Shorter than what servers wait for the next request: the shortest usual time is five seconds.
KEEP_SECONDS = 4.0
# A server that says how long it keeps connections is believed, less this time for the way of a request.
KEEP_MARGIN_SECONDS = 1.0

# A literal address and a port, or the path of a unix socket.
Address = tuple[str, int] | str
# Connections are shared by requests to the same address for the same host.
Key = tuple[Address, str, bool]

_TIMEOUT = re.compile(r"\btimeout=(\d{1,6})\b")


class ConnectTimeoutError(ExchangeError):
    """No address has accepted a connection in time."""

    code = "connect_timeout"


class NotConnectedError(ExchangeError):
    """No address has accepted a connection; ``reason`` is the error of the first, if all failed in the same way."""

    code = "not_connected"

    def __init__(self, errors: Sequence[OSError]) -> None:
        is_same = len({(type(error), error.errno) for error in errors}) == 1
        self.reason = errors[0] if is_same else OSError("no address could be reached")
        super().__init__(f"no connection could be opened: {self.reason}")


@lru_cache(maxsize=8)
def tls_context(ca_file: str = "") -> ssl.SSLContext:
    """Return the TLS of a client that trusts the system's certificate authorities, and those of a file.

    Clients share it: to read the system's authorities takes 20 ms.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


class Connection(asyncio.Protocol):
    """One connection, used for one request at a time."""

    def __init__(self, key: Key, opened: socket.socket, on_lost: Callable[["Connection"], None]) -> None:
        self.key = key
        # Until then it may be used again, by the clock of the loop.
        self.idle_until = 0.0
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self._on_lost = on_lost
        # A server may close a connection as soon as it has accepted it, before anything is sent.
        self.is_lost = False
        self._reader: ResponseReader | None = None
        self._on_end: OnResponse | None = None
        self._is_kept = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # a protocol of streams gets one

    async def exchange(self, request: Request, most_body_bytes: int) -> Response:
        """Send a request and return its response. The connection is closed unless it can be used again."""
        if self.is_lost:
            raise IncompleteResponseError
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.begin(request, most_body_bytes, partial(_resolve, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancel()
            raise

    def begin(self, request: Request, most_body_bytes: int, on_end: "OnResponse") -> None:
        """Send a request on a usable connection, and call ``on_end`` once with its response or with the error."""
        self._reader = ResponseReader(is_head=request.is_head, most_body_bytes=most_body_bytes)
        self._on_end = on_end
        self._is_kept = request.is_kept
        self._transport.write(request.data)

    def cancel(self) -> None:
        """Close the connection, and report nothing of a request that is under way."""
        self._reader = self._on_end = None
        self.abort()

    @property
    def is_open(self) -> bool:
        """Whether this side has not closed the connection."""
        return not self._transport.is_closing()

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent: the connection is open, and nothing has arrived that nobody asked for.

        The kernel is asked, because the event loop may not have seen yet that the server has closed the connection.
        """
        return self.is_open and not self._poll.poll(0)

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response. What arrives without a request closes the connection."""
        if self._reader is None:
            self.abort()
            return
        try:
            response = self._reader.feed(data)
        except InvalidResponseError as error:
            self._end(error)
            return
        if response is not None:
            self._end(response)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, which may be complete by that."""
        self.is_lost = True
        self._on_lost(self)
        if self._reader is None:
            return
        if isinstance(exc, OSError):
            self._end(exc)
            return
        try:
            self._end(self._reader.end())
        except (InvalidResponseError, IncompleteResponseError) as error:
            self._end(error)

    def _end(self, result: Response | Exception) -> None:
        """Report how the request ended, and close the connection unless it can be used again."""
        reader, on_end = self._reader, self._on_end
        self._reader = self._on_end = None
        is_complete = isinstance(result, Response) and reader is not None and reader.is_reusable
        if not (is_complete and self._is_kept and not self._transport.get_write_buffer_size()):
            self.abort()
        if on_end is not None:
            on_end(result)


# Called with the response to a request, or with the error.
OnResponse = Callable[[Response | Exception], None]


def _resolve(answer: asyncio.Future[Response], result: Response | Exception) -> None:
    if answer.done():
        return
    if isinstance(result, Response):
        answer.set_result(result)
    else:
        answer.set_exception(result)


class ConnectionPool:
    """Sends requests on kept or new connections. It has to be created in the running loop, and closed."""

    def __init__(self, tls: ssl.SSLContext | None, most_connections: int) -> None:
        """Open at most so many connections at the same time; further requests wait. Without ``tls`` use no HTTPS."""
        self._tls = tls
        self._most_connections = most_connections
        self._places = asyncio.Semaphore(most_connections)
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        # The connections of each key, the one that was used last at the end.
        self._idle: dict[Key, dict[Connection, None]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    async def send(self, request: Request, addresses: Sequence[Address], most_body_bytes: int) -> Response:
        """Send a request to one of these addresses and return its response. A request is sent once.

        Raise ``NotConnectedError`` or ``ConnectTimeoutError`` if nothing was sent, and another ``ExchangeError`` or
        ``OSError`` if the target may have received the request.
        """
        async with self._places:
            connection = self._take_idle(request.target, addresses)
            if connection is None:
                connection = await self._connect(request.target, addresses)
            response = await connection.exchange(request, most_body_bytes)
            if connection.is_open:
                self._keep(connection, response)
            return response

    def begin(
        self, request: Request, addresses: Sequence[Address], most_body_bytes: int, on_end: OnResponse
    ) -> Connection | None:
        """Send a request on a kept connection and return that; None if there is none, and nothing was sent.

        Without a coroutine, for callers that make thousands of calls a second. The connection is open already, so it
        needs no place. ``on_end`` is called once with the response or the error, unless the connection is cancelled.
        """
        connection = self._take_idle(request.target, addresses)
        if connection is not None:
            connection.begin(request, most_body_bytes, partial(self._ended, connection, on_end))
        return connection

    def _ended(self, connection: Connection, on_end: OnResponse, result: Response | Exception) -> None:
        if isinstance(result, Response) and connection.is_open:
            self._keep(connection, result)
        on_end(result)

    async def close(self) -> None:
        """Close all connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        while self._open:
            for connection in tuple(self._open):
                connection.abort()
            # Transports report the end in the next turns of the loop.
            await asyncio.sleep(0)

    def _take_idle(self, target: Target, addresses: Sequence[Address]) -> Connection | None:
        """Return a kept connection to one of the addresses. One that died while it was idle is closed."""
        for address in addresses:
            kept = self._idle.get((address, target.host, target.is_tls))
            while kept:
                connection, _ = kept.popitem()
                if connection.idle_until > self._loop.time() and connection.is_usable:
                    return connection
                connection.abort()
        return None

    def _keep(self, connection: Connection, response: Response) -> None:
        seconds = _kept_seconds(response.headers.get("keep-alive", ""))
        if seconds <= 0:
            connection.abort()
            return
        connection.idle_until = self._loop.time() + seconds
        self._idle.setdefault(connection.key, {})[connection] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(KEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been idle for too long."""
        now = self._loop.time()
        for connection in self._idle_connections():
            if connection.idle_until <= now:
                self._drop(connection)
        self._idle = {key: kept for key, kept in self._idle.items() if kept}
        self._sweeping = self._loop.call_later(KEEP_SECONDS, self._sweep) if self._idle else None

    def _idle_connections(self) -> list[Connection]:
        return [connection for kept in self._idle.values() for connection in kept]

    def _drop(self, connection: Connection) -> None:
        self._idle[connection.key].pop(connection)
        connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.get(connection.key, {}).pop(connection, None)

    async def _connect(self, target: Target, addresses: Sequence[Address]) -> Connection:
        if len(self._open) >= self._most_connections:
            for oldest in self._idle_connections()[:1]:
                self._drop(oldest)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._first_opened(target, addresses)
        except TimeoutError as error:
            raise ConnectTimeoutError from error

    async def _first_opened(self, target: Target, addresses: Sequence[Address]) -> Connection:
        """Try the addresses in their order, each a moment after the one before it, and return the first connection."""
        errors: list[OSError] = []
        waiting, trying = deque(addresses), set[asyncio.Task[Connection]]()
        try:
            while waiting or trying:
                if waiting:
                    trying.add(self._loop.create_task(self._opened(target, waiting.popleft())))
                pause = FALLBACK_SECONDS if waiting else None
                done, trying = await asyncio.wait(trying, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                opened = [task.result() for task in done if not _failed(task, errors)]
                for spare in opened[1:]:
                    spare.abort()
                if opened:
                    return opened[0]
        finally:
            await _cancel(trying)
        raise NotConnectedError(errors)

    async def _opened(self, target: Target, address: Address) -> Connection:
        """Open a connection to one address."""
        if target.is_tls and self._tls is None:
            raise AssertionError("this pool has no TLS")
        opened = socket.socket(_family(address), socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await self._loop.sock_connect(opened, address)
            connection = Connection((address, target.host, target.is_tls), opened, self._forget)
            name = target.host.rstrip(".") if target.is_tls else None
            await self._loop.create_connection(
                lambda: connection, sock=opened, ssl=self._tls if target.is_tls else None, server_hostname=name
            )
        except BaseException:
            opened.close()
            raise
        if not connection.is_lost:
            self._open.add(connection)
        return connection


async def send_once(
    request: Request,
    addresses: Sequence[Address],
    *,
    tls: ssl.SSLContext | None,
    most_body_bytes: int,
    seconds: float,
) -> Response:
    """Send a request on a connection of its own; raise ``TimeoutError`` if it takes longer than this in all."""
    pool = ConnectionPool(tls, 1)
    try:
        async with asyncio.timeout(seconds):
            return await pool.send(request, addresses, most_body_bytes)
    finally:
        await pool.close()


def _failed(task: asyncio.Task[Connection], errors: list[OSError]) -> bool:
    """Return whether a try has failed, and add its error; raise one that is not of the network."""
    error = task.exception()
    if error is None:
        return False
    if not isinstance(error, OSError):
        raise error
    errors.append(error)
    return True


async def _cancel(tasks: set[asyncio.Task[Connection]]) -> None:
    """End tries that are not needed any more."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and task.exception() is None:
            task.result().abort()


def _family(address: Address) -> socket.AddressFamily:
    if isinstance(address, str):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


@lru_cache(maxsize=256)
def _kept_seconds(keep_alive: str) -> float:
    """Return how long a connection may be idle, by the Keep-Alive header of the response."""
    hint = _TIMEOUT.search(keep_alive)
    return KEEP_SECONDS if hint is None else min(KEEP_SECONDS, float(hint[1]) - KEEP_MARGIN_SECONDS)
