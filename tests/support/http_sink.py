"""An HTTP target for runs: a real server on loopback that records every request and answers as the test says."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Call(msgspec.Struct, frozen=True):
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded from JSON."""
        return msgspec.json.decode(self.body)


class Sink:
    """Answers 200 unless the test sets another ``answer``."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Answer = self._ok
        self._arrived = asyncio.Condition()
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def wait_for_calls(self, count: int, seconds: float = 120) -> list[Call]:
        """Wait until at least ``count`` calls have arrived, and return all of them."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: len(self.calls) >= count)
        return self.calls

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = Call(request.method, request.path, headers, await request.read())
        async with self._arrived:
            self.calls.append(call)
            self._arrived.notify_all()
        return await self.answer(request)

    def hold_until(self, released: asyncio.Event) -> None:
        """Hold every call until the event is set, then answer 200."""

        async def hold(_request: web.Request) -> web.StreamResponse:
            await released.wait()
            return web.Response()

        self.answer = hold

    @staticmethod
    async def _ok(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True})
