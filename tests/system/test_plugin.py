"""A plugin as somebody would write and install it: its actions, its schedules, and its own table of due things.

Covers app.plugin, app.services.plugins.
"""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import redis as redis_client
from msgspec.structs import replace

from app.config import Settings
from app.engine.entity_schedulers import load_entity_schedulers, scheduler_shortcomings
from app.persistence.database import Database
from app.plugin import PluginScheduleChanges, PluginScheduleInput, RefusedError, shortcomings
from app.wiring import wire_worker
from tests.support.api_server import serving
from tests.support.carillon import PATIENCE_SECONDS, Carillon, Json, until, working
from tests.support.http_sink import Sink
from tests.support.watched_process import Watched

SOURCE = Path(__file__).parents[1] / "example_plugin"
OWNER = "carillon-cms"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, built and installed by pip into a folder of its own; and one beside it that cannot be imported."""
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run((*pip, "--target", str(target), str(SOURCE)), check=True)
    broken = target / "carillon_broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: carillon-broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text(
        "[carillon.actions]\nbroken = carillon_broken:ALL\n[carillon.entity_schedulers]\nlost = carillon_broken:Lost\n"
    )
    return target


@pytest.fixture
async def cms(installed: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncpg.Connection]:
    """The plugin on the path, and its tables in the test's database."""
    monkeypatch.syspath_prepend(str(installed))
    plain = database_url.replace("postgresql+asyncpg", "postgresql")
    monkeypatch.setenv("CMS_DATABASE_URL", plain)
    store = importlib.import_module("carillon_cms.store")
    connection = await asyncpg.connect(plain)
    await connection.execute(store.TABLES)
    yield connection
    await connection.close()
    for name in [name for name in sys.modules if name.startswith("carillon_cms")]:
        del sys.modules[name]


@pytest.fixture
async def api(cms: asyncpg.Connection, settings: Settings) -> AsyncIterator[Carillon]:
    """The API with the plugin in it."""
    assert cms is not None
    async with serving(settings) as client:
        yield client


def plugin() -> ModuleType:
    """What was installed."""
    return importlib.import_module("carillon_cms")


async def own_schedules(api: Carillon) -> dict[str, Json]:
    """The schedules that the plugin owns, by name."""
    items = (await api.call("GET", "/schedules/"))["items"]
    return {one["name"]: one for one in items if one["owner_kind"] == "plugin"}


async def test_the_plugin_conforms(cms: asyncpg.Connection) -> None:
    """By the suite that its authors can run."""
    assert cms is not None
    assert [[], [], []] == [shortcomings(action) for action in plugin().PLUGIN.actions]
    assert [] == scheduler_shortcomings(importlib.import_module("carillon_cms.series").SeriesScheduler())
    found = load_entity_schedulers()
    assert {"webhook": "core", "cms.series": OWNER} == {
        one.scheduler.entity_type: one.plugin for one in found.schedulers
    }


async def test_its_actions_are_in_the_catalog_and_a_broken_one_stops_nobody(api: Carillon) -> None:
    """By the name of the distribution; what cannot be imported is told by name."""
    listed = await api.call("GET", "/actions/")
    brought = {one["name"] for one in listed["items"] if one["origin"] == OWNER}
    assert {"cms.content.publish", "cms.content.unpublish", "cms.media.cleanup"} == brought
    shown = {
        one["name"]: (one["title"], one["category"], one["icon"], one["outputs"] is not None)
        for one in listed["items"]
        if one["origin"] == OWNER
    }
    assert ("Publish content", "Content", "newspaper", True) == shown["cms.content.publish"]
    assert ("Content unpublish", "Cms", "puzzle", False) == shown["cms.content.unpublish"]
    assert {"broken", "lost"} == {one["plugin"] for one in listed["problems"]}
    assert all("carillon_broken" in one["error"] for one in listed["problems"])
    seen = await (await api.member()).call("GET", "/actions/")
    assert (listed["items"], []) == (seen["items"], seen["problems"])
    bad = {"id": "work", "type": "cms.media.cleanup", "config": {"older_than_days": -1}}
    nodes = [{"id": "start", "type": "trigger_schedule"}, bad]
    problem = await api.call("POST", "/workflows/", 422, json={"name": "w", "nodes": nodes})
    assert "nodes[1].config.older_than_days" == problem["errors"][0]["field"]


async def test_its_entity_type_is_listed(api: Carillon, settings: Settings, cms: asyncpg.Connection) -> None:
    """To everyone; how many runs are active, and which schedulers could not be loaded, to admins."""
    listed = await api.call("GET", "/entity-types/")
    assert {"cms.series": OWNER, "core.sitemap": "core", "webhook": "core"} == {
        one["entity_type"]: one["plugin"] for one in listed["items"]
    }
    series = listed["items"][0]
    assert ("Finds the series that are due.", False, 0, 0) == tuple(
        series[name] for name in ("description", "acts_for_users", "pending_runs", "running_runs")
    )
    assert (["lost"], None) == ([one["plugin"] for one in listed["problems"]], listed["next_cursor"])
    await cms.execute("INSERT INTO cms_series (id, content_id, minutes, next_at) VALUES (7, 1, 60, now())")
    async with wire_worker(settings) as parts:
        assert 1 == (await parts.runtime._poller.poll_now()).queued
    first = await api.call("GET", "/entity-types/", params={"limit": 1})
    rest = await api.call("GET", "/entity-types/", params={"limit": 5, "cursor": first["next_cursor"]})
    assert [1, 0, 0] == [one["pending_runs"] for one in (*first["items"], *rest["items"])]
    seen = await (await api.member()).call("GET", "/entity-types/")
    assert ([], {None}) == (seen["problems"], {one["pending_runs"] for one in seen["items"]})
    assert [one["entity_type"] for one in listed["items"]] == [one["entity_type"] for one in seen["items"]]


async def test_it_has_a_schedule_of_its_own_from_the_start(api: Carillon, settings: Settings) -> None:
    """Once, however many processes start; members do not see it, admins may change it."""

    async def there() -> Any:
        return await own_schedules(api)

    async with working(settings), working(settings):
        found = await until(there)
    again = await own_schedules(api)
    assert found == again
    assert ["Clean up media"] == list(found)
    schedule = found["Clean up media"]
    assert ("plugin", OWNER, "15 3 * * *") == (schedule["owner_kind"], schedule["owner_id"], schedule["cron"])
    workflow = await api.call("GET", f"/workflows/{schedule['workflow_id']}/")
    assert ("plugin", OWNER) == (workflow["owner_kind"], workflow["owner_id"])
    member = await api.member()
    await member.call("GET", f"/schedules/{schedule['id']}/", 404)
    mine = await member.schedule()
    assert "user" == mine["owner_kind"]
    changed = await api.call("PATCH", f"/schedules/{schedule['id']}/", json={"cron": "0 4 * * *"})
    assert ("0 4 * * *", "plugin") == (changed["cron"], changed["owner_kind"])


async def test_what_it_does_and_what_it_schedules_while_it_does(
    api: Carillon, settings: Settings, cms: asyncpg.Connection, sink: Sink
) -> None:
    """Published, pinged, and taken back by a schedule that the action makes; empty content is blocked, no harm done."""
    await cms.execute("INSERT INTO cms_content (id, title, body) VALUES (1, 'Hello', 'World'), (2, 'Empty', '')")
    await cms.execute(
        "INSERT INTO cms_media SELECT n, 1, n = 1, now() - interval '40 days' FROM generate_series(1, 4) n"
    )
    configs: dict[str, Json] = {
        "cms.content.publish": {"content_id": "{{ trigger.payload.id }}", "unpublish_after_seconds": 1},
        "cms.media.cleanup": {"older_than_days": 30},
    }
    urls = [f"{sink.url}/ping"]
    await api.call("PATCH", "/settings/", json={"ping_sitemap_on_run": True, "sitemap_urls": urls})
    runs: dict[str, Json] = {}
    async with working(settings):
        for payload in (1, 2):
            for action, config in configs.items():
                workflow = await api.workflow({"id": "work", "type": action, "config": config})
                schedule = await api.schedule(workflow, trigger_payload={"id": payload})
                run = await api.call("POST", f"/schedules/{schedule['id']}/run/", 202)

                async def ended(run_id: str = run["id"]) -> Any:
                    found = await api.call("GET", f"/executions/{run_id}/")
                    return found if found["finished_at"] else None

                runs[f"{action} {payload}"] = await until(ended)

        async def taken_back() -> Any:
            done = (await own_schedules(api)).get("Unpublish 1", {}).get("status") == "done"
            return done and await cms.fetchval("SELECT published_at IS NULL FROM cms_content WHERE id = 1")

        await until(taken_back)
        await sink.wait_for_calls(1)
    assert {
        "cms.content.publish 1": ("success", {"content_id": 1, "title": "Hello"}),
        "cms.content.publish 2": ("blocked", None),
        "cms.media.cleanup 1": ("success", {"deleted": 3}),
        "cms.media.cleanup 2": ("skipped", None),
    } == {name: (run["status"], run["nodes"][0]["output"]) for name, run in runs.items()}
    assert 1 == await cms.fetchval("SELECT count(*) FROM cms_media")


@pytest.mark.parametrize("point", ["before_settle", "after_settle"])
async def test_a_worker_that_is_killed_after_publishing_loses_no_ping(
    api: Carillon,
    settings: Settings,
    cms: asyncpg.Connection,
    sink: Sink,
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    """By ``kill -9``, and Redis has lost everything: another worker finds in Postgres that a ping is wanted."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    await cms.execute("INSERT INTO cms_content (id, title, body) VALUES (1, 'Hello', 'World')")
    changes = {"ping_sitemap_on_run": True, "sitemap_urls": [f"{sink.url}/ping"]}
    await api.call("PATCH", "/settings/", json=changes)
    workflow = await api.workflow({"id": "work", "type": "cms.content.publish", "config": {"content_id": 1}})
    schedule = await api.schedule(workflow, max_retries=0)
    stores = {"database_url": settings.database_url, "redis_url": settings.redis_url}
    leases = {"lease_seconds": "3", "poll_seconds": "1", "poll_lease_seconds": "2"}
    async with Watched(tmp_path / "log", "worker", **stores, **leases, failpoints=point) as worker:
        await api.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        assert -signal.SIGKILL == await asyncio.wait_for(worker.process.wait(), PATIENCE_SECONDS)
    assert await cms.fetchval("SELECT published_at IS NOT NULL FROM cms_content")
    assert [] == sink.calls
    with redis_client.Redis.from_url(settings.redis_url) as client:
        client.flushall()
    async with working(replace(settings, poll_seconds=1, poll_lease_seconds=2)):
        await sink.wait_for_calls(1)


async def test_its_own_table_fires(api: Carillon, settings: Settings, cms: asyncpg.Connection) -> None:
    """On behalf of the plugin; a series whose cron is bad says so and stops no other."""
    await cms.execute("INSERT INTO cms_content (id, title, body) VALUES (1, 'Part one', 'Once upon a time')")
    await cms.execute(
        "INSERT INTO cms_series (id, content_id, cron, minutes, next_at) VALUES "
        "(7, 1, NULL, 60, now()), (8, 1, 'sometimes', NULL, now())"
    )
    async with working(replace(settings, poll_seconds=1)):

        async def ran() -> Any:
            found = (await api.call("GET", "/executions/", params={"entity_type": "cms.series"}))["items"]
            return found if found and found[0]["finished_at"] else None

        (run,) = await until(ran)
    assert ("success", "7") == (run["status"], run["entity_id"])
    assert await cms.fetchval("SELECT next_at > now() FROM cms_series WHERE id = 7")
    assert "Expected five fields" in await cms.fetchval("SELECT error FROM cms_series WHERE id = 8 AND next_at IS NULL")


async def test_a_plugin_changes_its_own_and_nothing_else(
    api: Carillon, settings: Settings, database: Database, cms: asyncpg.Connection
) -> None:
    """Created, listed, updated and deleted through what it is handed; refusals are in words."""
    assert cms is not None
    mine = await api.schedule()
    async with wire_worker(settings) as parts:
        own = parts.plugins.schedules_of(OWNER)
        wanted = PluginScheduleInput(name="n", action="core.noop", interval_seconds=300)
        made = await own.create(wanted)
        with pytest.raises(RefusedError, match="already has a schedule of this name"):
            await own.create(wanted)
        with pytest.raises(RefusedError, match="cron"):
            await own.create(PluginScheduleInput(name="x", action="core.noop", cron="sometimes"))
        with pytest.raises(RefusedError, match="There is no action"):
            await own.create(PluginScheduleInput(name="x", action="cms.nothing", interval_seconds=1))
        ensured = await own.ensure(wanted)
        assert ensured is not None
        assert made.id == ensured.id
        changed = await own.update(made.id, PluginScheduleChanges(cron="0 0 * * *", payload={"a": 1}))
        shown = await api.call("GET", f"/schedules/{made.id}/")
        assert ("0 0 * * *", None, {"a": 1}) == (shown["cron"], shown["interval_seconds"], shown["trigger_payload"])
        await own.update(made.id, PluginScheduleChanges(config={}))
        past = await api.call("GET", f"/workflows/{shown['workflow_id']}/history/")
        assert [("created", f"plugin:{OWNER}")] == [(one["action"], one["by"]) for one in past["items"]]
        assert made.id in {one.id for one in await own.list()}
        assert UUID(mine["id"]) not in {one.id for one in await own.list()}
        for refused in (own.update(UUID(mine["id"]), PluginScheduleChanges(name="x")), own.delete(UUID(mine["id"]))):
            with pytest.raises(RefusedError, match="no such schedule"):
                await refused
        other = await own.create(PluginScheduleInput(name="m", action="core.noop", interval_seconds=300))
        with pytest.raises(RefusedError, match="already has a schedule of this name"):
            await own.update(other.id, PluginScheduleChanges(name="n"))
        await api.call("PATCH", f"/schedules/{other.id}/", 409, json={"name": "n"})
        with pytest.raises(RefusedError, match="cron"):
            await own.update(other.id, PluginScheduleChanges(config={}, cron="sometimes"))
        await own.delete(changed.id)
        await api.call("GET", f"/schedules/{made.id}/", 404)
        await api.call("GET", f"/schedules/{mine['id']}/")
        with pytest.raises(RefusedError, match="has not declared the capability"):
            await parts.plugins.schedules_of("carillon-other").list()
    assert database is not None


def test_operators_see_what_is_installed(installed: Path) -> None:
    """By name, with what is wrong, and an exit code that says whether anything is."""
    carillon = str(Path(sys.executable).with_name("carillon"))
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = subprocess.run((carillon, "plugins", "--json"), env=environment, capture_output=True, check=False)
    told = json.loads(found.stdout)
    by_name = {one["plugin"]: one for one in told["plugins"]}
    assert (1, {"core", OWNER}) == (found.returncode, set(by_name))
    assert (["schedule_jobs"], ["cms.series"]) == (by_name[OWNER]["capabilities"], by_name[OWNER]["entity_types"])
    assert {"broken", "lost"} == {one["plugin"] for one in told["problems"]}
    shown = subprocess.run((carillon, "plugins"), env=environment, capture_output=True, check=False, text=True)
    assert "cms.media.cleanup" in shown.stdout
    assert "No module named 'carillon_broken'" in shown.stdout
