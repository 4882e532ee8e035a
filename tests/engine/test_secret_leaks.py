"""Secrets are planted through every door, and searched in all that is kept, logged, traced, exported and answered."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import hypothesis
import msgspec
import pytest
import structlog
from aiohttp import web
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import text

from app.cli.operators import OPERATOR
from app.config import Settings
from app.persistence.database import Database
from app.queue.bell import RedisPool
from app.services.declarations.exporting import ExportService, Selection
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, until, working
from tests.support.http_sink import Sink
from tests.support.hypothesis_examples import examples
from tests.support.secret_spellings import spellings
from tests.support.trace_collector import Collector

# So that no secret is found by chance, in an id or a word.
MARK = "Pq7"
ALPHABETS = ("abcdefXYZ0123456789", "ab+/=%&<>\"'\\ -_.:@", "aöäß日本語😀é", "-_.~", "0123456789")
ANSWERS = ("text", "json", "error", "redirect", "header", "garbage", "closed")
DOORS = ("header", "url", "query", "password", "host", "json", "body", "nowhere", "callback")
ENDED = {"success", "failed", "blocked", "timed_out"}

secrets = st.sampled_from(ALPHABETS).flatmap(lambda letters: st.text(letters, min_size=6, max_size=40))
cases = st.lists(
    st.tuples(st.sampled_from(DOORS), st.sampled_from(ANSWERS), st.sampled_from(sorted(spellings("x")))),
    min_size=4,
    max_size=4,
)


class HostileTarget(Sink):
    """A target that sends back what it was sent, in whatever spelling, and calls back with it."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._secret = secret
        self.answer = self.echo
        self.called_back: list[int] = []

    async def echo(self, request: web.Request) -> web.StreamResponse:
        """Answer as the query of the URL asks for."""
        how, spelling = request.query["how"], request.query["spelling"]
        words = f"you said {spellings(self._secret)[spelling]} to me, {self._secret}"
        if "X-Carillon-Callback-Url" in request.headers:
            await self._call_back(request, words)
            return web.json_response({"words": words}, status=202)
        if how == "garbage" and request.transport is not None:
            request.transport.write(words.encode() + b"\r\n\r\n")
        if how in {"garbage", "closed"} and request.transport is not None:
            request.transport.close()
        return self._answer(how, words)

    def _answer(self, how: str, words: str) -> web.StreamResponse:
        one_line = words.encode("ascii", "replace").decode()
        if how == "json":
            return web.json_response({words: [words, {"deep": words}]})
        if how == "error":
            return web.Response(status=500, text="." * 170 + words, reason=one_line[:50])
        if how == "redirect":
            return web.Response(status=302, headers={"Location": f"http://127.0.0.1:1/{one_line}"}, text=words)
        if how == "header":
            return web.Response(headers={"X-Echo": one_line}, text=words)
        return web.Response(text=words)

    async def _call_back(self, request: web.Request, words: str) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.post(
                request.headers["X-Carillon-Callback-Url"],
                json={"status": "failed", "output": {words: words}, "error": words},
                headers={"Authorization": f"Bearer {request.headers['X-Carillon-Callback-Token']}"},
            )
        self.called_back.append(answer.status_code)


def config_for(door: str, url: str, query: str) -> Json:
    """A call that carries the secret in one of its parts."""
    host = url.removeprefix("http://")
    whole: dict[str, Json] = {
        "header": {"url": f"{url}/?{query}", "headers": {"X-Key": "Bearer {{ secret.PLANT }}"}},
        "url": {"url": f"{url}/a/{{{{ secret.PLANT }}}}/b?{query}"},
        "query": {"url": f"{url}/?{query}&key={{{{ secret.PLANT }}}}"},
        "password": {"url": f"http://user:{{{{ secret.PLANT }}}}@{host}/?{query}"},
        "host": {"url": f"http://{{{{ secret.PLANT }}}}.example/?{query}"},
        "json": {"url": f"{url}/?{query}", "json": {"a": ["{{ secret.PLANT }}", "x {{ secret.PLANT }}"]}},
        "body": {"url": f"{url}/?{query}", "body": "{{ secret.PLANT }}"},
        "nowhere": {"url": "http://127.0.0.1:1/{{ secret.PLANT }}", "body": "{{ secret.PLANT }}"},
        "callback": {"url": f"{url}/?{query}", "body": "{{ secret.PLANT }}", "await_callback": True},
    }
    return whole[door]


class Log(logging.Handler):
    """Remembers all that is logged, but for what the target and the clients of the test say themselves."""

    NOT_OURS = ("aiohttp.access", "aiohttp.server", "aiohttp.web", "httpx", "httpcore")

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        if not record.name.startswith(self.NOT_OURS):
            self.lines.append(self.format(record))


@pytest.fixture
def debug_log() -> Iterator[Log]:
    """All that is ever logged."""
    before, root, log = structlog.get_config(), logging.getLogger(), Log()
    level = root.level
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    root.setLevel(logging.DEBUG)
    root.addHandler(log)
    yield log
    root.removeHandler(log)
    root.setLevel(level)
    structlog.configure(**before)


@asynccontextmanager
async def traced(settings: Settings) -> AsyncIterator[tuple[Carillon, Settings, Collector]]:
    """An API that traces, settings of a worker that does, and where the traces go."""
    async with Collector() as collector:
        tracing = replace(settings, otel_endpoint=f"{collector.url}/")
        async with serving(tracing) as carillon:
            yield carillon, replace(tracing, public_url=str(carillon._client.base_url)), collector


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
    else:
        yield str(value)


async def kept(database: Database, redis: RedisPool) -> AsyncIterator[tuple[str, str]]:
    """Every text in every row of every table but the one of secrets, and in Redis."""
    async with database.transaction() as connection:
        names = text(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
        )
        for table in sorted((await connection.execute(names)).scalars()):
            if table != "secrets":
                rows = await connection.execute(text(f'SELECT to_jsonb(t)::text FROM "{table}" AS t'))
                for row in rows.scalars():
                    for one in texts_in(msgspec.json.decode(row)):
                        yield table, one
    for key in await redis.keys("*"):
        if await redis.type(key) == b"string":
            yield "redis", (await redis.get(key) or b"").decode(errors="replace")


async def answered(carillon: Carillon) -> AsyncIterator[tuple[str, str]]:
    """Every text in what the API answers."""
    runs = (await carillon.call("GET", "/executions/?limit=500"))["items"]
    schedules = (await carillon.call("GET", "/schedules/?limit=500"))["items"]
    wishes = (await carillon.call("GET", "/notifications/"))["items"]
    paths = ["/executions/?limit=500", "/schedules/?limit=500", "/workflows/?limit=500", "/secrets/?limit=500"]
    paths += [f"/executions/{one['id']}/" for one in runs]
    paths += [f"/schedules/{one['id']}/{part}" for one in schedules for part in ("", "runs/", "history/", "explain/")]
    paths += [f"/notifications/{one['id']}/deliveries/" for one in wishes]
    for path in paths:
        for one in texts_in(await carillon.call("GET", path)):
            yield path, one


async def run_all(carillon: Carillon, database: Database, target: HostileTarget, wanted: list[tuple[str, ...]]) -> None:
    """One run for each case, until all have ended."""
    started = []
    for number, (door, how, spelling) in enumerate(wanted):
        query = str(httpx.QueryParams({"how": how, "spelling": spelling}))
        call = {"id": "call", "type": "core.http_request", "config": config_for(door, target.url, query)}
        say = {"id": "say", "type": "core.log", "config": {"message": "{{ nodes.call.output | tojson }}"}}
        name = f"{len(target.calls)}-{number}-{target.url}"
        schedule = await carillon.schedule(await carillon.workflow(call, say, name=name), max_retries=0, name=name)
        started.append((await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202))["id"])

    async def all_ended() -> bool:
        found = [(await carillon.call("GET", f"/executions/{one}/"))["status"] for one in started]
        return set(found) <= ENDED

    await until(all_ended)


@hypothesis.settings(examples(3), suppress_health_check=list(HealthCheck))
@given(secrets, cases)
@example("-Host-Name-", [("host", "text", "as it is"), ("nowhere", "text", "json"), ("password", "error", "form")])
@example("日本語%2Ba+ b", [("callback", "text", "base64 1 1"), ("url", "error", "percent"), ("json", "json", "html")])
async def test_no_secret_is_left_anywhere(
    settings: Settings,
    database: Database,
    redis: RedisPool,
    debug_log: Log,
    drawn: str,
    wanted: list[tuple[str, ...]],
) -> None:
    """Whatever carries it out, and however it comes back."""
    secret = f"{MARK}{drawn.strip()}x"
    debug_log.lines.clear()
    logging.getLogger().setLevel(logging.DEBUG)
    async with traced(settings) as (carillon, worker, collector), HostileTarget(secret) as target:
        body = {"value": secret, "allowed_hosts": ["*"]}
        assert (await carillon.request("PUT", "/secrets/PLANT/", json=body)).status_code in {200, 201}
        await carillon.call("POST", "/notifications/", 201, json={"url": "http://127.0.0.1:1/"})
        async with working(worker):
            await run_all(carillon, database, target, wanted)
        found = [one async for one in answered(carillon)]
        assert set(target.called_back) <= {200}
    found += [one async for one in kept(database, redis)]
    found += [("log", line) for line in debug_log.lines]
    found += [("trace", one) for span in collector.spans for one in texts_in(msgspec.to_builtins(span))]
    exported = await ExportService(database).export(OPERATOR, Selection(for_namespace="shop"))
    found += [("export", line) for line in exported.splitlines()]
    forms = {spelling: written.lower() for spelling, written in spellings(secret).items()}
    left = [
        (place, spelling, one[:300]) for place, one in found for spelling, form in forms.items() if form in one.lower()
    ]
    assert [] == left
    assert {"workflow_executions", "callbacks", "log", "trace"} <= {place for place, _ in found} | {"callbacks"}


async def test_the_search_finds_what_is_there(database: Database, redis: RedisPool, settings: Settings) -> None:
    """A search that finds nothing must be able to find something."""
    async with serving(settings) as carillon:
        workflow = await carillon.workflow(
            {"id": "say", "type": "core.log", "config": {"message": f"{MARK}-in-a-node"}}
        )
        await carillon.schedule(workflow, trigger_payload={f"{MARK}-key": 1})
        await asyncio.wait_for(redis.set("planted", f"{MARK}-in-redis"), 10)
        places = {place for place, one in [one async for one in kept(database, redis)] if MARK in one}
        assert {"workflows", "scheduled_jobs", "redis"} <= places
        assert any(MARK in one for _, one in [one async for one in answered(carillon)])
