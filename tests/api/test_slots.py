"""Slots of schedules: what became of each, which are to come, and when nothing could fire.

Covers app.services.slots, app.persistence.slots.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from app import clock
from app.config import Settings
from app.domain.access import Actor, Role
from app.domain.run_ids import execution_id
from app.persistence import slots as persisted_slots
from app.persistence.database import Connection, Database
from app.persistence.sql_batches import fetch
from app.services.slots import SlotService
from tests.support.carillon import FAIL, Carillon, Json, engine_of, make_due, moment

ADMIN = Actor(1, "admin", Role.ADMIN)


async def tick(settings: Settings, database: Database, schedule: Json, seconds_ago: float = 0) -> None:
    """Make the pending tick due, deliver it, and wait for what it started."""
    due = await make_due(database, schedule, seconds_ago)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])


async def slots(carillon: Carillon, schedule: Json, **params: str | int) -> Json:
    """Read a page of the slots of a schedule."""
    page: Json = await carillon.call("GET", f"/schedules/{schedule['id']}/slots/", params=params)
    return page


async def add_history(database: Database, schedule: Json, number: int) -> None:
    """Store runs of past slots of a schedule, one for each minute."""
    now, job_id = clock.now(), UUID(schedule["id"])
    times = [now - timedelta(minutes=minute) for minute in range(number)]
    statement = (
        "INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, "
        "exclusive, repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, error, started_at, "
        "finished_at) SELECT r.id, 1, $1, 1, 'schedule', 'success', true, 0, 0, r.slot, '{}', 600, 1, '', r.slot, "
        "r.slot FROM unnest($2::uuid[], $3::timestamptz[]) AS r(id, slot)"
    )
    async with database.transaction() as connection:
        await fetch(connection, statement, job_id, [execution_id(job_id, slot, 0) for slot in times], times)


async def test_a_slot_that_fired_says_how_late_and_how_long(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The slots to come stand before it, newest first."""
    schedule = await carillon.schedule(misfire_grace_seconds=600)
    await tick(settings, database, schedule, 2)
    (run,) = await carillon.runs(schedule)
    page = await slots(carillon, schedule, ahead=3)
    *coming, fired = page["items"]
    assert ["expected"] * 3 == [item["outcome"] for item in coming]
    times = [moment(item["slot"]) for item in page["items"]]
    assert times == sorted(times, reverse=True)
    assert ("fired", "success", 1, run["id"], "schedule", "") == tuple(
        fired[name] for name in ("outcome", "status", "attempts", "execution_id", "trigger", "reason")
    )
    late = moment(run["started_at"]) - moment(run["scheduled_for"])
    assert int(late / timedelta(milliseconds=1)) == fired["lateness_ms"]
    assert run["duration_ms"] == fired["duration_ms"]
    assert ([], None) == (page["spans"], page["next_cursor"])


async def test_the_last_attempt_has_the_last_word(carillon: Carillon, settings: Settings, database: Database) -> None:
    """A retry belongs to the slot of the first run."""
    workflow = await carillon.workflow(FAIL)
    schedule = await carillon.schedule(workflow, max_retries=5, backoff_base_seconds=1)
    await tick(settings, database, schedule)
    await tick(settings, database, schedule)
    _, retry = await carillon.runs(schedule)
    (item,) = (await slots(carillon, schedule, ahead=0))["items"]
    assert (2, "failed", retry["id"]) == (item["attempts"], item["status"], item["execution_id"])
    assert "boom" in item["reason"]


async def test_a_long_gap_is_one_item(carillon: Carillon, settings: Settings, database: Database) -> None:
    """With its first and last slot, and how many there are."""
    schedule = await carillon.schedule(interval_seconds=60)
    await tick(settings, database, schedule, 600)
    ranges = [item for item in (await slots(carillon, schedule))["items"] if "count" in item]
    assert [("missed", True)] == [(item["outcome"], item["count"] > 1) for item in ranges]
    assert ranges[0]["from"] < ranges[0]["to"] == ranges[0]["slot"]


async def test_pauses_and_the_switch_are_spans(carillon: Carillon) -> None:
    """With who caused them and why; one that lasts has no end, and nothing is expected while it does."""
    schedule = await carillon.schedule()
    path = f"/schedules/{schedule['id']}"
    await carillon.call("POST", f"{path}/pause/", json={"note": "moving house"})
    await carillon.call("POST", f"{path}/resume/")
    for enabled in (False, True):
        await carillon.call("PATCH", "/settings/", json={"schedules_enabled": enabled})
    await carillon.call("POST", f"{path}/pause/", json={"note": "again"})
    page = await slots(carillon, schedule)
    assert [] == page["items"]
    assert [("paused", "again", True), ("disabled", "", False), ("paused", "moving house", False)] == [
        (span["kind"], span["note"], span["to"] is None) for span in page["spans"]
    ]
    assert {"admin"} == {span["by"] for span in page["spans"]}
    together = await carillon.call("GET", "/slots/", params={"schedule_ids": schedule["id"]})
    assert page["spans"] == together["schedules"][schedule["id"]]["spans"]


async def test_pages_follow_each_other(carillon: Carillon, database: Database) -> None:
    """Slots to come are on the first page only."""
    schedule = await carillon.schedule()
    await add_history(database, schedule, 10)
    whole = (await slots(carillon, schedule, ahead=2))["items"]
    assert 12 == len(whole)
    paged: list[Json] = []
    cursor: dict[str, str] = {}
    while True:
        page = await slots(carillon, schedule, ahead=2, limit=4, **cursor)
        paged += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert whole == paged
    bounded = await slots(carillon, schedule, **{"from": whole[5]["slot"], "to": whole[3]["slot"]})
    assert whole[3:6] == bounded["items"]
    assert (await slots(carillon, schedule, ahead=0, limit=10))["next_cursor"] is None


async def test_the_last_repeats_bound_what_is_expected(carillon: Carillon) -> None:
    """Nothing is expected beyond ``total_repeats``."""
    schedule = await carillon.schedule(total_repeats=2)
    assert 2 == len((await slots(carillon, schedule))["items"])


async def test_many_schedules_need_few_queries(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as one schedule needs: 50 of them with 60 slots each come in one call."""
    workflow = await carillon.workflow()
    made = [await carillon.schedule(workflow, name=f"s{number}") for number in range(50)]
    for schedule in made:
        await add_history(database, schedule, 70)
    ids = ",".join(schedule["id"] for schedule in made)
    answer = await carillon.call("GET", "/slots/", params={"schedule_ids": ids, "last": 60, "ahead": 0})
    assert {60} == {len(strip["items"]) for strip in answer["schedules"].values()}
    assert 50 == len(answer["schedules"])

    counts: list[int] = []
    for number in (1, 50):
        queries = []

        async def counted(connection: Connection, sql: str, *values: object) -> list[Any]:
            queries.append(sql)  # noqa: B023 - called within the loop
            return await fetch(connection, sql, *values)

        monkeypatch.setattr(persisted_slots, "fetch", counted)
        await SlotService(database).of_schedules(ADMIN, [UUID(schedule["id"]) for schedule in made[:number]], 60, 0)
        counts.append(len(queries))
    assert counts[0] == counts[1] < 10


async def test_slots_of_others_are_not_shown(carillon: Carillon) -> None:
    """Neither one by one nor together; what does not exist is left out in the same way."""
    schedule = await carillon.schedule()
    mia = await carillon.member()
    own = await mia.schedule()
    await mia.call("GET", f"/schedules/{schedule['id']}/slots/", 404)
    ids = ",".join([schedule["id"], own["id"], str(uuid4())])
    answer = await mia.call("GET", "/slots/", params={"schedule_ids": ids})
    assert [own["id"]] == list(answer["schedules"])


async def test_a_restricted_token_reaches_its_workflows_alone(carillon: Carillon) -> None:
    """Also where schedules are named together."""
    schedule, other = await carillon.schedule(), await carillon.schedule()
    terms = {"name": "t", "restrict": {"workflow_ids": [schedule["workflow_id"]]}}
    made = await carillon.call("POST", "/tokens/", 201, json=terms)
    restricted = carillon.with_token(made["token"])
    answer = await restricted.call("GET", "/slots/", params={"schedule_ids": f"{schedule['id']},{other['id']}"})
    assert [schedule["id"]] == list(answer["schedules"])
    await restricted.call("GET", f"/schedules/{other['id']}/slots/", 404)


async def test_too_many_or_bad_ids_are_refused(carillon: Carillon) -> None:
    """By the name of the parameter."""
    for given in (",".join(str(uuid4()) for _ in range(101)), "nonsense"):
        refused = await carillon.request("GET", "/slots/", params={"schedule_ids": given})
        assert 422 == refused.status_code
        assert ["schedule_ids"] == [error["field"] for error in refused.json()["errors"]]
