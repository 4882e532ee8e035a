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
    """A target that starts work and remembers how to call back."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = self.started

    @staticmethod
    async def started(request: web.Request) -> web.StreamResponse:
        """202 where a callback is offered."""
        return web.Response(status=202 if "X-Carillon-Callback-Url" in request.headers else 200)

    async def call_back(self, number: int = 0, verb: str = "complete", **said: Any) -> httpx.Response:
        """Say how the work of one of the calls ended."""
        headers = [call.headers for call in self.calls if "x-carillon-callback-url" in call.headers][number]
        url = headers["x-carillon-callback-url"].replace("/complete/", f"/{verb}/")
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            authorization = {"Authorization": f"Bearer {headers['x-carillon-callback-token']}"}
            return await client.post(url, json=said or None, headers=authorization)


def call(node_id: str, url: str, **config: Any) -> Json:
    """A node that awaits a callback."""
    return {"id": node_id, "type": "core.http_request", "config": {"url": url, "await_callback": True, **config}}


def told(carillon: Carillon) -> Settings:
    """Settings of a worker that tells targets where this API is."""
    return replace(carillon.settings, public_url=str(carillon._client.base_url))


async def execution(carillon: Carillon, schedule: Json) -> Json:
    """Its latest execution, with all that is known of it."""
    run = (await carillon.runs(schedule))[-1]
    answer: Json = await carillon.call("GET", f"/executions/{run['id']}/")
    return answer


async def ended(carillon: Carillon, schedule: Json) -> Json:
    """The same, once it has ended."""

    async def found() -> Json | None:
        latest = await execution(carillon, schedule)
        return latest if latest["finished_at"] else None

    return await until(found)


async def is_parked(database: Database) -> bool:
    """Whether an execution waits without a worker."""
    async with database.transaction() as connection:
        return bool(
            (await connection.execute(text("SELECT count(*) FROM workflow_executions WHERE awaiting"))).scalar()
        )
