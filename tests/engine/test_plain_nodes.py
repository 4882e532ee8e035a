"""Runs of one HTTP call that need no task: the same calls and the same results as by the coroutines.

Covers app.engine.fast_ticks, app.engine.runner, app.actions.builtin.http_request, app.http1.connections.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from msgspec.structs import replace
from standardwebhooks import Webhook

from app.config import Settings
from app.domain.ticks import Tick
from app.engine.queue_port import Delivered, Redeliver
from app.engine.ticks import TickEngine
from app.persistence.database import Database
from tests.engine.test_pauses import generation
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due
from tests.support.http_sink import Sink

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# What differs between two runs of a schedule.
OF_THE_RUN = {
    *("idempotency-key", "x-carillon-execution", "x-carillon-slot"),
    *("webhook-id", "webhook-timestamp", "webhook-signature"),
}


class Firing:
    """Fires schedules by one engine, tick by tick, and notes which runs needed no task."""

    def __init__(self, engine: TickEngine, database: Database, carillon: Carillon) -> None:
        self.engine = engine
        self._database = database
        self._carillon = carillon
        self.plain: list[bool] = []
        begin = engine.runner._begin_plainly

        def noted(*args: Any) -> bool:
            self.plain.append(begin(*args))
            return self.plain[-1]

        # Never undone: the engine is the test's own.
        pytest.MonkeyPatch().setattr(engine.runner, "_begin_plainly", noted)

    async def begin(self, schedule: Json) -> "asyncio.Future[BaseException | None]":
        """Begin to handle the message of the pending tick, which is made due; its end is the result of the future."""
        due = await make_due(self._database, schedule)
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.engine.begin_tick(Tick(UUID(schedule["id"]), due["generation"]), Delivered("m"), ended.set_result)
        return ended

    async def fire(self, schedule: Json) -> Json:
        """Fire the pending tick; the execution that came of it."""
        assert await (await self.begin(schedule)) is None
        return await self.latest(schedule)

    async def latest(self, schedule: Json) -> Json:
        """The latest execution of a schedule, with the results of its nodes."""
        run = max(await self._carillon.runs(schedule), key=lambda run: str(run["started_at"]))
        found: Json = await self._carillon.call("GET", f"/executions/{run['id']}/")
        return found


@asynccontextmanager
async def firing(carillon: Carillon, settings: Settings, database: Database) -> AsyncIterator[Firing]:
    """An engine that fires what the test says."""
    async with engine_of(settings) as engine:
        yield Firing(engine, database, carillon)


def stored(execution: Json) -> Json:
    """What is stored of a run, without what differs between two of them."""
    node = {key: value for key, value in execution["nodes"][0].items() if not key.endswith("_at")}
    assert execution["nodes"][0]["started_at"] <= execution["nodes"][0]["finished_at"] <= execution["finished_at"]
    return {"status": execution["status"], "error": execution["error"], "node": {**node, "duration_ms": None}}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"method": "GET"},
        {"json": {"a": [1, "ü"]}, "headers": {"Content-Type": "application/vnd.a+json", "X-Own": "1"}},
        {"body": "text", "headers": {"Idempotency-Key": "own", "webhook-id": "own", "x-carillon-slot": "own"}},
        {"expect_status": [204, 200], "method": "PUT"},
    ],
    ids=["event", "GET", "json", "headers of ours", "status"],
)
async def test_both_kinds_of_runs_make_the_same_calls(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, config: Json
) -> None:
    """The first has to open a connection, so it needs a task; the next ones do not."""
    schedule = await carillon.schedule(
        await carillon.workflow(http_node(sink.url + "/a?b=c", **config)), name="nightly", trigger_payload={"x": 1}
    )
    async with firing(carillon, replace(settings, signing_secret=SECRET), database) as engine:
        runs = [await engine.fire(schedule) for _ in range(3)]
    assert [False, True, True] == engine.plain
    assert [stored(runs[0])] * 3 == [stored(run) for run in runs]
    assert "success" == runs[0]["status"]
    first, *others = sink.calls
    for call in others:
        assert (first.method, first.path, set(first.headers)) == (call.method, call.path, set(call.headers))
        alike = set(first.headers) - OF_THE_RUN - {"content-length"}
        assert {name: first.headers[name] for name in alike} == {name: call.headers[name] for name in alike}
        # The library verifies JSON only.
        if call.body.startswith(b"{"):
            Webhook(SECRET).verify(call.body, call.headers)
    assert len({call.headers["idempotency-key"] for call in sink.calls}) == 3
    assert [run["id"] for run in runs] == [call.headers["x-carillon-execution"] for call in sink.calls]
    if not config:
        shown = [call.json for call in sink.calls]
        assert [run["id"] for run in runs] == [event["execution_id"] for event in shown]
        assert [0, 1, 2] == [event["repeat_number"] for event in shown]
        assert [run["scheduled_for"] for run in runs] == [event["scheduled_for"] for event in shown]
        assert {schedule["id"]} == {event["scheduled_job_id"] for event in shown}
        assert {frozenset(shown[0])} == {frozenset(event) for event in shown}


async def test_failures_of_both_kinds_read_the_same(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """A wrong status, a response that is not HTTP, and a connection that ends too early."""

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, text="not now")

    async def end_early(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        request.transport.close()
        raise web.HTTPOk

    async def write_garbage(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"220 mail.example ESMTP\r\n\r\n")
        raise web.HTTPOk

    workflow = await carillon.workflow(http_node(sink.url))
    for answer in (refuse, end_early, write_garbage):
        schedules = [await carillon.schedule(workflow, max_retries=0) for _ in range(3)]
        async with firing(carillon, settings, database) as engine:
            sink.answer = answer
            by_task = await engine.fire(schedules[0])
            sink.answer = sink._ok
            await engine.fire(schedules[1])
            sink.answer = answer
            plain = await engine.fire(schedules[2])
        assert (False, True) == (engine.plain[0], engine.plain[-1])
        assert "failed" == plain["status"]
        assert stored(by_task) == stored(plain)
        assert "dead" == (await carillon.get(schedules[2]))["status"]


async def test_a_run_without_a_task_times_out(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Its connection is closed, and its retry is planned."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)), timeout_seconds=1)
    async with firing(carillon, settings, database) as engine:
        await engine.fire(schedule)
        sink.hold_until(asyncio.Event())
        run = await engine.fire(schedule)
        assert {} == engine.engine.runner.running()
    assert [False, True] == engine.plain
    assert ("timed_out", "cancelled") == (run["status"], run["nodes"][0]["status"])
    assert 1 == (await carillon.get(schedule))["current_retry"]


async def test_a_run_without_a_task_is_called_off(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Once it was cancelled in Postgres the worker drops the call, and writes nothing."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    async with firing(carillon, settings, database) as engine:
        await engine.fire(schedule)
        sink.hold_until(asyncio.Event())
        ended = await engine.begin(schedule)
        await sink.wait_for_calls(2)
        ((run_id, token),) = engine.engine.runner.running().items()
        assert 1 == token
        await carillon.call("POST", f"/executions/{run_id}/cancel/")
        engine.engine.cancellation_heard(run_id)
        assert await ended is None
        assert {} == engine.engine.owned
        assert 0 == engine.engine.places.used
        run = await engine.latest(schedule)
    assert "cancelled" == run["status"]


async def test_what_may_have_to_wait_has_a_task(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Templates, callbacks, filters of triggers, and several nodes; a kept connection changes nothing."""
    two = {
        "nodes": [{"id": "t", "type": "trigger_schedule"}, http_node(sink.url), {"id": "n", "type": "core.noop"}],
        "edges": [{"from": "t", "to": "call"}, {"from": "call", "to": "n"}],
    }
    filtered = {
        "nodes": [{"id": "t", "type": "trigger_schedule", "config": {"name": "night*"}}, http_node(sink.url)],
        "edges": [{"from": "t", "to": "call"}],
    }
    workflows = [
        await carillon.workflow(http_node(sink.url, json={"at": "{{ slot }}"})),
        await carillon.workflow(http_node(sink.url, await_callback=True)),
        await carillon.call("POST", "/workflows/", 201, json={"name": "two", **two}),
        await carillon.call("POST", "/workflows/", 201, json={"name": "filtered", **filtered}),
    ]
    async with firing(carillon, settings, database) as engine:
        for workflow in workflows:
            schedule = await carillon.schedule(workflow, name="nightly")
            for _ in range(2):
                assert "success" == (await engine.fire(schedule))["status"]
    assert [False] * 8 == engine.plain


async def test_an_edit_in_between_is_obeyed(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The claim tells which version of the workflow counts."""
    workflow = await carillon.workflow(http_node(sink.url + "/old"))
    schedule = await carillon.schedule(workflow)
    async with firing(carillon, settings, database) as engine:
        await engine.fire(schedule)
        await engine.fire(schedule)
        nodes = [workflow["nodes"][0], http_node(sink.url + "/new")]
        await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes})
        await engine.fire(schedule)
        await engine.fire(schedule)
    assert ["/old", "/old", "/new", "/new"] == [call.path for call in sink.calls]
    assert [False, True, False, True] == engine.plain


async def test_a_message_that_cannot_be_handled_now_is_asked_for_again(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Not due yet, or a worker that ends. A message about nothing, or about an earlier tick, is done with."""
    schedule = await carillon.schedule()
    current = await generation(database, schedule)
    async with firing(carillon, settings, database) as engine:

        async def answer(job_id: str, generation: int) -> BaseException | None:
            ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
            engine.engine.begin_tick(Tick(UUID(job_id), generation), Delivered("m"), ended.set_result)
            return await ended

        assert isinstance(await answer(schedule["id"], current), Redeliver)
        assert await answer(schedule["id"], current + 7) is None
        assert await answer("00000000-0000-0000-0000-000000000001", 0) is None
        await engine.engine.close()
        assert isinstance(await answer(schedule["id"], current), Redeliver)
        assert 0 == engine.engine.places.used
