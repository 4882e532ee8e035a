"""Traces: from a request over ticks and runs to the call that leaves, and what happens without a collector.

Covers app.engine.spans, app.observability.otlp, app.observability.tracing.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from msgspec.structs import replace
from opentelemetry.sdk.trace.sampling import Decision
from sqlalchemy import text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from app.config import Settings, SettingsError, load_settings
from app.observability import metrics, otlp
from app.observability.tracing import Kind, add_trace_id, current, trace_id_of
from app.persistence.database import Database
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due, until, working
from tests.support.http_sink import Sink
from tests.support.trace_collector import Collector, Seen

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
GARBAGE = (
    "",
    "garbage",
    f"00-{TRACE}-{CALLER}",
    f"00-{TRACE.upper()}-{CALLER}-01",
    f"00-{'0' * 32}-{CALLER}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"ff-{TRACE}-{CALLER}-01",
    f"00-{TRACE}-{CALLER}-01-more",
    f"00-{TRACE}-{CALLER}-01\n",
)
TRACE_PAGE = "https://traces.example.org/trace/{trace_id}"
UNREADABLE = "password-in-the-query"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """A collector that listens."""
    async with Collector() as opened:
        yield opened


@pytest.fixture
def traced(settings: Settings, collector: Collector) -> Settings:
    """Settings by which everything is traced."""
    return replace(settings, otel_endpoint=f"{collector.url}/", trace_url=TRACE_PAGE)


@pytest.fixture
async def api(traced: Settings) -> AsyncIterator[Carillon]:
    """An API that traces."""
    async with serving(traced) as client:
        yield client


def traceparent(call: Any) -> tuple[str, str, str]:
    """The trace, the span and the flags that a call came with."""
    version, trace, span, flags = call.headers["traceparent"].split("-")
    assert "00" == version
    return trace, span, flags


async def run_now(api: Carillon, schedule: Json, **headers: str) -> Json:
    """A run that somebody asks for."""
    started: Json = await api.call("POST", f"/schedules/{schedule['id']}/run/", 202, headers=headers)
    return started


async def ended(api: Carillon, schedule: Json, count: int = 1) -> list[Json]:
    """Its runs, once so many have ended."""

    async def look() -> list[Json] | None:
        runs = await api.runs(schedule)
        return runs if count == len([run for run in runs if run["finished_at"]]) else None

    return await until(look)


def inside(inner: Seen, outer: Seen) -> bool:
    """Whether a span is below another, and began after it."""
    return (inner.trace, inner.parent) == (outer.trace, outer.span) and outer.began <= inner.began <= inner.ended


async def test_one_trace_leads_from_a_request_to_the_call(
    api: Carillon, traced: Settings, collector: Collector, sink: Sink
) -> None:
    """Over two processes and Postgres; nothing in it that may be secret."""
    node = http_node(f"{sink.url}/path?token={UNREADABLE}", headers={"Authorization": UNREADABLE})
    schedule = await api.schedule(await api.workflow(node))
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=state"}
    async with working(traced):
        run = await run_now(api, schedule, **headers)
        (call,) = await sink.wait_for_calls(1)
        request = await collector.one("POST /api/v1/schedules/{schedule_id}/run")
        running, acting = await collector.one("run"), await collector.one("core.http_request")
        calling = await collector.one("POST")
    assert (TRACE, CALLER) == (request.trace, request.parent)
    assert inside(running, request)
    assert inside(acting, running)
    assert inside(calling, acting)
    assert (TRACE, calling.span, "01") == traceparent(call)
    assert "vendor=state" == call.headers["tracestate"] == running.state
    assert ["carillon-api", *["carillon-worker"] * 3] == [one.service for one in (request, running, acting, calling)]
    assert 202 == request.attributes["http.response.status_code"]
    assert {
        "carillon.schedule": schedule["id"],
        "carillon.execution": run["id"],
        "carillon.slot": run["scheduled_for"],
        "carillon.attempt": 1,
        "carillon.trigger": "manual",
        "carillon.outcome": "success",
    } == running.attributes
    assert {"carillon.node": "call", "carillon.outcome": "success"} == acting.attributes
    assert {"http.request.method", "http.response.status_code", "server.address", "server.port"} == set(
        calling.attributes
    )
    assert not [span for span in collector.spans if UNREADABLE in str(span)]
    assert TRACE_PAGE.format(trace_id=TRACE) == (await api.call("GET", f"/executions/{run['id']}/"))["trace_url"]


async def test_a_tick_is_a_trace_of_its_own_and_names_its_schedule_s_last_change(
    api: Carillon, traced: Settings, collector: Collector, sink: Sink, database: Database
) -> None:
    """Its id is that of the execution; the link leads to the request that changed the schedule, not to the first."""
    schedule = await api.schedule(await api.workflow(http_node(sink.url)))
    (first,) = await _contexts(database, "scheduled_jobs")
    assert trace_id_of(first) not in {None, TRACE}
    path = f"/schedules/{schedule['id']}/"
    await api.call("PATCH", path, json={"description": "new"}, headers={"traceparent": TRACEPARENT})
    due = await make_due(database, schedule)
    async with engine_of(traced) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        # A message that comes twice is no tick.
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    (run,) = await api.runs(schedule)
    change = await collector.one("PATCH /api/v1/schedules/{schedule_id}")
    tick, running = await collector.one("tick"), await collector.one("run")
    assert (UUID(run["id"]).hex, "") == (tick.trace, tick.parent)
    assert [(TRACE, change.span)] == tick.links
    assert TRACE_PAGE.format(trace_id=tick.trace) == (await api.call("GET", f"/executions/{run['id']}/"))["trace_url"]
    assert inside(running, tick)
    assert running.ended <= tick.ended
    assert ("fired", run["id"]) == (tick.attributes["carillon.outcome"], tick.attributes["carillon.execution"])
    assert tick.trace == traceparent(sink.calls[0])[0]
    # What ticks and ends of runs write leaves the link where it is; whoever changes it without a trace takes it off.
    assert [change.span] == [one.split("-")[2] for one in await _contexts(database, "scheduled_jobs")]
    async with serving(replace(traced, otel_endpoint="")) as untraced:
        await untraced.call("PATCH", path, json={"description": "newer"}, headers={"traceparent": TRACEPARENT})
    assert [None] == await _contexts(database, "scheduled_jobs")


async def test_a_run_that_goes_on_later_goes_on_in_its_trace(
    api: Carillon, traced: Settings, collector: Collector, sink: Sink, database: Database
) -> None:
    """After a callback; and a failure is one in the trace, too."""

    async def accepted(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=202)

    sink.answer = accepted
    schedule = await api.schedule(await api.workflow(http_node(sink.url, await_callback=True)), max_retries=0)
    due = await make_due(database, schedule)
    async with engine_of(traced) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        (call,) = sink.calls
        answer = {"status": "failed", "error": UNREADABLE}
        token = {"Authorization": f"Bearer {call.headers['x-carillon-callback-token']}"}
        path = call.headers["x-carillon-callback-url"].partition("/api/v1")[2]
        await api.with_token("").call("POST", path, json=answer, headers=token)
        (run,) = await api.runs(schedule)
        await engine.run_execution(UUID(run["id"]), 2)
    first = await collector.one("run", lambda span: "left" == span.attributes["carillon.outcome"])
    second = await collector.one("run", lambda span: "failed" == span.attributes["carillon.outcome"])
    assert UUID(run["id"]).hex == first.trace == second.trace
    assert (False, True) == (first.failed, second.failed)
    assert first.ended <= second.began
    assert not [span for span in collector.spans if UNREADABLE in str(span)]


async def test_the_log_names_the_trace(api: Carillon, traced: Settings, database: Database) -> None:
    """Whatever is said within a span: of a tick, and of a run that somebody asked for."""
    schedule = await api.schedule(await api.workflow({"id": "work", "type": "core.fail"}))
    asked_for = await run_now(api, schedule, traceparent=TRACEPARENT)
    with capture_logs(processors=[merge_contextvars, add_trace_id]) as lines:
        async with engine_of(traced) as engine:
            await engine.run_execution(UUID(asked_for["id"]), 1)
            due = await make_due(database, schedule)
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    (fired,) = [run for run in await api.runs(schedule) if run["trigger"] == "schedule"]
    assert [TRACE, UUID(fired["id"]).hex] == [line["trace_id"] for line in lines if line["event"] == "run_ended"]
    assert current() is None


async def test_a_ping_s_trace_is_that_of_its_request(
    traced: Settings, collector: Collector, database: Database
) -> None:
    """Unless the caller names one; its ticks are traces of their own, with a link to it."""
    async with serving(replace(traced, cron_run_token="ping")) as api:
        schedule = await api.schedule()
        await make_due(database, schedule)
        headers = {"Authorization": "Bearer ping", "traceparent": TRACEPARENT}
        pinged = await api.raw("POST", "/api/cron/run", headers=headers)
        named = await api.raw("POST", "/api/cron/run", headers={"Authorization": "Bearer ping", "x-trace-id": "mine"})
    request = await collector.one("POST /api/cron/run", lambda span: span.trace == TRACE)
    tick = await collector.one("tick")
    assert (TRACE, "mine") == (pinged.headers["x-trace-id"], named.headers["x-trace-id"])
    assert (TRACE, request.span) in tick.links
    assert TRACE != tick.trace


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ({"TraceParent": TRACEPARENT}, {"traceparent": TRACEPARENT, "tracestate": None}),
        ({"traceparent": TRACEPARENT, "tracestate": "mine=1"}, {"traceparent": TRACEPARENT, "tracestate": "mine=1"}),
    ],
)
async def test_headers_of_the_workflow_s_own_win(
    api: Carillon, traced: Settings, sink: Sink, configured: Json, expected: Json
) -> None:
    """As a whole: a state of ours beside a parent of theirs would be nobody's."""
    schedule = await api.schedule(await api.workflow(http_node(sink.url, headers=configured)))
    run = await run_now(api, schedule, traceparent=f"00-{uuid4().hex}-{CALLER}-01", tracestate="vendor=state")
    async with engine_of(traced) as engine:
        await engine.run_execution(UUID(run["id"]), 1)
    assert expected == {name: sink.calls[0].headers.get(name) for name in expected}


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_garbage_is_no_trace(garbage: str) -> None:
    """Only what W3C allows names one."""
    assert trace_id_of(garbage) is None


def test_a_traceparent_names_a_trace() -> None:
    """Also one of a later version, and one that was kept with its state."""
    later = f"01-{TRACE}-{CALLER}-01-more"
    assert [TRACE] * 3 == [trace_id_of(one) for one in (TRACEPARENT, later, f"{TRACEPARENT} vendor=state")]


async def test_a_request_with_garbage_begins_a_trace(api: Carillon, collector: Collector) -> None:
    """And is answered as any other."""
    await api.call("GET", "/workflows/", headers={"traceparent": f"00-{TRACE}-{CALLER}-zz", "tracestate": "=,;"})
    request = await collector.one("GET /api/v1/workflows")
    assert ("", True) == (request.parent, TRACE != request.trace)


async def test_without_a_collector_everything_goes_on(
    settings: Settings, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run fails or is lost, and the log says it once however many batches are lost."""
    monkeypatch.setattr(otlp, "EXPORT_SECONDS", 0.2)
    monkeypatch.setattr(otlp, "BATCH_MILLISECONDS", 10)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        # Bound and not listening: nobody else gets the port, and whoever calls is refused.
        away = replace(settings, otel_endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}")
        lost = metrics.SPANS_LOST._value.get()
        with capture_logs() as lines:
            async with serving(away) as api, working(away):
                schedule = await api.schedule(await api.workflow(http_node(sink.url)), if_running="allow")
                for number in range(1, 4):
                    await run_now(api, schedule)
                    await sink.wait_for_calls(number)
                runs = await ended(api, schedule, 3)

                async def several_lost() -> bool:
                    return bool(metrics.SPANS_LOST._value.get() >= lost + 4)

                await until(several_lost)
    assert ["success"] * 3 == [run["status"] for run in runs]
    # Of the API and of the worker, one each.
    assert 1 <= len([line for line in lines if line["event"] == "traces_not_exported"]) <= 2


async def test_the_end_does_not_wait_for_a_collector_that_hangs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is given a moment, and then up."""
    monkeypatch.setattr(otlp, "FLUSH_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        tracer = otlp.OtlpTracer(f"http://127.0.0.1:{silent.getsockname()[1]}", 1.0, "test")
        with tracer.span("something", Kind.INTERNAL, {}):
            pass
        async with asyncio.timeout(otlp.EXPORT_SECONDS - 1):
            await tracer.close()


WORKER = """
import asyncio, sys
from app.config import load_settings
from app.worker import run_worker

async def main():
    stopping = asyncio.Event()
    worker = asyncio.create_task(run_worker(load_settings(), stopping))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    stopping.set()
    await worker

asyncio.run(main())
print("imported:", sorted(name for name in sys.modules if name.startswith(("opentelemetry", "google"))))
"""


async def test_off_is_off(carillon: Carillon, settings: Settings, sink: Sink, database: Database) -> None:
    """No header leaves, nothing is kept, OpenTelemetry is not even imported; the log names the caller's trace."""
    given = ("database_url", "redis_url", "http_allow", "lease_seconds", "drain_seconds")
    variables = {f"CARILLON_{name.upper()}": str(getattr(settings, name)) for name in given}
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER),
        env={**os.environ, **variables},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        await run_now(carillon, schedule, traceparent=TRACEPARENT, tracestate="vendor=state")
        (call,) = await sink.wait_for_calls(1, 60)
        (run,) = await ended(carillon, schedule)
        said, _ = await asyncio.wait_for(worker.communicate(b""), 60)
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    assert "success" == run["status"]
    assert b"imported: []" == said.splitlines()[-1]
    assert not {"traceparent", "tracestate"} & call.headers.keys()
    assert [None] == await _contexts(database, "workflow_executions") == await _contexts(database, "scheduled_jobs")


async def test_the_log_names_a_caller_s_trace_though_nothing_is_traced(carillon: Carillon) -> None:
    """Where a request came with one that makes sense."""
    with capture_logs(processors=[merge_contextvars, add_trace_id]) as lines:
        for number, header in enumerate([TRACEPARENT, "garbage"]):
            await carillon.call(
                "POST", "/users/", 201, json={"username": f"u{number}"}, headers={"traceparent": header}
            )
    assert [TRACE, None] == [line.get("trace_id") for line in lines if line["event"] == "user_created"]


async def test_a_share_of_the_traces_is_sent(traced: Settings, collector: Collector, sink: Sink) -> None:
    """None of it here; whoever is called is told so."""
    none = replace(traced, otel_sample_ratio=0.0)
    async with serving(none) as api, engine_of(none) as engine:
        schedule = await api.schedule(await api.workflow(http_node(sink.url)))
        await engine.run_execution(UUID((await run_now(api, schedule))["id"]), 1)
        # What the caller has decided counts for more.
        decided = await run_now(api, schedule, traceparent=TRACEPARENT)
        await engine.run_execution(UUID(decided["id"]), 1)
    assert ["00", "01"] == [f"{int(traceparent(call)[2], 16) & 1:02x}" for call in sink.calls]
    await collector.one("run")
    assert {TRACE} == {span.trace for span in collector.spans}


def test_the_share_is_fair_to_the_ids_of_executions() -> None:
    """They are UUIDs, in which some bits are always the same."""
    taken = otlp._RatioSampler(0.25)
    ids = [UUID(int=uuid4().int & ~(0xF << 76) | 8 << 76) for _ in range(2000)]
    decided = [taken.should_sample(None, one.int, "tick").decision is not Decision.DROP for one in ids]
    assert 350 < sum(decided) < 650


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CARILLON_OTEL_ENDPOINT", "collector:4318"),
        ("CARILLON_OTEL_SAMPLE_RATIO", "1.5"),
        ("CARILLON_TRACE_URL", "https://t/"),
    ],
)
def test_a_bad_setting_is_refused_by_name(name: str, value: str) -> None:
    """Before anything starts."""
    with pytest.raises(SettingsError, match=name):
        load_settings({name: value})


async def _contexts(database: Database, table: str) -> list[Any]:
    async with database.transaction() as connection:
        return list((await connection.execute(text(f"SELECT trace_context FROM {table}"))).scalars())
