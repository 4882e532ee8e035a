"""Runs that wait are put aside in Postgres: no worker holds them, and nothing is lost or changed meanwhile.

Covers app.persistence.parked_runs.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from app.queue.bell import RedisPool
from tests.support.callbacks import Target, call, ended, execution, told
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due, until, working
from tests.support.databases import until_waiting
from tests.support.http_sink import Sink

LONG = 600


def wait(seconds: float, node_id: str = "wait") -> Json:
    """A node that waits."""
    return {"id": node_id, "type": "core.delay", "config": {"seconds": seconds}}


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    """A target that calls back."""
    async with Target() as opened:
        yield opened


async def fire(settings: Settings, database: Database, schedule: Json) -> None:
    """Let its tick be claimed and run, by an engine without a queue."""
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        assert {} == engine.owned


async def row(database: Database, schedule: Json) -> Any:
    """Its execution as Postgres has it."""
    statement = text("SELECT * FROM workflow_executions WHERE scheduled_job_id = :id")
    async with database.transaction() as connection:
        return (await connection.execute(statement, {"id": UUID(schedule["id"])})).one()


async def wake_up(database: Database, schedule: Json) -> None:
    """Let the time of its sleeper have come; under another token, as its message is queued for the old time."""
    statement = text(
        "UPDATE workflow_executions SET token = token + 1, due_at = clock_timestamp(), "
        "graph = jsonb_set(graph, '{asleep,wait}', "
        "to_jsonb(clock_timestamp())) WHERE scheduled_job_id = :id"
    )
    async with database.transaction() as connection:
        await connection.execute(statement, {"id": UUID(schedule["id"])})


async def test_a_long_wait_holds_no_worker(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The run is under way for whoever looks; after its time it goes on where it was, and counts once."""
    schedule = await carillon.schedule(await carillon.workflow(wait(LONG), http_node(sink.url)))
    await fire(settings, database, schedule)
    parked = await row(database, schedule)
    assert ("pending", None, 2) == (parked.status, parked.worker_id, parked.token)
    assert "running" == (await execution(carillon, schedule))["status"]
    listed = await carillon.call("GET", "/executions/", params={"status": "running"})
    assert [str(parked.id)] == [one["id"] for one in listed["items"]]
    assert 0 == (await carillon.call("GET", "/executions/", params={"status": "pending"}))["total"]
    assert [] == sink.calls
    last_run_at = (await carillon.get(schedule))["last_run_at"]
    (asleep,) = (await execution(carillon, schedule))["nodes"]
    assert ("running", None) == (asleep["status"], asleep["finished_at"])
    await wake_up(database, schedule)
    async with working(settings):
        shown = await ended(carillon, schedule)
    assert ("success", 1) == (shown["status"], len(sink.calls))
    assert last_run_at == (await carillon.get(schedule))["last_run_at"]
    assert parked.started_at == (await row(database, schedule)).started_at
    assert {"wait": {"seconds": LONG}} == {
        one["node_id"]: one["output"] for one in shown["nodes"] if one["node_id"] == "wait"
    }
    assert 1 == (await carillon.get(schedule))["run_count"]


async def test_a_wait_takes_its_time(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """By the message that was rung for it, not before."""
    schedule = await carillon.schedule(await carillon.workflow(wait(2.0), http_node(sink.url)), after="1s")
    async with working(settings):
        await sink.wait_for_calls(1)
        shown = await ended(carillon, schedule)
    assert "success" == shown["status"]
    assert shown["duration_ms"] >= 2000


async def test_a_flush_of_redis_loses_no_sleeper(
    carillon: Carillon, settings: Settings, database: Database, redis: RedisPool, sink: Sink
) -> None:
    """It is found in Postgres."""
    schedule = await carillon.schedule(await carillon.workflow(wait(2.0), http_node(sink.url)))
    await fire(settings, database, schedule)
    await redis.flushall()
    async with working(settings):
        assert "success" == (await ended(carillon, schedule))["status"]
    assert 1 == len(sink.calls)


async def test_the_timeout_goes_on_while_a_run_sleeps(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """It ends then, and what comes after the wait is not done."""
    workflow = await carillon.workflow(wait(LONG), http_node(sink.url))
    schedule = await carillon.schedule(workflow, timeout_seconds=1)
    await fire(settings, database, schedule)
    async with working(settings):
        shown = await ended(carillon, schedule)
    assert "timed_out" == shown["status"]
    assert "timeout_seconds (1 s)" in shown["error"]
    assert [] == sink.calls


async def test_a_parked_run_keeps_the_graph_that_it_began_with(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Whatever the workflow becomes meanwhile; the next run has the new one."""
    workflow = await carillon.workflow(wait(LONG), http_node(f"{sink.url}/old"))
    schedule = await carillon.schedule(workflow)
    await fire(settings, database, schedule)
    new = [{"id": "start", "type": "trigger_schedule"}, http_node(f"{sink.url}/new")]
    edges = [{"from": "start", "to": "call"}]
    changes = {"nodes": new, "edges": edges, "active": False}
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json=changes)
    await wake_up(database, schedule)
    async with working(settings):
        assert "success" == (await ended(carillon, schedule))["status"]
    assert ["/old"] == [one.path for one in sink.calls]
    assert (await row(database, schedule)).graph is None


async def test_a_run_that_awaits_a_callback_keeps_its_graph_too(
    carillon: Carillon, settings: Settings, target: Target
) -> None:
    """It goes on with the node that followed when it began."""
    start, after = call("start-work", target.url), http_node(f"{target.url}/old")
    workflow = await carillon.workflow(start, after)
    schedule = await carillon.schedule(workflow, after="1s")
    async with working(told(carillon)):
        await target.wait_for_calls(1)
        nodes = [{"id": "start", "type": "trigger_schedule"}, start, http_node(f"{target.url}/new")]
        await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes})
        await until(lambda: answered(target))
        assert "success" == (await ended(carillon, schedule))["status"]
    assert ["/", "/old"] == [one.path for one in target.calls]


async def answered(target: Target) -> bool:
    """Whether the callback was taken."""
    return (await target.call_back(status="success")).status_code == 200


async def test_a_sleeping_run_keeps_its_place_in_the_guard(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Nobody else gets in meanwhile, and it does not wait for itself when it wakes up."""
    workflow = await carillon.workflow(wait(LONG), max_concurrent_runs=1)
    first, second = await carillon.schedule(workflow), await carillon.schedule(workflow)
    await fire(settings, database, first)
    await fire(settings, database, second)
    assert ["skipped_guard"] == [one["outcome"] for one in await carillon.ledger(second)]
    await wake_up(database, first)
    async with working(settings):
        assert "success" == (await ended(carillon, first))["status"]


async def test_a_sleeping_run_overlaps_the_next_slot_and_can_be_cancelled(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """As any run that is under way."""
    schedule = await carillon.schedule(await carillon.workflow(wait(LONG)))
    await fire(settings, database, schedule)
    await fire(settings, database, schedule)
    outcomes = [one["outcome"] for one in await carillon.ledger(schedule)]
    assert ["fired", "skipped_overlap"] == outcomes
    parked = await execution(carillon, schedule)
    cancelled = await carillon.call("POST", f"/executions/{parked['id']}/cancel/")
    assert ["cancelled"] * 2 == [cancelled["status"], cancelled["nodes"][0]["status"]]
    slept = datetime.fromisoformat(cancelled["nodes"][0]["finished_at"]) - datetime.fromisoformat(parked["started_at"])
    assert slept < timedelta(seconds=LONG)


async def test_a_run_that_is_parked_at_that_moment_is_cancelled(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """By a request, and by the next manual run: what they read before has another token by then."""
    schedule = await carillon.schedule(await carillon.workflow(wait(LONG)), if_running="cancel")
    await fire(settings, database, schedule)
    moved = text("UPDATE workflow_executions SET token = token + 1 WHERE id = :id")
    for path in ("/executions/{run}/cancel/", "/schedules/{schedule}/run/"):
        (run,) = [one for one in await carillon.runs(schedule) if one["status"] in {"pending", "running"}]
        request = carillon.request("POST", path.format(run=run["id"], schedule=schedule["id"]))
        async with database.transaction() as connection:
            await connection.execute(moved, {"id": UUID(run["id"])})
            answering = asyncio.create_task(request)
            await until_waiting(connection)
        assert (await answering).is_success
        assert "cancelled" == (await carillon.call("GET", f"/executions/{run['id']}/"))["status"]
        await fire(settings, database, schedule)


async def test_a_slot_that_cancels_a_sleeping_run_leaves_nothing_of_it(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Neither its graph nor a node that would succeed some day."""
    schedule = await carillon.schedule(await carillon.workflow(wait(LONG)), if_running="cancel")
    await fire(settings, database, schedule)
    first = (await carillon.runs(schedule))[0]
    await fire(settings, database, schedule)
    shown = await carillon.call("GET", f"/executions/{first['id']}/")
    assert ["cancelled"] * 2 == [shown["status"], shown["nodes"][0]["status"]]
    async with database.transaction() as connection:
        statement = text("SELECT count(*) FROM workflow_executions WHERE graph IS NOT NULL")
        assert 1 == (await connection.execute(statement)).scalar_one()


async def test_a_callback_wakes_a_run_that_sleeps_beside_it(
    carillon: Carillon, settings: Settings, database: Database, target: Target
) -> None:
    """What follows the callback is done at once; what sleeps goes on sleeping, and then its successor is done."""
    nodes = [
        {"id": "start", "type": "trigger_schedule"},
        call("asked", f"{target.url}/asked"),
        wait(LONG),
        {**http_node(f"{target.url}/after-callback"), "id": "b"},
        {**http_node(f"{target.url}/after-wait"), "id": "d"},
    ]
    edges = [("start", "asked"), ("start", "wait"), ("asked", "b"), ("wait", "d")]
    body = {"name": "w", "nodes": nodes, "edges": [{"from": one, "to": other} for one, other in edges]}
    workflow = await carillon.call("POST", "/workflows/", 201, json=body)
    schedule = await carillon.schedule(workflow, after="1s")

    async def paths(*wanted: str) -> bool:
        return sorted(wanted) == sorted(one.path for one in target.calls)

    async with working(told(carillon)):
        await until(lambda: paths("/asked"))
        await until(lambda: answered(target))
        await until(lambda: paths("/asked", "/after-callback"))

        async def asleep_again() -> bool:
            return bool((await row(database, schedule)).status == "pending")

        await until(asleep_again)
        assert not (await execution(carillon, schedule))["finished_at"]
        await wake_up(database, schedule)
        assert "success" == (await ended(carillon, schedule))["status"]
    assert await paths("/asked", "/after-callback", "/after-wait")


async def test_an_owner_may_park_so_many_runs(carillon: Carillon, settings: Settings, database: Database) -> None:
    """One more fails and says so; another owner's is parked."""
    strict = replace(settings, quota_parked_runs=1)
    workflow = await carillon.workflow(wait(LONG))
    first, second = await carillon.schedule(workflow), await carillon.schedule(workflow)
    member = await carillon.member()
    other = await member.schedule(await member.workflow(wait(LONG)))
    for schedule in (first, second, other):
        await fire(strict, database, schedule)
    shown = [(await carillon.runs(schedule))[0] for schedule in (first, second, other)]
    assert ["running", "failed", "running"] == [run["status"] for run in shown]
    assert "may have 1 parked runs and has 1" in shown[1]["error"]


async def test_a_sleeper_wakes_up_beside_a_branch_that_is_going_on(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """What follows it is done at its time, not when the other branch has ended."""
    released = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/slow":
            await released.wait()
        return web.Response()

    sink.answer = answer
    nodes = [
        {"id": "start", "type": "trigger_schedule"},
        {**http_node(f"{sink.url}/slow"), "id": "slow"},
        wait(1.5),
        {**http_node(f"{sink.url}/after-wait"), "id": "after"},
    ]
    edges = [("start", "slow"), ("start", "wait"), ("wait", "after")]
    body = {"name": "w", "nodes": nodes, "edges": [{"from": one, "to": other} for one, other in edges]}
    schedule = await carillon.schedule(await carillon.call("POST", "/workflows/", 201, json=body), after="1s")
    async with working(settings):
        calls = await sink.wait_for_calls(2, 60)
        assert ["/slow", "/after-wait"] == [call.path for call in calls]
        released.set()
        shown = await ended(carillon, schedule)
    assert ("success", {"success"}) == (shown["status"], {node["status"] for node in shown["nodes"]})
