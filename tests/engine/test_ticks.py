"""One run of a schedule from claim to settle, driven by hand on real servers.

Covers app.persistence.claim, app.persistence.schedules, app.persistence.settle.
"""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from app.config import Settings
from app.domain.run_ids import execution_id
from app.domain.ticks import Tick
from app.engine.queue_port import Redeliver
from app.persistence import schedules
from app.persistence.claim import claim
from app.persistence.database import Database
from app.persistence.execution_rows import Busy
from app.queue.bell import RedisPool
from app.queue.message_format import QUEUE
from tests.support.carillon import FAIL, Carillon, Json, engine_of, http_node, make_due, moment
from tests.support.http_sink import Sink


async def fire(settings: Settings, database: Database, schedule: Json) -> datetime:
    """Make the pending tick due and deliver its message; its slot."""
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    slot: datetime = due["slot"]
    return slot


def counters(schedule: Json) -> tuple[int, int, int, int]:
    """(run_count, error_count, n, rc)."""
    return schedule["run_count"], schedule["error_count"], schedule["current_repeat"], schedule["current_retry"]


async def test_a_success(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Interval 300, n=0: run_count 1, n 1, rc 0, next_run_at = slot + 300."""
    schedule = await carillon.schedule()
    slot = await fire(settings, database, schedule)
    after = await carillon.get(schedule)
    assert (1, 0, 1, 0) == counters(after)
    assert slot + timedelta(seconds=300) == moment(after["next_run_at"])
    assert slot <= moment(after["last_run_at"])
    (run,) = await carillon.runs(schedule)
    assert ("success", 0, 0, "schedule") == (run["status"], run["retry_attempt"], run["repeat_number"], run["trigger"])
    assert slot == moment(run["scheduled_for"])
    assert [("fired", run["id"])] == [(e["outcome"], e["execution_id"]) for e in await carillon.ledger(schedule)]


async def test_the_next_tick_is_rung_after_the_commit(
    carillon: Carillon, settings: Settings, database: Database, redis: RedisPool
) -> None:
    """Under its deterministic id, with its due time as the score."""
    schedule = await carillon.schedule()
    await redis.flushall()
    slot = await fire(settings, database, schedule)
    ((name, score),) = await redis.zrange(QUEUE, 0, -1, withscores=True)
    assert f"sched-{schedule['id']}-n0-rc0-g2" == name.decode()
    assert 0 <= score / 1000 - (slot + timedelta(seconds=300)).timestamp() < 0.002


async def test_the_last_repeat_finishes_the_schedule_and_queues_nothing(
    carillon: Carillon, settings: Settings, database: Database, redis: RedisPool
) -> None:
    """Done, next null."""
    schedule = await carillon.schedule(total_repeats=1)
    await redis.flushall()
    await fire(settings, database, schedule)
    after = await carillon.get(schedule)
    assert ("done", "repeat_limit", None) == (after["status"], after["status_reason"], after["next_run_at"])
    assert 0 == await redis.zcard(QUEUE)


async def test_a_failure(carillon: Carillon, settings: Settings, database: Database) -> None:
    """error_count 1, rc 1, the same n, next = now + backoff, and last_error names the node."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL))
    await fire(settings, database, schedule)
    after = await carillon.get(schedule)
    assert (0, 1, 0, 1) == counters(after)
    assert "Node 'work': boom" == after["last_error"]
    (run,) = await carillon.runs(schedule)
    assert ("failed", "Node 'work': boom") == (run["status"], run["error"])
    wait = moment(after["next_run_at"]) - moment(run["finished_at"])
    assert timedelta(seconds=300) == wait
    assert moment(run["scheduled_for"]) == moment(after["next_slot"])


@pytest.mark.corner("retry and its slot")
async def test_retries_back_off_and_then_the_schedule_is_dead(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """300, 600, 1200, and the fourth failure with max_retries 3 is death. All attempts share slot and payload."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL), trigger_payload={"v": 1})
    waits = []
    for _ in range(3):
        await fire(settings, database, schedule)
        await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"trigger_payload": {"v": 2}})
        run = (await carillon.runs(schedule))[-1]
        after = await carillon.get(schedule)
        waits.append((moment(after["next_run_at"]) - moment(run["finished_at"])).total_seconds())
    assert [300, 600, 1200] == waits
    await fire(settings, database, schedule)
    after = await carillon.get(schedule)
    assert ("dead", "max_retries", None) == (after["status"], after["status_reason"], after["next_run_at"])
    assert (0, 4, 0, 3) == counters(after)
    assert after["dead_at"] is not None
    runs = await carillon.runs(schedule)
    assert [0, 1, 2, 3] == [run["retry_attempt"] for run in runs]
    assert [{"v": 1}] * 4 == [run["payload"] for run in runs]


async def test_a_timeout_is_a_failure(carillon: Carillon, settings: Settings, database: Database, sink: Sink) -> None:
    """The run is dropped when its time is over."""
    sink.hold_until(asyncio.Event())
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)), timeout_seconds=1)
    await fire(settings, database, schedule)
    (run,) = await carillon.runs(schedule)
    assert "timed_out" == run["status"]
    assert "timeout_seconds (1 s)" in run["error"]
    assert (0, 1, 0, 1) == counters(await carillon.get(schedule))


@pytest.mark.parametrize("what", ["paused", "deleted", "edited", "resumed"])
async def test_a_message_from_before_does_nothing(
    carillon: Carillon, settings: Settings, database: Database, what: str
) -> None:
    """Paused, deleted, edited or paused and resumed while it was queued."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    path = f"/schedules/{schedule['id']}/"
    if what == "deleted":
        await carillon.call("DELETE", path, 204)
    elif what == "edited":
        await carillon.call("PATCH", path, json={"interval_seconds": 900})
    else:
        await carillon.call("POST", f"{path}pause/")
        if what == "resumed":
            await carillon.call("POST", f"{path}resume/")
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    listed = await carillon.call("GET", "/executions/")
    assert 0 == listed["total"]


async def test_the_same_message_twice_is_one_execution(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """At once, or replayed later."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        results = await asyncio.gather(
            *(engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"]) for _ in range(5)),
            return_exceptions=True,
        )
        # Whoever met the lock is asked to come again, and then matches nothing.
        assert all(result is None or isinstance(result, Redeliver) for result in results)
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    assert 1 == len(await carillon.runs(schedule))
    assert (1, 0, 1, 0) == counters(await carillon.get(schedule))


async def test_a_message_that_is_early_is_put_back(carillon: Carillon, settings: Settings) -> None:
    """For the difference, by the database's clock."""
    schedule = await carillon.schedule()
    async with engine_of(settings) as engine:
        with pytest.raises(Redeliver):
            await engine.execute_scheduled_job(UUID(schedule["id"]), 1)
    assert [] == await carillon.runs(schedule)


async def test_a_held_row_delays_its_own_tick_and_no_other(
    carillon: Carillon, database: Database, settings: Settings
) -> None:
    """The one whose row is held comes back; the other is claimed with the same call."""
    held, free = await carillon.schedule(), await carillon.schedule()
    ticks = []
    for schedule in (held, free):
        due = await make_due(database, schedule)
        ticks.append(Tick(UUID(schedule["id"]), due["generation"]))
    async with engine_of(settings) as engine, database.transaction() as connection:
        await schedules.lock(connection, [ticks[0].job_id])
        results = await claim(database, ticks, engine._lease.worker_id)
    assert Busy() == results[0]
    assert results[1].execution is not None  # type: ignore[union-attr]


async def test_two_messages_of_one_tick_fire_it_once(
    carillon: Carillon, database: Database, settings: Settings
) -> None:
    """Also when they come at the same time."""
    schedule = await carillon.schedule()
    tick = Tick(UUID(schedule["id"]), (await make_due(database, schedule))["generation"])
    async with engine_of(settings) as engine:
        assert 1 == len(await engine.claim_directly([tick, tick]))


async def test_one_bad_tick_in_a_batch_fails_alone(carillon: Carillon, database: Database, settings: Settings) -> None:
    """A row that spoils the transaction is found by trying each alone."""
    good, bad = await carillon.schedule(), await carillon.schedule()
    ticks = []
    for schedule in (good, bad):
        due = await make_due(database, schedule)
        ticks.append(Tick(UUID(schedule["id"]), due["generation"]))
    async with database.transaction() as connection:
        # Its slot has an execution already, so that another one is refused.
        await connection.execute(
            text(
                "INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, "
                "exclusive, repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, error, "
                "finished_at, started_at) "
                "SELECT :taken, user_profile_id, id, workflow_id, 'schedule', 'success', false, 0, 0, "
                "next_slot, '{}', 1, 1, '', now(), now() FROM scheduled_jobs WHERE id = :id"
            ),
            {"id": ticks[1].job_id, "taken": execution_id(ticks[1].job_id, due["slot"], 0)},
        )
    async with engine_of(settings) as engine:
        claimed = await engine.claim_directly(ticks)
    assert [ticks[0].job_id] == [result.job.id for result in claimed]


async def test_slots_that_passed_are_missed_and_the_latest_fires(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """After an outage of ten slots, one range accounts for nine."""
    schedule = await carillon.schedule(interval_seconds=10)
    due = await make_due(database, schedule, seconds_ago=95)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    missed, fired = await carillon.ledger(schedule)
    assert ("missed", 9) == (missed["outcome"], missed["count"])
    assert due["slot"] == moment(missed["from"])
    assert due["slot"] + timedelta(seconds=80) == moment(missed["to"])
    assert ("fired", due["slot"] + timedelta(seconds=90)) == (fired["outcome"], moment(fired["slot"]))


@pytest.mark.parametrize(
    ("nodes", "schedule_fields", "words"),
    [
        ([{"id": "a", "type": "core.noop"}], {}, "No trigger_schedule node"),
        ([{"id": "t", "type": "trigger_schedule"}], {"trigger_node_id": "ghost"}, "no trigger node 'ghost'"),
        (
            [{"id": "t", "type": "trigger_schedule", "config": {"scheduled_job_id": str(UUID(int=7))}}],
            {},
            "No trigger_schedule node",
        ),
    ],
)
async def test_no_trigger_is_a_failure_with_a_clear_error(
    carillon: Carillon, settings: Settings, database: Database, nodes: list[Json], schedule_fields: Json, words: str
) -> None:
    """It counts as one, and is retried."""
    workflow = await carillon.call("POST", "/workflows/", 201, json={"name": "w", "nodes": nodes})
    schedule = await carillon.schedule(workflow, **schedule_fields)
    await fire(settings, database, schedule)
    after = await carillon.get(schedule)
    assert words in after["last_error"]
    assert (0, 1, 0, 1) == counters(after)


async def test_a_trigger_can_be_for_schedules_of_some_names(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """With the name that the schedule has when the run starts; others fail, and the error names the filter."""
    nodes = [
        {"id": "start", "type": "trigger_schedule", "config": {"name": "report-*"}},
        {"id": "work", "type": "core.noop"},
    ]
    edges = [{"from": "start", "to": "work"}]
    workflow = await carillon.call("POST", "/workflows/", 201, json={"name": "w", "nodes": nodes, "edges": edges})
    schedule = await carillon.schedule(workflow, name="report-weekly")
    await fire(settings, database, schedule)
    await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"name": "Report"})
    await fire(settings, database, schedule)
    first, second = await carillon.runs(schedule)
    assert ("success", "failed") == (first["status"], second["status"])
    reason = "No trigger_schedule node of workflow 'w' matches the schedule 'Report'"
    assert f"{reason} ({schedule['id']}). 'start' wants name 'report-*'." == second["error"]


async def test_a_workflow_that_is_switched_off_is_a_failure_with_a_clear_error(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Named by its name."""
    workflow = await carillon.workflow()
    schedule = await carillon.schedule(workflow)
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"active": False})
    await fire(settings, database, schedule)
    assert "The workflow 'w' is not active." == (await carillon.get(schedule))["last_error"]


@pytest.mark.corner("manual run")
async def test_a_manual_run_is_beside_the_cadence(carillon: Carillon, settings: Settings, database: Database) -> None:
    """No counter, no ledger entry and no tick moves; its failure neither."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL))
    execution = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    assert ("manual", "pending") == (execution["trigger"], execution["status"])
    async with engine_of(settings) as engine:
        await engine.run_execution(UUID(execution["id"]), 1)
        await engine.run_execution(UUID(execution["id"]), 1)
    after = await carillon.get(schedule)
    assert {**schedule, "updated_at": None} == {**after, "updated_at": None}
    assert [] == await carillon.ledger(schedule)
    assert ["failed"] == [run["status"] for run in await carillon.runs(schedule)]


@pytest.mark.corner("drain")
async def test_a_hand_back_spends_no_retry(carillon: Carillon, settings: Settings, database: Database) -> None:
    """The same execution, pending again under a new token; the old token can no longer end it."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        (result,) = await claim(database, [Tick(UUID(schedule["id"]), due["generation"])], engine._lease.worker_id)
        held = result.execution  # type: ignore[union-attr]
        assert held is not None
        await engine.hand_back({held.id: held.token})
        await engine.run_claimed(result)  # type: ignore[arg-type]
        assert ["pending"] == [run["status"] for run in await carillon.runs(schedule)]
        await engine.run_execution(held.id, held.token + 1)
    (run,) = await carillon.runs(schedule)
    assert ("success", 0) == (run["status"], run["retry_attempt"])
    assert (1, 0, 1, 0) == counters(await carillon.get(schedule))


@pytest.mark.parametrize("how", ["pause", "edit", "death"])
async def test_slots_that_passed_before_a_change_are_accounted_for(
    carillon: Carillon, settings: Settings, database: Database, how: str
) -> None:
    """Those that a retry held up, or that nobody had handled yet, when a person or a death moves the schedule on."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL), interval_seconds=10, max_retries=1)
    path = f"/schedules/{schedule['id']}/"
    await fire(settings, database, schedule)
    async with database.transaction() as connection:
        # The retry is still to come, and four slots have passed meanwhile.
        await connection.execute(
            text(
                "UPDATE scheduled_jobs SET cadence_slot = cadence_slot - interval '40 s', "
                "anchor_at = anchor_at - interval '40 s' WHERE id = :id"
            ),
            {"id": UUID(schedule["id"])},
        )
    if how == "pause":
        await carillon.call("POST", f"{path}pause/")
    elif how == "edit":
        await carillon.call("PATCH", path, json={"interval_seconds": 60})
    else:
        await fire(settings, database, schedule)
        assert "dead" == (await carillon.get(schedule))["status"]
    skipped = [item for item in await carillon.ledger(schedule) if item["outcome"] == "skipped_retry"]
    assert [4] == [item["count"] for item in skipped]
