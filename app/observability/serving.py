"""A small HTTP server beside a worker: for Prometheus, and for whoever asks whether it lives."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from app.observability.metrics import CONTENT_TYPE, exposition


@asynccontextmanager
async def serving(host: str, port: int, missing: Callable[[], Awaitable[str]]) -> AsyncIterator[None]:
    """Answer for as long as the block lasts; ``missing`` says in words what the worker cannot do without."""

    async def live(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def ready(_request: web.Request) -> web.Response:
        words = await missing()
        return web.json_response(
            {"status": "unavailable" if words else "ok", "detail": words}, status=503 if words else 200
        )

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/health/live", live), web.get("/health/ready", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
