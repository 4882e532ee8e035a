"""The target of all calls: it writes down what arrives, and answers as badly as it is told to."""

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self
from uuid import UUID

from aiohttp import web

from tests.chaos.evidence import Arrival, Crowd

SLOW_SECONDS = 1.5
# A call to this path is never answered.
NEVER = "/never"


class Mood(StrEnum):
    """How it answers."""

    KIND = "kind"
    SLOW = "slow"
    HUNG = "hung"
    RESETTING = "resetting"
    ENDLESS = "endless"
    FAILING = "failing"


class Target:
    """A server on loopback."""

    def __init__(self) -> None:
        """In a kind mood."""
        self.mood = Mood.KIND
        self.arrivals: list[Arrival] = []
        # By the first part of the path: how many calls there are now, and when more than one were there at once.
        self._under_way: Counter[str] = Counter()
        self.crowds: list[Crowd] = []
        self.port = 0
        self._cheered = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def feel(self, mood: Mood) -> None:
        """Answer in another way from now on; those who were left hanging are answered once it is kind again."""
        self.mood = mood
        self._cheered.set()
        self._cheered = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = request.headers
        self.arrivals.append(
            Arrival(
                at=datetime.now(UTC),
                path=request.path,
                schedule_id=UUID(headers["X-Carillon-Schedule"]),
                execution_id=UUID(headers["X-Carillon-Execution"]),
                slot=datetime.fromisoformat(headers["X-Carillon-Slot"]),
                attempt=int(headers["X-Carillon-Attempt"]),
                key=headers["Idempotency-Key"],
            )
        )
        folder = request.path.split("/")[1]
        self._under_way[folder] += 1
        if self._under_way[folder] > 1:
            self.crowds.append(Crowd(datetime.now(UTC), folder, self._under_way[folder]))
        try:
            if request.path == NEVER:
                await asyncio.Event().wait()
            return await self._answer(request)
        finally:
            self._under_way[folder] -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.mood is Mood.FAILING:
            return web.Response(status=500)
        if self.mood is Mood.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        if self.mood is Mood.HUNG:
            await self._cheered.wait()
        if self.mood is Mood.RESETTING and request.transport is not None:
            request.transport.abort()
        if self.mood is Mood.ENDLESS:
            return await self._go_on_and_on(request)
        return web.Response()

    async def _go_on_and_on(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        with suppress(OSError):
            await response.prepare(request)
            while self.mood is Mood.ENDLESS:
                await response.write(b"x" * 1024)
                await asyncio.sleep(0.05)
        return response
