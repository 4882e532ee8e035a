"""The API over real HTTP: uvicorn in the test's own loop, on a free port of loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from litestar import Litestar

from app.api.http_protocol import HttpLimits
from app.api.server import server_config
from app.config import Settings
from app.wiring import wire_api
from tests.support.carillon import Carillon

# Applications that have stopped, by whether they serve /metrics: to build one takes longer than most tests.
_stopped: dict[bool, list[Litestar]] = {True: [], False: []}


@asynccontextmanager
async def serving(
    settings: Settings, limits: HttpLimits | None = None, *, is_kept: bool = True
) -> AsyncIterator[Carillon]:
    """Run an API with these settings, and yield a client with the admin's token.

    The application is used again by a later server, unless it is not to be kept.
    """
    usable = _stopped[not settings.api_metrics_port] if is_kept else []
    # With its protocol: asyncio turns off Nagle's algorithm only then, and each answer would wait 40 ms for an ACK.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        application = wire_api(settings, usable.pop() if usable else None)
        config = server_config(application, settings, limits, lifespan="on")
        server = uvicorn.Server(config)
        config.load()
        # What uvicorn's own loop does after loading its configuration.
        server.server_state.default_headers = config.encoded_headers
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listening])
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            # Without TLS: to read the certificates of the machine takes longer than many tests.
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=False) as client:
                yield Carillon(client, settings)
        finally:
            await _end(server)
    usable.append(application)


async def _end(server: uvicorn.Server) -> None:
    """Shut down as ``Server.shutdown`` does, but without its pause, which would be a fifth of most tests."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    if server.server_state.tasks:
        await asyncio.wait(server.server_state.tasks)
    await server.lifespan.shutdown()
