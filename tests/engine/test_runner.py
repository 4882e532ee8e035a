"""Workflows that run: graph order, branches, results, HTTP calls.

Covers app.actions.builtin.http_request, app.domain.trigger_event, app.engine.workflow_walk, app.persistence.executions.
"""

import asyncio
from uuid import UUID

import pytest
from aiohttp import web
from msgspec.structs import replace
from standardwebhooks import Webhook

from app.actions.catalog import Catalog, Done
from app.config import Settings
from tests.support.carillon import Carillon, Json, engine_of, http_node, working
from tests.support.http_sink import Sink

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def run(carillon: Carillon, settings: Settings, schedule: Json) -> Json:
    """Run a schedule now; its execution with the results of its nodes."""
    execution = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    async with engine_of(settings) as engine:
        await engine.run_execution(UUID(execution["id"]), 1)
    found: Json = await carillon.call("GET", f"/executions/{execution['id']}/")
    return found


async def graph(carillon: Carillon, nodes: list[Json], edges: list[tuple[str, str]]) -> Json:
    """A schedule of a workflow with this graph behind its trigger `t`."""
    body = {
        "name": "w",
        "nodes": [{"id": "t", "type": "trigger_schedule"}, *nodes],
        "edges": [{"from": a, "to": b} for a, b in edges],
    }
    return await carillon.schedule(await carillon.call("POST", "/workflows/", 201, json=body))


async def test_nodes_run_in_graph_order_and_each_result_is_stored(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """A diamond: the joining node runs last, and once."""
    nodes = [{**http_node(f"{sink.url}/{name}"), "id": name} for name in "abcd"]
    schedule = await graph(carillon, nodes, [("t", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    execution = await run(carillon, settings, schedule)
    paths = [call.path for call in sink.calls]
    assert "/a" == paths[0]
    assert ["/b", "/c"] == sorted(paths[1:3])
    assert ["/d"] == paths[3:]
    assert {"a", "b", "c", "d"} == {node["node_id"] for node in execution["nodes"]}
    assert {"success"} == {node["status"] for node in execution["nodes"]}
    assert {"status": 200, "body": {"ok": True}, "truncated": False} == execution["nodes"][0]["output"]


async def test_branches_run_side_by_side(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Each waits for the other to arrive, which only works if both are under way."""
    meeting = asyncio.Barrier(2)

    async def meet(_request: web.Request) -> web.StreamResponse:
        await asyncio.wait_for(meeting.wait(), 30)
        return web.Response()

    sink.answer = meet
    nodes = [{**http_node(f"{sink.url}/{name}"), "id": name} for name in "ab"]
    execution = await run(carillon, settings, await graph(carillon, nodes, [("t", "a"), ("t", "b")]))
    assert "success" == execution["status"]


async def test_the_first_failure_fails_the_run_and_names_the_node(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """What comes after it does not run, what runs beside it is dropped."""
    nodes = [
        {"id": "bad", "type": "core.fail", "config": {"message": "broken"}},
        {"id": "slow", "type": "core.delay", "config": {"seconds": 60}},
        {**http_node(sink.url), "id": "never"},
    ]
    schedule = await graph(carillon, nodes, [("t", "bad"), ("t", "slow"), ("bad", "never")])
    execution = await run(carillon, settings, schedule)
    assert ("failed", "Node 'bad': broken") == (execution["status"], execution["error"])
    assert {"bad": "failed", "slow": "cancelled"} == {n["node_id"]: n["status"] for n in execution["nodes"]}
    assert [] == sink.calls


async def test_without_a_body_the_event_is_posted(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """With the headers that name the run."""
    schedule = await carillon.schedule(
        await carillon.workflow(http_node(sink.url)), name="nightly", trigger_payload={"report": "daily"}
    )
    execution = await run(carillon, settings, schedule)
    (call,) = sink.calls
    assert "POST" == call.method
    assert {
        "scheduled_job_id": schedule["id"],
        "scheduled_job_name": "nightly",
        "repeat_number": 0,
        "payload": {"report": "daily"},
        "scheduled_for": execution["scheduled_for"],
        "fired_at": execution["started_at"],
        "execution_id": execution["id"],
        "attempt": 1,
    } == call.json
    expected = {
        "x-carillon-execution": execution["id"],
        "x-carillon-schedule": schedule["id"],
        "x-carillon-slot": execution["scheduled_for"],
        "x-carillon-attempt": "1",
        "content-type": "application/json",
    }
    assert expected == {name: call.headers[name] for name in expected}
    assert 32 == len(call.headers["idempotency-key"])


@pytest.mark.parametrize(
    ("config", "method", "body", "content_type"),
    [
        ({"json": {"a": 1}}, "POST", b'{"a":1}', "application/json"),
        ({"json": None}, "POST", b"null", "application/json"),
        ({"body": "plain"}, "POST", b"plain", "text/plain; charset=utf-8"),
        ({"method": "GET"}, "GET", b"", None),
        ({"body": "x", "headers": {"content-type": "text/x"}}, "POST", b"x", "text/x"),
    ],
)
async def test_what_is_sent_is_what_the_node_says(
    carillon: Carillon, settings: Settings, sink: Sink, config: Json, method: str, body: bytes, content_type: str | None
) -> None:
    """Method, body and headers."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url, **config)))
    assert "success" == (await run(carillon, settings, schedule))["status"]
    (call,) = sink.calls
    assert (method, body) == (call.method, call.body)
    assert content_type is None or content_type == call.headers["content-type"]


@pytest.mark.parametrize(
    ("status", "expect", "outcome"),
    [
        (200, None, "success"),
        (204, None, "success"),
        (302, None, "failed"),
        (404, None, "failed"),
        (500, None, "failed"),
        (404, 404, "success"),
        (200, 404, "failed"),
        (409, [200, 409], "success"),
    ],
)
async def test_which_answers_are_good(
    carillon: Carillon, settings: Settings, sink: Sink, status: int, expect: object, outcome: str
) -> None:
    """Any 2xx, or what expect_status says; a redirect is not followed."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": f"{sink.url}/elsewhere"})

    sink.answer = answer
    config = {} if expect is None else {"expect_status": expect}
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url, **config)))
    execution = await run(carillon, settings, schedule)
    assert outcome == execution["status"]
    assert 1 == len(sink.calls)
    assert outcome == "success" or f"answered {status}" in execution["error"]


async def test_a_great_answer_is_cut_and_an_endless_one_ends(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """64 KiB are kept."""

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 10_000)
        except (ConnectionError, OSError):
            return response

    sink.answer = endless
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    execution = await run(carillon, settings, schedule)
    output = execution["nodes"][0]["output"]
    assert (True, 64 * 1024) == (output["truncated"], len(output["body"]))


async def test_a_target_that_nobody_listens_at_is_a_failure(carillon: Carillon, settings: Settings) -> None:
    """With the address in the error."""
    schedule = await carillon.schedule(await carillon.workflow(http_node("http://127.0.0.1:1/")))
    execution = await run(carillon, settings, schedule)
    assert "failed" == execution["status"]
    assert "Could not connect to 127.0.0.1:1" in execution["error"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"])
async def test_addresses_that_are_not_public_are_refused_unless_allowed(
    carillon: Carillon, settings: Settings, host: str
) -> None:
    """Literals, names that lead inside, the metadata address: at once, without a connection."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(f"http://{host}:9/")))
    execution = await run(carillon, replace(settings, http_allow=""), schedule)
    assert "failed" == execution["status"]
    assert "is not public and not in CARILLON_HTTP_ALLOW" in execution["error"]


async def test_calls_are_signed_where_there_is_a_secret(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """A receiver with the Standard Webhooks library can verify them."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    await run(carillon, replace(settings, signing_secret=SECRET), schedule)
    (call,) = sink.calls
    assert f"{call.headers['x-carillon-execution']}.call.1" == call.headers["webhook-id"]
    Webhook(SECRET).verify(call.body, call.headers)


async def test_the_key_is_constant_over_attempts(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """A target can tell a repetition; the attempt is counted beside it."""

    async def broken(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    sink.answer = broken
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=1, backoff_base_seconds=1, max_retries=1)
    async with working(settings):
        await carillon.until_status(schedule, "dead")
    assert 2 == len(sink.calls)
    assert 1 == len({call.headers["idempotency-key"] for call in sink.calls})
    assert 1 == len({call.headers["x-carillon-slot"] for call in sink.calls})
    assert ["1", "2"] == [call.headers["x-carillon-attempt"] for call in sink.calls]


async def test_an_answer_with_nul_characters_is_kept_without_them(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Postgres stores none, and the run must end all the same."""

    async def nul(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"a\\u0000": ["x\\u0000y"]}', content_type="application/json")

    sink.answer = nul
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    execution = await run(carillon, settings, schedule)
    assert "success" == execution["status"]
    assert {"a\ufffd": ["x\ufffdy"]} == execution["nodes"][0]["output"]["body"]


async def test_an_outcome_that_cannot_be_stored_is_a_failure(
    carillon: Carillon, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An action whose output the database refuses ends its run, and is not run again and again."""

    async def poisonous(*_: object) -> object:
        return Done({"poison": "\x00"})

    monkeypatch.setattr(Catalog, "run", poisonous)
    schedule = await carillon.schedule()
    execution = await run(carillon, settings, schedule)
    assert "failed" == execution["status"]
    assert "could not be stored" in execution["error"]


async def test_secrets_in_a_url_do_not_reach_the_error(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Neither the user's part nor the query."""

    async def broken(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    sink.answer = broken
    url = sink.url.replace("http://", "http://bob:hunter2@") + "/hook?key=SECRET"
    execution = await run(carillon, settings, await carillon.schedule(await carillon.workflow(http_node(url))))
    assert "answered 500" in execution["error"]
    assert "/hook" in execution["error"]
    assert not {"hunter2", "SECRET", "bob"} & set(execution["error"].replace("?", "/").replace(":", "/").split("/"))
