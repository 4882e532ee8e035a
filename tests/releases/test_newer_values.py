"""Values of a newer release: an older worker leaves the schedules that have them to newer workers.

The rule for values beside the rule for columns (docs/development.md): a release may add a value to an enum that is
stored. While releases are mixed, this tree is the older one.
"""

import logging
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from app.config import Settings
from app.domain.ticks import Tick
from app.persistence.database import Database
from app.wiring import wire_worker
from tests.support.carillon import FAIL, Carillon, Json, make_due, until, working

NOOP = {"id": "work", "type": "core.noop"}


async def store(database: Database, schedule: Json, column: str, value: str, *, planned: bool = False) -> None:
    """Store a value as a newer release would, after its migration; with a tick ``planned`` under a new status."""
    async with database.transaction() as connection:
        names = await connection.execute(
            text(
                "SELECT conname FROM pg_constraint WHERE conrelid = 'scheduled_jobs'::regclass AND contype = 'c' "
                "AND (conname LIKE :name OR :planned AND conname LIKE '%only_active_is_planned')"
            ),
            {"name": f"%{column}_known", "planned": planned},
        )
        for name in names.scalars().all():
            await connection.execute(text(f"ALTER TABLE scheduled_jobs DROP CONSTRAINT {name}"))
        await connection.execute(
            text(f"UPDATE scheduled_jobs SET {column} = :value WHERE id = :id"),
            {"value": value, "id": UUID(schedule["id"])},
        )


async def store_trigger(database: Database) -> None:
    """Store a trigger of a newer release in all executions."""
    async with database.transaction() as connection:
        for table in ("workflow_executions", "active_executions"):
            constraint = f"ck_{table}_trigger_known"
            await connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {constraint}"))
        await connection.execute(text("UPDATE workflow_executions SET trigger = 'from_the_future'"))


@pytest.mark.parametrize(
    ("column", "known"), [("if_running", "skip"), ("catch_up", "skip"), ("status", "active"), ("status_reason", "")]
)
async def test_a_schedule_with_an_unknown_value_is_left_to_newer_workers(
    carillon: Carillon,
    settings: Settings,
    database: Database,
    column: str,
    known: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is neither fired nor quarantined nor lost, the others go on, and it fires once its value is known."""
    quarantined_before = _quarantined()
    newer, other = await carillon.schedule(), await carillon.schedule(interval_seconds=1)
    await make_due(database, newer)
    await store(database, newer, column, "from_the_future", planned=True)
    async with working(settings):

        async def others_go_on() -> bool:
            return len(await carillon.runs(other)) > 3

        await until(others_go_on)
        shown = await carillon.get(newer)
        assert "from_the_future" == shown[column]
        if column != "status_reason":
            # No decision depends on a reason: such a schedule fires here too.
            assert [] == await carillon.runs(newer)
            assert "schedule_left_to_newer_release" in caplog.text
            assert f"{column}=from_the_future" in caplog.text
        await store(database, newer, column, known)

        async def fires() -> bool:
            return len(await carillon.runs(newer)) == 1

        await until(fires)
    assert "active" == (await carillon.get(newer))["status"]
    assert quarantined_before == _quarantined()


@pytest.mark.parametrize("column", ["if_running", "catch_up", "status"])
@pytest.mark.parametrize(("node", "status", "counted"), [(NOOP, "success", (1, 0)), (FAIL, "failed", (0, 1))])
async def test_a_run_that_began_before_the_change_is_settled(
    carillon: Carillon,
    settings: Settings,
    database: Database,
    column: str,
    node: Json,
    status: str,
    counted: tuple[int, int],
) -> None:
    """Its worker writes the outcome and keeps the value that it does not know; under a status it plans nothing."""
    schedule = await carillon.schedule(await carillon.workflow(node), total_repeats=1)
    due = await make_due(database, schedule)
    async with wire_worker(settings) as parts:
        await parts.runtime._lease.begin()
        (claimed,) = await parts.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
        await store(database, schedule, column, "from_the_future")
        await parts.engine.run_claimed(claimed)
    assert [status] == [run["status"] for run in await carillon.runs(schedule)]
    shown = await carillon.get(schedule)
    assert ("from_the_future", counted) == (shown[column], (shown["run_count"], shown["error_count"]))
    if column == "status":
        assert None is shown["next_run_at"]


async def test_a_retry_of_an_unknown_trigger_is_left_to_newer_workers(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """It runs with what its first attempt had, and that is not known here."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL), backoff_base_seconds=1)
    due = await make_due(database, schedule)
    async with wire_worker(settings) as parts:
        await parts.runtime._lease.begin()
        (claimed,) = await parts.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
        await parts.engine.run_claimed(claimed)
        await store_trigger(database)
        retry = await make_due(database, schedule)
        for _ in range(4):
            assert [] == await parts.engine.claim_directly([Tick(UUID(schedule["id"]), retry["generation"])])
    assert "active" == (await carillon.get(schedule))["status"]


async def test_a_schedule_with_an_unknown_value_can_be_explained_and_run(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Explain says that it does not know the policy; a manual run has to name one."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with wire_worker(settings) as parts:
        await parts.runtime._lease.begin()
        await parts.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
    await store(database, schedule, "if_running", "from_the_future")
    path = f"/schedules/{schedule['id']}"
    explained = await carillon.call(
        "GET", f"{path}/explain/", params={"at": (await carillon.get(schedule))["next_run_at"]}
    )
    assert "which this release does not know" in explained["checks"][-1]["detail"]
    problem = await carillon.call("POST", f"{path}/run/", 409)
    assert "Name `if_running` in the request" in problem["detail"]
    await carillon.call("POST", f"{path}/run/", 202, json={"if_running": "allow"})


async def test_a_lost_run_of_an_unknown_trigger_is_left_to_newer_workers(
    carillon: Carillon, settings: Settings, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """What its end means to its schedule is not known here."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with wire_worker(settings) as dead, wire_worker(settings) as parts:
        await dead.runtime._lease.begin()
        await dead.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
        await dead.runtime._lease.release()
        await store_trigger(database)
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                await parts.reconciler.run_once()
    assert ["running"] == [run["status"] for run in await carillon.runs(schedule)]
    assert "active" == (await carillon.get(schedule))["status"]


def _quarantined() -> float:
    return REGISTRY.get_sample_value("carillon_quarantined_total") or 0.0
