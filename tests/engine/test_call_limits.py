"""Limits that HTTP actions name, with real servers: calls wait without a worker, and never exceed the bound."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.config import Settings
from app.engine.housekeeping import Housekeeper
from app.persistence.database import Database
from tests.support.callbacks import Target, call, execution, told
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due, three_workers, until, working
from tests.support.http_sink import Sink
from tests.support.limits import Busy, ended, limit, waiting_run


def fan_out(url: str, number: int, **config: Any) -> Json:
    """Return a workflow whose calls run side by side."""
    calls = [{**http_node(url, **config), "id": f"call{index}"} for index in range(number)]
    return {
        "name": "fan-out",
        "nodes": [{"id": "start", "type": "trigger_schedule"}, *calls],
        "edges": [{"from": "start", "to": one["id"]} for one in calls],
    }


async def buckets(database: Database) -> list[str]:
    """Return the keys of all buckets."""
    async with database.transaction() as connection:
        return list((await connection.exec_driver_sql("SELECT key FROM limit_buckets ORDER BY key")).scalars())


async def test_three_workers_never_make_more_calls_at_once_than_the_limit(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Calls of many runs, and several calls of one run, share the bound; each is made once."""
    await limit(carillon, max_concurrent=2)
    busy = Busy(sink, together=2)
    limited = http_node(sink.url, limit="crm")
    single = await carillon.workflow({"id": "first", "type": "core.noop"}, limited)
    parallel = await carillon.call("POST", "/workflows/", 201, json=fan_out(sink.url, 4, limit="crm"))
    schedules = [await carillon.schedule(single) for _ in range(6)]
    schedules += [await carillon.schedule(parallel) for _ in range(2)]
    for schedule in schedules:
        await make_due(database, schedule)
    async with three_workers(replace(settings, lease_seconds=30)):
        runs = await ended(carillon, schedules)
    assert {("success", "")} == {(run["status"], run["error"]) for run in runs}
    assert (8, 14, 2) == (len(runs), len(sink.calls), busy.most)
    assert 14 == len({one.headers["idempotency-key"] for one in sink.calls})
    shown = await carillon.call("GET", "/limits/crm/")
    assert (0, 0) == (shown["held"], shown["waiting"])


@pytest.mark.corner("limits")
async def test_a_call_that_waits_holds_no_worker_and_is_explained(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Each key has its own bound. A run that waits is pending and says so; it goes on where it was."""
    await limit(carillon, max_concurrent=1)
    released = asyncio.Event()
    sink.hold_until(released)
    named = {"name": "crm", "key": "{{ trigger.payload.host }}"}
    workflow = await carillon.workflow({"id": "first", "type": "core.noop"}, http_node(sink.url, limit=named))
    held, other, waits = [
        await carillon.schedule(workflow, trigger_payload={"host": host}, after="1s") for host in ("a", 2, "a")
    ]
    async with working(settings):
        await sink.wait_for_calls(2)
        callers = {one.headers["x-carillon-schedule"] for one in sink.calls}
        assert other["id"] in callers
        waits = next(one for one in (held, waits) if one["id"] not in callers)
        run = await waiting_run(carillon, waits)
        assert ("pending", "limit:crm") == (run["status"], run["waiting_for"])
        assert run["started_at"] is not None
        shown = await carillon.call("GET", f"/executions/{run['id']}/")
        assert [("first", "success")] == [(node["node_id"], node["status"]) for node in shown["nodes"]]
        for status, number in (("pending", 1), ("running", 2)):
            listed = await carillon.call("GET", "/executions/", params={"status": status})
            assert number == listed["total"]
        explained = await carillon.explain(waits, run["scheduled_for"])
        assert "waiting_for_limit" == explained["outcome"]
        slots = await carillon.call("GET", f"/schedules/{waits['id']}/slots/")
        assert ["waiting_for_limit"] == [slot["reason"] for slot in slots["items"] if slot["execution_id"]]
        assert 1 == (await carillon.call("GET", "/limits/crm/"))["waiting"]
        await carillon.call("PATCH", "/limits/crm/", json={"max_concurrent": 2})
        await sink.wait_for_calls(3)
        released.set()
        runs = await ended(carillon, [held, other, waits])
    assert ["success"] * 3 == [one["status"] for one in runs]
    assert 3 == len(sink.calls)


async def test_a_lost_run_gives_its_permit_back_and_its_retry_asks_again(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The permit of a worker that died is free once its run is settled as lost."""
    await limit(carillon, max_concurrent=1)
    first, others = asyncio.Event(), asyncio.Event()
    others.set()
    sink.hold_until(first)
    workflow = await carillon.workflow(http_node(sink.url, limit="crm"))
    dies = await carillon.schedule(workflow, backoff_base_seconds=1)
    due = await make_due(database, dies)
    async with engine_of(settings) as engine:
        held = asyncio.create_task(engine.execute_scheduled_job(UUID(dies["id"]), due["generation"]))
        await sink.wait_for_calls(1)
        async with database.transaction() as connection:
            await connection.exec_driver_sql("UPDATE workers SET lease_expires_at = now() - interval '1 s'")
        sink.hold_until(others)
        async with working(settings):
            await sink.wait_for_calls(2)

            async def retried() -> list[str] | None:
                statuses = [run["status"] for run in await carillon.runs(dies)]
                return statuses if "success" in statuses else None

            assert {"lost", "success"} == set(await until(retried))
        held.cancel()
        await asyncio.wait({held})


async def test_a_call_that_awaits_its_callback_holds_its_permit(
    carillon: Carillon, database: Database, target: Target
) -> None:
    """Its target still works. Another callback of the run changes nothing; its own one frees the permit."""
    await limit(carillon, max_concurrent=2)
    nodes = [call(name, f"{target.url}/{name}", limit="crm") for name in ("a", "b")]
    nodes.append(call("c", f"{target.url}/c"))
    graph = {
        "name": "awaits",
        "nodes": [{"id": "start", "type": "trigger_schedule"}, *nodes],
        "edges": [{"from": "start", "to": one["id"]} for one in nodes],
    }
    first = await carillon.schedule(await carillon.call("POST", "/workflows/", 201, json=graph))
    after = await carillon.schedule(await carillon.workflow(http_node(target.url, limit="crm")))
    async with working(told(carillon)):
        await make_due(database, first)
        await target.wait_for_calls(3)
        named = [one.path for one in target.calls]
        await until(lambda: _awaits(carillon, first))
        await make_due(database, after)
        await waiting_run(carillon, after)
        await target.call_back(named.index("/c"), status="success")
        assert 2 == (await carillon.call("GET", "/limits/crm/"))["held"]
        assert 3 == len(target.calls)
        await target.call_back(named.index("/a"), status="success")
        await target.wait_for_calls(4)
        await target.call_back(named.index("/b"), status="success")
        assert ["success"] * 2 == [run["status"] for run in await ended(carillon, [first, after])]


async def _awaits(carillon: Carillon, schedule: Json) -> bool:
    return bool((await execution(carillon, schedule))["waiting_for"] == "callback")


async def test_a_name_that_is_filled_in_is_looked_up_when_the_call_is_made(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """If there is no such limit the node fails, and no call is made."""
    await limit(carillon, "crm-eu", max_concurrent=1)
    workflow = await carillon.workflow(http_node(sink.url, limit="crm-{{ trigger.payload.region }}"))
    known, unknown = [
        await carillon.schedule(workflow, trigger_payload={"region": region}, max_retries=0) for region in ("eu", "us")
    ]
    for schedule in (known, unknown):
        await make_due(database, schedule)
    async with working(settings):
        runs = await ended(carillon, [known, unknown])
    assert ["success", "failed"] == [run["status"] for run in runs]
    assert "There is no limit 'crm-us'" in runs[1]["error"]
    assert [known["id"]] == [one.headers["x-carillon-schedule"] for one in sink.calls]


async def test_waiting_ends_with_the_timeout_of_the_run(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The run has begun, so its time counts. Unused buckets are forgotten after an hour, used ones stay."""
    await limit(carillon, max_concurrent=1)
    released = asyncio.Event()
    sink.hold_until(released)
    workflow = await carillon.workflow(http_node(sink.url, limit={"name": "crm", "key": "k"}))
    holds = await carillon.schedule(workflow)
    waits = await carillon.schedule(workflow, timeout_seconds=1, max_retries=0)
    async with working(settings):
        await make_due(database, holds)
        await sink.wait_for_calls(1)
        await make_due(database, waits)
        (run,) = await ended(carillon, [waits])
        assert ("timed_out", 1) == (run["status"], len(sink.calls))
        await _pretend_age(database)
        await Housekeeper(database, keep_days=30).keep_weeks()
        assert ["k"] == await buckets(database)
        released.set()
        await ended(carillon, [holds])
    await _pretend_age(database)
    await Housekeeper(database, keep_days=30).keep_weeks()
    assert [] == await buckets(database)


async def _pretend_age(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.exec_driver_sql("UPDATE limit_permits SET entered_at = entered_at - interval '2 hours'")


@pytest.mark.parametrize("named", ["none", {"name": "none", "key": "k"}])
async def test_a_literal_name_must_exist_when_the_workflow_is_written(carillon: Carillon, named: object) -> None:
    """In POST, PATCH, validate and apply, with the node and the field. A limit that a node names is not deleted."""
    message = "There is no limit 'none' that the owner may use. Create it first, or correct the name."
    body = fan_out("http://127.0.0.1:9", 1, limit=named)
    refused = await carillon.call("POST", "/workflows/", 422, json=body)
    error = {"field": "nodes[1].config.limit", "message": f"Node 'call0': {message}"}
    assert [error] == refused["errors"]
    checked = await carillon.call("POST", "/workflows/validate/", json=body)
    assert [{"node": "call0", **error}] == checked["errors"]
    document = {"namespace": "ns", "workflows": [body]}
    applied = await carillon.call("POST", "/apply/", 422, json={"documents": [document]})
    assert message in applied["errors"][0]["message"]
    await limit(carillon, "none", max_concurrent=1)
    await carillon.call("POST", "/workflows/", 201, json=body)
    await carillon.call("DELETE", "/limits/none/", 409)


async def test_files_check_the_limits_of_workflows_and_schedules(carillon: Carillon) -> None:
    """With the same sentence as the API; nothing of the file is stored."""
    flow: Json = {**fan_out("http://127.0.0.1:9", 1), "name": "w"}
    schedule: Json = {"name": "s", "workflow": "w", "interval_seconds": 60}
    limited_flow = {"workflows": [{**flow, "limit": "none"}], "schedules": [schedule]}
    limited_schedule = {"workflows": [flow], "schedules": [{**schedule, "limit": "none"}]}
    for declared in (limited_flow, limited_schedule):
        refused = await carillon.call("POST", "/apply/", 422, json={"documents": [{"namespace": "ns", **declared}]})
        assert "There is no limit 'none' that the owner may use." in refused["errors"][0]["message"]
    assert 0 == (await carillon.call("GET", "/workflows/"))["total"]


async def test_calls_of_an_owner_keep_to_the_quota_of_calls(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """A run whose calls have to wait is parked and says for what; another owner is not held up."""
    team = await carillon.call("POST", "/teams/", 201, json={"name": "ops"})
    await carillon.call("PATCH", f"/teams/{team['id']}/", json={"quotas": {"calls_per_second": 1}})
    body = fan_out(sink.url, 30) | {"team_id": team["id"]}
    of_team = await carillon.schedule(await carillon.call("POST", "/workflows/", 201, json=body), team_id=team["id"])
    own = await carillon.schedule(await carillon.call("POST", "/workflows/", 201, json=fan_out(sink.url, 30)))
    async with engine_of(settings) as engine:
        await engine.limits.read_quotas()
        for schedule in (own, of_team):
            due = await make_due(database, schedule)
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    (run,) = await carillon.runs(of_team)
    assert "limit:quota.calls_per_second" == run["waiting_for"]
    assert ["success"] == [run["status"] for run in await carillon.runs(own)]
    assert 30 < len(sink.calls) < 60
