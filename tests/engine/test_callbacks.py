"""Work that a target finishes later: 202 now, a callback in the end."""

from uuid import UUID

from aiohttp import web
from sqlalchemy import text

from app.persistence.database import Database
from tests.support.callbacks import Target, call, ended, execution, is_parked, told
from tests.support.carillon import Carillon, engine_of, make_due, until, working


async def test_the_nodes_after_it_run_when_the_callback_comes(
    carillon: Carillon, database: Database, target: Target
) -> None:
    """Until then the execution runs without a worker; what was done before is not done again."""
    after = {"id": "after", "type": "core.log", "config": {"message": "{{ nodes.work.output.answer }}"}}
    before = {"id": "before", "type": "core.http_request", "config": {"url": f"{target.url}/before"}}
    workflow = await carillon.workflow(before, call("work", target.url), after)
    schedule = await carillon.schedule(workflow)
    await make_due(database, schedule)
    async with working(told(carillon)):
        await until(lambda: is_parked(database))
        waiting = await execution(carillon, schedule)
        assert ("running", {"before": "success", "work": "running"}) == (
            waiting["status"],
            {one["node_id"]: one["status"] for one in waiting["nodes"]},
        )
        assert 200 == (await target.call_back(verb="heartbeat")).status_code
        assert 200 == (await target.call_back(status="success", output={"answer": "forty-two"})).status_code
        done = await ended(carillon, schedule)
    assert ("success", "") == (done["status"], done["error"])
    assert {"message": "forty-two"} == done["nodes"][-1]["output"]
    assert ["/before", "/"] == [one.path for one in target.calls]
    assert 1 == (await carillon.get(schedule))["run_count"]


async def test_a_failure_that_is_called_back_is_one(carillon: Carillon, database: Database, target: Target) -> None:
    """With the words of the target; the schedule retries, under a new token."""
    workflow = await carillon.workflow(call("work", target.url))
    schedule = await carillon.schedule(workflow, backoff_base_seconds=1)
    await make_due(database, schedule)
    async with working(told(carillon)):
        await until(lambda: is_parked(database))
        assert 200 == (await target.call_back(status="failed", error="out of paper")).status_code
        await target.wait_for_calls(2)
        first = (await carillon.runs(schedule))[0]
        assert ("failed", "Node 'work': out of paper") == (first["status"], first["error"])
        # The token is per attempt.
        assert 409 == (await target.call_back(0, status="success")).status_code
        await until(lambda: is_parked(database))
        assert 200 == (await target.call_back(1, status="success")).status_code
        assert "success" == (await ended(carillon, schedule))["status"]
    assert 409 == (await target.call_back(1, status="success")).status_code


async def test_a_callback_may_overtake_the_202(carillon: Carillon, database: Database, target: Target) -> None:
    """It was promised before the call; the walk goes on without ever being put aside."""

    async def call_back_at_once(_request: web.Request) -> web.StreamResponse:
        assert 200 == (await target.call_back(status="success", output=[1])).status_code
        return web.Response(status=202)

    target.answer = call_back_at_once
    after = {"id": "after", "type": "core.log", "config": {"message": "{{ nodes.work.output | tojson }}!"}}
    schedule = await carillon.schedule(await carillon.workflow(call("work", target.url), after))
    due = await make_due(database, schedule)
    async with engine_of(told(carillon)) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    done = await execution(carillon, schedule)
    assert ("success", {"message": "[1]!"}) == (done["status"], done["nodes"][-1]["output"])


async def test_branches_go_on_while_one_waits(carillon: Carillon, database: Database, target: Target) -> None:
    """Two that wait are waited for one after the other, whichever comes first."""
    nodes = [
        {"id": "start", "type": "trigger_schedule"},
        call("a", f"{target.url}/a"),
        call("b", f"{target.url}/b"),
        {"id": "c", "type": "core.noop"},
        {"id": "last", "type": "core.noop"},
    ]
    pairs = [("start", "a"), ("start", "b"), ("start", "c"), ("a", "last"), ("b", "last"), ("c", "last")]
    body = {"name": "w", "nodes": nodes, "edges": [{"from": one, "to": other} for one, other in pairs]}
    workflow = await carillon.call("POST", "/workflows/", 201, json=body)
    schedule = await carillon.schedule(workflow)
    await make_due(database, schedule)
    async with working(told(carillon)):
        await until(lambda: is_parked(database))
        await target.call_back(1, status="success")

        async def one_left() -> bool:
            nodes = (await execution(carillon, schedule))["nodes"]
            running = [one["node_id"] for one in nodes if one["status"] == "running"]
            return len(running) == 1 and await is_parked(database)

        await until(one_left)
        await target.call_back(0, status="success")
        done = await ended(carillon, schedule)
    assert ("success", {"a", "b", "c", "last"}) == (done["status"], {one["node_id"] for one in done["nodes"]})
    assert 2 == len(target.calls)


async def test_a_failure_beside_it_ends_what_is_awaited(carillon: Carillon, database: Database, target: Target) -> None:
    """No node of an execution that has ended still runs, and its callback comes too late."""
    nodes = [
        {"id": "start", "type": "trigger_schedule"},
        call("work", target.url),
        {"id": "pause", "type": "core.delay", "config": {"seconds": 0.5}},
        {"id": "fail", "type": "core.fail"},
    ]
    pairs = [("start", "work"), ("start", "pause"), ("pause", "fail")]
    body = {"name": "w", "nodes": nodes, "edges": [{"from": one, "to": other} for one, other in pairs]}
    schedule = await carillon.schedule(await carillon.call("POST", "/workflows/", 201, json=body))
    due = await make_due(database, schedule)
    async with engine_of(told(carillon)) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    done = await execution(carillon, schedule)
    assert ("failed", "cancelled") == (
        done["status"],
        {one["node_id"]: one["status"] for one in done["nodes"]}["work"],
    )
    assert 409 == (await target.call_back(status="success")).status_code


async def test_without_a_callback_it_times_out_by_its_deadline(
    carillon: Carillon, database: Database, target: Target
) -> None:
    """A heartbeat shows life and does not extend it; a callback after that is 409."""
    workflow = await carillon.workflow(call("work", target.url))
    schedule = await carillon.schedule(workflow, timeout_seconds=2, max_retries=0)
    await make_due(database, schedule)
    async with working(told(carillon)):
        await until(lambda: is_parked(database))
        await target.call_back(verb="heartbeat")
        done = await ended(carillon, schedule)
    assert ("timed_out", "No callback came within timeout_seconds (2 s).") == (done["status"], done["error"])
    assert 409 == (await target.call_back(status="success")).status_code
    assert "dead" == (await carillon.get(schedule))["status"]


async def test_what_waits_counts_for_overlap_and_can_be_cancelled(
    carillon: Carillon, database: Database, target: Target
) -> None:
    """It is running; and it survives the worker that began it."""
    schedule = await carillon.schedule(await carillon.workflow(call("work", target.url)))
    due = await make_due(database, schedule)
    async with engine_of(told(carillon)) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        assert await is_parked(database)
        due = await make_due(database, schedule)
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    async with working(told(carillon)):
        assert "skipped_overlap" in [item["outcome"] for item in await carillon.ledger(schedule)]
        run = (await carillon.runs(schedule))[-1]
        cancelled = await carillon.call("POST", f"/executions/{run['id']}/cancel/")
    assert "cancelled" == cancelled["status"]
    assert 409 == (await target.call_back(status="success")).status_code


async def test_who_may_call_back(carillon: Carillon, database: Database, target: Target) -> None:
    """Whoever has the token of this execution: 401 for another, 404 where there is none, 422 for nonsense."""
    schedule = await carillon.schedule(await carillon.workflow(call("work", target.url)))
    due = await make_due(database, schedule)
    async with engine_of(told(carillon)) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    run = (await carillon.runs(schedule))[-1]
    path = f"/executions/{run['id']}/complete/"
    await carillon.call("POST", path, 401, json={"status": "success"})
    await carillon.with_token("").call("POST", path, 401, json={"status": "success"})
    await carillon.call("POST", f"/executions/{run['id']}/heartbeat/", 401)
    nobody = "00000000-0000-4000-8000-000000000001"
    await carillon.call("POST", f"/executions/{nobody}/complete/", 404, json={"status": "success"})
    assert 422 == (await target.call_back(status="maybe")).status_code
    await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 204)
    assert 404 == (await target.call_back(status="success")).status_code


async def test_an_answer_at_once_is_one(carillon: Carillon, database: Database, target: Target) -> None:
    """Anything but 202 is judged as ever, and the callback is withdrawn."""

    async def done(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"done": True})

    target.answer = done
    schedule = await carillon.schedule(await carillon.workflow(call("work", target.url)))
    due = await make_due(database, schedule)
    async with engine_of(told(carillon)) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    finished = await execution(carillon, schedule)
    assert ("success", {"done": True}) == (finished["status"], finished["nodes"][0]["output"]["body"])
    assert 409 == (await target.call_back(status="success")).status_code


async def test_old_callbacks_are_purged(carillon: Carillon, database: Database, target: Target) -> None:
    """Of executions that have ended."""
    await test_an_answer_at_once_is_one(carillon, database, target)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE callbacks SET created_at = created_at - interval '40 days'"))
    purge = {"id": "work", "type": "core.callbacks.purge", "config": {}}
    schedule = await carillon.schedule(await carillon.workflow(purge))
    for expected in ("success", "skipped"):
        due = await make_due(database, schedule)
        async with engine_of(told(carillon)) as engine:
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        assert expected == (await execution(carillon, schedule))["status"]
