"""Calls as actions make them: which addresses are reached, whom TLS trusts, and what errors say."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from multidict import CIMultiDict

from app.actions import ssrf_guard
from app.actions.http_client import Answer, CallFailedError, HttpCaller, Sender
from app.actions.ssrf_guard import AddressGuard, TargetResolver
from app.http1 import connections
from app.http1.connections import tls_context
from tests.support.hostile_dns import HostileDns, Zone, hostile_dns
from tests.support.oidc_provider import certificate
from tests.support.raw_responses import RawServer, always, raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
LOOPBACK = "127.0.0.0/8"
PATIENCE_SECONDS = 60.0


@asynccontextmanager
async def calling(zone: Zone, *allowed: str) -> AsyncIterator[tuple[HttpCaller, HostileDns]]:
    """A client whose names are looked up in this zone."""
    async with hostile_dns(zone) as server:
        resolver = partial(TargetResolver, nameservers=[server.server])
        async with HttpCaller(AddressGuard(allowed), None, resolver) as caller:
            yield caller, server


async def call(caller: HttpCaller, url: str, method: str = "POST", **headers: str) -> Answer:
    """One call."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await caller.call(method, url, headers, b"", "id", Sender(1))


async def failure(caller: HttpCaller, url: str, **headers: str) -> str:
    """Why a call failed."""
    with pytest.raises(CallFailedError) as caught:
        await call(caller, url, **headers)
    return str(caught.value)


async def test_every_address_is_judged_and_a_permitted_one_is_used() -> None:
    """Nothing is sent to the others, though they come first; if they are all, the call is refused."""
    zone: Zone = {"mixed.test": ["127.0.0.9", "10.1.2.3", "127.0.0.1"], "inner.test": ["127.0.0.9", "10.1.2.3"]}
    async with (
        raw_server(always(OK)) as server,
        raw_server(always(OK), "127.0.0.9", server.port) as forbidden,
        calling(zone, "127.0.0.1") as (caller, _),
    ):
        assert 200 == (await call(caller, f"http://mixed.test:{server.port}/")).status
        error = await failure(caller, f"http://inner.test:{server.port}/")
    assert error == "inner.test leads to an address that is not public and not in CARILLON_HTTP_ALLOW."
    assert (1, 0) == (server.connections, forbidden.connections)


async def test_a_kept_connection_is_not_used_for_a_name_that_is_bound_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to the address that the name led to."""
    monkeypatch.setattr(ssrf_guard, "CACHE_SECONDS", 0.0)
    async with raw_server(always(OK)) as server, calling({"rebind.test": ["127.0.0.1"]}, "127.0.0.1") as (caller, dns):
        url = f"http://rebind.test:{server.port}/"
        assert 200 == (await call(caller, url)).status
        assert 200 == (await call(caller, url)).status
        assert 1 == server.connections
        dns.zone["rebind.test"] = ["127.0.0.2"]
        assert "rebind.test leads to an address" in await failure(caller, url)
    assert 2 == len(server.requests)


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_no_request_is_sent_twice(method: str) -> None:
    """Though the method is idempotent: a kept connection breaks after the target has read the request."""

    async def close(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with raw_server(always(OK)) as server, calling({}, LOOPBACK) as (caller, _):
        assert 200 == (await call(caller, server.url, method)).status
        server.handler = close
        with pytest.raises(CallFailedError, match="closed the connection before its response was complete"):
            await call(caller, server.url, method)
    assert 2 == len(server.requests)


async def test_what_errors_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host and the reason in words; not the URL, which may hold secrets, nor what the target sent."""
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.3)

    async def reset(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with raw_server(always(b"secret garbage\r\n\r\n")) as server, calling({}, LOOPBACK) as (caller, _):
        url, where = f"{server.url}/secret?secret#secret", f"127.0.0.1:{server.port}"
        assert "The target's response is not valid HTTP/1.1." == await failure(caller, url)
        server.handler = reset
        assert f"The connection to {where} was lost: Connection reset by peer" == await failure(caller, url)
        assert "Could not connect to 127.0.0.1:1: Connection refused" == await failure(caller, "http://127.0.0.1:1/s")
        sent = len(server.requests)
        assert "The request cannot be sent: the value of a header contains a control character." == await failure(
            caller, url, A="b\r\nC: d"
        )
        assert sent == len(server.requests)
        assert "The request cannot be sent: the URL is not valid." == await failure(caller, "http://a:99999/secret")


async def test_an_authority_of_the_file_is_trusted_and_no_other(tmp_path: Path) -> None:
    """The error says what is wrong with the certificate."""
    authority, server_tls = certificate(tmp_path)
    raw = RawServer(always(OK))
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=server_tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with HttpCaller(AddressGuard([LOOPBACK]), tls=tls_context(str(authority))) as caller:
        assert b"hi" == (await call(caller, url)).body
    async with HttpCaller(AddressGuard([LOOPBACK])) as caller:
        error = await failure(caller, url)
    assert error.startswith("Could not connect to 127.0.0.1:")
    assert "certificate verify failed" in error.lower().replace("_", " ")
    await raw.all_closed()
    server.close()


async def test_redirects_are_answers_and_cookies_are_not_kept() -> None:
    """Who calls decides what to make of them."""
    moved = b"HTTP/1.1 302 Found\r\nLocation: /next\r\nSet-Cookie: a=1\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(always(moved)) as server, calling({}, LOOPBACK) as (caller, _):
        for _ in range(2):
            assert (302, "/next") == ((answer := await call(caller, server.url)).status, answer.headers["location"])
    assert not [request for request in server.requests if b"cookie" in request.lower() or b"/next" in request]


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard could not judge where they lead."""
    async with raw_server(always(OK)) as server, raw_server(always(OK)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with calling({}, LOOPBACK) as (caller, _):
            assert 200 == (await call(caller, server.url)).status
    assert (1, 0) == (len(server.requests), proxy.connections)


async def test_the_headers_of_the_caller_are_not_changed() -> None:
    """They may be used for another call."""
    headers = CIMultiDict({"X": "y"})
    async with raw_server(always(OK)) as server, calling({}, LOOPBACK) as (caller, _):
        await caller.call("POST", server.url, headers, b"{}", "id", Sender(1))
    assert [("X", "y")] == list(headers.items())
    assert b"\r\nX: y\r\n" in server.requests[0]
