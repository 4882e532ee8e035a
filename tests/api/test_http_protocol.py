"""What a client may cost before it has shown a token: bytes, seconds, connections.

Covers app.api.server.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvicorn
from msgspec.structs import replace
from structlog.testing import capture_logs

from app.api.http_protocol import ConnectionRegister, HttpLimits, JoinedWrites
from app.api.requests import TrustedProxies
from app.api.server import Server
from app.config import Settings
from app.observability import metrics
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon, until
from tests.support.raw_http import code_of, raw_connection, status_of
from tests.test_metrics import samples

QUICK = HttpLimits(head_seconds=1, body_seconds=1, idle_seconds=4, answer_seconds=1)
LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
POST = f"POST /api/v1/schedules/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n".encode()
KIB = 1024


@pytest.fixture(scope="module")
async def quick(standing: Carillon) -> AsyncIterator[Carillon]:
    """An API that waits for a second where others wait for ten."""
    async with serving(standing.settings, QUICK) as carillon:
        yield carillon


def url_of(carillon: Carillon) -> str:
    """Where it listens."""
    return str(carillon._client.base_url)


def padded(size: int) -> bytes:
    """A request whose head has exactly so many bytes."""
    start, end = b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Pad: ", b"\r\n\r\n"
    return start + b"a" * (size - len(start) - len(end)) + end


async def test_a_head_of_32_kib_is_answered_and_a_byte_more_is_431(standing: Carillon) -> None:
    """However it arrives, on a new connection and on one that was used."""
    async with raw_connection(url_of(standing)) as one:
        for _ in range(2):
            await one.send(padded(32 * KIB))
            assert 200 == (await one.answer())[0]
        whole = padded(32 * KIB + 1)
        await one.send(whole[: 20 * KIB], whole[20 * KIB :])
        received = await one.until_closed()
    assert (431, "head_too_large") == (status_of(received), code_of(received))
    assert b"content-type: application/problem+json" in received


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"GET /", b"a" * 16 * KIB),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"a" * 16 * KIB),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X-Many: a\r\n" * KIB),
        (b"\r\n", b"\r\n" * KIB),
        (LIVE + b"GET /", b"a" * 16 * KIB),
    ],
    ids=["url", "one header", "many headers", "blank lines", "second request"],
)
async def test_an_endless_head_is_cut_off(standing: Carillon, start: bytes, endless: bytes) -> None:
    """A megabyte or two are taken from the wire and dropped, and nothing is kept."""
    async with raw_connection(url_of(standing)) as one:
        sent = 0
        await one.send(start)
        while await one.send(endless):
            sent += len(endless)
            assert sent < 64 * KIB * KIB
        received = await one.until_closed()
    assert b" 431 " in received or not received


async def test_endless_trailers_are_cut_off(standing: Carillon) -> None:
    """What follows a chunked body is bounded like a head."""
    async with raw_connection(url_of(standing)) as one:
        await one.send(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ")
        while await one.send(b"a" * 16 * KIB):
            pass
        assert status_of(await one.until_closed()) in {0, 431}


async def test_many_small_chunks_are_a_body_like_another(standing: Carillon) -> None:
    """One byte in each."""
    body = b'{"name": "x", "nodes": []}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body * 1) + b"0\r\nX-Trailer: fine\r\n\r\n"
    async with raw_connection(url_of(standing)) as one:
        await one.send(POST + b"Transfer-Encoding: chunked\r\n\r\n", chunks)
        assert 422 == (await one.answer())[0]


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_over_256_kib_is_413(standing: Carillon, chunked: bool) -> None:
    """Also without a Content-Length; what still comes after the answer is dropped, and ends."""
    piece = b" " * 16 * KIB
    chunk = b"4000\r\n" + piece + b"\r\n" if chunked else piece
    head = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 999999999\r\n\r\n"
    async with raw_connection(url_of(standing)) as one:
        await one.send(POST + head)
        sent = 0
        while await one.send(chunk):
            sent += len(chunk)
            assert sent < 64 * KIB * KIB
        assert status_of(await one.until_closed()) in {413, 0}
    async with raw_connection(url_of(standing)) as one:
        await one.send(POST + head, *([chunk] * 17))
        assert 413 == (await one.answer())[0]


async def test_nothing_sent_is_closed_without_a_word(quick: Carillon) -> None:
    """After the time of a head."""
    async with raw_connection(url_of(quick)) as one:
        assert b"" == await one.until_closed()


@pytest.mark.parametrize(
    "half", [b"G", LIVE[:-2], POST + b"Content-Length: 10\r\n\r\n{", POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{"]
)
async def test_half_a_request_is_408(quick: Carillon, half: bytes) -> None:
    """Half a head and half a body; nothing is called a defect of ours."""
    with capture_logs() as logs:
        async with raw_connection(url_of(quick)) as one:
            await one.send(half)
            received = await one.until_closed()
    assert (408, "request_timeout") == (status_of(received), code_of(received))
    assert [] == [line for line in logs if line["log_level"] == "error"]


async def test_a_trickle_does_not_gain_time(quick: Carillon) -> None:
    """The head as a whole has to arrive in time."""

    async def is_cut_off() -> bool:
        return not await one.send(b"X-More: a\r\n")

    async with raw_connection(url_of(quick)) as one:
        await one.send(LIVE[:-2])
        sending = asyncio.create_task(until(is_cut_off))
        assert 408 == status_of(await one.until_closed())
        await sending


async def test_idle_connections_live_longer_than_heads(quick: Carillon) -> None:
    """They are closed without a word, after their own time; until then they can be used."""
    async with raw_connection(url_of(quick)) as one:
        loop = asyncio.get_running_loop()
        await one.send(LIVE)
        assert 200 == (await one.answer())[0]
        began = loop.time()
        assert b"" == await one.until_closed()
        assert loop.time() - began >= QUICK.idle_seconds - 1


async def test_a_reader_that_takes_nothing_is_dropped(quick: Carillon) -> None:
    """Answers that it has asked for are not kept for ever."""
    document = b"GET /schema/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    before = metrics.HTTP_REFUSED.labels("not_read")._value.get()
    async with raw_connection(url_of(quick)) as one:
        one.stop_reading()

        async def dropped() -> bool:
            # Until it is more than the kernel keeps for a connection.
            await one.send(document * 3)
            return bool(metrics.HTTP_REFUSED.labels("not_read")._value.get() > before)

        await until(dropped)


async def test_pipelined_requests_are_answered_in_order_and_bounded(standing: Carillon) -> None:
    """A few wait for their turn; thousands in one packet do not."""
    async with raw_connection(url_of(standing)) as one:
        await one.send(LIVE * 5)
        assert [200] * 5 == [(await one.answer())[0] for _ in range(5)]
    async with raw_connection(url_of(standing)) as one:
        await one.send(b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n" * 3000)
        assert (await one.until_closed()).count(b"HTTP/1.1 ") < 3000


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_what_is_not_http_is_a_400(standing: Carillon, garbage: bytes) -> None:
    """As a problem, and not once for each in the log."""
    async with raw_connection(url_of(standing)) as one:
        await one.send(garbage)
        received = await one.until_closed()
    assert (400, "malformed") == (status_of(received), code_of(received))


async def test_an_upgrade_is_an_ordinary_request(standing: Carillon) -> None:
    """There is nothing to upgrade to; the connection ends with the answer."""
    upgrade = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with raw_connection(url_of(standing)) as one:
        await one.send(upgrade)
        assert 200 == status_of(await one.until_closed())


async def test_connections_are_bounded_by_address_and_in_all(standing: Carillon) -> None:
    """One too many is told to come back; it is let in once another has gone. Trusted proxies count in all only."""
    for limits, proxies in (
        (HttpLimits(connections_per_address=3), ""),
        (HttpLimits(connections=3, connections_per_address=2), "127.0.0.0/8"),
    ):
        settings = replace(standing.settings, trusted_proxies=proxies)
        async with serving(settings, limits) as carillon, AsyncExitStack() as stack:
            open_ones = [await stack.enter_async_context(raw_connection(url_of(carillon))) for _ in range(3)]
            for one in open_ones:
                await one.send(LIVE)
                assert 200 == (await one.answer())[0]
            async with raw_connection(url_of(carillon)) as fourth:
                received = await fourth.until_closed()
            assert (503, "too_many_connections") == (status_of(received), code_of(received))
            assert b"retry-after: " in received
            open_ones[0].close()

            async def let_in(url: str = url_of(carillon)) -> bool:
                async with raw_connection(url) as another:
                    return await another.send(LIVE) and (await another.answer())[0] == 200

            await until(let_in)


async def test_refusals_are_counted(quick: Carillon) -> None:
    """By their reason, for whoever watches the metrics."""

    async def refused(reason: str) -> float:
        found = samples((await quick.raw("GET", "/metrics")).text)
        return found.get(f'carillon_http_refused_total{{reason="{reason}"}}', 0.0)

    reasons = {b"\x16": "malformed", b"GET /": "request_timeout", b"GET /" + b"a" * 64 * KIB: "head_too_large"}
    for start, reason in reasons.items():
        before = await refused(reason)
        async with raw_connection(url_of(quick)) as one:
            await one.send(start)
            await one.until_closed()
        assert before + 1 == await refused(reason)


async def test_addresses_that_are_gone_are_forgotten() -> None:
    """The register does not grow with the number of clients that there have ever been."""

    class Silent:
        def check(self, tick: int) -> None:
            """Do nothing."""

    register = ConnectionRegister(HttpLimits(), TrustedProxies())
    for number in range(100):
        one = Silent()
        assert register.add(one, f"10.0.0.{number}")
        register.remove(one)
        register.remove(one)
    assert ({}, {}) == (register._open, register._by_address)


def test_settings_of_the_front_door(settings: Settings) -> None:
    """Twelve factors: the bounds come from the environment."""
    assert (512, 4096, ()) == (
        settings.http_connections_per_address,
        settings.http_connections,
        settings.proxy_networks,
    )


async def test_a_head_is_sent_together_with_what_follows_at_once() -> None:
    """And alone, once the loop goes on or the connection is closed, if nothing follows."""
    ours, client = socket.socketpair()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    with client:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        joined = JoinedWrites(transport, loop)
        head = b"HTTP/1.1 200 OK\r\n\r\n"
        joined.write(head)
        with pytest.raises(BlockingIOError):
            client.recv(KIB)
        joined.write(b"body")
        assert head + b"body" == client.recv(KIB)
        joined.write(head)
        assert head == await loop.sock_recv(client, KIB)
        joined.write(b"event")
        assert b"event" == client.recv(KIB)
        joined.write(head)
        joined.close()
        assert head == await loop.sock_recv(client, KIB)
        assert b"" == await loop.sock_recv(client, KIB)


async def test_a_server_says_when_its_application_is_ready() -> None:
    """Garbage is collected seldom from then on: all objects that stay are there."""
    steps = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for step in ("startup", "shutdown"):
            await receive()
            steps.append(step)
            await send({"type": f"lifespan.{step}.complete"})

    config = uvicorn.Config(application, lifespan="on", log_config=None)
    config.load()
    server = Server(config, when_ready=lambda: steps.append("ready"))
    server.lifespan = config.lifespan_class(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        await server.startup([listening])
        await server.shutdown([listening])
    assert ["startup", "ready", "shutdown"] == steps
