"""Rows whose spec can no longer be read: every question about them is answered, and none with a 500."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import text

from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, moment

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
SOUND = "a spec that is valid"
# Each breaks the stored spec in its own way; the kinds that are left out stay NULL.
BROKEN: dict[str, Json] = {
    "a zone that was removed": {"cron": "0 9 * * *", "timezone": "Mars/Base"},
    "a zone that was removed, for an interval": {"interval_seconds": 300.0, "timezone": "Mars/Base"},
    "no zone": {"interval_seconds": 300.0, "timezone": ""},
    "a cron expression that is not one": {"cron": "61 * * * *"},
    "a cron expression without fields": {"cron": ""},
    "a date that never comes": {"cron": "0 0 30 2 *"},
    "a word of a newer release": {"every": "fortnightly"},
    "a window without an end": {"interval_seconds": 300.0, "only_between": "08:00-"},
    "a window that is not one": {"cron": "0 9 * * *", "only_between": "morning"},
    "a day that is not one": {"interval_seconds": 300.0, "not_on": ["funday"]},
    "all days excluded": {"cron": "0 9 * * *", "not_on": DAYS},
    "a day that is a number": {"interval_seconds": 300.0, "not_on": [99]},
    "a start that never comes": {"interval_seconds": 300.0, "start_at": "infinity"},
    "an end before everything": {"interval_seconds": 300.0, "end_at": "-infinity"},
    "a delay that is not one": {"after": "soon"},
    "an interval that is not a number": {"interval_seconds": float("nan")},
    "an interval without end": {"interval_seconds": float("inf")},
    SOUND: {"interval_seconds": 300.0},
}
KINDS = ("interval_seconds", "every", "cron", "rrule", "at", "after")
VALID: Json = {"timezone": "UTC", "only_between": None, "not_on": [], "start_at": None, "end_at": None}

_BREAK_ROW = text(
    "UPDATE scheduled_jobs SET interval_seconds = :interval_seconds, every = :every, cron = :cron, at = NULL, "
    "after = :after, timezone = :timezone, only_between = :only_between, not_on = CAST(:not_on AS jsonb), "
    "start_at = CAST(CAST(:start_at AS text) AS timestamptz), end_at = CAST(CAST(:end_at AS text) AS timestamptz) "
    "WHERE id = :id"
)
_BREAK_SNAPSHOT = text(
    "UPDATE schedule_revisions SET snapshot = snapshot || CAST(:values AS jsonb) WHERE scheduled_job_id = :id"
)
_SKIP_A_RANGE = text(
    "INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason) "
    "VALUES (:id, :first, :last, 4, 'missed', 'later than misfire_grace_seconds')"
)


def whole(values: Json) -> Json:
    """Return all fields of a spec."""
    return {**dict.fromkeys(KINDS), **VALID, **values}


async def answers(carillon: Carillon, schedule: Json, slot: datetime) -> dict[str, Any]:
    """Ask for a schedule and for explanations of it; return the explanations."""
    path = f"/schedules/{schedule['id']}"
    await carillon.call("GET", f"{path}/")
    moments = {name: slot + timedelta(seconds=away) for name, away in {"at": 0, "off": 650}.items()}
    queries = {"": "", **{name: f"?at={moment:%Y-%m-%dT%H:%M:%S}Z" for name, moment in moments.items()}}
    return {name: await carillon.call("GET", f"{path}/explain/{query}") for name, query in queries.items()}


async def test_every_question_about_a_broken_spec_is_answered(carillon: Carillon, database: Database) -> None:
    """The row is broken, or the revision in force, or both; with and without entries in the ledger."""
    workflow = await carillon.workflow()
    cases = [
        (row, snapshot, recorded)
        for one in BROKEN
        for row, snapshot, recorded in ((one, one, True), (one, one, False), (one, SOUND, True), (SOUND, one, True))
    ]
    body = [{"name": "s", "workflow_id": workflow["id"], "interval_seconds": 300}] * len(cases)
    made = (await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": body}))["items"]
    slot = moment(made[0]["next_slot"]).replace(microsecond=0)
    async with database.transaction() as connection:
        for schedule, (row, snapshot, recorded) in zip(made, cases, strict=True):
            await break_row(connection, schedule, whole(BROKEN[row]))
            stored = msgspec.json.encode(whole(BROKEN[snapshot])).decode()
            await connection.execute(_BREAK_SNAPSHOT, {"id": schedule["id"], "values": stored})
            if recorded:
                span = {"first": slot, "last": slot + timedelta(seconds=1200)}
                await connection.execute(_SKIP_A_RANGE, {"id": schedule["id"], **span})
    await carillon.call("GET", "/schedules/?limit=500")
    for schedule, (*_, recorded) in zip(made, cases, strict=True):
        explained = await answers(carillon, schedule, slot)
        assert all(told["sentence"].endswith(".") for told in explained.values())
        if recorded:
            assert "missed" == explained["at"]["outcome"]
    # One of each kind is asked the rest.
    for schedule in made[:: len(cases) // len(BROKEN)]:
        await carillon.call("POST", "/schedules/preview/", json={"cron": "0 9 * * *", "id": schedule["id"]})
        for question in ("ledger", "history", "runs"):
            await carillon.call("GET", f"/schedules/{schedule['id']}/{question}/")
        for verb in ("pause", "resume"):
            answer = await carillon.request("POST", f"/schedules/{schedule['id']}/{verb}/")
            assert answer.status_code in {200, 400}, answer.text


async def break_row(connection: Any, schedule: Json, values: Json) -> None:
    """Store a spec that the API would refuse."""
    not_on = msgspec.json.encode(values["not_on"]).decode()
    texts = {name: values[name] for name in ("start_at", "end_at")}
    await connection.execute(_BREAK_ROW, {**values, "not_on": not_on, **texts, "id": schedule["id"]})
