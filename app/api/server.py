"""The HTTP server: uvicorn with the limits of ``app.api.http_protocol``."""

import resource
from typing import Any

import uvicorn

from app.api.http_protocol import HttpLimits, limited_protocol
from app.api.requests import TrustedProxies
from app.config import Settings

GRACE_SECONDS = 5
# Files that the process needs beside its clients: Postgres, Redis, outgoing calls.
OTHER_FILES = 200
HEADERS = [("X-Content-Type-Options", "nosniff")]


def server_config(app: Any, settings: Settings, limits: HttpLimits | None = None, **options: Any) -> uvicorn.Config:
    """Configure a server for an application, or for the name of its factory."""
    limits = limits or HttpLimits(
        connections=_affordable(settings.http_connections),
        connections_per_address=settings.http_connections_per_address,
    )
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=limited_protocol(limits, TrustedProxies(settings.proxy_networks)),
        # There are no WebSockets, and a connection that became one would be out of reach of the limits.
        ws="none",
        headers=HEADERS,
        # It would believe every client on loopback; `app.api.requests` believes trusted proxies only.
        proxy_headers=False,
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        **options,
    )


def raise_file_limit(connections: int) -> None:
    """Allow this process as many open files as its connections need, if the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _affordable(connections: int) -> int:
    """Return the bound on connections that the limit of open files allows: beyond it nothing at all could be opened."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(connections, soft - OTHER_FILES))
