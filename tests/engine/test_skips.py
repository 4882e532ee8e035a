"""Slots that are left out, from the request to the ledger.

Covers app.services.skips, app.persistence.skips, app.api.interventions.
"""

from uuid import UUID

from app.config import Settings
from app.persistence.database import Database
from app.persistence.sql_batches import fetch
from tests.support.carillon import Carillon, Json, engine_of, make_due


async def skip(carillon: Carillon, schedule: Json, body: Json, expected: int = 200) -> Json:
    """Ask to leave out slots."""
    answer: Json = await carillon.call("POST", f"/schedules/{schedule['id']}/skip/", expected, json=body)
    return answer


async def shown(carillon: Carillon, schedule: Json) -> list[tuple[str, str]]:
    """Return the next three slots, earliest first, and what is shown of them."""
    page = await carillon.call("GET", f"/schedules/{schedule['id']}/slots/", params={"ahead": 3})
    return [(item["slot"], item["outcome"]) for item in reversed(page["items"][:3])]


async def test_a_skipped_slot_is_accounted_for_and_the_next_one_fires(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """By the locked path; then the schedule is plain again, and nothing of the skip is left."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    await skip(carillon, schedule, {"next": 1, "note": "deploy"})
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        due = await make_due(database, schedule)
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    first, second = await carillon.ledger(schedule)
    assert (["skipped_request", "fired"], True) == (
        [first["outcome"], second["outcome"]],
        first["reason"].startswith("admin asked for it at ") and first["reason"].endswith(" (deploy)"),
    )
    explained = await carillon.explain(schedule, first["slot"])
    assert ("skipped_request", "skip") == (explained["outcome"], explained["checks"][-1]["check"])
    async with database.transaction() as connection:
        (left,) = await fetch(connection, "SELECT has_skips, (SELECT count(*) FROM slot_skips) FROM scheduled_jobs")
    assert (False, 0) == tuple(left)


async def test_what_is_skipped_is_shown_and_can_be_taken_back(standing: Carillon) -> None:
    """In the slots to come, in explanations and in the audit log; a repeated request changes nothing."""
    schedule = await standing.schedule()
    (first, _), (second, _), (third, _) = await shown(standing, schedule)
    assert {"skipped": [second, third]} == await skip(standing, schedule, {"slots": [third, second], "note": "why"})
    assert {"skipped": [second]} == await skip(standing, schedule, {"from": second, "to": second})
    assert [(first, "expected"), (second, "skipped_request"), (third, "skipped_request")] == await shown(
        standing, schedule
    )
    upcoming = await standing.call("GET", f"/schedules/{schedule['id']}/upcoming/", params={"limit": 2})
    assert (first, True) == (upcoming["items"][0]["slot"], upcoming["items"][1]["slot"] > third)
    assert "will not fire (skipped_request)" in (await standing.explain(schedule, second))["sentence"]
    await standing.call("DELETE", f"/schedules/{schedule['id']}/skip/", 204, params={"from": third})
    assert [(first, "expected"), (second, "skipped_request"), (third, "expected")] == await shown(standing, schedule)
    await standing.call("DELETE", f"/schedules/{schedule['id']}/skip/", 204)
    assert ["expected"] * 3 == [outcome for _, outcome in await shown(standing, schedule)]
    events = (await standing.call("GET", "/audit/", params={"object_id": schedule["id"]}))["items"]
    assert [("schedule_skips_removed", 1), ("schedule_skips_removed", 1), ("schedule_slots_skipped", 1)] == [
        (event["action"], event["details"]["count"]) for event in events[:3]
    ]


async def test_requests_that_name_no_slots_to_come_are_refused(standing: Carillon) -> None:
    """By the field; a stale tag is refused too."""
    schedule = await standing.schedule()
    fields: dict[str, Json] = {
        "": {"next": 1, "slots": [schedule["next_slot"]]},
        "slots[0]": {"slots": ["2030-01-01T00:00:01Z"]},
    }
    fields |= {"to": {"from": "2030-01-01T00:00:00Z"}, "next": {"next": 1001}}
    for field, body in fields.items():
        refused = await skip(standing, schedule, body, 422)
        assert [field] == [error["field"] for error in refused["errors"]], body
    stale = await standing.request(
        "POST", f"/schedules/{schedule['id']}/skip/", json={"next": 1}, headers={"If-Match": '"stale"'}
    )
    assert 412 == stale.status_code
