"""Webhooks on events: written with what happened, delivered beside it, again and again.

Covers app.api.notifications, app.domain.notifications, app.services.notifications.
"""

from typing import Any
from uuid import UUID

import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text
from standardwebhooks import Webhook

from app.config import Settings
from app.persistence.database import Database
from app.wiring import wire_worker
from tests.support.carillon import FAIL, PATIENCE_SECONDS, Carillon, Json, engine_of, make_due, until, working
from tests.support.http_sink import Sink

NOOP = {"id": "work", "type": "core.noop", "config": {}}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def notification(carillon: Carillon, sink: Sink, **values: Any) -> Json:
    """A wish to be told."""
    made: Json = await carillon.call("POST", "/notifications/", 201, json={"url": sink.url, **values})
    return made


async def fire(settings: Settings, database: Database, schedule: Json, seconds_ago: float = 0) -> None:
    """Fire a schedule by hand."""
    due = await make_due(database, schedule, seconds_ago)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])


async def deliver(settings: Settings) -> int:
    """One round of the sender."""
    async with wire_worker(settings) as parts:
        return await parts.runtime._notification_sender.run_all(PATIENCE_SECONDS)


async def log(carillon: Carillon, wish: Json) -> list[Json]:
    """The deliveries of a wish, oldest first."""
    answer = await carillon.call("GET", f"/notifications/{wish['id']}/deliveries/")
    return list(reversed(answer["items"]))


async def test_a_failure_a_death_and_a_recovery_are_told(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """With what happened to which schedule."""
    wish = await notification(carillon, sink)
    workflow = await carillon.workflow(FAIL)
    schedule = await carillon.schedule(workflow, max_retries=1, name="nightly")
    await fire(settings, database, schedule)
    nodes = [{"id": "start", "type": "trigger_schedule"}, NOOP]
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes})
    await fire(settings, database, schedule)
    dying = await carillon.schedule(await carillon.workflow(FAIL), max_retries=0)
    await fire(settings, database, dying)
    assert 4 == await deliver(settings)
    bodies = sorted((call.json for call in sink.calls), key=lambda body: body["timestamp"])
    first, second, *last = (body["type"] for body in bodies)
    assert ("run.failed", "schedule.recovered", ["run.failed", "schedule.dead"]) == (first, second, sorted(last))
    assert ("nightly", "Node 'work': boom", 1) == tuple(
        bodies[0]["data"][name] for name in ("schedule_name", "error", "attempt")
    )
    assert {dying["id"]} == {body["data"]["schedule_id"] for body in bodies[2:]}
    assert {("delivered", 200, 1)} == {
        (one["status"], one["last_status"], one["attempts"]) for one in await log(carillon, wish)
    }
    assert 0 == await deliver(settings)


async def test_missed_slots_and_an_open_breaker_are_told(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """A range is one notice."""
    await notification(carillon, sink, events=["slots.missed", "breaker.opened"])
    workflow = await carillon.workflow(FAIL, breaker_threshold=1)
    schedule = await carillon.schedule(workflow)
    await fire(settings, database, schedule, 1000)
    other = await carillon.schedule(workflow)
    await fire(settings, database, other)
    await deliver(settings)
    missed, opened = sorted((call.json for call in sink.calls), key=lambda body: body["type"], reverse=True)
    assert ("slots.missed", 4) == (missed["type"], missed["data"]["count"])
    assert ("breaker.opened", True) == (opened["type"], opened["data"]["reason"].startswith("1 consecutive failures"))


async def test_who_is_told_of_what(carillon: Carillon, settings: Settings, database: Database, sink: Sink) -> None:
    """Of a schedule, of a workflow, or of all that is yours; an admin may be told of everything."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    workflow = await mia.workflow(FAIL)
    schedule, other = await mia.schedule(workflow), await mia.schedule(workflow)
    told = {
        "schedule": (mia, await notification(mia, sink, schedule_id=schedule["id"])),
        "workflow": (mia, await notification(mia, sink, workflow_id=workflow["id"])),
        "all": (mia, await notification(mia, sink)),
        "admin": (carillon, await notification(carillon, sink)),
        "off": (mia, await notification(mia, sink, active=False)),
        "another event": (mia, await notification(mia, sink, events=["schedule.dead"])),
        "stranger": (max_, await notification(max_, sink)),
    }
    await fire(settings, database, schedule)
    await fire(settings, database, other)
    counts = {name: len(await log(client, wish)) for name, (client, wish) in told.items()}
    expected = {"schedule": 1, "workflow": 2, "all": 2, "admin": 2, "off": 0, "another event": 0, "stranger": 0}
    assert expected == counts


async def test_a_delivery_is_signed(carillon: Carillon, settings: Settings, database: Database, sink: Sink) -> None:
    """By Standard Webhooks, where there is a secret."""
    await notification(carillon, sink)
    await fire(settings, database, await carillon.schedule(await carillon.workflow(FAIL)))
    await deliver(replace(settings, signing_secret=SECRET))
    (call,) = sink.calls
    assert call.json == Webhook(SECRET).verify(call.body, call.headers)


async def test_what_does_not_arrive_is_tried_again_and_then_given_up(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """With growing pauses; `core.webhooks.retry` takes it up again, and old ones are purged."""

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    sink.answer = refuse
    wish = await notification(carillon, sink)
    await fire(settings, database, await carillon.schedule(await carillon.workflow(FAIL)))
    for _ in range(8):
        assert 1 == await deliver(settings)
        assert 0 == await deliver(settings)
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE deliveries SET next_attempt_at = now()"))
    (given_up,) = await log(carillon, wish)
    assert ("failed", 8, "The target answered 500.") == (
        given_up["status"],
        given_up["attempts"],
        given_up["last_error"],
    )
    assert 0 == await deliver(settings)
    retry = await carillon.workflow({"id": "work", "type": "core.webhooks.retry", "config": {}})
    await fire(settings, database, await carillon.schedule(retry))
    sink.answer = sink._ok
    assert 1 == await deliver(settings)
    assert "delivered" == (await log(carillon, wish))[0]["status"]
    purge = await carillon.workflow({"id": "work", "type": "core.webhooks.purge", "config": {"older_than_days": 0}})
    await fire(settings, database, await carillon.schedule(purge))
    assert [] == await log(carillon, wish)


async def test_workers_deliver_by_themselves(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """EntityConflict the ticks."""
    wish = await notification(carillon, sink)
    schedule = await carillon.schedule(await carillon.workflow(FAIL), interval_seconds=1, max_retries=0)

    async def told() -> bool:
        return {"delivered"} == {one["status"] for one in await log(carillon, wish)}

    async with working(settings):
        await sink.wait_for_calls(2)
        await until(told)
    assert "dead" == (await carillon.get(schedule))["status"]


async def test_a_wish_can_be_read_changed_and_taken_back(carillon: Carillon, sink: Sink) -> None:
    """By whom it belongs to."""
    wish = await notification(carillon, sink)
    path = f"/notifications/{wish['id']}/"
    assert 8 == len(wish["events"])
    changed = await carillon.call("PATCH", path, json={"events": ["run.failed"], "active": False})
    assert (["run.failed"], False) == (changed["events"], changed["active"])
    assert changed == await carillon.call("GET", path)
    assert [changed] == (await carillon.call("GET", "/notifications/"))["items"]
    mia = await carillon.member()
    await mia.call("GET", path, 404)
    await mia.call("DELETE", path, 404)
    assert [] == (await mia.call("GET", "/notifications/"))["items"]
    await carillon.call("DELETE", path, 204)
    await carillon.call("GET", f"{path}deliveries/", 404)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"url": "ftp://x"}, 422),
        ({"url": "http://[::1"}, 422),
        ({"events": []}, 422),
        ({"events": ["nothing"]}, 422),
        ({"workflow_id": 999999}, 404),
        ({"schedule_id": "00000000-0000-4000-8000-000000000001"}, 404),
    ],
)
async def test_a_bad_wish_is_refused(standing: Carillon, sink: Sink, values: Json, status: int) -> None:
    """By field, or as unknown."""
    await standing.call("POST", "/notifications/", status, json={"url": sink.url, **values})
