"""Named limits with several workers on real servers: never more than the bound, in order, fair, and explained.

Covers app.engine.limit_gate, app.persistence.permits.
"""

import asyncio
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.config import Settings
from app.persistence import permits
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due, three_workers, until, working
from tests.support.http_sink import Sink
from tests.support.limits import Busy, ended, limit, waiting_run


async def test_three_workers_never_run_more_than_max_concurrent_at_once(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Schedules and workflows that name a limit share it; all slots fire in the end."""
    await limit(carillon, max_concurrent=2)
    busy = Busy(sink, together=2)
    plain = await carillon.workflow(http_node(sink.url))
    limited = await carillon.workflow(http_node(sink.url), limit="crm")
    schedules = [await carillon.schedule(plain, limit="crm") for _ in range(6)]
    schedules += [await carillon.schedule(limited) for _ in range(6)]
    for schedule in schedules:
        await make_due(database, schedule)
    # A machine that stalls must not cost a worker its lease: its calls would fail.
    async with three_workers(replace(settings, lease_seconds=30)):
        runs = await ended(carillon, schedules)
    assert {("success", "")} == {(run["status"], run["error"]) for run in runs}
    assert 12 == len(runs) == len(sink.calls)
    assert 2 == busy.most
    shown = await carillon.call("GET", "/limits/crm/")
    assert (0, 0) == (shown["held"], shown["waiting"])


async def test_a_run_that_waits_says_so_and_starts_when_the_limit_is_raised(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Pending, with the limit in `waiting_for`; explain, slots and ledger say the same. A manual run waits too."""
    await limit(carillon, max_concurrent=1)
    released = asyncio.Event()
    sink.hold_until(released)
    workflow = await carillon.workflow(http_node(sink.url))
    first, second = [await carillon.schedule(workflow, limit="crm", interval_seconds=1) for _ in range(2)]
    async with working(settings):
        await sink.wait_for_calls(1)
        holder = UUID(sink.calls[0].headers["x-carillon-schedule"])
        other = second if holder == UUID(first["id"]) else first
        waits = await waiting_run(carillon, other)
        assert ("pending", "limit:crm", None) == (waits["status"], waits["waiting_for"], waits["started_at"])
        shown = await carillon.call("GET", f"/executions/{waits['id']}/")
        assert "limit:crm" == shown["waiting_for"]
        listed = await carillon.call("GET", "/executions/", params={"status": "pending"})
        assert waits["id"] in {run["id"] for run in listed["items"]}
        explained = await carillon.explain(other, waits["scheduled_for"])
        assert "waiting_for_limit" == explained["outcome"]
        assert {"check": "limit", "passed": False} == {k: explained["checks"][-1][k] for k in ("check", "passed")}
        slots = await carillon.call("GET", f"/schedules/{other['id']}/slots/", params={"limit": 100})
        assert "waiting_for_limit" in {item["reason"] for item in slots["items"] if item["outcome"] == "queued"}
        assert 1 == (await carillon.call("GET", "/limits/crm/"))["waiting"]
        await carillon.call("PATCH", "/limits/crm/", json={"max_concurrent": 2})
        await sink.wait_for_calls(2)
        for schedule in (first, second):
            await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
        released.set()
        await ended(carillon, [first, second])


async def test_a_file_without_the_limit_lets_waiting_runs_start(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """At once, as a change of the workflow by a request does."""
    await limit(carillon, max_concurrent=1)
    released = asyncio.Event()
    sink.hold_until(released)
    nodes = [{"id": "start", "type": "trigger_schedule"}, http_node(sink.url)]
    flow: Json = {"name": "w", "nodes": nodes, "edges": [{"from": "start", "to": nodes[1]["id"]}]}
    plan = [{"name": name, "workflow": "w", "interval_seconds": 3600} for name in ("first", "second")]
    document: Json = {"namespace": "n", "workflows": [{**flow, "limit": "crm"}], "schedules": plan}
    steps = (await carillon.call("POST", "/apply/", json={"documents": [document]}))["steps"]
    schedules = [{"id": step["id"]} for step in steps if step["kind"] == "schedule"]
    async with working(settings):
        for schedule in schedules:
            await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        await sink.wait_for_calls(1)
        holder = sink.calls[0].headers["x-carillon-schedule"]
        (other,) = [schedule for schedule in schedules if schedule["id"] != holder]
        await waiting_run(carillon, other)
        await carillon.call("POST", "/apply/", json={"documents": [{**document, "workflows": [flow]}]})
        assert 0 == (await carillon.call("GET", "/limits/crm/"))["waiting"]
        await sink.wait_for_calls(2)
        released.set()
        await ended(carillon, schedules)


async def test_the_permit_of_a_dead_worker_is_free_once_its_run_is_lost(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The run that waited starts on another worker."""
    await limit(carillon, max_concurrent=1)
    sink.hold_until(asyncio.Event())
    workflow = await carillon.workflow(http_node(sink.url))
    first = await carillon.schedule(workflow, limit="crm", max_retries=0)
    second = await carillon.schedule(await carillon.workflow(), limit="crm")
    async with engine_of(settings) as engine:
        due = await make_due(database, first)
        await engine.execute_scheduled_job(UUID(first["id"]), due["generation"])
        await engine.limits.look_at_all()
        (run,) = await carillon.runs(first)
        held = asyncio.create_task(engine.run_execution(UUID(run["id"]), 1))
        await sink.wait_for_calls(1)
        await make_due(database, second)
        async with database.transaction() as connection:
            await connection.exec_driver_sql("UPDATE workers SET lease_expires_at = now() - interval '1 s'")
        async with working(settings):
            runs = await ended(carillon, [first, second])
        held.cancel()
        await asyncio.wait({held})
    assert ["lost", "success"] == [run["status"] for run in runs]


async def test_an_unlimited_tick_asks_for_no_permit(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that names no limit is claimed, run and settled without a look at limits; so are its calls."""

    async def forbidden(*_arguments: object) -> None:
        raise AssertionError("a permit was asked for")

    for name in ("enter", "advance", "of_run", "of_calls", "lock_calls", "park_calls", "leave"):
        monkeypatch.setattr(f"app.persistence.permits.{name}", forbidden)
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    assert ["success"] == [run["status"] for run in await carillon.runs(schedule)]


async def test_a_run_without_the_limit_that_it_names_fails(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """It never runs unlimited, and its error says why."""
    made = await limit(carillon, max_concurrent=1)
    schedule = await carillon.schedule(limit="crm", max_retries=0)
    async with database.transaction() as connection:
        await connection.exec_driver_sql("DELETE FROM limits")
    await make_due(database, schedule)
    async with working(settings):
        (run,) = await ended(carillon, [schedule])
    assert "failed" == run["status"]
    assert f"There is no limit '{made['name']}'" in run["error"]


async def test_a_rate_starts_runs_at_its_distance(carillon: Carillon, settings: Settings, database: Database) -> None:
    """With a burst of one, the last start is as many intervals after the first as there are runs between."""
    await limit(carillon, rate="20/s", burst=1)
    schedules = [await carillon.schedule(limit="crm") for _ in range(8)]
    for schedule in schedules:
        await make_due(database, schedule)
    async with working(settings):
        await ended(carillon, schedules)
    async with database.transaction() as connection:
        rows = await connection.exec_driver_sql(
            "SELECT count(*), max(e.started_at) >= max(b.next_at) - interval '50 ms', "
            "max(b.next_at) - min(e.created_at) >= interval '400 ms' FROM workflow_executions AS e, limit_buckets AS b"
        )
        assert [(8, True, True)] == [tuple(row) for row in rows]


async def test_three_workers_keep_to_the_quota_of_an_owner(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Runs of a team wait for each other and say so; those of another owner have places of their own."""
    team = await carillon.call("POST", "/teams/", 201, json={"name": "ops"})
    released = asyncio.Event()
    sink.hold_until(released)
    flow_of_team = await carillon.workflow(http_node(sink.url), team_id=team["id"])
    of_team = [await carillon.schedule(flow_of_team, team_id=team["id"]) for _ in range(5)]
    workflow = await carillon.workflow(http_node(sink.url))
    own = [await carillon.schedule(workflow) for _ in range(3)]
    for schedule in [*of_team, *own]:
        await make_due(database, schedule)
    async with three_workers(replace(settings, lease_seconds=30, quota_runs_at_once=2)):
        await sink.wait_for_calls(4)

        async def others_wait() -> list[Json] | None:
            listed = (await carillon.call("GET", "/executions/", params={"status": "pending"}))["items"]
            return listed if len(listed) == 4 else None

        assert {"limit:quota.runs_at_once"} == {run["waiting_for"] for run in await until(others_wait)}
        assert 4 == len(sink.calls)
        released.set()
        runs = await ended(carillon, [*of_team, *own])
    assert {("success", "")} == {(run["status"], run["error"]) for run in runs}
    assert 8 == len(runs) == len(sink.calls)


async def test_those_who_wait_for_a_full_quota_too_do_not_hold_others_up(
    carillon: Carillon, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them come first: a look reads so many waiting runs at most."""
    monkeypatch.setattr(permits, "MOST_WAITING", 2)
    await limit(carillon, max_concurrent=5, public=True)
    team = await carillon.call("POST", "/teams/", 201, json={"name": "ops"})
    await carillon.call("PATCH", f"/teams/{team['id']}/", json={"quotas": {"runs_at_once": 1}})
    flow = await carillon.workflow(team_id=team["id"])
    first = [await carillon.schedule(flow, team_id=team["id"], limit="crm") for _ in range(4)]
    later = await carillon.schedule(limit="crm")
    async with engine_of(settings) as engine:
        await engine.limits.read_quotas()
        for seconds_ago, schedule in zip((9, 8, 7, 6, 1), [*first, later], strict=True):
            due = await make_due(database, schedule, seconds_ago=seconds_ago)
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        for _ in range(2):
            await engine.limits.look_at_all()
        (run,) = await carillon.runs(later)
        await engine.run_execution(UUID(run["id"]), 1)
    assert ["success"] == [run["status"] for run in await carillon.runs(later)]


async def test_a_quota_that_an_admin_sets_holds_for_the_runs_of_one_owner(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The plain tick of another owner does not wait; without the quota nothing waits any more."""
    team = await carillon.call("POST", "/teams/", 201, json={"name": "ops"})
    await carillon.call("PATCH", f"/teams/{team['id']}/", json={"quotas": {"runs_at_once": 1}})
    own = await carillon.schedule()
    of_team = await carillon.schedule(await carillon.workflow(team_id=team["id"]), team_id=team["id"])
    async with engine_of(settings) as engine:
        await engine.limits.read_quotas()
        for schedule in (own, of_team):
            due = await make_due(database, schedule)
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        statuses = [(await carillon.runs(schedule))[0]["status"] for schedule in (own, of_team)]
        assert ["success", "pending"] == statuses
        await engine.limits.look_at_all()
        (run,) = await carillon.runs(of_team)
        await engine.run_execution(UUID(run["id"]), 1)
    assert ["success"] == [run["status"] for run in await carillon.runs(of_team)]
