"""A target that finishes its work later and calls back, and the executions that wait for it."""

from typing import Any

import httpx
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, until
from tests.support.http_sink import Sink


class Target(Sink):
    """A target that starts work, answers 202 and keeps the callback URL and token."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = self.started

    @staticmethod
    async def started(request: web.Request) -> web.StreamResponse:
        """Answer 202 if the request offers a callback, else 200."""
        return web.Response(status=202 if "X-Carillon-Callback-Url" in request.headers else 200)

    async def call_back(self, number: int = 0, verb: str = "complete", **said: Any) -> httpx.Response:
        """Report to Carillon how the work of one of the calls ended."""
        headers = [call.headers for call in self.calls if "x-carillon-callback-url" in call.headers][number]
        url = headers["x-carillon-callback-url"].replace("/complete/", f"/{verb}/")
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            authorization = {"Authorization": f"Bearer {headers['x-carillon-callback-token']}"}
            return await client.post(url, json=said or None, headers=authorization)


def call(node_id: str, url: str, **config: Any) -> Json:
    """Return a node that calls a URL and waits for a callback."""
    return {"id": node_id, "type": "core.http_request", "config": {"url": url, "await_callback": True, **config}}


def told(carillon: Carillon) -> Settings:
    """Return settings for a worker whose callback URLs lead to this API."""
    return replace(carillon.settings, public_url=str(carillon._client.base_url))


async def execution(carillon: Carillon, schedule: Json) -> Json:
    """Read the latest execution of a schedule, with its nodes."""
    run = (await carillon.runs(schedule))[-1]
    answer: Json = await carillon.call("GET", f"/executions/{run['id']}/")
    return answer


async def ended(carillon: Carillon, schedule: Json) -> Json:
    """Wait until the latest execution of a schedule has ended, and return it."""

    async def finished() -> Json | None:
        latest = await execution(carillon, schedule)
        return latest if latest["finished_at"] else None

    return await until(finished)


async def is_parked(database: Database) -> bool:
    """Return whether an execution waits for a callback, without a worker."""
    async with database.transaction() as connection:
        return bool(
            (await connection.execute(text("SELECT count(*) FROM workflow_executions WHERE awaiting"))).scalar()
        )
