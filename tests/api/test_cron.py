"""``/api/cron/run``: pings drive the schedules, with no worker at all.

Covers app.engine.cron_ping, app.services.views.operations.
"""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from app.config import Settings, load_settings
from app.persistence.database import Database
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, FAIL, Carillon, Json, http_node, make_due
from tests.support.http_sink import Sink

TOKEN = "the-token-of-the-pings"
QUIET = {"ok": True, "ran": 0, "skipped": 0, "blocked": 0, "errors": 0, "dead_lettered": 0}


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
    """Not even a blank one."""
    async with serving(settings) as served:
        for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {ADMIN_TOKEN}"}):
            assert 401 == (await served.raw("POST", "/api/cron/run", headers=headers)).status_code


@pytest.mark.corner("ping without workers")
async def test_pinging_alone_drives_the_schedules(carillon: Carillon, database: Database, sink: Sink) -> None:
    """The latest due slot of each, however late; the earlier ones by catch_up; and the chain goes on."""
    workflow = await carillon.workflow(http_node(sink.url))
    late, fresh = await carillon.schedule(workflow), await carillon.schedule(workflow)
    catching_up = await carillon.schedule(workflow, catch_up="run_once")
    await make_due(database, late, 3600)
    await make_due(database, catching_up, 3600)
    assert QUIET | {"ran": 3} == (await ping(carillon)).json()
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
    expected = {"ok": True, "ran": 0, "skipped": 1, "blocked": 1, "errors": 1, "dead_lettered": 1}
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


async def test_the_lock_of_a_crashed_pinger_runs_out(carillon: Carillon, database: Database) -> None:
    """It is a row with a lease: nothing can leave it behind for good."""
    take = "INSERT INTO locks (name, owner, expires_at) VALUES ('cron_ping', :owner, now() + interval '1 hour')"
    async with database.transaction() as connection:
        await connection.execute(text(take), {"owner": uuid4()})
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
    assert QUIET == (await ping(carillon)).json()
    (missed,) = await carillon.ledger(schedule)
    assert ("missed", "disabled", 4) == (missed["outcome"], missed["reason"], missed["count"])
    await carillon.call("PATCH", "/settings/", 422, json={"schedules_enabled": "no"})
    assert (await carillon.call("PATCH", "/settings/", json={"schedules_enabled": True}))["schedules_enabled"]
    assert QUIET == (await ping(carillon)).json()
