"""The short way of plain ticks and plain ends: it writes what the careful way would, or leaves it to that.

Covers app.persistence.execution_rows.
"""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from app.config import Settings
from app.domain.executions import ExecutionStatus, Outcome, Trigger
from app.domain.schedules import IfRunning
from app.domain.settling import EndedRun
from app.domain.settling import settle as settle_schedule
from app.domain.ticks import FROM_WORKER, Decided, Fire, Tick, decide
from app.persistence import fast_path, schedules
from app.persistence import row_cache as memories
from app.persistence.breakers import OPEN_GATE
from app.persistence.claim import claim
from app.persistence.database import Database
from app.persistence.execution_rows import Claimed
from app.persistence.row_cache import ScheduleCache
from tests.support.carillon import Carillon, Json, engine_of, make_due
from tests.support.domain_builders import after, schedule


@given(st.integers(0, 5), st.integers(0, 4000), st.integers(0, 30), st.sampled_from(IfRunning))
def test_nothing_else_of_a_schedule_changes(repeats: int, seconds: int, jitter: int, policy: IfRunning) -> None:
    """What the short way writes is all that a plain tick and a plain end change, and just so."""
    job = schedule(total_repeats=repeats, if_running=policy, jitter_seconds=jitter)
    now = after(seconds)
    decided = decide(job, Tick(job.id, job.generation), (), OPEN_GATE, now, FROM_WORKER)
    if not isinstance(decided, Decided) or not fast_path._is_plain(job, decided, FROM_WORKER):
        return
    (fire,) = decided.fires
    assert (job.current_repeat, 0, Trigger.SCHEDULE) == (fire.repeat_number, fire.attempt, fire.trigger)
    following = decided.job.next_slot
    due = decided.job.next_run_at if job.jitter_seconds else None
    assert decided.job == msgspec.structs.replace(
        job,
        generation=job.generation + 1,
        cadence_slot=following,
        next_slot=following,
        next_run_at=due or following,
        next_attempt=0,
        last_slot=fire.slot,
        last_run_at=now,
        last_fired_at=now,
    )
    settled = settle_schedule(decided.job, _ended(fire), 0, after(seconds + 1)).job
    if settled.status is decided.job.status and settled.generation == decided.job.generation:
        assert settled == msgspec.structs.replace(
            decided.job,
            current_repeat=job.current_repeat + 1,
            current_retry=0,
            run_count=job.run_count + 1,
            last_success_execution_id=fire.execution_id,
            last_success_at=after(seconds + 1),
        )


def _ended(fire: Fire) -> EndedRun:
    return EndedRun(
        execution_id=fire.execution_id,
        trigger=Trigger.SCHEDULE,
        slot=fire.slot,
        attempt=0,
        status=ExecutionStatus.SUCCESS,
    )


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
async def test_what_is_not_plain_is_left_to_the_careful_way(
    carillon: Carillon, settings: Settings, database: Database, statement: str
) -> None:
    """A schedule with a guard, and all of them when they are off."""
    _, tick = await due_tick(carillon, database)
    async with database.transaction() as connection:
        await connection.execute(text(statement))
    async with engine_of(settings) as engine:
        assert [None] == await fast_path.claim(database, [tick], engine._lease.worker_id, FROM_WORKER, ScheduleCache())
        (result,) = await claim(database, [tick], engine._lease.worker_id)
    assert isinstance(result, Claimed)


async def test_what_was_written_since_is_read_again(carillon: Carillon, settings: Settings, database: Database) -> None:
    """What is remembered of an older version of the row is not used."""
    made, tick = await due_tick(carillon, database)
    memory = ScheduleCache()
    async with database.transaction() as connection:
        job = await schedules.get(connection, tick.job_id)
    assert job is not None
    memory.keep(msgspec.structs.replace(job, generation=99), 3)
    async with engine_of(settings) as engine:
        found = await fast_path.claim(database, [tick], engine._lease.worker_id, FROM_WORKER, memory)
    assert [Claimed] == [type(answer) for answer in found]
    assert ["running"] == [run["status"] for run in await carillon.runs(made)]


async def test_a_manual_run_in_the_meantime_is_seen(carillon: Carillon, settings: Settings, database: Database) -> None:
    """It gives the row a new version, so that an end that does not know of it is not written the short way."""
    made, tick = await due_tick(carillon, database)
    async with engine_of(settings) as engine:
        (claimed,) = await claim(database, [tick], engine._lease.worker_id)
        assert isinstance(claimed, Claimed)
        assert claimed.known is not None
        await carillon.call("POST", f"/schedules/{made['id']}/run/", 202, json={"if_running": "queue"})
        outcome = Outcome(
            execution_id=claimed.execution.id if claimed.execution else UUID(int=0),
            scheduled_job_id=tick.job_id,
            token=1,
            status=ExecutionStatus.SUCCESS,
        )
        ending = fast_path.RunResult(outcome, claimed.execution, claimed.known)
        assert {} == await fast_path.settle(database, [ending], ScheduleCache())
        await engine._settle(ending)
    assert {"pending", "success"} == {run["status"] for run in await carillon.runs(made)}


def test_the_memory_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """And keeps each in its version."""
    monkeypatch.setattr(memories, "MOST_REMEMBERED", 2)
    memory, jobs = ScheduleCache(), [msgspec.structs.replace(schedule(), id=UUID(int=number)) for number in range(3)]
    for job in jobs:
        memory.keep(job, 7)
    assert [None, (7, jobs[1]), (7, jobs[2])] == [memory.recall(job.id) for job in jobs]
