"""One owner floods a worker; others are fired all the same, and nothing exceeds the worker's places.

Covers app.engine.concurrency.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from app.queue.bell import RedisPool
from tests.support.carillon import Carillon, http_node, until, working
from tests.support.http_sink import Sink
from tests.support.redis_refusals import healed, wrong_type

PLACES = 10
FLOOD = 60
# What is promised is a second, measured by `make attack`; a machine that stalls may take longer.
LATE_SECONDS = 5.0


class SlowTarget(Sink):
    """Holds the calls of the flood, answers all others, and knows how many it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = self.hold
        self.held = 0
        self.most_held = 0
        self.late: list[float] = []

    async def hold(self, request: web.Request) -> web.StreamResponse:
        """Never answer the flood."""
        if request.path != "/flood":
            slot = datetime.fromisoformat(request.headers["X-Carillon-Slot"])
            self.late.append((datetime.now(UTC) - slot).total_seconds())
            return web.Response()
        self.held += 1
        self.most_held = max(self.most_held, self.held)
        try:
            await asyncio.Event().wait()
        finally:
            self.held -= 1
        return web.Response()


async def flood(carillon: Carillon, target: SlowTarget) -> None:
    """Many schedules of one member, each with a call that is never answered."""
    member = await carillon.member("greedy")
    workflow = await member.workflow(http_node(f"{target.url}/flood"))
    one = {"name": "f", "workflow_id": workflow["id"], "interval_seconds": 1, "timeout_seconds": 600}
    await member.call("POST", "/schedules/batch/", 201, json={"schedules": [one] * FLOOD})


def calls(target: SlowTarget, count: int) -> Any:
    """Whether so many others were called."""

    async def enough() -> bool:
        return len(target.late) >= count

    return enough


@pytest.mark.parametrize("redis_is_sick", [False, True])
async def test_a_flood_of_one_owner_keeps_nobody_waiting(
    carillon: Carillon, settings: Settings, redis: RedisPool, *, redis_is_sick: bool
) -> None:
    """With and without Redis: all places but the last are the flood's, and the other owner fires every second."""
    async with SlowTarget() as target:
        await flood(carillon, target)
        try:
            if redis_is_sick:
                await wrong_type(redis)
            async with working(replace(settings, worker_concurrency=PLACES, drain_seconds=0)):

                async def full() -> bool:
                    return target.held >= PLACES - 1

                await until(full)
                other = await carillon.member("modest")
                schedule = await other.schedule(
                    await other.workflow(http_node(f"{target.url}/other")), interval_seconds=1
                )
                await until(calls(target, 8))
                manual = await other.schedule(await other.workflow(http_node(f"{target.url}/manual")))
                await other.call("POST", f"/schedules/{manual['id']}/run/", 202)

                async def has_run() -> bool:
                    return "/manual" in {call.path for call in target.calls}

                await until(has_run)
        finally:
            await healed(redis)
        assert target.most_held <= PLACES
        assert max(target.late) < LATE_SECONDS
        assert {"success"} == {run["status"] for run in (await other.runs(schedule))[:-1]}


async def test_waiting_runs_take_no_place(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """A hundred of them in a worker with two places, and another's schedule fires every second."""
    member = await carillon.member("patient")
    wait = {"id": "work", "type": "core.delay", "config": {"seconds": 600}}
    workflow = await member.workflow(wait)
    one = {"name": "w", "workflow_id": workflow["id"], "after": "1s"}
    await member.call("POST", "/schedules/batch/", 201, json={"schedules": [one] * 100})
    async with working(replace(settings, worker_concurrency=2)):
        await carillon.schedule(await carillon.workflow(http_node(sink.url)), interval_seconds=1)
        await sink.wait_for_calls(5, 60)

        async def all_waiting() -> bool:
            listed = await member.call("GET", "/executions/", params={"status": "running"})
            return bool(listed["total"] == 100)

        await until(all_waiting)
        seen = len(sink.calls)
        await sink.wait_for_calls(seen + 3, 60)


async def test_a_webhook_of_an_owner_without_schedules_is_called_too(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """It is found in Postgres as schedules are, while another owner fills all places."""
    async with SlowTarget() as target:
        await flood(carillon, target)
        other = await carillon.member("caller")
        webhook = {"url": f"{target.url}/webhook", "interval_minutes": 1}
        made = await other.call("POST", "/webhooks/", 201, json=webhook)
        async with working(replace(settings, worker_concurrency=PLACES, drain_seconds=0, poll_seconds=1.0)):

            async def full() -> bool:
                return target.held >= PLACES - 1

            await until(full)
            due = text("UPDATE webhooks SET next_execution_at = clock_timestamp() WHERE id = :id")
            async with database.transaction() as connection:
                await connection.execute(due, {"id": made["id"]})

            async def called() -> bool:
                return "/webhook" in {call.path for call in target.calls}

            await until(called)
