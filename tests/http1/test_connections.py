"""Connections are kept, dropped and never leaked, on asyncio's event loop and on uvloop's."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from app.http1 import connections
from app.http1.connections import (
    ConnectionPool,
    ConnectTimeoutError,
    NotConnectedError,
    tls_context,
)
from app.http1.response import IncompleteResponseError, InvalidResponseError, Response
from tests.support.hypothesis_examples import examples
from tests.support.oidc_provider import certificate
from tests.support.raw_responses import Handler, RawServer, always, raw_server
from tests.support.requests import get_request

PATIENCE_SECONDS = 60.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TLS = tls_context()

# A test that gets the pool of a new loop.
Scenario = Callable[[ConnectionPool], Awaitable[None]]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario on each kind of loop with a pool of ten, and checks that the pool leaves nothing open."""

    def run_on_loop(scenario: Scenario, tls: ssl.SSLContext = TLS) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(_with_pool(scenario, tls))

    return run_on_loop


async def _with_pool(scenario: Scenario, tls: ssl.SSLContext) -> None:
    pool = ConnectionPool(tls, 10)
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            await scenario(pool)
        finally:
            await pool.close()
    assert set() == pool._open
    assert 10 == pool._places._value


@asynccontextmanager
async def served(pool: ConnectionPool, handler: Handler) -> AsyncIterator[RawServer]:
    """A server whose connections are all closed at the end, the kept ones by the pool."""
    async with raw_server(handler) as server:
        yield server
        await pool.close()
        await server.all_closed()


async def send(pool: ConnectionPool, server: RawServer, method: str = "POST", body: bytes = b"{}") -> Response:
    """One request."""
    return await pool.send(get_request(server.url, method, body), [("127.0.0.1", server.port)], 1000)


def kernel_socket(server: RawServer) -> socket.socket:
    """Return the server's end of its only connection, past the event loop."""
    (writer,) = server.open
    return socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))


def closing(*pieces: bytes) -> Handler:
    """Answer with these bytes and close the connection."""

    async def handle(_request: bytes, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    return handle


Run = Callable[[Scenario], None]


def test_a_connection_is_kept_for_the_next_request(run: Run) -> None:
    """One at a time; two at the same time take two."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            for _ in range(3):
                assert b"hi" == (await send(pool, server)).body
            assert 1 == server.connections
            await asyncio.gather(send(pool, server), send(pool, server))
            assert (2, 5) == (server.connections, len(server.requests))

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi" + OK,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000,
    ],
)
def test_a_connection_is_not_kept_if_something_speaks_against_it(run: Run, answer: bytes) -> None:
    """The server, its version, what follows the response, or a body that was cut."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(answer)) as server:
            for _ in range(2):
                assert 200 == (await send(pool, server)).status
            assert 2 == server.connections

    run(scenario)


def test_connections_of_other_hosts_and_addresses_are_not_shared(run: Run) -> None:
    """A proxy answers by name; an address that is not permitted any more is not used."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            here, there = ("127.0.0.1", server.port), ("127.0.0.2", server.port)
            for host in ("a.test", "b.test", "a.test"):
                await pool.send(get_request(f"http://{host}:{server.port}/"), [here], 1000)
            assert 2 == server.connections
            with pytest.raises(NotConnectedError):
                await pool.send(get_request(f"http://a.test:{server.port}/"), [there], 1000)

    run(scenario)


def test_a_connection_that_died_while_idle_is_replaced_and_the_request_sent_once(run: Run) -> None:
    """Also if the event loop has not seen yet that it died."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            await send(pool, server)
            # At once, and in the kernel: the loop has no turn between this and the next request.
            with kernel_socket(server) as opened:
                opened.shutdown(socket.SHUT_RDWR)
            assert 200 == (await send(pool, server)).status
            assert (2, 2) == (server.connections, len(server.requests))

    run(scenario)


def test_a_connection_that_says_something_while_idle_is_not_used(run: Run) -> None:
    """What nobody asked for must not be taken for the next response."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            await send(pool, server)
            with kernel_socket(server) as opened:
                opened.send(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
            assert 200 == (await send(pool, server)).status
            assert 2 == server.connections

    run(scenario)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_request_that_may_have_been_processed_is_not_sent_again(run: Run, method: str) -> None:
    """The server took it and closed a connection that had worked before."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            await send(pool, server, method)
            server.handler = closing()
            with pytest.raises(IncompleteResponseError):
                await send(pool, server, method)
            assert (1, 2) == (server.connections, len(server.requests))

    run(scenario)


def test_an_idle_connection_is_closed_after_a_while(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the client, so that its request never meets a server that is just closing."""
    monkeypatch.setattr(connections, "KEEP_SECONDS", 0.05)
    connections._kept_seconds.cache_clear()

    async def scenario(pool: ConnectionPool) -> None:
        async with raw_server(always(OK)) as server:
            await send(pool, server)
            await server.all_closed()
            assert ({}, None) == (pool._idle, pool._sweeping)

    try:
        run(scenario)
    finally:
        connections._kept_seconds.cache_clear()


def test_a_connection_that_was_idle_for_too_long_is_not_used(run: Run) -> None:
    """Though it was not closed yet."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            await send(pool, server)
            (connection,) = pool._open
            connection.idle_until = asyncio.get_running_loop().time()
            await send(pool, server)
            assert 2 == server.connections

    run(scenario)


@pytest.mark.parametrize(
    ("hint", "seconds"), [("", 4.0), ("timeout=3", 2.0), ("max=5, timeout=120", 4.0), ("timeout=x", 4.0)]
)
def test_a_server_says_how_long_it_keeps_connections(hint: str, seconds: float) -> None:
    """It is believed if that is short."""
    assert seconds == connections._kept_seconds(hint)


def test_a_call_that_is_dropped_closes_its_connection(run: Run) -> None:
    """The server sees that nobody waits any more; the place is free again."""

    async def scenario(pool: ConnectionPool) -> None:
        arrived = asyncio.Event()

        async def hang(_request: bytes, _writer: asyncio.StreamWriter) -> None:
            arrived.set()

        async with raw_server(hang) as server:
            calls = [asyncio.create_task(send(pool, server)) for _ in range(12)]
            await arrived.wait()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            await server.all_closed()
            assert 10 == pool._places._value

    run(scenario)


def test_further_requests_wait_for_a_connection(run: Run) -> None:
    """There are never more than the pool may open, idle ones included."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            most = 0

            async def handle(_request: bytes, writer: asyncio.StreamWriter) -> None:
                nonlocal most
                most = max(most, len(server.open))
                await asyncio.sleep(0.01)
                writer.write(OK)

            server.handler = handle
            await asyncio.gather(*(send(pool, server) for _ in range(30)))
            assert most <= 10
            for number in range(15):
                url = f"http://{number}.test:{server.port}/"
                await pool.send(get_request(url), [("127.0.0.1", server.port)], 1000)
                assert len(pool._open) <= 11

    run(scenario)


def test_the_next_address_is_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first refuses, and if it does not answer."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server, black_hole() as hole:
            good = ("127.0.0.1", server.port)
            for first in (("127.0.0.1", 1), hole):
                answer = await pool.send(get_request(server.url), [first, good, first], 1000)
                assert 200 == answer.status
                await pool.close()
            with pytest.raises(NotConnectedError) as caught:
                await pool.send(get_request(server.url), [("127.0.0.1", 1), ("127.0.0.2", 1)], 1000)
            assert errno.ECONNREFUSED == caught.value.reason.errno
            monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.3)
            with pytest.raises(ConnectTimeoutError):
                await pool.send(get_request(server.url), [hole], 1000)

    run(scenario)


@asynccontextmanager
async def black_hole() -> AsyncIterator[tuple[str, int]]:
    """An address that answers nothing: the queue of its socket is full."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    address = full.getsockname()
    waiting = []
    for _ in range(4):
        waiting.append(client := socket.socket())
        client.setblocking(False)
        client.connect_ex(address)
    try:
        yield address
    finally:
        for opened in (full, *waiting):
            opened.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", IncompleteResponseError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", IncompleteResponseError),
        (b"garbage\r\n\r\n", InvalidResponseError),
    ],
)
def test_a_bad_response_fails_the_call_and_closes_the_connection(
    run: Run, answer: bytes, error: type[Exception]
) -> None:
    """The next call works."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, closing(answer)) as server:
            with pytest.raises(error):
                await send(pool, server)
            server.handler = always(OK)
            assert 200 == (await send(pool, server)).status

    run(scenario)


def test_a_connection_that_is_closed_at_once_fails_the_call(run: Run) -> None:
    """Before the request is sent, or while it is."""

    async def scenario(pool: ConnectionPool) -> None:
        async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        for _ in range(50):
            with pytest.raises((IncompleteResponseError, ConnectionError)):
                await pool.send(get_request(f"http://127.0.0.1:{address[1]}/"), [address], 1000)
        server.close()

    run(scenario)


def test_a_connection_that_was_lost_before_it_was_used_fails_the_call(run: Run) -> None:
    """Nothing waits for a response that cannot come any more."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            connection = await pool._connect(get_request(server.url).target, [("127.0.0.1", server.port)])
            await pool.close()
            assert connection.is_lost
            with pytest.raises(IncompleteResponseError):
                await connection.exchange(get_request(server.url), 1000)

    run(scenario)


def test_a_connection_that_is_reset_is_an_error_of_the_network(run: Run) -> None:
    """Its kind is known."""

    async def scenario(pool: ConnectionPool) -> None:
        async def reset(_request: bytes, writer: asyncio.StreamWriter) -> None:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0] + [0] * 4)
            )
            writer.transport.abort()

        async with served(pool, reset) as server:
            with pytest.raises(ConnectionResetError):
                await send(pool, server)

    run(scenario)


def test_a_response_to_half_a_request_is_taken(run: Run) -> None:
    """A server may refuse a large body before it has read it; the connection is not used again."""

    async def scenario(pool: ConnectionPool) -> None:
        answered, done = asyncio.Event(), asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await answered.wait()
            writer.transport.abort()
            done.set()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1000)
        port = server.sockets[0].getsockname()[1]
        request = get_request(f"http://127.0.0.1:{port}/", "POST", bytes(20_000_000))
        assert 413 == (await pool.send(request, [("127.0.0.1", port)], 1000)).status
        assert {} == {key: kept for key, kept in pool._idle.items() if kept}
        answered.set()
        await done.wait()
        server.close()

    run(scenario)


def test_a_response_to_head_has_no_body(run: Run) -> None:
    """Its length is not waited for."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as server:
            response = await send(pool, server, "HEAD", b"")
            assert (b"", "1000") == (response.body, response.headers["content-length"])

    run(scenario)


def test_a_unix_socket_can_be_called(run: Run, tmp_path: Path) -> None:
    """Its path stands for the address."""

    async def scenario(pool: ConnectionPool) -> None:
        raw = RawServer(always(OK))
        path = str(tmp_path / "socket")
        server = await asyncio.start_unix_server(raw.serve, path)
        for _ in range(2):
            assert b"hi" == (await pool.send(get_request("http://worker/"), [path], 1000)).body
        assert 1 == raw.connections
        await pool.close()
        await raw.all_closed()
        server.close()

    run(scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_certificate_must_be_valid_for_the_host(loop: str, tmp_path: Path) -> None:
    """Of an authority of the file, or of the system; connections are kept as others are."""
    authority, server_tls = certificate(tmp_path)

    async def scenario(pool: ConnectionPool) -> None:
        raw = RawServer(always(OK))
        server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=server_tls)
        address = server.sockets[0].getsockname()
        strict = ConnectionPool(TLS, 10)
        for other, host in ((strict, "127.0.0.1"), (pool, "localhost")):
            with pytest.raises(NotConnectedError) as caught:
                await other.send(get_request(f"https://{host}:{address[1]}/"), [address], 1000)
            assert isinstance(caught.value.reason, ssl.SSLCertVerificationError)
        for _ in range(3):
            assert b"hi" == (await pool.send(get_request(f"https://127.0.0.1:{address[1]}/"), [address], 1000)).body
        assert 3 == len(raw.requests)
        assert 1 == len(pool._open)
        await pool.close()
        await raw.all_closed()
        server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(_with_pool(scenario, tls_context(str(authority))))


def test_a_file_without_authorities_is_refused(tmp_path: Path) -> None:
    """When the client is made, not at the first call."""
    (tmp_path / "empty").write_text("nothing")
    for name in ("empty", "missing"):
        with pytest.raises(OSError):  # noqa: PT011 - of several kinds
            tls_context(str(tmp_path / name))


@examples(40)
@given(
    st.lists(
        st.lists(st.binary(max_size=30) | st.sampled_from([OK, OK[:20], OK[:45], b"\r\n"]), max_size=4), max_size=4
    )
)
def test_whatever_a_server_sends_no_call_hangs_and_no_connection_leaks(answers: list[list[bytes]]) -> None:
    """Each call ends with a response or an error while the server sends these pieces and closes."""

    async def scenario(pool: ConnectionPool) -> None:
        async with served(pool, always(OK)) as server:
            for pieces in answers:
                server.handler = closing(*pieces)
                with suppress(InvalidResponseError, IncompleteResponseError, ConnectionError):
                    await send(pool, server)
            server.handler = always(OK)
            assert 200 == (await send(pool, server)).status

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_with_pool(scenario, TLS))
