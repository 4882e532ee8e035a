"""The HTTP server of a worker: /metrics for Prometheus, /health/live and /health/ready for probes."""

import errno
import hmac
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from app.observability.metrics import CONTENT_TYPE, exposition

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

    async def live(_request: web.Request) -> web.Response:
        is_alive = await answers.live()
        return web.json_response({"status": "ok" if is_alive else "stuck"}, status=200 if is_alive else 503)

    async def ready(_request: web.Request) -> web.Response:
        health = await answers.ready()
        status = 200 if health.is_ready else 503
        return web.Response(body=health.body, content_type="application/json", status=status)

    async def metrics(request: web.Request) -> web.Response:
        if metrics_token and not _has_token(request, metrics_token):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        return web.Response(body=await answers.metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/health/live", live), web.get("/health/ready", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await _site(runner, address).start()
        yield
    finally:
        await runner.cleanup()


def _has_token(request: web.Request, token: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _site(runner: web.AppRunner, address: Address) -> web.BaseSite:
    if isinstance(address, Path):
        return web.UnixSite(runner, address)
    if address[0] == ALL_ADDRESSES:
        return web.SockSite(runner, listen_on_all(address[1]))
    return web.TCPSite(runner, *address)


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
