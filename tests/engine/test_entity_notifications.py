"""Failed runs of entities are reported like those of schedules (`app.domain.notifications`)."""

from typing import Any

from aiohttp import web
from sqlalchemy import text

from app.config import Settings
from app.engine.entity_polling import Poller
from app.engine.entity_schedulers import LoadedScheduler
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.persistence.webhooks import WebhookScheduler
from app.queue.bell import Bell, RedisPool
from app.wiring import wire_worker
from tests.support.carillon import FAIL, PATIENCE_SECONDS, Carillon, Json, engine_of, until, working
from tests.support.http_sink import Sink

MAKE_DUE = text("UPDATE webhooks SET next_execution_at = clock_timestamp() WHERE id = :id")
PENDING = text("UPDATE workflow_executions SET due_at = clock_timestamp() WHERE status = 'pending' RETURNING id, token")


async def refuse(request: web.Request) -> web.StreamResponse:
    """Refuse calls of webhooks, and accept notices."""
    return web.Response(status=500 if request.path == "/hook" else 200)


async def webhook(client: Carillon, sink: Sink, **values: Any) -> Json:
    """Create a webhook whose calls are refused."""
    sink.answer = refuse
    body = {"url": f"{sink.url}/hook", "interval_minutes": 5, "name": "nightly", **values}
    made: Json = await client.call("POST", "/webhooks/", 201, json=body)
    return made


async def notification(client: Carillon, sink: Sink, **values: Any) -> Json:
    """Create a notification that is delivered to the sink."""
    made: Json = await client.call("POST", "/notifications/", 201, json={"url": f"{sink.url}/notices", **values})
    return made


async def run_due(settings: Settings, database: Database, redis: RedisPool, made: Json | None = None) -> None:
    """Run an entity at once, or the attempt that waits."""
    if made is not None:
        async with database.transaction() as connection:
            await connection.execute(MAKE_DUE, {"id": made["id"]})
        loaded = LoadedScheduler(WebhookScheduler(), "core", acts_for_users=True)
        ringer = Ringer(Bell(redis))
        poller = Poller(database, ringer, [loaded], poll_seconds=60, batch_size=100, lease_seconds=30)
        assert 1 == (await poller.poll_now()).queued
    async with database.transaction() as connection:
        (run,) = list(await connection.execute(PENDING))
    async with engine_of(settings) as engine:
        await engine.run_execution(run.id, run.token)


async def events(client: Carillon, wish: Json) -> list[str]:
    """Return the events that a notification was told of, oldest first."""
    answer = await client.call("GET", f"/notifications/{wish['id']}/deliveries/")
    return [one["event"] for one in reversed(answer["items"])]


async def test_a_failed_attempt_and_the_last_one_are_told(
    carillon: Carillon, settings: Settings, database: Database, redis: RedisPool, sink: Sink
) -> None:
    """With the entity, the run, the attempt and the error; a success is not told."""
    wish = await notification(carillon, sink)
    made = await webhook(carillon, sink, max_retries=1)
    await run_due(settings, database, redis, made)
    assert ["run.failed"] == await events(carillon, wish)
    await run_due(settings, database, redis)
    assert ["run.failed", "run.failed", "run.given_up"] == await events(carillon, wish)
    async with wire_worker(settings) as parts:
        await parts.runtime._notification_sender.run_all(PATIENCE_SECONDS)
    notices = [call.json for call in sink.calls if call.path == "/notices"]
    given_up = next(notice["data"] for notice in notices if notice["type"] == "run.given_up")
    assert ("webhook", str(made["id"]), "nightly", 2, "failed") == tuple(
        given_up[name] for name in ("entity_type", "entity_id", "entity_name", "attempt", "status")
    )
    assert "answered 500" in given_up["error"]
    run = await carillon.call("GET", f"/executions/{given_up['execution_id']}/")
    assert (made["id"], given_up["slot"]) == (int(run["entity_id"]), run["scheduled_for"])
    assert [1, 2] == sorted(notice["data"]["attempt"] for notice in notices if notice["type"] == "run.failed")
    sink.answer = sink._ok
    await run_due(settings, database, redis, made)
    assert 3 == len(await events(carillon, wish))


async def test_who_is_told_of_an_entity(
    carillon: Carillon, settings: Settings, database: Database, redis: RedisPool, sink: Sink
) -> None:
    """The user on whose behalf it runs, and admins; not those who asked for one schedule or workflow."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    workflow = await mia.workflow(FAIL)
    schedule = await mia.schedule(workflow)
    told = {
        "owner": (mia, await notification(mia, sink)),
        "admin": (carillon, await notification(carillon, sink)),
        "schedule": (mia, await notification(mia, sink, schedule_id=schedule["id"])),
        "workflow": (mia, await notification(mia, sink, workflow_id=workflow["id"])),
        "given up": (mia, await notification(mia, sink, events=["run.given_up"])),
        "other events": (mia, await notification(mia, sink, events=["schedule.dead"])),
        "off": (mia, await notification(mia, sink, active=False)),
        "stranger": (max_, await notification(max_, sink)),
    }
    await run_due(settings, database, redis, await webhook(mia, sink, max_retries=0))
    both = ["run.failed", "run.given_up"]
    heard = {name: await events(client, wish) for name, (client, wish) in told.items()}
    expected = {"owner": both, "admin": both, "given up": ["run.given_up"]}
    assert expected == {name: names for name, names in heard.items() if names}


async def test_a_lost_run_is_told(
    carillon: Carillon, settings: Settings, database: Database, redis: RedisPool, sink: Sink
) -> None:
    """A run whose worker vanished is found by the others, and told by them in the same transaction."""
    wish = await notification(carillon, sink)
    made = await webhook(carillon, sink, max_retries=0)
    async with database.transaction() as connection:
        await connection.execute(MAKE_DUE, {"id": made["id"]})
    loaded = LoadedScheduler(WebhookScheduler(), "core", acts_for_users=True)
    poller = Poller(database, Ringer(Bell(redis)), [loaded], poll_seconds=60, batch_size=100, lease_seconds=30)
    assert 1 == (await poller.poll_now()).queued
    async with database.transaction() as connection:
        statement = (
            "UPDATE workflow_executions SET status = 'running', worker_id = gen_random_uuid(), started_at = now()"
        )
        await connection.execute(text(statement))

    async def is_told() -> bool:
        return ["run.failed", "run.given_up"] == await events(carillon, wish)

    async with working(settings):
        await until(is_told)
    (run,) = (await carillon.call("GET", "/executions/"))["items"]
    assert "lost" == run["status"]
    answer = await carillon.call("GET", f"/notifications/{wish['id']}/deliveries/")
    assert {"lost"} == {one["data"]["status"] for one in answer["items"]}
