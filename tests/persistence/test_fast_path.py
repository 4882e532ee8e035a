"""The fast path claims and settles what is plain, and leaves the rest to the locked path.

Covers app.persistence.execution_rows.
"""

from uuid import UUID

import msgspec
import pytest
from sqlalchemy import text

from app.config import Settings
from app.domain.executions import ExecutionStatus, Outcome
from app.domain.ticks import FROM_WORKER, Tick
from app.persistence import fast_path, schedules
from app.persistence import row_cache as memories
from app.persistence.claim import claim
from app.persistence.database import Database
from app.persistence.execution_rows import Claimed, RunResult
from app.persistence.row_cache import ScheduleCache
from tests.support.carillon import Carillon, Json, engine_of, make_due
from tests.support.domain_builders import schedule


async def due_tick(carillon: Carillon, database: Database) -> tuple[Json, Tick]:
    """A schedule, and its tick that is due."""
    made = await carillon.schedule()
    due = await make_due(database, made)
    return made, Tick(UUID(made["id"]), due["generation"])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE workflows SET max_concurrent_runs = 1",
        "INSERT INTO switches (name, is_on) VALUES ('schedules_enabled', false)",
    ],
    ids=["guarded", "switched off"],
)
async def test_what_is_not_plain_is_left_to_the_locked_path(
    carillon: Carillon, settings: Settings, database: Database, statement: str
) -> None:
    """A schedule with a guard, and all of them when they are off."""
    _, tick = await due_tick(carillon, database)
    async with database.transaction() as connection:
        await connection.execute(text(statement))
    async with engine_of(settings) as engine:
        worker_id = engine._lease.worker_id
        assert [None] == await fast_path.claim_fast(database, [tick], worker_id, FROM_WORKER, ScheduleCache())
        (result,) = await claim(database, [tick], engine._lease.worker_id)
    assert isinstance(result, Claimed)


@pytest.mark.parametrize("is_notified", [False, True])
async def test_missed_slots_that_someone_is_notified_of_are_left_to_the_locked_path(
    carillon: Carillon, settings: Settings, database: Database, *, is_notified: bool
) -> None:
    """The cache knows it from the last reading of the clock."""
    if is_notified:
        body = {"url": "https://example.com/", "events": ["slots.missed"]}
        await carillon.call("POST", "/notifications/", 201, json=body)
    _, punctual = await due_tick(carillon, database)
    late = await carillon.schedule(interval_seconds=60, misfire_grace_seconds=86_400)
    due = await make_due(database, late, 200)
    tick, cache = Tick(UUID(late["id"]), due["generation"]), ScheduleCache()
    async with engine_of(settings) as engine:
        worker_id = engine._lease.worker_id
        await fast_path.claim_fast(database, [punctual], worker_id, FROM_WORKER, cache)
        assert is_notified is cache.reports_missed
        async with database.reading() as connection:
            ((version, job),) = await schedules.many(connection, [tick.job_id])
        cache.keep(job, version)
        (found,) = await fast_path.claim_fast(database, [tick], worker_id, FROM_WORKER, cache)
    assert is_notified is (found is None)


async def test_what_was_written_since_is_read_again(carillon: Carillon, settings: Settings, database: Database) -> None:
    """What is remembered of an older version of the row is not used."""
    made, tick = await due_tick(carillon, database)
    memory = ScheduleCache()
    async with database.transaction() as connection:
        job = await schedules.get(connection, tick.job_id)
    assert job is not None
    memory.keep(msgspec.structs.replace(job, generation=99), 3)
    async with engine_of(settings) as engine:
        found = await fast_path.claim_fast(database, [tick], engine._lease.worker_id, FROM_WORKER, memory)
    assert [Claimed] == [type(answer) for answer in found]
    assert ["running"] == [run["status"] for run in await carillon.runs(made)]


async def test_a_manual_run_in_the_meantime_is_seen(carillon: Carillon, settings: Settings, database: Database) -> None:
    """It gives the row a new version, so that the fast path does not settle on the old one."""
    made, tick = await due_tick(carillon, database)
    async with engine_of(settings) as engine:
        (claimed,) = await claim(database, [tick], engine._lease.worker_id)
        assert isinstance(claimed, Claimed)
        assert claimed.version is not None
        await carillon.call("POST", f"/schedules/{made['id']}/run/", 202, json={"if_running": "queue"})
        outcome = Outcome(
            execution_id=claimed.execution.id if claimed.execution else UUID(int=0),
            scheduled_job_id=tick.job_id,
            token=1,
            status=ExecutionStatus.SUCCESS,
        )
        result = RunResult(outcome, claimed.execution, claimed.version)
        assert {} == await fast_path.settle_fast(database, [result], ScheduleCache())
        await engine._settle(result)
    assert {"pending", "success"} == {run["status"] for run in await carillon.runs(made)}


def test_the_memory_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """And keeps each in its version."""
    monkeypatch.setattr(memories, "MOST_SCHEDULES", 2)
    memory, jobs = ScheduleCache(), [msgspec.structs.replace(schedule(), id=UUID(int=number)) for number in range(3)]
    for job in jobs:
        memory.keep(job, 7)
    assert [None, (7, jobs[1]), (7, jobs[2])] == [memory.recall(job.id) for job in jobs]
