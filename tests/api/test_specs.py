"""Every way to say a time, as a client sees it: stored in one form, previewed, explained in plain words.

Covers app.domain.schedule_input, app.services.inputs.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import FAIL, Carillon, Json, engine_of, make_due, moment, working


async def preview(carillon: Carillon, **spec: Any) -> Json:
    """What a spec would do."""
    answer: Json = await carillon.call("POST", "/schedules/preview/", json=spec)
    return answer


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"interval_seconds": 300}, {"interval_seconds": 300, "every": "5m"}),
        ({"every": "300s"}, {"interval_seconds": 300, "every": "5m"}),
        ({"every": "0.5h"}, {"interval_seconds": 1800, "every": "30m"}),
        ({"every": "2.5s"}, {"interval_seconds": 2.5, "every": "2.5s"}),
        ({"every": "Daily"}, {"interval_seconds": 86400, "every": "1d"}),
        ({"every": "monthly"}, {"interval_seconds": None, "every": "monthly"}),
        (
            {"cron": "0 09 * * MON-FRI", "timezone": "europe/berlin"},
            {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"},
        ),
        ({"cron": "@daily"}, {"cron": "0 0 * * *"}),
        (
            {"rrule": "rrule:freq=weekly; BYDAY=TH,TU;BYMINUTE=0;BYHOUR=9"},
            {"rrule": "FREQ=WEEKLY;BYDAY=TU,TH;BYHOUR=9;BYMINUTE=0", "every": None, "interval_seconds": None},
        ),
        ({"after": "90m"}, {"after": "90m", "interval_seconds": None}),
        ({"at": "2040-01-01T01:00:00+01:00"}, {"at": "2040-01-01T00:00:00Z"}),
        (
            {"every": "5m", "only_between": "8:00-18:00", "not_on": [0, "Sat"]},
            {"only_between": "08:00-18:00", "not_on": ["saturday", "sunday"]},
        ),
    ],
)
async def test_many_spellings_one_stored_form(standing: Carillon, given: Json, stored: Json) -> None:
    """What comes back is the canonical form, and saying the same in another way changes nothing."""
    schedule = await standing.schedule(**given)
    assert stored == {name: schedule[name] for name in stored}
    again = await standing.call("PATCH", f"/schedules/{schedule['id']}/", json=given)
    if "after" not in given:
        assert schedule == again
    assert schedule["spec_description"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "interval_seconds"),
        ({"interval_seconds": 60, "cron": "* * * * *"}, "cron"),
        ({"every": "5m", "interval_seconds": 300}, "every"),
        ({"interval_seconds": 0}, "interval_seconds"),
        ({"every": "0.5s"}, "every"),
        ({"every": "soon"}, "every"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": "0 0 * * * *"}, "cron"),
        ({"cron": ",".join(map(str, range(2000))) + " * * * *"}, "cron"),
        ({"rrule": "FREQ=HOURLY"}, "rrule"),
        ({"rrule": "FREQ=DAILY;COUNT=3", "cron": "* * * * *"}, "rrule"),
        ({"rrule": "FREQ=DAILY;UNTIL=20200101T000000Z"}, "rrule"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"cron": "* * * * *", "only_between": "25:00-26:00"}, "only_between"),
        ({"cron": "* * * * *", "not_on": ["someday"]}, "not_on"),
        ({"cron": "* * * * *", "not_on": list(range(7))}, "not_on"),
        ({"cron": "0 9 * * *", "only_between": "10:00-11:00"}, "only_between"),
        ({"every": "daily", "only_between": "00:00-00:01", "start_at": "2040-01-01T12:00:00Z"}, "only_between"),
        ({"at": "2020-01-01T00:00:00Z"}, "at"),
        ({"at": "2040-01-01T00:00:00"}, "at"),
        ({"after": "later"}, "after"),
        ({"every": "5m", "jitter_seconds": -1}, "jitter_seconds"),
        ({"every": "5m", "catch_up": "maybe"}, "catch_up"),
        ({"every": "5m", "max_queued": -1}, "max_queued"),
    ],
)
async def test_a_bad_spec_is_refused_by_field(standing: Carillon, spec: Json, field: str) -> None:
    """On creation, in a batch and in the preview alike, as far as it knows the field."""
    workflow = await standing.workflow()
    body = {"name": "s", "workflow_id": workflow["id"], **spec}
    problem = await standing.call("POST", "/schedules/", 422, json=body)
    assert field in [error["field"] for error in problem["errors"]]
    good = {"name": "s", "workflow_id": workflow["id"], "every": "5m"}
    batch = await standing.call("POST", "/schedules/batch/", 422, json={"schedules": [good, body]})
    assert f"schedules[1].{field}" in [error["field"] for error in batch["errors"]]
    assert 0 == (await standing.call("GET", "/schedules/", params={"workflow_id": workflow["id"]}))["total"]


async def test_a_huge_cron_field_is_refused_by_its_size(carillon: Carillon) -> None:
    """200,000 items do not even reach the parser."""
    workflow = await carillon.workflow()
    body = {"name": "s", "workflow_id": workflow["id"], "cron": ",".join(["1"] * 200_000) + " * * * *"}
    await carillon.call("POST", "/schedules/", 413, json=body)


async def test_a_cron_schedule_is_planned_in_its_zone(carillon: Carillon) -> None:
    """09:00 in Berlin, on the next weekday, whatever the season."""
    schedule = await carillon.schedule(cron="0 9 * * 1-5", timezone="Europe/Berlin")
    planned = moment(schedule["next_run_at"])
    assert planned.hour in {7, 8}
    assert (0, 0) == (planned.minute, planned.second)
    assert planned.weekday() < 5
    assert "every weekday at 09:00 Europe/Berlin" == schedule["spec_description"]


async def test_a_new_kind_of_spec_replaces_the_old(carillon: Carillon) -> None:
    """And moves the next run at once."""
    schedule = await carillon.schedule(every="5m")
    changed = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"cron": "0 0 1 1 *"})
    assert (None, None, "0 0 1 1 *") == (changed["interval_seconds"], changed["every"], changed["cron"])
    assert changed["next_run_at"].endswith("-01-01T00:00:00Z")
    back = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"every": "1h"})
    assert (3600, None) == (back["interval_seconds"], back["cron"])
    problem = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", 422, json={"interval_seconds": None})
    assert ["interval_seconds"] == [error["field"] for error in problem["errors"]]


async def test_a_rule_fires_until_its_end_and_a_later_end_arms_it_again(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Each tick plans the next slot of the rule; after the last one the schedule is done."""
    rule = "FREQ=DAILY;BYHOUR=12;BYMINUTE=0"
    goes_on = await carillon.schedule(rrule=rule)
    assert "every day at 12:00 UTC" == goes_on["spec_description"]
    following = moment(goes_on["next_slot"])
    assert (12, 0) == (following.hour, following.minute)
    last = following - timedelta(days=1)
    ends = await carillon.schedule(rrule=f"{rule};UNTIL={following:%Y%m%d}")
    move = text(
        "UPDATE scheduled_jobs SET anchor_at = :start, next_slot = :slot, next_run_at = :slot, cadence_slot = :slot, "
        "misfire_grace_seconds = 100000, rrule = CASE WHEN id = :ends THEN :ended ELSE rrule END RETURNING generation"
    )
    values = {
        "start": last - timedelta(days=1),
        "slot": last,
        "ends": ends["id"],
        "ended": f"{rule};UNTIL={last:%Y%m%d}",
    }
    async with database.transaction() as connection:
        (generation, *_) = (await connection.execute(move, values)).scalars()
    async with engine_of(settings) as engine:
        for schedule in (goes_on, ends):
            await engine.execute_scheduled_job(UUID(schedule["id"]), generation)
    after = await carillon.get(goes_on)
    assert ("active", goes_on["next_slot"], 1) == (after["status"], after["next_slot"], after["run_count"])
    done = await carillon.get(ends)
    assert ("done", "end_reached", 1) == (done["status"], done["status_reason"], done["run_count"])
    armed = await carillon.call("PATCH", f"/schedules/{ends['id']}/", json={"rrule": rule})
    assert ("active", rule) == (armed["status"], armed["rrule"])


async def test_a_rule_is_stored_so_that_older_workers_leave_it_alone(carillon: Carillon, database: Database) -> None:
    """`every` has a value that release 0.1.0 cannot compile; a spec that an older API stores replaces the rule."""
    schedule = await carillon.schedule(rrule="FREQ=DAILY")
    path = f"/schedules/{schedule['id']}"
    async with database.transaction() as connection:
        row = (await connection.execute(text("SELECT every, rrule FROM scheduled_jobs"))).one()
        assert ("rrule", "FREQ=DAILY") == tuple(row)
        await connection.execute(text("UPDATE scheduled_jobs SET every = NULL, interval_seconds = 60"))
    shown = await carillon.get(schedule)
    assert ("1m", None) == (shown["every"], shown["rrule"])
    changed = await carillon.call("PATCH", f"{path}/", json={"rrule": "FREQ=DAILY;INTERVAL=2"})
    assert (None, "FREQ=DAILY;INTERVAL=2") == (changed["interval_seconds"], changed["rrule"])
    same = {"action": "set", "ids": [schedule["id"]], "dry_run": True}
    for rule, count in (("FREQ=DAILY;INTERVAL=2", 0), ("FREQ=DAILY;INTERVAL=3", 1)):
        body = {**same, "arguments": {"fields": {"rrule": rule}}}
        assert count == (await carillon.call("POST", "/schedules/bulk/", json=body))["would_change"]


async def test_a_changed_window_moves_the_next_run(carillon: Carillon) -> None:
    """Out of the hours that are closed now, with the phase kept."""
    schedule = await carillon.schedule(cron="0 * * * *")
    hour = moment(schedule["next_run_at"]).hour
    window = f"{(hour + 2) % 24:02}:00-{(hour + 4) % 24:02}:00"
    changed = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"only_between": window})
    assert moment(schedule["next_run_at"]) + timedelta(hours=2) == moment(changed["next_run_at"])


async def test_a_one_shot_is_exhausted_and_can_be_armed_again(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """By a future `at`; one that has passed is refused."""
    schedule = await carillon.schedule(at="2040-01-01T00:00:00Z")
    assert schedule["at"] == schedule["next_run_at"]
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    done = await carillon.get(schedule)
    assert ("done", "exhausted", None, 1) == (
        done["status"],
        done["status_reason"],
        done["next_run_at"],
        done["run_count"],
    )
    path = f"/schedules/{schedule['id']}/"
    await carillon.call("PATCH", path, 422, json={"at": "2020-01-01T00:00:00Z"})
    armed = await carillon.call("PATCH", path, json={"at": "2041-01-01T00:00:00Z"})
    assert ("active", "2041-01-01T00:00:00Z") == (armed["status"], armed["next_run_at"])


async def test_a_delay_fires_by_itself(carillon: Carillon, settings: Settings) -> None:
    """Once, so long after its creation."""
    schedule = await carillon.schedule(after="1s")

    async with working(settings):
        await carillon.until_status(schedule, "done")
    (run,) = await carillon.runs(schedule)
    assert moment(schedule["created_at"]) + timedelta(seconds=1) == moment(run["scheduled_for"])


async def test_the_preview_shows_the_next_runs_and_stores_nothing(carillon: Carillon) -> None:
    """In plain words, with what the change of the clocks does."""
    answer = await preview(
        carillon, cron="30 2 * * *", timezone="Europe/Berlin", start_at="2030-03-30T00:00:00+01:00", count=3
    )
    assert "every day at 02:30 Europe/Berlin" in answer["description"]
    assert [
        ("2030-03-30T01:30:00Z", False),
        ("2030-03-31T01:00:00Z", True),
        ("2030-04-01T00:30:00Z", False),
    ] == [(run["at"], bool(run["note"])) for run in answer["next_runs"]]
    assert "the clocks skip 02:30 on 2030-03-31: moved to 03:00" == answer["next_runs"][1]["note"]
    assert 0 == (await carillon.call("GET", "/schedules/"))["total"]


@pytest.mark.parametrize(
    ("spec", "gist"),
    [
        ({"cron": "0 9 * * *", "only_between": "10:00-11:00"}, "window"),
        ({"cron": "*/7 * * * *", "timeout_seconds": 1}, "7"),
        ({"cron": "0 0 13 * 5"}, "day of month or the day of week"),
        ({"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "02:30"),
        ({"every": "1m", "timeout_seconds": 600}, "600"),
        ({"at": "2020-01-01T00:00:00Z"}, "passed"),
    ],
)
async def test_the_preview_warns_of_traps(standing: Carillon, spec: Json, gist: str) -> None:
    """In a sentence each."""
    answer = await preview(standing, **spec)
    assert any(gist in warning for warning in answer["warnings"]), answer["warnings"]


async def test_a_plain_spec_has_no_traps(carillon: Carillon) -> None:
    """And ten runs by default."""
    answer = await preview(carillon, cron="0 9 * * 1-5")
    assert ([], 10) == (answer["warnings"], len(answer["next_runs"]))


async def test_the_preview_refuses_what_it_cannot_read(carillon: Carillon) -> None:
    """As a creation would."""
    for body in ({}, {"cron": "x"}, {"every": "5m", "count": 0}, {"every": "5m", "name": "s"}):
        await carillon.call("POST", "/schedules/preview/", 422, json=body)
    await carillon.call("POST", "/schedules/preview/", 404, json={"every": "5m", "id": str(uuid4())})
    foreign = await carillon.schedule()
    mia = await carillon.member()
    await mia.call("POST", "/schedules/preview/", 404, json={"every": "5m", "id": foreign["id"]})


@pytest.mark.parametrize("spec", [{"every": "5m"}, {"cron": "*/5 * * * *"}, {"every": "monthly"}])
async def test_the_jitter_of_a_slot_is_always_the_same(
    carillon: Carillon, settings: Settings, database: Database, spec: Json
) -> None:
    """In the preview by id, in next_run_at, and after the schedule has gone on; without an id times are nominal."""
    schedule = await carillon.schedule(**spec, jitter_seconds=120)
    runs = (await preview(carillon, **spec, jitter_seconds=120, id=schedule["id"]))["next_runs"]
    assert schedule["next_run_at"] == runs[0]["at"]
    offset = moment(schedule["next_run_at"]) - moment(schedule["next_slot"])
    assert timedelta(0) <= offset < timedelta(seconds=120)
    async with database.transaction() as connection:
        # As if the first run were due now, without moving its slot.
        await connection.execute(text("UPDATE scheduled_jobs SET next_run_at = next_slot"))
    paused = await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    assert paused["next_run_at"] is None
    nominal = await preview(carillon, cron="0 0 1 1 *", jitter_seconds=3600, count=1)
    assert nominal["next_runs"][0]["at"].endswith("-01-01T00:00:00Z")


async def test_jitter_survives_a_restart(carillon: Carillon, settings: Settings, database: Database) -> None:
    """The next slot that a worker plans is due when the preview said so."""
    schedule = await carillon.schedule(every="5m", jitter_seconds=120)
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    after = await carillon.get(schedule)
    runs = (await preview(carillon, every="5m", jitter_seconds=120, id=schedule["id"]))["next_runs"]
    assert after["next_run_at"] == runs[0]["at"]


async def test_a_spec_that_has_become_invalid_pauses_and_comes_back_by_itself(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A timezone that vanished, say; nothing else is disturbed, and nobody has to resume it."""
    schedule = await carillon.schedule(cron="0 * * * *")
    due = await make_due(database, schedule)
    await set_zone(database, "Mars/Olympus")
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    paused = await carillon.get(schedule)
    assert ("paused", "invalid_spec", None) == (paused["status"], paused["status_reason"], paused["next_run_at"])
    assert "Mars/Olympus" in paused["last_error"]
    (missed,) = await carillon.ledger(schedule)
    assert ("missed", "the spec was no longer valid") == (missed["outcome"], missed["reason"])
    path = f"/schedules/{schedule['id']}"
    await carillon.call("POST", f"{path}/resume/", 400)
    await carillon.call("GET", f"{path}/explain/")
    await carillon.call("PATCH", f"{path}/", json={"name": "still here"})
    await carillon.call("PATCH", f"{path}/", 422, json={"cron": "5 * * * *"})
    await set_zone(database, "Europe/Berlin")

    async with working(settings):
        await carillon.until_status(schedule, "active")
    back = await carillon.get(schedule)
    assert ("", "", True) == (back["status_reason"], back["last_error"], back["next_run_at"] is not None)
    assert [("paused", "carillon"), ("changed", "admin"), ("resumed", "carillon")] == [
        (item["action"], item["by"]) for item in (await carillon.history(schedule))[1:]
    ]


async def test_mending_the_spec_brings_it_back_at_once(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """By a PATCH that makes it valid again."""
    schedule = await carillon.schedule(cron="0 * * * *")
    due = await make_due(database, schedule)
    await set_zone(database, "Mars/Olympus")
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    mended = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"timezone": "UTC"})
    assert ("active", "") == (mended["status"], mended["status_reason"])


async def set_zone(database: Database, name: str) -> None:
    """Behind the API's back."""
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE scheduled_jobs SET timezone = :name"), {"name": name})


async def test_the_history_names_every_change(carillon: Carillon) -> None:
    """By whom, when, what it was and is, and the note; a change that changes nothing is none."""
    mia = await carillon.member("mia")
    schedule = await mia.schedule(every="5m")
    path = f"/schedules/{schedule['id']}"
    await mia.call("PATCH", f"{path}/", json={"every": "300s"})
    await carillon.call("PATCH", f"{path}/", json={"every": "10m", "name": "t"})
    await mia.call("POST", f"{path}/pause/", json={"note": "maintenance"})
    await carillon.call("POST", f"{path}/resume/", json={"note": "done"})
    history = await mia.history(schedule)
    assert [
        ("created", "mia", ""),
        ("changed", "admin", ""),
        ("paused", "mia", "maintenance"),
        ("resumed", "admin", "done"),
    ] == [(item["action"], item["by"], item["note"]) for item in history]
    assert {"interval_seconds": {"from": 300.0, "to": 600.0}, "name": {"from": "s", "to": "t"}} == history[1]["changes"]
    assert {"from": "active", "to": "paused"} == history[2]["changes"]["status"]
    assert sorted(item["at"] for item in history) == [item["at"] for item in history]
    other = await carillon.member("max")
    await other.call("GET", f"{path}/history/", 404)
    await other.call("GET", f"{path}/explain/", 404)


async def test_the_history_names_what_nobody_asked_for(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A schedule that finishes, or dies, by itself."""
    dying = await carillon.schedule(await carillon.workflow(FAIL), max_retries=0)
    finishing = await carillon.schedule(total_repeats=1)
    async with engine_of(settings) as engine:
        for schedule in (dying, finishing):
            due = await make_due(database, schedule)
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    died, finished = (await carillon.history(dying))[-1], (await carillon.history(finishing))[-1]
    assert ("died", "carillon", None, "Node 'work': boom") == (
        died["action"],
        died["by"],
        died["user_profile_id"],
        died["note"],
    )
    assert ("finished", "repeat_limit") == (finished["action"], finished["changes"]["status_reason"]["to"])


async def test_an_outage_of_a_day_is_one_line(carillon: Carillon, settings: Settings, database: Database) -> None:
    """86,400 slots, one item."""
    schedule = await carillon.schedule(interval_seconds=1, misfire_grace_seconds=0)
    due = await make_due(database, schedule, 86_400)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    missed = (await carillon.ledger(schedule))[0]
    assert missed["outcome"] == "missed"
    assert missed["count"] >= 86_400
    assert moment(missed["from"]) == due["slot"]
    assert missed["count"] == (moment(missed["to"]) - moment(missed["from"])) // timedelta(seconds=1) + 1
    assert datetime.now(UTC) > moment(missed["to"])


async def test_a_one_shot_that_is_paused_again_and_again_has_one_outcome(
    carillon: Carillon, settings: Settings
) -> None:
    """Nothing is missed by a pause; it fires once it may."""
    at = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    schedule = await carillon.schedule(at=at, misfire_grace_seconds=3600)
    path = f"/schedules/{schedule['id']}"
    for _ in range(2):
        await carillon.call("POST", f"{path}/pause/")
        await carillon.call("POST", f"{path}/resume/")

    async with working(settings):
        await carillon.until_status(schedule, "done")
    assert ["fired"] == [item["outcome"] for item in await carillon.ledger(schedule)]


async def test_explain_answers_for_a_spec_that_has_become_invalid(carillon: Carillon, database: Database) -> None:
    """Before anybody has noticed, too."""
    schedule = await carillon.schedule(cron="0 * * * *")
    await set_zone(database, "Mars/Olympus")
    for at in (None, "2030-01-01T00:00:00Z"):
        explanation = await carillon.explain(schedule, at)
        assert ("not_expected", ["spec"]) == (explanation["outcome"], [one["check"] for one in explanation["checks"]])
    assert await carillon.get(schedule)


@pytest.mark.parametrize("spec", [{"interval_seconds": 2**31 - 1}, {"every": "3500w"}, {"every": "monthly"}])
async def test_the_preview_of_long_intervals_ends_with_the_calendar(standing: Carillon, spec: Json) -> None:
    """However many runs are asked for."""
    runs = (await preview(standing, **spec, count=500))["next_runs"]
    assert 1 < len(runs) <= 500
