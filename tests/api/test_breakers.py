"""``/api/v1/breakers`` and ``carillon breaker``.

Covers app.persistence.breakers.
"""

import asyncio
from pathlib import Path
from uuid import UUID

from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import FAIL, Carillon, Json, engine_of, make_due, until
from tests.support.command_line import command_line


async def opened(carillon: Carillon, settings: Settings, database: Database) -> Json:
    """A workflow whose breaker has opened."""
    workflow = await carillon.workflow(FAIL, name="fragile", breaker_threshold=1, breaker_reset_seconds=3600)
    schedule = await carillon.schedule(workflow)
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    return workflow


async def test_a_breaker_can_be_looked_at_and_reset(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Its state, what led to it, and who closed it."""
    workflow = await opened(carillon, settings, database)
    breaker = await carillon.breaker(workflow)
    assert ("open", 1, workflow["id"]) == (breaker["state"], breaker["failure_count"], breaker["workflow_id"])
    assert breaker["opened_at"] < breaker["half_opens_at"]
    (listed,) = (await carillon.call("GET", "/breakers/"))["items"]
    assert {name: value for name, value in breaker.items() if name != "transitions"} == listed
    closed = await carillon.call("POST", f"/breakers/{workflow['id']}/reset/")
    assert ("closed", 0, None) == (closed["state"], closed["failure_count"], closed["opened_at"])
    assert "reset by admin" == closed["transitions"][0]["reason"]
    again = await carillon.call("POST", f"/breakers/{workflow['id']}/reset/")
    assert 2 == len(again["transitions"])


async def test_a_workflow_without_a_breaker_has_a_closed_one(carillon: Carillon) -> None:
    """It is not listed; resetting it changes nothing."""
    workflow = await carillon.workflow()
    breaker = await carillon.breaker(workflow)
    assert ("closed", []) == (breaker["state"], breaker["transitions"])
    assert "closed" == (await carillon.call("POST", f"/breakers/{workflow['id']}/reset/"))["state"]
    assert [] == (await carillon.call("GET", "/breakers/"))["items"]


async def test_the_breakers_of_others_are_not_there(carillon: Carillon, settings: Settings, database: Database) -> None:
    """404, and not in the list."""
    workflow = await opened(carillon, settings, database)
    mia = await carillon.member()
    assert [] == (await mia.call("GET", "/breakers/"))["items"]
    await mia.call("GET", f"/breakers/{workflow['id']}/", 404)
    await mia.call("POST", f"/breakers/{workflow['id']}/reset/", 404)
    await carillon.call("GET", "/breakers/999999/", 404)


async def test_a_probe_that_is_deleted_with_its_schedule_releases_the_breaker(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The next slot of another schedule tries."""
    wait = {"id": "work", "type": "core.delay", "config": {"seconds": 600}}
    workflow = await opened(carillon, settings, database)
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"breaker_reset_seconds": 1})
    nodes = [{"id": "start", "type": "trigger_schedule"}, wait]
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes})
    probing, other = await carillon.schedule(workflow), await carillon.schedule(workflow)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE circuit_breakers SET opened_at = opened_at - interval '1 hour'"))
    async with engine_of(settings) as engine:
        due = await make_due(database, probing)
        run = asyncio.create_task(engine.execute_scheduled_job(UUID(probing["id"]), due["generation"]))
        await until(lambda: is_half_open(carillon, workflow))
        await carillon.call("DELETE", f"/schedules/{probing['id']}/", 204)
        await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes[:1], "edges": []})
        due = await make_due(database, other)
        await engine.execute_scheduled_job(UUID(other["id"]), due["generation"])
        run.cancel()
        await asyncio.wait({run})
    assert "closed" == (await carillon.breaker(workflow))["state"]


async def is_half_open(carillon: Carillon, workflow: Json) -> bool:
    """Whether a run is let through to try."""
    return bool((await carillon.breaker(workflow))["state"] == "half_open")


async def test_an_operator_looks_at_a_breaker_and_resets_it(
    carillon: Carillon, settings: Settings, database: Database, tmp_path: Path
) -> None:
    """By id or by name, for people or as JSON."""
    cli = command_line(carillon, tmp_path)
    workflow = await opened(carillon, settings, database)
    shown = await cli("breaker", "fragile")
    assert (0, True) == (shown.code, f"Workflow {workflow['id']} (fragile): breaker open" in shown.out)
    assert "1 consecutive failures, the last: Node 'work': boom" in shown.out
    as_json = await cli("breaker", "get", str(workflow["id"]), "--json", "--limit", "1")
    assert await carillon.breaker(workflow) == as_json.json()
    assert str(workflow["id"]) in (await cli("breaker", "list")).out
    reset = await cli("breaker", "reset", "fragile")
    assert "breaker closed, 0 of 1 consecutive failures" in reset.out
    assert "closed" == (await carillon.breaker(workflow))["state"]
    unknown = await cli("breaker", "nobody")
    assert (3, True) == (unknown.code, unknown.err.startswith("carillon: There is no workflow 'nobody'."))
