"""The HTTP server: uvicorn with the limits of ``app.api.http_protocol``."""

import resource
from collections.abc import Callable
from socket import socket
from typing import Any

import uvicorn

from app.api.http_protocol import HttpLimits, limited_protocol
from app.api.requests import TrustedProxies
from app.config import Settings

GRACE_SECONDS = 5
# Files that the process needs besides connections of clients: Postgres, Redis, outgoing calls.
OTHER_FILES = 200
HEADERS = [("X-Content-Type-Options", "nosniff")]


class Server(uvicorn.Server):
    """A server that calls a function once its application is ready and it listens."""

    def __init__(self, config: uvicorn.Config, *, when_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start the application, listen, and call the function."""
        await super().startup(sockets)
        self._when_ready()


def server_config(app: Any, settings: Settings, limits: HttpLimits | None = None, **options: Any) -> uvicorn.Config:
    """Return the configuration of a server for an application, or for the name of its factory."""
    limits = limits or HttpLimits(
        connections=_affordable(settings.http_connections),
        connections_per_address=settings.http_connections_per_address,
    )
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=limited_protocol(limits, TrustedProxies(settings.proxy_networks)),
        # There are no WebSockets, and a connection that became one would escape the limits.
        ws="none",
        headers=HEADERS,
        # uvicorn would trust every client on loopback; `app.api.requests` trusts only configured proxies.
        proxy_headers=False,
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        **options,
    )


def raise_file_limit(connections: int) -> None:
    """Raise the limit of open files to what the connections need, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))


def _affordable(connections: int) -> int:
    """Return how many connections the limit of open files allows; with more, Postgres could not be reached either."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(connections, soft - OTHER_FILES))
