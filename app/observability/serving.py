"""A small HTTP server beside a worker: for Prometheus, and for whoever asks whether it lives."""

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from app.observability.metrics import CONTENT_TYPE, exposition

# A host and a port, or a socket that only this machine can reach.
Address = tuple[str, int] | Path


class Health(msgspec.Struct, frozen=True):
    """Whether someone is fit for work, with what there is to say about it in JSON."""

    is_ready: bool
    said: bytes


class Answers(Protocol):
    """What is answered."""

    async def live(self) -> bool:
        """Whether it need not be started again."""

    async def ready(self) -> Health:
        """Whether it can work."""

    async def metrics(self) -> bytes:
        """For Prometheus."""


class OwnAnswers:
    """Those of one process."""

    def __init__(self, health: Callable[[], Health]) -> None:
        """Ask here whether it can work."""
        self._health = health

    async def live(self) -> bool:
        """Whoever answers lives."""
        return True

    async def ready(self) -> Health:
        """What it has found out by itself."""
        return self._health()

    async def metrics(self) -> bytes:
        """All that it has counted."""
        return exposition()


@asynccontextmanager
async def serving(address: Address, answers: Answers, metrics_token: str = "") -> AsyncIterator[None]:
    """Answer for as long as the block lasts; metrics only to whoever has the token, where one is set."""

    async def live(_request: web.Request) -> web.Response:
        is_alive = await answers.live()
        return web.json_response({"status": "ok" if is_alive else "stuck"}, status=200 if is_alive else 503)

    async def ready(_request: web.Request) -> web.Response:
        found = await answers.ready()
        status = 200 if found.is_ready else 503
        return web.Response(body=found.said, content_type="application/json", status=status)

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
    return web.UnixSite(runner, address) if isinstance(address, Path) else web.TCPSite(runner, *address)
