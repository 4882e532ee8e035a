"""Limits in tests: created, waited for, and a target that counts the calls that it has at once."""

import asyncio

from aiohttp import web

from tests.support.carillon import Carillon, Json, until
from tests.support.http_sink import Sink


class Busy:
    """A target that counts how many calls it has at once; it answers the first ones when so many are there."""

    def __init__(self, sink: Sink, together: int, seconds: float = 0.05) -> None:
        self.now = self.most = 0
        self._seconds = seconds
        self._together = together
        self._arrived = asyncio.Event()
        sink.answer = self._answer

    async def _answer(self, _request: web.Request) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self._together:
            self._arrived.set()
        await self._arrived.wait()
        await asyncio.sleep(self._seconds)
        self.now -= 1
        return web.Response()


async def limit(carillon: Carillon, name: str = "crm", **bounds: object) -> Json:
    """Create a limit."""
    made: Json = await carillon.call("POST", "/limits/", 201, json={"name": name, **bounds})
    return made


async def ended(carillon: Carillon, schedules: list[Json]) -> list[Json]:
    """Wait until all runs of these schedules have ended, at least one of each; return them."""

    async def all_ended() -> list[Json] | None:
        runs = [run for schedule in schedules for run in await carillon.runs(schedule)]
        done = [run for run in runs if run["finished_at"]]
        return done if len(done) == len(runs) >= len(schedules) else None

    return await until(all_ended)


async def waiting_run(carillon: Carillon, schedule: Json) -> Json:
    """Wait until a run of a schedule waits for a limit; return it."""

    async def waits() -> Json | None:
        return next((run for run in await carillon.runs(schedule) if run["reason"] == "waiting_for_limit"), None)

    return await until(waits)
