"""Webhooks are called at their times, tried again, and taken back.

Covers app.persistence.webhooks.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.domain.executions import ExecutionStatus, Outcome
from app.engine.entity_polling import Poller
from app.engine.entity_schedulers import LoadedScheduler
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.persistence.settle import settle_locked
from app.persistence.webhooks import WebhookScheduler
from app.queue.bell import Bell, RedisPool
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, engine_of, until, working
from tests.support.http_sink import Sink


async def stored(database: Database, query: str) -> list[Any]:
    """What is in the tables."""
    async with database.transaction() as connection:
        return list(await connection.execute(text(query)))


def poller(database: Database, redis: RedisPool, batch: int = 100) -> Poller:
    """A process that polls webhooks."""
    return Poller(
        database,
        Ringer(Bell(redis)),
        [LoadedScheduler(WebhookScheduler(), "core", acts_for_users=True)],
        poll_seconds=60,
        batch_size=batch,
        lease_seconds=30,
    )


@asynccontextmanager
async def polling(settings: Settings) -> AsyncIterator[None]:
    """A worker that polls every second."""
    async with working(replace(settings, poll_seconds=1, poll_lease_seconds=2)):
        yield


async def test_a_webhook_is_called_at_its_time(
    carillon: Carillon, settings: Settings, sink: Sink, database: Database
) -> None:
    """With the event or with its payload, and its runs are told by the executions."""
    plain = await _webhook(carillon, database, f"{sink.url}/plain")
    told = await _webhook(carillon, database, f"{sink.url}/told", payload={"a": "{{ slot }}"}, method="PUT", name="n")
    async with polling(settings):
        await until(_called(sink, 2))
    calls = {call.path: call for call in sink.calls}
    event = calls["/plain"].json
    assert ("webhook", str(plain["id"]), "webhook " + str(plain["id"])) == tuple(
        event[name] for name in ("entity_type", "entity_id", "entity_name")
    )
    assert f"webhook/{told['id']}" == calls["/told"].headers["x-carillon-entity"]
    assert ("PUT", {"a": calls["/told"].headers["x-carillon-slot"]}) == (calls["/told"].method, calls["/told"].json)
    params = {"entity_type": "webhook", "entity_id": str(told["id"])}

    async def ended() -> Any:
        runs = (await carillon.call("GET", "/executions/", params=params))["items"]
        return runs if all(run["finished_at"] for run in runs) else None

    (run,) = await until(ended)
    assert ("success", run["scheduled_for"]) == (
        run["status"],
        (await carillon.call("GET", f"/webhooks/{told['id']}/"))["last_execution_at"],
    )


async def test_a_failed_call_is_tried_again_and_nothing_runs_beside_it(
    carillon: Carillon, settings: Settings, sink: Sink, database: Database
) -> None:
    """As an execution of its own, with the same key; the next time is skipped while it waits."""
    sink.answer = _refused
    made = await _webhook(carillon, database, f"{sink.url}/flaky", interval_minutes=1)
    async with polling(settings):
        await until(_called(sink, 1))

        async def waits() -> Any:
            return await stored(database, "SELECT 1 FROM workflow_executions WHERE status = 'pending'")

        await until(waits)
        await stored(
            database,
            f"UPDATE webhooks SET next_execution_at = clock_timestamp() WHERE id = {made['id']} RETURNING 1",
        )

        async def skipped() -> Any:
            return await stored(database, "SELECT 1 FROM workflow_executions WHERE unrun_outcome = 'skipped_retry'")

        await until(skipped)
    sink.answer = sink._ok
    retry = "UPDATE workflow_executions SET due_at = clock_timestamp() WHERE status = 'pending' RETURNING id, token"
    (run,) = await stored(database, retry)
    async with engine_of(settings) as engine:
        await engine.run_execution(run.id, run.token)
    keys = {call.headers["idempotency-key"] for call in sink.calls}
    attempts = [call.headers["x-carillon-attempt"] for call in sink.calls]
    assert (1, ["1", "2"]) == (len(keys), attempts)


async def test_a_changed_webhook_does_the_new_thing(
    carillon: Carillon, redis: RedisPool, sink: Sink, database: Database, settings: Settings
) -> None:
    """Also the run that had been written down already; with new times it is taken back; deleted, it never runs."""
    made = await _webhook(carillon, database, f"{sink.url}/old", seconds=30)
    one = poller(database, redis)
    assert await one._take()
    assert (1, 0) == _counts(await one.poll(timedelta(seconds=60)))
    await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"url": f"{sink.url}/new"})
    await stored(
        database, "UPDATE workflow_executions SET due_at = clock_timestamp(), scheduled_for = now() RETURNING 1"
    )
    async with engine_of(settings) as engine:
        (run,) = await stored(database, "SELECT id, token FROM workflow_executions")
        await engine.run_execution(run.id, run.token)
    assert ["/new"] == [call.path for call in sink.calls]
    await stored(database, "UPDATE webhooks SET next_execution_at = now() + interval '30 seconds' RETURNING 1")
    assert (1, 0) == _counts(await one.poll(timedelta(seconds=60)))
    await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"interval_minutes": 60})
    assert 0 == len(await stored(database, "SELECT 1 FROM workflow_executions WHERE status = 'pending'"))
    await carillon.call("DELETE", f"/webhooks/{made['id']}/", 204)
    assert 0 == len(await stored(database, "SELECT 1 FROM workflow_executions"))


async def test_a_ping_alone_drives_entities(
    carillon: Carillon, settings: Settings, sink: Sink, database: Database
) -> None:
    """Without any worker."""
    await _webhook(carillon, database, f"{sink.url}/hook")
    assert "" == settings.cron_token
    async with serving(replace(settings, cron_run_token="ping")) as api:
        answer = await api.raw("POST", "/api/cron/run", headers={"Authorization": "Bearer ping"})
    assert (200, 1) == (answer.status_code, answer.json()["ran"])
    assert ["/hook"] == [call.path for call in sink.calls]


async def test_a_timezone_that_vanished_stops_a_webhook_until_it_is_back(
    carillon: Carillon, database: Database, redis: RedisPool
) -> None:
    """The time that was due is run, the webhook says why there is no other, and it goes on by itself."""
    made = await _webhook(carillon, database, "http://127.0.0.1:9/hook", interval_minutes=7)
    other = await _webhook(carillon, database, "http://127.0.0.1:9/other", seconds=3600)
    zone = f"UPDATE webhooks SET timezone = '{{}}' WHERE id = {made['id']} RETURNING 1"
    await stored(database, zone.format("Mars/Olympus"))
    one = poller(database, redis)
    assert [(1, 1), (0, 0)] == [_counts(await one.poll_now()), _counts(await one.poll_now())]
    (run,) = await stored(database, "SELECT entity_id, scheduled_for FROM workflow_executions")
    assert str(made["id"]) == run.entity_id
    (row,) = await stored(database, f"SELECT next_execution_at FROM webhooks WHERE id = {made['id']}")
    assert row.next_execution_at is None
    assert "There is no timezone 'Mars/Olympus'" in (await _read(carillon, made))["last_error"]
    await stored(database, zone.format("Europe/Berlin"))
    assert (0, 0) == _counts(await one.poll_now())
    (row,) = await stored(database, f"SELECT next_execution_at FROM webhooks WHERE id = {made['id']}")
    assert run.scheduled_for + timedelta(minutes=7) == row.next_execution_at
    assert "" == (await _read(carillon, made))["last_error"] == (await _read(carillon, other))["last_error"]


async def test_many_stopped_webhooks_hide_none_that_can_go_on(
    carillon: Carillon, database: Database, redis: RedisPool
) -> None:
    """Neither do they fill the first page for ever."""
    made = [await _webhook(carillon, database, f"http://127.0.0.1:9/{number}") for number in range(5)]
    await stored(database, "UPDATE webhooks SET timezone = 'Mars/Olympus' RETURNING 1")
    one = poller(database, redis, batch=2)
    assert (5, 5) == _counts(await one.poll_now())
    await stored(database, f"UPDATE webhooks SET timezone = 'UTC' WHERE id = {made[-1]['id']} RETURNING 1")
    assert (0, 0) == _counts(await one.poll_now())
    planned = await stored(database, "SELECT id FROM webhooks WHERE next_execution_at IS NOT NULL")
    assert [made[-1]["id"]] == [row.id for row in planned]


async def test_a_time_that_comes_while_schedules_are_switched_off_has_an_outcome(
    carillon: Carillon, database: Database, redis: RedisPool, settings: Settings
) -> None:
    """It is queued ahead of its time as always, so that switching on again is enough; at its time it is not run."""
    made = await _webhook(carillon, database, "http://127.0.0.1:9/hook")
    await carillon.call("PATCH", "/settings/", json={"schedules_enabled": False})
    assert (1, 0) == _counts(await poller(database, redis).poll_now())
    (run,) = await stored(database, "SELECT id, token, scheduled_for FROM workflow_executions")
    (row,) = await stored(database, "SELECT last_execution_at FROM webhooks")
    assert run.scheduled_for == row.last_execution_at
    async with engine_of(settings) as engine:
        await engine.run_execution(run.id, run.token)
    (ended,) = (await carillon.call("GET", "/executions/", params={"entity_id": str(made["id"])}))["items"]
    assert ("cancelled", True) == (ended["status"], "switched off" in ended["error"])


async def _read(carillon: Carillon, webhook: Json) -> Json:
    answer: Json = await carillon.call("GET", f"/webhooks/{webhook['id']}/")
    return answer


async def failing(carillon: Carillon, database: Database, redis: RedisPool, settings: Settings, sink: Sink) -> Json:
    """A webhook whose run has just failed, with a retry waiting."""
    sink.answer = _refused
    made = await _webhook(carillon, database, f"{sink.url}/hook")
    assert 1 == (await poller(database, redis).poll_now()).queued
    (run,) = await stored(database, "SELECT id, token FROM workflow_executions")
    async with engine_of(settings) as engine:
        await engine.run_execution(run.id, run.token)
    assert ["failed", "pending"] == [
        row.status for row in await stored(database, "SELECT status FROM workflow_executions ORDER BY retry_attempt")
    ]
    return made


async def test_switched_off_nothing_fires_any_more(
    carillon: Carillon, database: Database, redis: RedisPool, settings: Settings, sink: Sink
) -> None:
    """A retry that waits is dropped; the view says how the last run ended."""
    made = await failing(carillon, database, redis, settings, sink)
    off = await carillon.call("PATCH", f"/webhooks/{made['id']}/", json={"active": False})
    assert (None, "failed", True) == (off["next_execution_at"], off["last_status"], "500" in off["last_error"])
    assert ["failed", "cancelled"] == [
        row.status for row in await stored(database, "SELECT status FROM workflow_executions ORDER BY retry_attempt")
    ]


async def test_a_run_that_ends_while_its_webhook_is_deleted_leaves_nothing(
    carillon: Carillon, database: Database, redis: RedisPool, settings: Settings, sink: Sink
) -> None:
    """Whoever comes first, no retry is left without its webhook."""
    made = await _webhook(carillon, database, f"{sink.url}/hook")
    assert 1 == (await poller(database, redis).poll_now()).queued
    (run,) = await stored(
        database,
        "UPDATE workflow_executions SET status = 'running', worker_id = gen_random_uuid(), started_at = now() "
        "RETURNING id, token",
    )
    outcome = Outcome(
        execution_id=UUID(str(run.id)), scheduled_job_id=None, token=run.token, status=ExecutionStatus.FAILED
    )
    async with database.transaction() as connection:
        await settle_locked(connection, [outcome])
        deletion = asyncio.create_task(carillon.call("DELETE", f"/webhooks/{made['id']}/", 204))

        async def waits_for_us() -> Any:
            return await stored(database, "SELECT 1 FROM pg_locks WHERE NOT granted")

        await until(waits_for_us)
    await deletion
    assert [] == await stored(database, "SELECT 1 FROM workflow_executions")


async def test_others_see_nothing_of_its_runs(carillon: Carillon, database: Database, redis: RedisPool) -> None:
    """Neither in lists nor by their ids."""
    member, other = await carillon.member(), await carillon.member("olaf")
    await _webhook(member, database, "http://127.0.0.1:9/hook")
    assert 1 == (await poller(database, redis).poll_now()).queued
    (run,) = (await member.call("GET", "/executions/"))["items"]
    assert [] == (await other.call("GET", "/executions/"))["items"]
    await other.call("GET", f"/executions/{run['id']}/", 404)
    await other.call("POST", f"/executions/{run['id']}/cancel/", 404)
    cancelled = await member.call("POST", f"/executions/{run['id']}/cancel/")
    assert "cancelled" == cancelled["status"]


async def _webhook(carillon: Carillon, database: Database, url: str, seconds: int = 0, **values: Any) -> Json:
    """A webhook whose time comes in so many seconds."""
    body = {"url": url, "interval_minutes": 5, **values}
    made: Json = await carillon.call("POST", "/webhooks/", 201, json=body)
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE webhooks SET next_execution_at = clock_timestamp() + make_interval(secs => :s) WHERE id = :id"
            ),
            {"id": made["id"], "s": seconds},
        )
    return made


async def _refused(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


def _counts(polled: Any) -> tuple[int, int]:
    return polled.queued, polled.errors


def _called(sink: Sink, times: int) -> Any:
    async def called() -> bool:
        return len(sink.calls) >= times

    return called
