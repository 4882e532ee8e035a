"""The history of a deleted schedule: out of sight at once, and deleted a part at a time."""

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.config import Settings
from app.engine.housekeeping import Housekeeper
from app.persistence import retention
from app.persistence.database import Database
from tests.persistence.past import give_past
from tests.support.carillon import Carillon, Json, engine_of, make_due, until, working

RUNS = 30
TABLES = ("workflow_executions", "ledger_entries", "schedule_revisions")


async def left(database: Database, schedule: Json) -> dict[str, int]:
    """How many rows of a schedule's history there still are."""
    found = {}
    async with database.transaction() as connection:
        for table in TABLES:
            query = text(f"SELECT count(*) FROM {table} WHERE scheduled_job_id = :id")
            found[table] = (await connection.execute(query, {"id": UUID(schedule["id"])})).scalar_one()
    return found


async def with_past(carillon: Carillon, database: Database) -> tuple[Json, Json]:
    """A schedule with a past, and one of its runs."""
    schedule = await carillon.schedule()
    await give_past(database, schedule, RUNS)
    return schedule, (await carillon.runs(schedule))[0]


async def by_the_api(carillon: Carillon, schedule: Json, _database: Database) -> None:
    """As a client deletes it."""
    await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 204)


async def with_its_workflow(carillon: Carillon, schedule: Json, _database: Database) -> None:
    """It goes with what it runs."""
    await carillon.call("DELETE", f"/workflows/{schedule['workflow_id']}/", 204)


async def with_its_owner(_carillon: Carillon, schedule: Json, database: Database) -> None:
    """It goes with the user, by the statement alone; old code deletes schedules by statements too."""
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM user_profiles WHERE id = :id"), {"id": schedule["user_profile_id"]})


@pytest.mark.parametrize("delete", [by_the_api, with_its_workflow, with_its_owner])
async def test_the_past_of_a_deleted_schedule_is_seen_by_nobody(
    carillon: Carillon, database: Database, delete: Any
) -> None:
    """Neither by an admin nor by its owner, while its rows are still there."""
    member = await carillon.member()
    schedule, run = await with_past(member, database)
    await delete(member, schedule, database)
    assert RUNS == (await left(database, schedule))["workflow_executions"]
    viewers = [carillon] if delete is with_its_owner else [carillon, member]
    for viewer in viewers:
        await viewer.call("GET", f"/executions/{run['id']}/", 404)
        await viewer.call("POST", f"/executions/{run['id']}/cancel/", 404)
        for params in (
            {},
            {"scheduled_job_id": schedule["id"]},
            {"workflow_id": schedule["workflow_id"]},
            {"status": "success"},
        ):
            answer = await viewer.call("GET", "/executions/", params=params)
            assert ([], 0) == (answer["items"], answer["total"])


@pytest.mark.parametrize("delete", [by_the_api, with_its_workflow, with_its_owner])
async def test_it_is_deleted_a_part_at_a_time(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch, delete: Any
) -> None:
    """Each part is a transaction of its own: whoever dies between two leaves the rest to the next."""
    monkeypatch.setattr(retention, "MOST_ROWS", 7)
    member = await carillon.member()
    schedule, _ = await with_past(member, database)
    kept, _ = await with_past(carillon, database)
    await delete(member, schedule, database)
    rows = [sum((await left(database, schedule)).values())]
    with capture_logs() as events:
        while rows[-1]:
            await Housekeeper(database, 0).step()
            rows.append(sum((await left(database, schedule)).values()))
        await Housekeeper(database, 0).step()
    assert {7} == {before - after for before, after in pairwise(rows[:-1])}
    assert 1 == [event["event"] for event in events].count("histories_deleted")
    assert {"workflow_executions": RUNS, "ledger_entries": RUNS, "schedule_revisions": 1} == await left(database, kept)
    async with database.transaction() as connection:
        assert 0 == (await connection.execute(text("SELECT count(*) FROM deleted_histories"))).scalar_one()


async def test_a_worker_deletes_it(carillon: Carillon, settings: Settings, database: Database) -> None:
    """By itself, in the background."""
    schedule, _ = await with_past(carillon, database)
    await by_the_api(carillon, schedule, database)

    async def gone() -> bool:
        return not any((await left(database, schedule)).values())

    async with working(settings):
        assert await until(gone)


async def test_what_is_under_way_goes_at_once(carillon: Carillon, settings: Settings, database: Database) -> None:
    """So that a late end finds nothing to end, and a worker that is told of it nothing to start."""
    schedule = await carillon.schedule()
    run = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    await by_the_api(carillon, schedule, database)
    assert 0 == (await left(database, schedule))["workflow_executions"]
    async with engine_of(settings) as engine:
        await engine.run_execution(UUID(run["id"]), 1)
    async with database.transaction() as connection:
        assert 0 == (await connection.execute(text("SELECT count(*) FROM active_executions"))).scalar_one()


async def test_counters_of_others_stay(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Deleting a history is no business of any other schedule."""
    workflow = await carillon.workflow()
    other, schedule = await carillon.schedule(workflow), await carillon.schedule(workflow)
    due = await make_due(database, other)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(other["id"]), due["generation"])
    before = await carillon.get(other)
    await give_past(database, schedule, RUNS)
    await by_the_api(carillon, schedule, database)
    await Housekeeper(database, 0).step()
    assert before == await carillon.get(other)
    assert 1 == len(await carillon.runs(other))


async def test_schedules_that_are_done_are_deleted_after_their_time(carillon: Carillon, database: Database) -> None:
    """By their own time or by the default; 0 keeps them, a run under way does too. The audit log names the engine."""
    workflow = await carillon.workflow()
    times = {"own": 60, "kept": 0, "default": None, "young": 7200, "running": 60}
    made = {
        name: await carillon.schedule(workflow, name=name, delete_after_seconds=seconds)
        for name, seconds in times.items()
    }
    await carillon.call("POST", f"/schedules/{made['running']['id']}/run/", 202)
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE scheduled_jobs SET status = 'done', next_slot = NULL, next_run_at = NULL, cadence_slot = NULL, "
                "updated_at = now() - interval '1 hour'"
            )
        )
    await Housekeeper(database, 0).delete_expired()
    listed = await carillon.call("GET", "/schedules/")
    assert {"kept", "default", "young", "running"} == {item["name"] for item in listed["items"]}
    (event,) = (await carillon.call("GET", "/audit/", params={"action": "schedule_deleted"}))["items"]
    assert ("engine", made["own"]["id"]) == (event["via"], event["object_id"])
    await Housekeeper(database, 0, delete_after_seconds=600).delete_expired()
    listed = await carillon.call("GET", "/schedules/")
    assert {"kept", "young", "running"} == {item["name"] for item in listed["items"]}
