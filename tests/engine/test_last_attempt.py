"""What a schedule says of its last attempt: when, which run, and what it came to."""

from uuid import UUID

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import FAIL, Carillon, Json, engine_of, make_due, moment, until, working

WAIT = {"id": "work", "type": "core.delay", "config": {"seconds": 600}}


async def tick(settings: Settings, database: Database, schedule: Json) -> None:
    """Make the pending tick due, deliver it, and wait for what it started."""
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])


async def test_before_the_first_slot_there_is_nothing_to_say(carillon: Carillon) -> None:
    """A new schedule has none of the four."""
    schedule = await carillon.schedule()
    names = ("last_attempt_at", "last_outcome", "last_execution_id", "last_error_at")
    assert [None] * 4 == [schedule[name] for name in names]


async def test_a_success(carillon: Carillon, settings: Settings, database: Database) -> None:
    """The attempt is the start of the run."""
    schedule = await carillon.schedule()
    await tick(settings, database, schedule)
    (run,) = await carillon.runs(schedule)
    after = await carillon.get(schedule)
    assert ("success", run["id"]) == (after["last_outcome"], after["last_execution_id"])
    assert run["started_at"] == after["last_attempt_at"]


async def test_an_error_has_its_time_and_a_slot_skipped_after_it_has_the_last_word(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The error of the slot before is not the state of the schedule any more: its time says so."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL), max_retries=5)
    await tick(settings, database, schedule)
    (failed,) = await carillon.runs(schedule)
    after = await carillon.get(schedule)
    assert ("failed", failed["id"], failed["finished_at"]) == (
        after["last_outcome"],
        after["last_execution_id"],
        after["last_error_at"],
    )
    # Resuming drops the retry, so that the next tick is of the next slot; the manual run is in its way.
    await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    await carillon.call("POST", f"/schedules/{schedule['id']}/resume/")
    await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    await tick(settings, database, schedule)
    skipped = await carillon.get(schedule)
    assert ("skipped_overlap", failed["id"]) == (skipped["last_outcome"], skipped["last_execution_id"])
    assert (after["last_error"], after["last_error_at"]) == (skipped["last_error"], skipped["last_error_at"])
    assert moment(skipped["last_attempt_at"]) > moment(skipped["last_error_at"])


async def test_a_success_clears_the_error_and_its_time(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A retry that succeeds is the last run of its slot."""
    workflow = await carillon.workflow(FAIL)
    schedule = await carillon.schedule(workflow, max_retries=5, backoff_base_seconds=1)
    await tick(settings, database, schedule)
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": workflow["nodes"][:1], "edges": []})
    await tick(settings, database, schedule)
    _, retry = await carillon.runs(schedule)
    after = await carillon.get(schedule)
    assert ("success", retry["id"], "", None) == (
        after["last_outcome"],
        after["last_execution_id"],
        after["last_error"],
        after["last_error_at"],
    )


async def test_a_run_under_way_and_one_that_waits(carillon: Carillon, settings: Settings, database: Database) -> None:
    """``running`` while it is under way; the next one is ``queued``, and is not the last run before it has started."""
    schedule = await carillon.schedule(await carillon.workflow(WAIT), if_running="queue")

    async def has(outcome: str) -> Json | None:
        row = await carillon.get(schedule)
        return row if row["last_outcome"] == outcome else None

    await make_due(database, schedule)
    async with working(settings):
        running = await until(lambda: has("running"))
        (first,) = await carillon.runs(schedule)
        assert first["id"] == running["last_execution_id"]
        await make_due(database, schedule)
        assert first["id"] == (await until(lambda: has("queued")))["last_execution_id"]
        await carillon.call("POST", f"/executions/{first['id']}/cancel/")
        started = await until(lambda: has("running"))
        _, second = await carillon.runs(schedule)
        assert second["id"] == started["last_execution_id"]
        await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
        await carillon.call("POST", f"/executions/{second['id']}/cancel/")
        assert "cancelled" == (await carillon.get(schedule))["last_outcome"]


async def test_a_pause_ends_what_waits(carillon: Carillon, settings: Settings, database: Database) -> None:
    """The run that waited is cancelled with the pause, and its slot is missed."""
    schedule = await carillon.schedule(if_running="queue")
    await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    await tick(settings, database, schedule)
    assert "queued" == (await carillon.get(schedule))["last_outcome"]
    paused: Json = await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    ledger = await carillon.ledger(schedule)
    assert ("missed", "missed", None) == (
        ledger[0]["outcome"],
        paused["last_outcome"],
        paused["last_execution_id"],
    )


async def test_a_manual_run_touches_neither(carillon: Carillon, settings: Settings) -> None:
    """It has no slot."""
    schedule = await carillon.schedule()
    run: Json = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)

    async def has_ended() -> bool:
        execution: Json = await carillon.call("GET", f"/executions/{run['id']}/")
        return bool(execution["status"] == "success")

    async with working(settings):
        await until(has_ended)
    after = await carillon.get(schedule)
    assert (None, None, None) == (after["last_outcome"], after["last_attempt_at"], after["last_execution_id"])
