"""Publishing runs are followed by a ping of the sitemap: at most one a minute, and none is lost.

Covers app.actions.builtin.ping_sitemap, app.engine.sitemap, app.persistence.sitemap_pings.
"""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
import redis as redis_client
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.actions import builtin
from app.actions.catalog import Action, Skipped
from app.actions.context import ActionContext
from app.config import MOST_SITEMAP_URLS, Settings, SettingsError, load_settings
from app.domain import limits
from app.persistence.database import Database
from app.persistence.sitemap_pings import SPACING
from tests.support.api_server import serving
from tests.support.carillon import FAIL, Carillon, Json, engine_of, fire_and_read, make_due, moment, until, working
from tests.support.http_sink import Sink

TOKEN = "ping"
PUBLISH = {"id": "publish", "type": "test.publish", "config": {}}
NOTHING_NEW = {"id": "publish", "type": "test.publish", "config": {"is_new": False}}
SETTINGS = "/settings/"


class PublishConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether there is something to publish."""

    is_new: bool = True


async def publish(config: PublishConfig, _context: ActionContext) -> Any:
    """Publish, if there is something new."""
    return {"published": True} if config.is_new else Skipped("There is nothing new.")


ACTION = Action(name="test.publish", description="Publish.", config=PublishConfig, handler=publish, publishes=True)


@pytest.fixture(autouse=True)
def _publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an action that publishes, as a plugin would."""
    monkeypatch.setattr(builtin, "BUILTIN", (*builtin.BUILTIN, ACTION))


@pytest.fixture
async def api(_publishing: None, settings: Settings) -> Any:
    """An API that knows the action, and takes pings of a cron."""
    async with serving(replace(settings, cron_run_token=TOKEN)) as client:
        yield client


async def turn_on(api: Carillon, sink: Sink, *paths: str) -> Json:
    """Turn pings on, with these URLs."""
    urls = [f"{sink.url}{path}" for path in paths or ("/sitemap",)]
    shown: Json = await api.call("PATCH", SETTINGS, json={"ping_sitemap_on_run": True, "sitemap_urls": urls})
    return shown


async def pings(api: Carillon) -> list[Json]:
    """Return the executions of pings, oldest first."""
    listed = await api.call("GET", "/executions/", params={"entity_type": "core.sitemap", "limit": 500})
    return sorted(listed["items"], key=lambda run: run["scheduled_for"])


async def row(database: Database) -> Any:
    """Return the row of pings."""
    async with database.transaction() as connection:
        return (await connection.execute(text("SELECT wanted_at, last_slot FROM sitemap_pings"))).one()


async def let_a_minute_pass(database: Database) -> None:
    """Move everything that pings have done, or will do, by a minute into the past."""
    columns = ("scheduled_for", "due_at", "started_at", "finished_at")
    moved = ", ".join(f"{name} = {name} - interval '1 minute'" for name in columns)
    async with database.transaction() as connection:
        await connection.execute(text(f"UPDATE workflow_executions SET {moved} WHERE entity_type = 'core.sitemap'"))
        await connection.execute(text("UPDATE sitemap_pings SET last_slot = last_slot - interval '1 minute'"))


async def run_pending(settings: Settings, database: Database) -> None:
    """Run the executions that are pending, by hand."""
    query = text("SELECT id, token FROM workflow_executions WHERE status = 'pending' AND due_at <= clock_timestamp()")
    async with database.transaction() as connection:
        pending = list(await connection.execute(query))
    async with engine_of(settings) as engine:
        for run in pending:
            await engine.run_execution(run.id, run.token)


async def cron(api: Carillon) -> Json:
    """Fire what is due, without a worker."""
    response = await api.raw("POST", "/api/cron/run", headers={"Authorization": f"Bearer {TOKEN}"})
    assert 200 == response.status_code, response.text
    counts: Json = response.json()
    return counts


async def test_a_publishing_run_is_followed_by_a_ping(api: Carillon, settings: Settings, sink: Sink) -> None:
    """Within seconds, by a worker; all URLs are called, and the run is among the executions."""
    await turn_on(api, sink, "/one", "/two?key=secret")
    schedule = await api.schedule(await api.workflow(PUBLISH))

    async def ended() -> Any:
        runs = await pings(api)
        return runs if runs and runs[0]["finished_at"] else None

    async with working(settings):
        await api.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        (run,) = await until(ended)
    assert {("GET", "/one"), ("GET", "/two")} == {(call.method, call.path) for call in sink.calls}
    assert ("success", "entity", "sitemap") == (run["status"], run["trigger"], run["entity_id"])
    shown = await api.call("GET", f"/executions/{run['id']}/")
    expected = [{"url": f"{sink.url}{path}", "status": 200} for path in ("/one", "/two")]
    assert {"pings": expected} == shown["nodes"][0]["output"]


async def test_many_publishing_runs_are_one_ping_now_and_one_at_the_end_of_the_minute(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The last publish is always followed by a ping."""
    await turn_on(api, sink)
    workflow = await api.workflow(PUBLISH)
    for _ in range(3):
        await fire_and_read(api, settings, database, await api.schedule(workflow))
    assert 1 == len(await pings(api))
    await run_pending(settings, database)
    assert 1 == len(sink.calls)
    schedules = [await api.schedule(workflow) for _ in range(20)]
    ticks = [(UUID(schedule["id"]), await make_due(database, schedule)) for schedule in schedules]
    async with engine_of(settings) as engine:
        await asyncio.gather(*(engine.execute_scheduled_job(id_, due["generation"]) for id_, due in ticks))
    first, second = await pings(api)
    assert ("success", "pending") == (first["status"], second["status"])
    assert moment(second["scheduled_for"]) - moment(first["started_at"]) >= SPACING
    await run_pending(settings, database)
    assert 1 == len(sink.calls)
    await let_a_minute_pass(database)
    await run_pending(settings, database)
    # The second covers all that was published while it waited.
    assert (2, 2, None) == (len(sink.calls), len(await pings(api)), (await row(database)).wanted_at)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((PUBLISH,), 1),
        ((PUBLISH, {**FAIL, "id": "then"}), 1),
        ((NOTHING_NEW,), 0),
        (({"id": "work", "type": "core.noop"},), 0),
        (({**FAIL, "id": "first"}, PUBLISH), 0),
    ],
    ids=["published", "published, then failed", "nothing new", "another action", "failed before"],
)
async def test_only_a_success_of_a_publishing_action_counts(
    api: Carillon, settings: Settings, database: Database, sink: Sink, nodes: tuple[Json, ...], expected: int
) -> None:
    """Whatever becomes of the rest of the run."""
    await turn_on(api, sink)
    await fire_and_read(api, settings, database, await api.schedule(await api.workflow(*nodes)))
    assert expected == len(await pings(api))


async def test_without_the_setting_or_without_urls_nothing_is_pinged(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Turned off, a ping that waits is dropped."""
    workflow = await api.workflow(PUBLISH)
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    assert ([], None) == (await pings(api), (await row(database)).wanted_at)
    await api.call("PATCH", SETTINGS, json={"ping_sitemap_on_run": True})
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    assert [] == await pings(api)
    await turn_on(api, sink)
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    assert ["pending"] == [run["status"] for run in await pings(api)]
    await api.call("PATCH", SETTINGS, json={"ping_sitemap_on_run": False})
    await run_pending(settings, database)
    assert ([], None) == (sink.calls, (await row(database)).wanted_at)


async def test_new_urls_hold_for_the_ping_that_waits(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """It has not been sent yet."""
    await turn_on(api, sink, "/old")
    await fire_and_read(api, settings, database, await api.schedule(await api.workflow(PUBLISH)))
    await turn_on(api, sink, "/new")
    await run_pending(settings, database)
    assert ["/new"] == [call.path for call in sink.calls]


async def a_ping_that_waits(api: Carillon, settings: Settings, database: Database, sink: Sink) -> Json:
    """Publish twice within a minute: one ping has been sent, and one waits for the end of the minute. Return it."""
    await turn_on(api, sink)
    for _ in range(2):
        await fire_and_read(api, settings, database, await api.schedule(await api.workflow(PUBLISH)))
        await run_pending(settings, database)
    sent, waiting = await pings(api)
    assert ("success", "pending", 1) == (sent["status"], waiting["status"], len(sink.calls))
    return waiting


async def test_a_publish_after_pings_were_off_is_followed_by_a_ping(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Turning them off drops the ping that waits for the end of the minute, and not the next one."""
    await a_ping_that_waits(api, settings, database, sink)
    await api.call("PATCH", SETTINGS, json={"ping_sitemap_on_run": False})
    await api.call("PATCH", SETTINGS, json={"ping_sitemap_on_run": True})
    assert ["success"] == [run["status"] for run in await pings(api)]
    await fire_and_read(api, settings, database, await api.schedule(await api.workflow(PUBLISH)))
    assert ["success", "pending"] == [run["status"] for run in await pings(api)]


async def test_a_cancelled_ping_is_wanted_again(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """What was published is still not reported."""
    waiting = await a_ping_that_waits(api, settings, database, sink)
    await api.call("POST", f"/executions/{waiting['id']}/cancel/")
    assert (await row(database)).wanted_at is not None
    await let_a_minute_pass(database)
    await cron(api)
    assert (2, ["success", "cancelled", "success"]) == (len(sink.calls), [run["status"] for run in await pings(api)])


async def test_urls_that_were_removed_are_not_called(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The ping that waits is dropped, and wanted until there are URLs again."""
    await a_ping_that_waits(api, settings, database, sink)
    await api.call("PATCH", SETTINGS, json={"sitemap_urls": []})
    await let_a_minute_pass(database)
    await cron(api)
    await run_pending(settings, database)
    assert 1 == len(sink.calls)
    await turn_on(api, sink, "/new")
    await cron(api)
    await run_pending(settings, database)
    assert ["/sitemap", "/new"] == [call.path for call in sink.calls]


async def test_a_publish_during_a_ping_is_followed_by_another(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The one that runs may have come too early for it."""
    await turn_on(api, sink)
    workflow, released = await api.workflow(PUBLISH), asyncio.Event()
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    sink.hold_until(released)
    running = asyncio.create_task(run_pending(settings, database))
    await sink.wait_for_calls(1)
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    assert 1 == len(await pings(api))
    assert (await row(database)).wanted_at is not None
    released.set()
    await running
    assert ["success", "pending"] == [run["status"] for run in await pings(api)]
    assert (await row(database)).wanted_at is None


async def test_a_failing_url_keeps_no_other_from_being_called(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The run fails, names it, and is tried again; a publish meanwhile waits for that."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503 if request.path == "/bad" else 200)

    sink.answer = answer
    await turn_on(api, sink, "/bad?key=secret", "/good")
    workflow = await api.workflow(PUBLISH)
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    await run_pending(settings, database)
    failed, retry = sorted(await pings(api), key=lambda run: run["retry_attempt"])
    assert ("failed", "pending") == (failed["status"], retry["status"])
    assert f"1 of 2 URLs failed. {sink.url}/bad: It answered 503." in failed["error"]
    assert {"/bad", "/good"} == {call.path for call in sink.calls}
    await fire_and_read(api, settings, database, await api.schedule(workflow))
    assert 2 == len(await pings(api))
    sink.answer = sink._ok
    for _ in range(2):
        await let_a_minute_pass(database)
    await run_pending(settings, database)
    assert ["failed", "pending", "success"] == sorted(run["status"] for run in await pings(api))


async def test_switched_off_nothing_is_pinged_until_schedules_are_on_again(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Then the ping that was wanted is made up for."""
    await turn_on(api, sink)
    await fire_and_read(api, settings, database, await api.schedule(await api.workflow(PUBLISH)))
    await api.call("PATCH", SETTINGS, json={"schedules_enabled": False})
    await cron(api)
    assert (["cancelled"], []) == ([run["status"] for run in await pings(api)], sink.calls)
    await cron(api)
    assert 1 == len(await pings(api))
    await api.call("PATCH", SETTINGS, json={"schedules_enabled": True})
    await cron(api)
    assert 1 == len(sink.calls)


async def test_a_cron_ping_alone_does_it(api: Carillon, database: Database, sink: Sink) -> None:
    """Without any worker, in the same request."""
    await turn_on(api, sink)
    await make_due(database, await api.schedule(await api.workflow(PUBLISH)))
    assert 2 == (await cron(api))["ran"]
    assert ["/sitemap"] == [call.path for call in sink.calls]


async def test_a_crash_between_publishing_and_planning_loses_nothing(
    api: Carillon, settings: Settings, database: Database, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settle has stored that a ping is wanted; the next poll plans it, and Redis may have lost everything."""

    async def crash(_self: Any) -> None:
        raise asyncio.CancelledError

    await turn_on(api, sink)
    schedule = await api.schedule(await api.workflow(PUBLISH))
    with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
        patch.setattr("app.engine.sitemap.SitemapPlanner.plan", crash)
        await fire_and_read(api, settings, database, schedule)
    assert (["success"], []) == ([run["status"] for run in await api.runs(schedule)], await pings(api))
    assert (await row(database)).wanted_at is not None
    with redis_client.Redis.from_url(settings.redis_url) as client:
        client.flushall()
    async with working(replace(settings, poll_seconds=1)):
        await sink.wait_for_calls(1)


async def test_a_lost_run_that_may_have_published_is_followed_by_a_ping(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Its worker was killed after the action and before the settle; a ping too many does no harm."""
    await turn_on(api, sink)
    schedule = await api.schedule(await api.workflow(PUBLISH), max_retries=0)
    await api.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    async with database.transaction() as connection:
        statement = "UPDATE workflow_executions SET status = 'running', worker_id = :id, started_at = now()"
        await connection.execute(text(statement), {"id": uuid4()})
    async with working(settings):
        await sink.wait_for_calls(1)
    assert "lost" == (await api.runs(schedule))[0]["status"]


async def test_a_run_that_was_handed_back_may_have_published_before(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Then its action finds nothing to do, and its first start could not report."""
    await turn_on(api, sink)
    schedule = await api.schedule(await api.workflow(NOTHING_NEW))
    run = await api.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE workflow_executions SET token = 2, started_at = clock_timestamp()"))
    async with engine_of(settings) as engine:
        await engine.run_execution(UUID(run["id"]), 2)
    assert (["skipped"], 1) == ([one["status"] for one in await api.runs(schedule)], len(await pings(api)))


async def test_settings_of_pings(api: Carillon, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """For admins; URLs are checked, come from the environment unless stored, and who changed them is logged."""
    caplog.set_level("INFO")
    default = ["https://example.com/ping?sitemap=x", "http://example.org/"]
    async with serving(replace(settings, sitemap_urls=" , ".join(default))) as other:
        shown = await other.call("GET", SETTINGS)
        assert {"schedules_enabled": True, "ping_sitemap_on_run": False, "sitemap_urls": default} == shown
        changed = await other.call("PATCH", SETTINGS, json={"sitemap_urls": [], "ping_sitemap_on_run": True})
        assert ([], True) == (changed["sitemap_urls"], changed["ping_sitemap_on_run"])
        assert changed == await other.call("GET", SETTINGS)
        assert "settings_changed" in caplog.text
        assert "by='admin'" in caplog.text
        assert "example.com" not in caplog.text
        assert default == (await other.call("PATCH", SETTINGS, json={"sitemap_urls": None}))["sitemap_urls"]
    for urls in (["ftp://x"], ["http://"], ["http://[::1"], ["http://x.test/"] * 21, "http://x.test/", [1]):
        problem = await api.call("PATCH", SETTINGS, 422, json={"sitemap_urls": urls})
        assert problem["errors"][0]["field"].startswith("sitemap_urls")
    member = await api.member()
    await member.call("PATCH", SETTINGS, 403, json={"ping_sitemap_on_run": True})
    await member.call("GET", SETTINGS, 403)
    assert limits.MOST_SITEMAP_URLS == MOST_SITEMAP_URLS
    assert timedelta(minutes=1) == SPACING


@pytest.mark.parametrize("urls", ["example.com", "http://a.test/,ftp://b.test/", ",".join(["http://a.test/"] * 21)])
def test_bad_urls_in_the_environment_are_refused_at_the_start(urls: str) -> None:
    """By the name of the variable."""
    with pytest.raises(SettingsError, match="CARILLON_SITEMAP_URLS"):
        load_settings({"CARILLON_SITEMAP_URLS": urls})


async def test_workflows_can_ping_by_themselves(
    api: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """With the action; addresses that are not public are refused as everywhere."""
    node: Json = {"id": "ping", "type": "core.ping_sitemap", "config": {"urls": [f"{sink.url}/a", "http://10.1.2.3/b"]}}
    run = await fire_and_read(api, settings, database, await api.schedule(await api.workflow(node)))
    assert "failed" == run["status"]
    assert "1 of 2 URLs failed. http://10.1.2.3/b:" in run["error"]
    assert ["/a"] == [call.path for call in sink.calls]
    for urls in ([], ["ftp://x"], ["http://x.test/"] * 21):
        nodes = [{"id": "start", "type": "trigger_schedule"}, {**node, "config": {"urls": urls}}]
        await api.call("POST", "/workflows/", 422, json={"name": "w", "nodes": nodes})
