"""Pauses that end by themselves: who resumes, what became of the slots, and what is shown meanwhile.

Covers app.engine.recovery, app.engine.schedule_changes.
"""

from datetime import timedelta
from uuid import UUID

from app import clock
from app.config import Settings
from app.domain.trigger_event import rfc3339
from app.persistence.database import Database
from app.persistence.sql_batches import fetch
from app.queue.bell import RedisPool
from app.wiring import wire_worker
from tests.support.carillon import Carillon, Json, moment, working

HOUR = timedelta(hours=1)


async def pause(carillon: Carillon, schedule: Json, expected: int = 200, **body: str) -> Json:
    """Pause a schedule."""
    answer: Json = await carillon.call("POST", f"/schedules/{schedule['id']}/pause/", expected, json=body)
    return answer


async def test_a_pause_ends_at_its_time_with_an_empty_redis(
    carillon: Carillon, settings: Settings, redis: RedisPool
) -> None:
    """A worker resumes it: by the audit log the engine did, and slots are counted from the end of the pause."""
    schedule = await carillon.schedule(interval_seconds=300)
    end = clock.now() + timedelta(seconds=1)
    paused = await pause(carillon, schedule, until=rfc3339(end), note="deploy")
    assert ("paused", rfc3339(end), None) == (paused["status"], paused["paused_until"], paused["next_run_at"])
    await redis.flushdb()
    async with working(settings):
        back = await carillon.until_status(schedule, "active")
    assert (None, end + timedelta(seconds=300)) == (back["paused_until"], moment(back["next_slot"]))
    last = (await carillon.history(schedule))[-1]
    assert ("resumed", "carillon", rfc3339(end)) == (last["action"], last["by"], last["at"])
    events = (await carillon.call("GET", "/audit/", params={"object_id": schedule["id"]}))["items"]
    assert ("schedule_resumed", "engine") == (events[0]["action"], events[0]["via"])
    slots = await carillon.call("GET", f"/schedules/{schedule['id']}/slots/")
    assert [("paused", rfc3339(end), "deploy")] == [(span["kind"], span["to"], span["note"]) for span in slots["spans"]]


async def test_slots_after_the_pause_are_caught_up_and_those_inside_it_are_not(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """No worker was there for an hour after the end: of that hour each slot has an outcome, of the pause none."""
    schedule = await carillon.schedule(interval_seconds=600, catch_up="run_all", misfire_grace_seconds=0)
    await pause(carillon, schedule, until=rfc3339(clock.now() + HOUR))
    async with database.transaction() as connection:
        shift = (
            "UPDATE scheduled_jobs SET paused_until = paused_until - interval '2 h 5 min', "
            "updated_at = updated_at - interval '1 day' WHERE id = $1 RETURNING paused_until"
        )
        (row,) = await fetch(connection, shift, UUID(schedule["id"]))
    async with wire_worker(settings) as parts:
        await parts.runtime._lease.begin()
        assert 0.0 == await parts.runtime._reconciler.end_pauses()
        back = await carillon.get(schedule)
        await parts.engine.execute_scheduled_job(UUID(schedule["id"]), await generation(database, schedule))
    expected = [row["paused_until"] + timedelta(seconds=600 * k) for k in range(1, 7)]
    assert expected[0] == moment(back["next_slot"])
    assert expected == [moment(item["slot"]) for item in await carillon.ledger(schedule)]
    assert {"catch_up"} == {run["trigger"] for run in await carillon.runs(schedule)}


async def generation(database: Database, schedule: Json) -> int:
    """Return the generation of a schedule's pending tick."""
    async with database.transaction() as connection:
        (row,) = await fetch(connection, "SELECT generation FROM scheduled_jobs WHERE id = $1", UUID(schedule["id"]))
    number: int = row["generation"]
    return number


async def test_what_is_shown_while_the_pause_lasts(standing: Carillon) -> None:
    """The end of the span, the slots after it, and for each moment whether it lies inside."""
    schedule = await standing.schedule(cron="0 * * * *")
    end = (clock.now() + 3 * HOUR).replace(minute=0, second=0, microsecond=0)
    before = await standing.request("GET", f"/schedules/{schedule['id']}/")
    await pause(standing, schedule, until=rfc3339(end))
    shown = await standing.request("GET", f"/schedules/{schedule['id']}/")
    assert ("paused", True) == (shown.json()["health"], before.headers["etag"] != shown.headers["etag"])
    slots = await standing.call("GET", f"/schedules/{schedule['id']}/slots/", params={"ahead": 2})
    assert [rfc3339(end + HOUR), rfc3339(end)] == [item["slot"] for item in slots["items"]]
    assert [rfc3339(end)] == [span["to"] for span in slots["spans"]]
    inside = await standing.explain(schedule, rfc3339(end - HOUR))
    assert ("not_expected", True) == (inside["outcome"], f"until {rfc3339(end)}" in inside["sentence"])
    assert "expected" == (await standing.explain(schedule, rfc3339(end)))["outcome"]


async def test_a_pause_can_be_moved_made_indefinite_and_ended(standing: Carillon) -> None:
    """By pausing again and by resuming; a time in the past is refused, and a lasting pause without end stays."""
    schedule = await standing.schedule()
    first, second = (rfc3339(clock.now() + hours * HOUR) for hours in (1, 2))
    refused = await pause(standing, schedule, 422, until="2020-01-01T00:00:00Z")
    assert ["until"] == [error["field"] for error in refused["errors"]]
    assert first == (await pause(standing, schedule, until=first))["paused_until"]
    assert second == (await pause(standing, schedule, until=second))["paused_until"]
    lasting = await pause(standing, schedule)
    assert ("paused", None) == (lasting["status"], lasting["paused_until"])
    await pause(standing, schedule, 400)
    assert first == (await pause(standing, schedule, until=first))["paused_until"]
    back = await standing.call("POST", f"/schedules/{schedule['id']}/resume/")
    assert ("active", None) == (back["status"], back["paused_until"])
    assert [{"status", "status_reason", "paused_until"}, {"paused_until"}] == [
        set(revision["changes"]) for revision in (await standing.history(schedule))[1:3]
    ]
