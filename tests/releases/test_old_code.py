"""The code of the last release on the schema of the next one: whatever it did before, it does there."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis as redis_client
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.config import load_settings
from app.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.members import Member
from tests.releases.release import PREVIOUS, Release
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json, http_node, until
from tests.support.databases import fresh_database
from tests.support.declarations import NIGHTLY
from tests.support.http_sink import Sink

Told = dict[str, str]

TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
    "AND NOT relispartition AND relname <> 'alembic_version'"
)


@pytest.fixture(scope="module")
async def migrated(postgres: EmbeddedPostgres, valkey: EmbeddedValkey, following: Release) -> AsyncIterator[Told]:
    """What processes are told of a database that the next release has migrated."""
    with redis_client.Redis.from_url(valkey.url) as client:
        client.flushall()
    async with fresh_database(postgres) as url:
        told = {
            "CARILLON_DATABASE_URL": url,
            "CARILLON_REDIS_URL": valkey.url,
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_HTTP_ALLOW": "127.0.0.0/8",
            "CARILLON_LEASE_SECONDS": "3",
            "CARILLON_RECONCILE_SECONDS": "0.5",
            "CARILLON_LOG_FORMAT": "json",
        }
        code, said = await following.run("migrate", settings=told)
        assert (0, "The database is up to date.\n") == (code, said)
        await expand_every_table(load_settings(told).database_url)
        yield told


async def expand_every_table(url: str) -> None:
    """What a release may do to any table: columns that may be left out."""
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        for table in (await connection.execute(text(TABLES))).scalars():
            added = "ADD COLUMN or_null text, ADD COLUMN or_default int NOT NULL DEFAULT 7"
            await connection.execute(text(f"ALTER TABLE {table} {added}"))
    await engine.dispose()


@asynccontextmanager
async def member(kind: str, release: Release, told: Told, folder: Path) -> AsyncIterator[Member]:
    """A process of a release that says nothing bad, does not die, and ends at a word."""
    running = Member(kind, kind, release, told, folder / f"{kind}.log")
    running.start()
    try:
        await until(running.is_ready)
        yield running
    finally:
        await running.end(60)
    assert (1, []) == (running.starts, running.defects())


@pytest.fixture(scope="module")
async def old_api(
    previous: Release, migrated: Told, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Carillon]:
    """The API of the last release on it."""
    async with (
        member("api", previous, migrated, tmp_path_factory.mktemp("api")) as running,
        httpx.AsyncClient(base_url=running.url, timeout=60, trust_env=False) as client,
    ):
        yield Carillon(client, load_settings(migrated))


@pytest.fixture(scope="module")
async def old_worker(
    previous: Release, migrated: Told, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Member]:
    """A worker of the last release on it."""
    async with member("worker", previous, migrated, tmp_path_factory.mktemp("worker")) as running:
        yield running


async def ended(carillon: Carillon, schedule: Json, count: int = 1) -> list[Json]:
    """The runs of a schedule, when so many have ended."""

    async def enough() -> Any:
        runs = [run for run in await carillon.runs(schedule) if run["finished_at"]]
        return runs if len(runs) >= count else None

    return await until(enough)


async def reached(carillon: Carillon, schedule: Json, status: str) -> Json:
    """A schedule, when it has come to this status."""

    async def there() -> Any:
        found = await carillon.get(schedule)
        return found if found["status"] == status else None

    return await until(there)


async def test_it_is_the_last_release(previous: Release, following: Release) -> None:
    """It knows its version, and not the revision that it is tested against."""
    version, _ = PREVIOUS.read_text().split()
    assert (0, f"{version}\n") == await previous.run("--version", settings={})
    old, new = ({path.name for path in release.migrations()} for release in (previous, following))
    assert "9999_expansion.py" in new - old
    assert set() == old - new


@pytest.mark.parametrize("words", [("migrate",), ("migrate", "--wait")])
async def test_there_is_nothing_to_migrate_or_to_wait_for(
    previous: Release, migrated: Told, words: tuple[str, ...]
) -> None:
    """Its Job and its waiting pods end well, and the schema stays: a roll back meets both."""
    code, said = await previous.run(*words, settings=migrated)
    assert (0, "The database is up to date.") == (code, said.splitlines()[-1])
    engine = create_async_engine(load_settings(migrated).database_url)
    async with engine.connect() as connection:
        assert "9999" == (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
    await engine.dispose()


async def test_schedules_and_workflows_are_managed(old_api: Carillon) -> None:
    """Created, listed, read, changed, paused, resumed, run, explained and deleted."""
    workflow = await old_api.workflow(max_concurrent_runs=5, breaker_threshold=3, breaker_reset_seconds=60)
    schedule = await old_api.schedule(workflow, name="first")
    changed = await old_api.call("PATCH", f"/schedules/{schedule['id']}/", json={"interval_seconds": 600})
    assert 600 == changed["interval_seconds"]
    path = f"/schedules/{schedule['id']}"
    assert "paused" == (await old_api.call("POST", f"{path}/pause/"))["status"]
    assert "active" == (await old_api.call("POST", f"{path}/resume/"))["status"]
    manual = await old_api.call("POST", f"{path}/run/", 202)
    assert [manual["id"]] == [run["id"] for run in await old_api.runs(schedule)]
    assert schedule["id"] in {item["id"] for item in (await old_api.call("GET", "/schedules/"))["items"]}
    assert workflow["id"] in {item["id"] for item in (await old_api.call("GET", "/workflows/"))["items"]}
    assert 4 == len(await old_api.history(schedule))
    assert await old_api.explain(schedule)
    assert "closed" == (await old_api.breaker(workflow))["state"]
    mia = await old_api.member()
    assert [] == (await mia.call("GET", "/schedules/"))["items"]
    await old_api.call("PATCH", f"/workflows/{workflow['id']}/", json={"name": "renamed"})
    await old_api.call("DELETE", f"{path}/", 204)
    await old_api.call("DELETE", f"/workflows/{workflow['id']}/", 204)
    assert 404 == (await old_api.request("GET", f"{path}/")).status_code


async def test_what_is_due_fires_fails_is_tried_again_and_settles(
    old_api: Carillon, old_worker: Member, sink: Sink
) -> None:
    """A cadence, a retry, a death, a one-shot, a run by hand, and slots that are skipped, each with its account."""

    async def answer(request: web.Request) -> web.Response:
        first = request.headers["X-Carillon-Attempt"] == "1"
        bad = request.path == "/bad" or (request.path == "/flaky" and first)
        if request.path == "/slow":
            await asyncio.sleep(1.5)
        return web.Response(status=500 if bad else 200)

    sink.answer = answer
    flow = {name: await old_api.workflow(http_node(f"{sink.url}/{name}")) for name in ("good", "flaky", "bad", "slow")}
    quick = {"interval_seconds": 1, "backoff_base_seconds": 1}
    good = await old_api.schedule(flow["good"], **quick, total_repeats=2)
    flaky = await old_api.schedule(flow["flaky"], **quick, total_repeats=1, max_retries=3)
    bad = await old_api.schedule(flow["bad"], **quick, max_retries=1)
    slow = await old_api.schedule(flow["slow"], **quick, total_repeats=2, if_running="skip")
    once = await old_api.schedule(flow["good"], after="1s")
    by_hand = await old_api.schedule(flow["good"])
    await old_api.call("POST", f"/schedules/{by_hand['id']}/run/", 202)
    for schedule, status in ((good, "done"), (flaky, "done"), (bad, "dead"), (slow, "done"), (once, "done")):
        await reached(old_api, schedule, status)

    async def outcomes(schedule: Json, count: int) -> list[tuple[str, str]]:
        return [(run["trigger"], run["status"]) for run in await ended(old_api, schedule, count)]

    assert [("schedule", "success")] * 2 == await outcomes(good, 2)
    assert [("schedule", "failed"), ("schedule", "success")] == await outcomes(flaky, 2)
    assert [("schedule", "failed")] * 2 == await outcomes(bad, 2)
    assert [("schedule", "success")] == await outcomes(once, 1)
    assert [("manual", "success")] == await outcomes(by_hand, 1)
    assert {"fired", "skipped_overlap"} == {entry["outcome"] for entry in await old_api.ledger(slow)}
    calls = [call.headers["x-carillon-execution"] for call in sink.calls]
    assert len(set(calls)) == len(calls)


@pytest.mark.parametrize(
    "values",
    [
        "interval_seconds = NULL, every = 'rrule', rrule = 'FREQ=DAILY'",
        """exclude_calendars = '["closed"]', calendar_versions = '{"closed": null}', not_on = '["calendars"]'""",
    ],
)
async def test_what_it_would_misread_is_paused(
    old_api: Carillon, old_worker: Member, migrated: Told, values: str
) -> None:
    """A spec that a newer release has stored, with a mark, fires nothing; newer workers resume the schedule."""
    schedule = await old_api.schedule(interval_seconds=3600)
    engine = create_async_engine(load_settings(migrated).database_url)
    async with engine.begin() as connection:
        due = "next_slot = clock_timestamp(), next_run_at = clock_timestamp(), cadence_slot = clock_timestamp()"
        statement = text(f"UPDATE scheduled_jobs SET {values}, {due}, generation = generation + 1 WHERE id = :id")
        await connection.execute(statement, {"id": schedule["id"]})
    await engine.dispose()
    paused = await reached(old_api, schedule, "paused")
    assert ("invalid_spec", []) == (paused["status_reason"], await old_api.runs(schedule))
    assert ["missed"] == [entry["outcome"] for entry in await old_api.ledger(schedule)]


async def test_what_nobody_rings_for_is_found(old_api: Carillon, old_worker: Member, valkey: EmbeddedValkey) -> None:
    """Redis is emptied, and a worker dies with a run: the reconciler finds both."""
    schedule = await old_api.schedule(interval_seconds=2)
    waiting = await old_api.schedule(after="2s")
    with redis_client.Redis.from_url(valkey.url) as client:
        client.flushall()
    await ended(old_api, schedule)
    await ended(old_api, waiting)
    lasting = await old_api.workflow({"id": "wait", "type": "core.delay", "config": {"seconds": 60}})
    left = await old_api.schedule(lasting, after="1s", max_retries=3)

    async def running() -> Any:
        return [run for run in await old_api.runs(left) if run["status"] == "running"]

    await until(running)
    await old_worker.restart(signal.SIGKILL)
    # It did not die by itself.
    old_worker.starts -= 1
    (lost, *_) = await ended(old_api, left)
    assert "lost" == lost["status"]
    for made in (schedule, left):
        await old_api.call("DELETE", f"/schedules/{made['id']}/", 204)


async def test_files_are_applied_and_exported(previous: Release, migrated: Told, tmp_path: Path) -> None:
    """Once with an effect, then without one; and what was applied is found again."""
    path = tmp_path / "nightly.yaml"
    path.write_text(NIGHTLY)
    for sums in ("2 created, 0 changed, 0 unchanged, 0 deleted.", "0 created, 0 changed, 2 unchanged, 0 deleted."):
        code, said = await previous.run("apply", "-f", str(path), settings=migrated)
        assert (0, sums) == (code, said.splitlines()[-1]), said
    code, said = await previous.run("export", settings=migrated)
    assert (0, True) == (code, "every: 1m" in said)
