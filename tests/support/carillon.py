"""The API's client, workers and engines in the test's process, and changes that bypass the API."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
import msgspec
import redis as redis_client
from sqlalchemy import text

from app.config import Settings, load_settings
from app.engine.ticks import TickEngine
from app.persistence.database import Database
from app.wiring import wire_worker
from app.worker import run_worker

ADMIN_TOKEN = "the-admin-token-of-the-tests"
PATIENCE_SECONDS = 60.0
# A node that always fails.
FAIL = {"id": "work", "type": "core.fail", "config": {"message": "boom"}}
KINDS = {"interval_seconds", "every", "cron", "rrule", "at", "after"}

Json = dict[str, Any]
T = TypeVar("T")


def settings_on(database_url: str, redis_url: str, data_dir: Path) -> Settings:
    """Return the settings that all tests use, with short leases, on these stores."""
    return load_settings(
        {
            "CARILLON_DATABASE_URL": database_url,
            "CARILLON_REDIS_URL": redis_url,
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_HTTP_ALLOW": "127.0.0.0/8,::1",
            "CARILLON_LEASE_SECONDS": "3",
            "CARILLON_RECONCILE_SECONDS": "0.5",
            "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
            "CARILLON_DRAIN_SECONDS": "1",
            "CARILLON_DATA_DIR": str(data_dir),
        }
    )


async def until(check: Callable[[], Awaitable[T | None]], seconds: float = PATIENCE_SECONDS) -> T:
    """Repeat a check until its answer is true, and return the answer; the deadline allows for machines that stall."""
    async with asyncio.timeout(seconds):
        while True:
            answer = await check()
            if answer:
                return answer
            await asyncio.sleep(0.05)


class Carillon:
    """A client of the API with a token."""

    def __init__(self, client: Any, settings: Settings, token: str = ADMIN_TOKEN) -> None:
        self._client = client
        self.token = token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.settings = settings

    def with_token(self, token: str) -> "Carillon":
        """Return a client of the same API with another token."""
        return Carillon(self._client, self.settings, token)

    def refuse_cookies(self) -> None:
        """Keep no cookie of an answer: the session of one test would log in the next one."""
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request below /api/v1 with the token."""
        headers = {**self._headers, **options.pop("headers", {})}
        response: httpx.Response = await self._client.request(method, f"/api/v1{path}", headers=headers, **options)
        return response

    async def raw(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to any path, without a token."""
        response: httpx.Response = await self._client.request(method, path, **options)
        return response

    async def call(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        """Send a request, require this status, and return the JSON of the answer."""
        response = await self.request(method, path, **options)
        assert expected == response.status_code, response.text
        return response.json() if response.content else None

    async def workflow(self, *actions: Json, **values: Any) -> Json:
        """Create a workflow of these actions in a row, or of one that does nothing."""
        nodes = [{"id": "start", "type": "trigger_schedule"}, *(actions or ({"id": "work", "type": "core.noop"},))]
        edges = [{"from": a["id"], "to": b["id"]} for a, b in itertools.pairwise(nodes)]
        body = {"name": "w", "nodes": nodes, "edges": edges, **values}
        made: Json = await self.call("POST", "/workflows/", 201, json=body)
        return made

    async def schedule(self, workflow: Json | None = None, **values: Any) -> Json:
        """Create a schedule, of a workflow that does nothing unless one is given."""
        workflow_id = (workflow or await self.workflow())["id"]
        every: Json = {} if values.keys() & KINDS else {"interval_seconds": 300}
        body = {"name": "s", "workflow_id": workflow_id, **every, **values}
        made: Json = await self.call("POST", "/schedules/", 201, json=body)
        return made

    async def get(self, schedule: Json) -> Json:
        """Read a schedule."""
        shown: Json = await self.call("GET", f"/schedules/{schedule['id']}/")
        return shown

    async def until_status(self, schedule: Json, status: str) -> Json:
        """Wait until a schedule has this status, and return it."""

        async def read() -> Json | None:
            shown = await self.get(schedule)
            return shown if shown["status"] == status else None

        return await until(read)

    async def runs(self, schedule: Json) -> list[Json]:
        """Read the runs of a schedule, oldest first."""
        answer = await self.call("GET", f"/schedules/{schedule['id']}/runs/", params={"limit": 500})
        return list(reversed(answer["items"]))

    async def ledger(self, schedule: Json) -> list[Json]:
        """Read the ledger of a schedule, oldest first."""
        answer = await self.call("GET", f"/schedules/{schedule['id']}/ledger/", params={"limit": 500})
        return list(reversed(answer["items"]))

    async def outcomes(self, schedule: Json, step: timedelta) -> dict[datetime, str]:
        """Read the outcome of each slot of a cadence; a slot with two outcomes, or with none, fails the test."""
        outcomes: dict[datetime, str] = {}
        for item in await self.ledger(schedule):
            slot = first_slot(item)
            while slot <= last_slot(item):
                assert slot not in outcomes, slot
                outcomes[slot] = item["outcome"]
                slot += step
        assert [min(outcomes) + number * step for number in range(len(outcomes))] == sorted(outcomes)
        return outcomes

    async def until_succeeded(self, schedule: Json, count: int) -> list[Json]:
        """Wait until so many runs of a schedule have succeeded, and return them."""

        async def enough() -> list[Json] | None:
            succeeded = [run for run in await self.runs(schedule) if run["status"] == "success"]
            return succeeded if len(succeeded) >= count else None

        return await until(enough)

    async def explain(self, schedule: Json, moment: str | None = None) -> Json:
        """Ask why a schedule did or did not run at a moment, or now."""
        params = {"at": moment} if moment else {}
        answer: Json = await self.call("GET", f"/schedules/{schedule['id']}/explain/", params=params)
        return answer

    async def history(self, schedule: Json) -> list[Json]:
        """Read the changes of a schedule, oldest first."""
        answer = await self.call("GET", f"/schedules/{schedule['id']}/history/")
        return list(reversed(answer["items"]))

    async def breaker(self, workflow: Json) -> Json:
        """Read the breaker of a workflow."""
        answer: Json = await self.call("GET", f"/breakers/{workflow['id']}/")
        return answer

    async def member(self, name: str = "mia") -> "Carillon":
        """Create a user with a token and return their client."""
        user = await self.call("POST", "/users/", 201, json={"username": name})
        token = await self.call("POST", f"/users/{user['id']}/tokens/", 201, json={"name": "t"})
        return self.with_token(token["token"])


def moment(value: str) -> datetime:
    """Read an instant as the API writes it: in UTC, ending with Z."""
    assert value.endswith("Z")
    return datetime.fromisoformat(value)


def first_slot(item: Json) -> datetime:
    """Return the first slot of an item of the ledger, which may stand for several slots."""
    return moment(item.get("from") or item["slot"])


def last_slot(item: Json) -> datetime:
    """Return the last slot of an item of the ledger."""
    return moment(item.get("to") or item["slot"])


def http_node(url: str, **config: Any) -> Json:
    """Return a node that calls a URL."""
    return {"id": "call", "type": "core.http_request", "config": {"url": url, **config}}


async def make_due(database: Database, schedule: Json, seconds_ago: float = 0) -> Json:
    """Move a schedule's pending tick into the past: only the tick if it is a retry, else the whole cadence."""
    statement = text(
        "WITH gap AS (SELECT id, next_run_at - now() + make_interval(secs => :ago) AS run, "
        "CASE next_attempt WHEN 0 THEN next_run_at - now() + make_interval(secs => :ago) "
        "ELSE interval '0' END AS slots FROM scheduled_jobs WHERE id = :id) "
        "UPDATE scheduled_jobs AS j SET next_run_at = next_run_at - run, next_slot = next_slot - slots, "
        "anchor_at = anchor_at - slots, cadence_slot = cadence_slot - slots FROM gap WHERE gap.id = j.id "
        "RETURNING j.next_slot, j.generation"
    )
    async with database.transaction() as connection:
        row = (await connection.execute(statement, {"id": UUID(schedule["id"]), "ago": seconds_ago})).one()
    return {"slot": row.next_slot, "generation": row.generation}


@asynccontextmanager
async def engine_of(settings: Settings, lease_seconds: float = 120) -> AsyncIterator[TickEngine]:
    """Run a worker's engine that the test drives: with a lease, without a queue and without a reconciler.

    The lease is not renewed, so it is long enough for a machine that stalls.
    """
    async with wire_worker(msgspec.structs.replace(settings, lease_seconds=lease_seconds)) as parts:
        await parts.runtime._lease.begin()
        yield parts.engine


async def fire_and_read(carillon: Carillon, settings: Settings, database: Database, schedule: Json) -> Json:
    """Fire a schedule's pending tick at once and return its latest execution as the API shows it."""
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    run = (await carillon.runs(schedule))[-1]
    execution: Json = await carillon.call("GET", f"/executions/{run['id']}/")
    return execution


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[None]:
    """Run a whole worker in this process until the block ends."""
    stopping = asyncio.Event()
    task = asyncio.create_task(run_worker(settings, stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


@asynccontextmanager
async def three_workers(settings: Settings) -> AsyncIterator[None]:
    """Run three whole workers in this process, each with a lease of its own.

    Messages from before are forgotten: a schedule that was made due earlier is rung for at once, not after a lease.
    """
    with redis_client.Redis.from_url(settings.redis_url) as client:
        client.flushall()
    async with working(settings), working(settings), working(settings):
        yield
