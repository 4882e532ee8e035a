"""Carillon as a client sees it, and what tests do behind its back."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
import msgspec
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
KINDS = {"interval_seconds", "every", "cron", "at", "after"}

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
    """Ask again and again until there is an answer; a generous deadline, as machines stall."""
    async with asyncio.timeout(seconds):
        while True:
            found = await check()
            if found:
                return found
            await asyncio.sleep(0.05)


class Carillon:
    """A client with a token."""

    def __init__(self, client: Any, settings: Settings, token: str = ADMIN_TOKEN) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.settings = settings

    def with_token(self, token: str) -> "Carillon":
        """The same API for somebody else."""
        return Carillon(self._client, self.settings, token)

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any call below /api/v1."""
        headers = {**self._headers, **options.pop("headers", {})}
        response: httpx.Response = await self._client.request(method, f"/api/v1{path}", headers=headers, **options)
        return response

    async def raw(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any call at all, without a token."""
        response: httpx.Response = await self._client.request(method, path, **options)
        return response

    async def call(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        """A call that must be answered in this way; its JSON."""
        response = await self.request(method, path, **options)
        assert expected == response.status_code, response.text
        return response.json() if response.content else None

    async def workflow(self, *actions: Json, **values: Any) -> Json:
        """A workflow of these actions in a row, or of one that does nothing."""
        nodes = [{"id": "start", "type": "trigger_schedule"}, *(actions or ({"id": "work", "type": "core.noop"},))]
        edges = [{"from": a["id"], "to": b["id"]} for a, b in itertools.pairwise(nodes)]
        body = {"name": "w", "nodes": nodes, "edges": edges, **values}
        made: Json = await self.call("POST", "/workflows/", 201, json=body)
        return made

    async def schedule(self, workflow: Json | None = None, **values: Any) -> Json:
        """A schedule, of a workflow that does nothing unless one is given."""
        workflow_id = (workflow or await self.workflow())["id"]
        every: Json = {} if values.keys() & KINDS else {"interval_seconds": 300}
        body = {"name": "s", "workflow_id": workflow_id, **every, **values}
        made: Json = await self.call("POST", "/schedules/", 201, json=body)
        return made

    async def get(self, schedule: Json) -> Json:
        """A schedule as it is now."""
        found: Json = await self.call("GET", f"/schedules/{schedule['id']}/")
        return found

    async def until_status(self, schedule: Json, status: str) -> Json:
        """Wait until a schedule has this status, and return it."""

        async def read() -> Json | None:
            shown = await self.get(schedule)
            return shown if shown["status"] == status else None

        return await until(read)

    async def runs(self, schedule: Json) -> list[Json]:
        """Its runs, oldest first."""
        answer = await self.call("GET", f"/schedules/{schedule['id']}/runs/", params={"limit": 500})
        return list(reversed(answer["items"]))

    async def ledger(self, schedule: Json) -> list[Json]:
        """Its account, oldest first."""
        answer = await self.call("GET", f"/schedules/{schedule['id']}/ledger/", params={"limit": 500})
        return list(reversed(answer["items"]))

    async def explain(self, schedule: Json, moment: str | None = None) -> Json:
        """Why it did, or did not, run at a moment, or now."""
        params = {"at": moment} if moment else {}
        answer: Json = await self.call("GET", f"/schedules/{schedule['id']}/explain/", params=params)
        return answer

    async def history(self, schedule: Json) -> list[Json]:
        """Its changes, oldest first."""
        answer = await self.call("GET", f"/schedules/{schedule['id']}/history/")
        return list(reversed(answer["items"]))

    async def breaker(self, workflow: Json) -> Json:
        """The breaker of a workflow."""
        answer: Json = await self.call("GET", f"/breakers/{workflow['id']}/")
        return answer

    async def member(self, name: str = "mia") -> "Carillon":
        """A new member's client."""
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
    """A node that calls a URL."""
    return {"id": "call", "type": "core.http_request", "config": {"url": url, **config}}


async def make_due(database: Database, schedule: Json, seconds_ago: float = 0) -> Json:
    """Let a schedule's pending tick have been due so long ago: a retry's alone, else with the whole cadence."""
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
    """A worker's engine that is driven by hand: with a lease, without a queue and without a reconciler.

    Nobody renews the lease, so it is one that outlasts a machine that stalls.
    """
    async with wire_worker(msgspec.structs.replace(settings, lease_seconds=lease_seconds)) as parts:
        await parts.life._lease.begin()
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
    """A whole worker in this process, as long as the block lasts."""
    stopping = asyncio.Event()
    task = asyncio.create_task(run_worker(settings, stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


@asynccontextmanager
async def three_workers(settings: Settings) -> AsyncIterator[None]:
    """Three whole workers in this process, each with a lease of its own."""
    async with working(settings), working(settings), working(settings):
        yield
