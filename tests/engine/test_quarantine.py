"""What cannot be handled is put aside after the third time, is seen, and blocks nobody.

Covers app.persistence.recovery.
"""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from app.config import Settings
from app.domain.run_ids import execution_id
from app.domain.ticks import Tick
from app.persistence import recovery
from app.persistence.database import Database
from app.wiring import wire_worker
from tests.support.carillon import Carillon, Json, make_due, until, working

TAKEN_SLOT = (
    "INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive, "
    "repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, error, finished_at, started_at) "
    "SELECT CAST(:first_attempt AS uuid), user_profile_id, id, workflow_id, 'schedule', 'success', false, 0, 0, "
    "next_slot, '{}', 1, 1, '', now(), now() FROM scheduled_jobs WHERE id = :id"
)
UNREADABLE = "UPDATE scheduled_jobs SET not_on = '5' WHERE id = :id"
READABLE = "UPDATE scheduled_jobs SET not_on = '[]' WHERE id = :id"


async def spoil(database: Database, schedule: Json, statement: str) -> None:
    """Do something to its rows that no code of ours would do."""
    values = {"id": UUID(schedule["id"])}
    async with database.transaction() as connection:
        if ":first_attempt" in statement:
            slot = await connection.execute(text("SELECT next_slot FROM scheduled_jobs WHERE id = :id"), values)
            values["first_attempt"] = execution_id(values["id"], slot.scalar_one(), 0)
        await connection.execute(text(statement), values)


@pytest.mark.parametrize("statement", [TAKEN_SLOT, UNREADABLE], ids=["taken-slot", "unreadable"])
async def test_a_schedule_that_cannot_be_handled_is_paused_and_blocks_nobody(
    carillon: Carillon, settings: Settings, database: Database, statement: str
) -> None:
    """As poisoned, with the error, in its history too; the others fire, and it can be resumed."""
    bad, good = await carillon.schedule(), await carillon.schedule(interval_seconds=1)
    await make_due(database, bad)
    await spoil(database, bad, statement)

    async def put_aside() -> Any:
        async with database.transaction() as connection:
            query = text("SELECT status_reason FROM scheduled_jobs WHERE id = :id")
            reason = (await connection.execute(query, {"id": UUID(bad["id"])})).scalar_one()
        return reason == "poisoned" and len(await carillon.runs(good)) > 1

    async with working(settings):
        await until(put_aside)
        await spoil(database, bad, READABLE)
        shown = await carillon.get(bad)
        assert ("paused", "poisoned", None) == (shown["status"], shown["status_reason"], shown["next_run_at"])
        assert "could not be handled 3 times" in shown["last_error"]
        assert ["created", "paused"] == [change["action"] for change in await carillon.history(bad)]
        before = len(await carillon.runs(good))

        async def goes_on() -> bool:
            return len(await carillon.runs(good)) > before

        await until(goes_on)
        resumed = await carillon.call("POST", f"/schedules/{bad['id']}/resume/")
    assert ("active", "") == (resumed["status"], resumed["status_reason"])


async def test_the_slot_of_a_poisoned_tick_is_accounted_for(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """As missed; one that has an outcome already keeps it."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    await spoil(database, schedule, UNREADABLE)
    async with wire_worker(settings) as parts:
        await parts.runtime._lease.begin()
        for _ in range(3):
            assert [] == await parts.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
    await spoil(database, schedule, READABLE)
    (entry,) = await carillon.ledger(schedule)
    assert ("missed", "poisoned") == (entry["outcome"], entry["reason"])


async def test_a_tick_that_has_moved_on_starts_counting_anew(carillon: Carillon, database: Database) -> None:
    """Three different mishaps in a year are no poison; one of a generation that is not pending is none at all."""
    schedule = await carillon.schedule()
    job_id, counts = UUID(schedule["id"]), []
    async with database.transaction() as connection:
        for generation, asked in ((1, 1), (1, 1), (2, 2), (2, 7), (2, 2), (3, 3), (3, 2)):
            moved = text("UPDATE scheduled_jobs SET generation = :generation WHERE id = :id")
            await connection.execute(moved, {"generation": generation, "id": job_id})
            counts.append(await recovery.count_tick(connection, job_id, asked, "x"))
    assert [1, 2, 1, 0, 2, 1, 0] == counts


async def test_an_execution_that_cannot_be_ended_is_failed_and_its_schedule_paused(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Instead of being found as lost for ever."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with wire_worker(settings) as dead, wire_worker(settings) as parts:
        await dead.runtime._lease.begin()
        (claimed,) = await dead.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
        await dead.runtime._lease.release()
        await spoil(database, schedule, UNREADABLE)
        for _ in range(3):
            await parts.reconciler.run_once()
    await spoil(database, schedule, READABLE)
    assert claimed.execution is not None
    run = await carillon.call("GET", f"/executions/{claimed.execution.id}/")
    assert ("failed", True) == (run["status"], "could not be handled 3 times" in run["error"])
    shown = await carillon.get(schedule)
    assert ("paused", "poisoned") == (shown["status"], shown["status_reason"])


async def test_a_run_that_takes_three_workers_down_is_put_aside(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """With a thousand retries left; it says so, and it can be resumed."""
    schedule = await carillon.schedule(max_retries=1000, backoff_base_seconds=1)
    for _ in range(3):
        assert "active" == (await carillon.get(schedule))["status"]
        due = await make_due(database, schedule)
        async with wire_worker(settings) as dead, wire_worker(settings) as other:
            await dead.runtime._lease.begin()
            await dead.engine.claim_directly([Tick(UUID(schedule["id"]), due["generation"])])
            await dead.runtime._lease.release()
            assert 1 == (await other.reconciler.run_once()).lost
    shown = await carillon.get(schedule)
    assert ("paused", "poisoned", None) == (shown["status"], shown["status_reason"], shown["next_run_at"])
    assert "3 runs of one slot lost their worker" in shown["last_error"]
    assert ["created", "paused"] == [change["action"] for change in await carillon.history(schedule)]
    assert ["lost"] * 3 == [run["status"] for run in await carillon.runs(schedule)]
    assert "active" == (await carillon.call("POST", f"/schedules/{schedule['id']}/resume/"))["status"]
