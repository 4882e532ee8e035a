"""``/api/cron/run``: pings drive the schedules, with no worker at all.

Covers app.engine.cron_ping, app.services.views.operations.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from app.config import Settings, load_settings
from app.embedded import EmbeddedPostgres
from app.engine import cron_ping
from app.persistence.database import Database
from app.persistence.migrations import migrate_now
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, FAIL, Carillon, Json, http_node, make_due
from tests.support.http_sink import Sink

TOKEN = "the-token-of-the-pings"
COUNTS = ("ran", "skipped", "blocked", "errors", "dead_lettered", "not_fired", "waiting")
QUIET = {"ok": True, **dict.fromkeys(COUNTS, 0)}
WAIT: Json = {"id": "work", "type": "core.delay", "config": {"seconds": 600}}
TRACE = "|4bf92f35.1_{cron}"
REFUSE = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$"


@pytest.fixture
async def carillon(settings: Settings) -> Any:
    """An API that knows the token of the pings."""
    configured = replace(settings, cron_run_token=TOKEN)
    async with serving(configured) as served:
        yield served


async def ping(carillon: Carillon, method: str = "POST", token: str = TOKEN, **headers: str) -> httpx.Response:
    """One ping."""
    return await carillon.raw(method, "/api/cron/run", headers={"Authorization": f"Bearer {token}", **headers})


async def test_a_quiet_ping(carillon: Carillon) -> None:
    """Both methods, with and without a slash."""
    for method in ("POST", "GET"):
        response = await ping(carillon, method)
        assert (200, QUIET) == (response.status_code, response.json())
    slashed = await carillon.raw("POST", "/api/cron/run/", headers={"Authorization": f"Bearer {TOKEN}"})
    assert 200 == slashed.status_code


async def test_without_the_right_token_it_is_401(carillon: Carillon) -> None:
    """Nor is the admin's token one for this."""
    for token in ("wrong", ADMIN_TOKEN, TOKEN + "x", "tökèn"):
        headers = {"Authorization": f"Bearer {token}".encode()}
        assert 401 == (await carillon.raw("POST", "/api/cron/run", headers=headers)).status_code
    assert 401 == (await carillon.raw("POST", "/api/cron/run")).status_code


def test_a_blank_token_falls_back() -> None:
    """To AUTH_BEARER_TOKEN, and with neither nobody is let in."""
    environments = [
        {"CRON_RUN_TOKEN": "a", "AUTH_BEARER_TOKEN": "b"},
        {"CRON_RUN_TOKEN": " ", "AUTH_BEARER_TOKEN": "b"},
        {"AUTH_BEARER_TOKEN": "b"},
        {},
    ]
    assert ["a", "b", "b", ""] == [load_settings(one).cron_token for one in environments]


async def test_no_token_configured_lets_nobody_in(settings: Settings) -> None:
    """Not even a blank one; the answer says what to configure, and so does the log, once."""
    async with serving(settings) as served:
        with capture_logs() as lines:
            for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {ADMIN_TOKEN}"}):
                answer = await served.raw("POST", "/api/cron/run", headers=headers)
                assert (401, True) == (answer.status_code, "CRON_RUN_TOKEN" in answer.json()["detail"])
    (line,) = (line for line in lines if line["event"] == "cron_ping_refused")
    assert "CRON_RUN_TOKEN" in line["error"]


@pytest.mark.corner("ping without workers")
async def test_pinging_alone_drives_the_schedules(carillon: Carillon, database: Database, sink: Sink) -> None:
    """The latest due slot of each, however late; the earlier ones by catch_up; and the chain goes on."""
    workflow = await carillon.workflow(http_node(sink.url))
    late, fresh = await carillon.schedule(workflow), await carillon.schedule(workflow)
    catching_up = await carillon.schedule(workflow, catch_up="run_once")
    await make_due(database, late, 3600)
    await make_due(database, catching_up, 3600)
    # An hour of five minutes each, but for the slots that are run: the latest of each, and one that is caught up.
    assert QUIET | {"ran": 3, "not_fired": 12 + 11} == (await ping(carillon)).json()
    assert 3 == len(sink.calls)
    (run,) = await carillon.runs(late)
    assert ("cron", "success") == (run["trigger"], run["status"])
    assert ["catch_up", "cron"] == [one["trigger"] for one in await carillon.runs(catching_up)]
    assert [] == await carillon.runs(fresh)
    assert (await carillon.get(late))["next_run_at"] > run["scheduled_for"]
    assert QUIET == (await ping(carillon)).json()


async def test_what_became_of_the_runs_is_counted(carillon: Carillon, database: Database) -> None:
    """An error is one, and the death of a schedule is another; skipped and blocked are neither."""
    log: Json = {"id": "work", "type": "core.log", "config": {"message": "{{ trigger.payload.missing }}"}}
    purge: Json = {"id": "work", "type": "core.history.purge", "config": {}}
    failing = await carillon.workflow(FAIL)
    schedules = [
        await carillon.schedule(failing),
        await carillon.schedule(failing, max_retries=0),
        await carillon.schedule(await carillon.workflow(log)),
        await carillon.schedule(await carillon.workflow(purge)),
    ]
    for schedule in schedules:
        await make_due(database, schedule)
    expected = QUIET | {"skipped": 1, "blocked": 1, "errors": 1, "dead_lettered": 1}
    assert expected == (await ping(carillon)).json()
    dead = await carillon.get(schedules[1])
    assert ("dead", True) == (dead["status"], dead["dead_at"] is not None)
    revived = await carillon.call("POST", f"/schedules/{dead['id']}/revive/")
    assert ("active", None, True) == (revived["status"], revived["dead_at"], revived["next_run_at"] is not None)


async def test_a_manual_run_that_fails_stays_manual(carillon: Carillon) -> None:
    """A ping works it off, and it touches no counter."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL))
    await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    assert QUIET | {"errors": 1} == (await ping(carillon)).json()
    (run,) = await carillon.runs(schedule)
    assert ("manual", "failed") == (run["trigger"], run["status"])
    assert 0 == (await carillon.get(schedule))["error_count"]


async def test_two_pings_at_once(carillon: Carillon, database: Database, sink: Sink) -> None:
    """One works, the other is told that the lock is busy; after it, the lock is free."""
    going, answered = asyncio.Event(), asyncio.Event()

    async def hold(_request: web.Request) -> web.StreamResponse:
        going.set()
        await answered.wait()
        return web.Response()

    sink.answer = hold
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    await make_due(database, schedule)
    first = asyncio.create_task(ping(carillon))
    await asyncio.wait_for(going.wait(), 60)
    busy = await ping(carillon)
    assert (202, {"ok": True, "busy": True, "message": "runner lock busy"}) == (busy.status_code, busy.json())
    answered.set()
    assert QUIET | {"ran": 1} == (await first).json()
    assert 200 == (await ping(carillon)).status_code


async def taken_lock(database: Database) -> None:
    """Somebody else holds the lock."""
    take = (
        "INSERT INTO locks (name, owner, expires_at) VALUES ('cron_ping', :owner, now() + interval '1 hour') "
        "ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at"
    )
    async with database.transaction() as connection:
        await connection.execute(text(take), {"owner": uuid4()})


async def test_the_lock_of_a_crashed_pinger_runs_out(carillon: Carillon, database: Database) -> None:
    """It is a row with a lease: nothing can leave it behind for good."""
    await taken_lock(database)
    assert 202 == (await ping(carillon)).status_code
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE locks SET expires_at = now() - interval '1 s'"))
    assert 200 == (await ping(carillon)).status_code


async def test_the_trace_is_taken_or_made(carillon: Carillon, database: Database) -> None:
    """Sent back, and in every log line of the run."""
    failing = await carillon.workflow({"id": "work", "type": "core.fail"})
    schedule = await carillon.schedule(failing)
    await make_due(database, schedule)
    with capture_logs(processors=[merge_contextvars]) as lines:
        response = await ping(carillon, **{"x-trace-id": "manual-scheduler-test"})
    assert "manual-scheduler-test" == response.headers["x-trace-id"]
    made = (await ping(carillon)).headers["x-trace-id"]
    odd = (await ping(carillon, **{"x-trace-id": "a b\t<c>"})).headers["x-trace-id"]
    assert 32 == len(made) == len(odd)
    assert {"run_ended", "cron_ping_finished"} <= {line["event"] for line in lines}
    assert {"manual-scheduler-test"} == {line["trace_id"] for line in lines}


async def traced(carillon: Carillon, token: str = TOKEN) -> httpx.Response:
    """One ping with a trace id, which must come back."""
    response = await ping(carillon, token=token, **{"x-trace-id": TRACE})
    assert [TRACE] == response.headers.get_list("x-trace-id")
    return response


async def test_every_answer_has_the_trace(settings: Settings, database: Database) -> None:
    """Done, busy, refused, refused too often."""
    configured = replace(settings, cron_run_token=TOKEN, rate_limit_per_minute=2)
    async with serving(configured) as carillon:
        statuses = [(await traced(carillon)).status_code]
        await taken_lock(database)
        statuses += [(await traced(carillon, token)).status_code for token in (TOKEN, *["wrong"] * 5)]
        assert ([200, 202, 401], 429) == (statuses[:3], statuses[-1])
        refused = await carillon.raw("POST", "/api/cron/run")
    assert 32 == len(refused.headers["x-trace-id"])


async def test_a_trace_that_is_not_sane_is_replaced(carillon: Carillon) -> None:
    """Too long, not printable, or with spaces."""
    for odd in ("x" * 129, "a b", "caf\xe9", "", "a\tb"):
        headers = {"Authorization": f"Bearer {TOKEN}", "x-trace-id": odd.encode("latin-1")}
        response = await carillon.raw("POST", "/api/cron/run", headers=headers)
        assert (200, 32) == (response.status_code, len(response.headers["x-trace-id"]))
    assert "x" * 128 == (await ping(carillon, **{"x-trace-id": "x" * 128})).headers["x-trace-id"]


def failure(lines: Sequence[MutableMapping[str, Any]]) -> MutableMapping[str, Any]:
    """The log line of the ping that failed, which has its trace id."""
    (line,) = (line for line in lines if line["event"] == "cron_ping_failed")
    assert ("error", TRACE) == (line["log_level"], line["trace_id"])
    return line


async def test_a_ping_that_fails_keeps_its_trace(carillon: Carillon, database: Database) -> None:
    """A defect is 500, with the id in the answer and in the log."""
    async with database.transaction() as connection:
        await connection.execute(text("ALTER TABLE locks RENAME TO mislaid"))
    with capture_logs(processors=[merge_contextvars]) as lines:
        assert 500 == (await traced(carillon)).status_code
    assert "ProgrammingError" == failure(lines)["error"]
    assert {TRACE} == {line["trace_id"] for line in lines}


@pytest.fixture
async def own_server(settings: Settings, tmp_path: Path) -> AsyncIterator[tuple[EmbeddedPostgres, Carillon]]:
    """A Postgres that the test may stop, and an API on it."""
    with EmbeddedPostgres(tmp_path / "pg", durable=False) as server:
        await asyncio.to_thread(migrate_now, server.url)
        url = server.url.replace("postgresql://", "postgresql+asyncpg://")
        async with serving(replace(settings, database_url=url, cron_run_token=TOKEN)) as carillon:
            assert 200 == (await ping(carillon)).status_code
            yield server, carillon


async def test_without_postgres_a_ping_keeps_its_trace(own_server: tuple[EmbeddedPostgres, Carillon]) -> None:
    """It is 503, and the log says why."""
    server, carillon = own_server
    await asyncio.to_thread(server.stop)
    with capture_logs(processors=[merge_contextvars]) as lines:
        assert 503 == (await traced(carillon)).status_code
    assert "Error" in failure(lines)["error"]


async def test_a_postgres_that_hangs_is_given_up(
    own_server: tuple[EmbeddedPostgres, Carillon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open and nothing answers on them: the ping says so soon, and goes on afterwards."""
    server, carillon = own_server
    monkeypatch.setattr(cron_ping, "ANSWER_SECONDS", 1.0)
    opened = await asyncpg.connect(host=str(server.socket_folder), user="carillon", database="postgres")
    rows = await opened.fetch("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
    processes = [server.process.pid, *(row["pid"] for row in rows)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        with capture_logs(processors=[merge_contextvars]) as lines:
            async with asyncio.timeout(30):
                response = await traced(carillon)
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    await opened.close()
    assert (503, True) == (response.status_code, "does not answer" in response.json()["detail"])
    assert "does not answer" in failure(lines)["error"]
    assert 200 == (await ping(carillon)).status_code


async def test_what_waits_and_what_does_not_fire_is_counted(carillon: Carillon, database: Database) -> None:
    """Runs that are parked or queued wait; slots beside them do not fire."""
    workflow = await carillon.workflow(WAIT)
    alone, queueing = await carillon.schedule(workflow), await carillon.schedule(workflow, if_running="queue")
    for schedule in (alone, queueing):
        await make_due(database, schedule)
    assert QUIET | {"waiting": 2} == (await ping(carillon)).json()
    for schedule in (alone, queueing):
        await make_due(database, schedule)
    assert QUIET | {"waiting": 1, "not_fired": 1} == (await ping(carillon)).json()
    assert QUIET == (await ping(carillon)).json()


async def test_an_entity_that_is_switched_off_is_not_fired(carillon: Carillon, database: Database) -> None:
    """Its run is given up before it begins."""
    body = {"url": "http://127.0.0.1:9/hook", "interval_minutes": 5}
    await carillon.call("POST", "/webhooks/", 201, json=body)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE webhooks SET next_execution_at = clock_timestamp()"))
    await carillon.call("PATCH", "/settings/", json={"schedules_enabled": False})
    assert QUIET | {"not_fired": 1} == (await ping(carillon)).json()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE webhooks RENAME TO mislaid",
        "CREATE TRIGGER claims BEFORE INSERT ON workflow_executions FOR EACH ROW EXECUTE FUNCTION refuse()",
        "CREATE TRIGGER settles BEFORE UPDATE ON workflow_executions FOR EACH ROW EXECUTE FUNCTION refuse()",
    ],
    ids=["poll of entities", "claim", "settle"],
)
async def test_internal_errors_are_counted(carillon: Carillon, database: Database, statement: str) -> None:
    """Of a poll, of a claim and of a run: the ping goes on, and its answer shows them."""
    schedule = await carillon.schedule()
    async with database.transaction() as connection:
        await connection.execute(text(REFUSE))
        await connection.execute(text(statement))
    if "webhooks" not in statement:
        await make_due(database, schedule)
    answer = (await ping(carillon)).json()
    assert (True, 1, 0) == (answer["ok"], answer["errors"], answer["ran"])


async def test_an_entity_with_a_mistake_is_an_error(carillon: Carillon, database: Database) -> None:
    """Beside what its run comes to."""
    body = {"url": "http://127.0.0.1:9/hook", "interval_minutes": 5}
    await carillon.call("POST", "/webhooks/", 201, json=body)
    change = "UPDATE webhooks SET next_execution_at = clock_timestamp(), timezone = 'Mars/Olympus'"
    async with database.transaction() as connection:
        await connection.execute(text(change))
    assert QUIET | {"errors": 2} == (await ping(carillon)).json()


async def test_schedules_are_switched_off_at_run_time(carillon: Carillon, database: Database) -> None:
    """By an admin, for all processes at once; slots are missed meanwhile and not made up for."""
    mia = await carillon.member()
    await mia.call("GET", "/settings/", 403)
    await mia.call("PATCH", "/settings/", 403, json={"schedules_enabled": False})
    assert (await carillon.call("GET", "/settings/"))["schedules_enabled"]
    off = await carillon.call("PATCH", "/settings/", json={"schedules_enabled": False})
    assert not off["schedules_enabled"]
    schedule = await carillon.schedule(catch_up="run_all")
    await make_due(database, schedule, 1000)
    assert QUIET | {"not_fired": 4} == (await ping(carillon)).json()
    (missed,) = await carillon.ledger(schedule)
    assert ("missed", "disabled", 4) == (missed["outcome"], missed["reason"], missed["count"])
    await carillon.call("PATCH", "/settings/", 422, json={"schedules_enabled": "no"})
    assert (await carillon.call("PATCH", "/settings/", json={"schedules_enabled": True}))["schedules_enabled"]
    assert QUIET == (await ping(carillon)).json()
