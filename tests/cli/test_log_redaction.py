"""Nothing that is not for the log is in it: what is planted everywhere is found nowhere."""

import asyncio
import base64
import os
import pty
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from aiohttp import web
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from app.queue.bell import RedisPool
from tests.support.carillon import Carillon, http_node, make_due, until
from tests.support.http_sink import Sink
from tests.support.watched_process import Json, Watched, free_port

MARK = "planted"
SIGNING_KEY = base64.b64encode(b"a key that is planted too").decode()
ENDED = {"success", "failed", "timed_out", "blocked"}
# Refuses what a schedule with this payload would write, so that Postgres quotes whole rows in its errors.
REFUSE = "ALTER TABLE workflow_executions ADD CHECK (payload ->> 'poison' IS NULL) NOT VALID"
ACTIVE_EVENTS = {
    *("worker_started", "run_ended", "notification_failed", "claim_failed", "schedule_quarantined"),
    *("redis_unreachable", "request_failed", "token_created", "user_created", "workflow_logged"),
}


@pytest.fixture
async def garbler() -> AsyncIterator[int]:
    """The port of a target that does not speak HTTP."""

    async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{MARK}-garbage of a target\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(garble, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@asynccontextmanager
async def watched_pair(settings: Settings, tmp_path: Path, redis: RedisPool) -> AsyncIterator[tuple[Watched, Watched]]:
    """An API and a worker that say all that they ever say, with secrets in each of their settings."""
    await redis.acl_setuser(
        "planted", enabled=True, passwords=[f"+{MARK}-redis-password"], keys=["*"], channels=["*"], categories=["+@all"]
    )
    options = {
        "database_url": settings.database_url.replace("carillon@", f"carillon:{MARK}-database-password@"),
        "redis_url": settings.redis_url.replace("unix://", "unix://planted@") + f"?password={MARK}-redis-password",
        "admin_token": f"{MARK}-admin-token",
        "signing_secret": SIGNING_KEY,
        "secret_key": f"{MARK}-secret",
        "http_allow": settings.http_allow,
        "reconcile_seconds": "0.5",
        "log_level": "debug",
        "log_format": "json",
    }
    async with AsyncExitStack() as stack:
        api, worker = (Watched(tmp_path / name, name, **options) for name in ("api", "worker"))
        yield await stack.enter_async_context(api), await stack.enter_async_context(worker)


def secretive(url: str) -> str:
    """The same address with a password and a query."""
    return url.replace("http://", f"http://user:{MARK}-url-password@") + f"?token={MARK}-query#{MARK}-fragment"


def call(url: str, **config: Any) -> Json:
    """A node that calls with something secret in all its parts."""
    # A password in the URL and this header exclude each other.
    bearer = {} if MARK in url else {"Authorization": f"Bearer {MARK}-header"}
    headers = {**bearer, "Cookie": f"a={MARK}-cookie", "X-Key": "{{ secret.KEY }}"}
    return http_node(url, headers=headers, json={"password": f"{MARK}-body"}, **config)


async def refuse_all_kinds(client: Carillon) -> None:
    """Requests that are turned away."""
    strange = {"Cookie": f"session={MARK}-cookie", "Authorization": f"Bearer {MARK}-wrong-token"}
    assert 401 == (await client.raw("GET", f"/api/v1/me/?token={MARK}-query", headers=strange)).status_code
    for body, status in ((f'{{"name": "{MARK}-broken', 400), (f'{{"{MARK}-field": "{MARK}-value"}}', 422)):
        assert status == (await client.request("POST", "/workflows/", content=body)).status_code


async def run_all_kinds(client: Carillon, sink: Sink, garbler: int) -> list[str]:
    """Runs that fail in every way there is; their ids."""
    ports = (garbler, free_port())
    targets = [call(secretive(url)) for url in (sink.url, *(f"http://127.0.0.1:{port}/" for port in ports))]
    says = {"id": "say", "type": "core.log", "config": {"message": "The key is kept."}}
    fails = {"id": "fail", "type": "core.fail", "config": {"message": f"{MARK}-words"}}
    started = []
    for action in (*targets, says, fails, call(f"{sink.url}/later", await_callback=True)):
        schedule = await client.schedule(
            await client.workflow(action), trigger_payload={"key": f"{MARK}-payload"}, max_retries=0
        )
        run = await client.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        started.append(run["id"])
    return started


async def test_what_is_secret_is_not_in_the_log(
    settings: Settings, database: Database, redis: RedisPool, sink: Sink, garbler: int, tmp_path: Path
) -> None:
    """Whatever is sent, answered, configured or refused; at the level debug, with every kind of failure."""
    called_back: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "X-Carillon-Callback-Token" in request.headers:
            called_back.put_nowait(
                (request.headers["X-Carillon-Execution"], request.headers["X-Carillon-Callback-Token"])
            )
            return web.json_response({"answer": f"{MARK}-answer"}, status=202)
        return web.json_response({"answer": f"{MARK}-answer"}, status=500)

    sink.answer = answer
    async with database.transaction() as connection:
        await connection.execute(text(REFUSE))
    async with (
        watched_pair(settings, tmp_path, redis) as (api, worker),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{api.port}", timeout=60, trust_env=False) as http,
    ):
        client = Carillon(http, settings, f"{MARK}-admin-token")
        await until(api.readiness)
        await client.call("POST", "/notifications/", 201, json={"url": secretive(f"http://127.0.0.1:{free_port()}/")})
        member = await client.member(f"{MARK}-name"[:5])
        await refuse_all_kinds(client)
        started = await run_all_kinds(client, sink, garbler)
        execution, token = await asyncio.wait_for(called_back.get(), 60)
        said = {"status": "failed", "error": f"{MARK}-callback-error", "output": {"key": f"{MARK}-callback-output"}}
        for one, status in ((f"{MARK}-wrong-callback-token", 401), (token, 200)):
            await client.with_token(one).call("POST", f"/executions/{execution}/complete/", status, json=said)
        hook = {"url": secretive(sink.url), "interval_minutes": 1, "headers": {"X-Key": f"{MARK}-header"}}
        await client.call("POST", "/webhooks/", 201, json=hook)

        poisoned = await client.schedule(trigger_payload={"poison": f"{MARK}-row"})
        assert 500 == (await client.request("POST", f"/schedules/{poisoned['id']}/run/")).status_code
        await make_due(database, poisoned)

        async def all_ended() -> bool:
            found = [await client.call("GET", f"/executions/{one}/") for one in started]
            return all(one["status"] in ENDED for one in found)

        await until(all_ended)
        await redis.acl_deluser("planted")

        async def all_said() -> bool:
            return ACTIVE_EVENTS <= {line["event"] for line in (*api.lines, *worker.lines)}

        await until(all_said)
        assert 200 == (await member.request("GET", "/me/")).status_code
        output = api.output + worker.output
    for secret in (MARK, SIGNING_KEY, SIGNING_KEY[:20], token):
        assert [] == [line for line in output.splitlines() if re.search(re.escape(secret), line, re.IGNORECASE)]
    about = [line for line in worker.lines if "execution" in line]
    assert {"run_ended", "workflow_logged"} <= {line["event"] for line in about}
    assert all(line["slot"] and line.get("schedule", "") != "" for line in about)


async def output_on(terminal: bool) -> str:
    """What a waiting process writes, to a terminal or to a pipe."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    env = {**os.environ, "CARILLON_DATABASE_URL": "postgresql://carillon@127.0.0.1:1/x", "TERM": "xterm"}
    command = (sys.executable, "-m", "app.cli", "migrate", "--wait")
    process = await asyncio.create_subprocess_exec(*command, stdout=theirs, env=env)
    os.close(theirs)
    try:
        async with asyncio.timeout(60):
            return (await asyncio.to_thread(os.read, ours, 4096)).decode()
    finally:
        process.kill()
        await process.wait()
        os.close(ours)


async def test_a_terminal_gets_readable_lines_and_all_else_json() -> None:
    """Without any setting."""
    piped = msgspec.json.decode((await output_on(terminal=False)).splitlines()[0])
    assert ("migrations_awaited", "info") == (piped["event"], piped["level"])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", await output_on(terminal=True))
    assert re.match(r"\d\d:\d\d:\d\d \[info +\] migrations_awaited +error=", shown), shown
