"""Calendars as clients see them: owned, shared and public ones, and schedules that leave slots out by them.

Covers app.api.calendars, app.services.calendars, app.services.views.calendars, app.persistence.calendars,
app.persistence.tables.calendars, app.engine.calendar_replans.
"""

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from app.config import Settings
from app.domain.trigger_event import rfc3339
from app.engine import calendar_replans
from app.engine.calendar_replans import CalendarReplanner
from app.engine.ringing import Ringer
from app.persistence import calendars
from app.persistence.database import Database, database_now
from app.queue.bell import Bell, RedisPool
from tests.api.test_teams import join, team_of
from tests.support.carillon import Carillon, Json, engine_of, make_due, moment

NOON = "0 12 * * *"
DAY = timedelta(days=1)
ICS = (
    "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:{day:%Y%m%d}\nSUMMARY:Company outing\nEND:VEVENT\nEND:VCALENDAR"
)


async def calendar(client: Carillon, name: str, *days: datetime | str, **values: object) -> Json:
    """Create a calendar with these days."""
    dates = [day if isinstance(day, str) else f"{day:%Y-%m-%d}" for day in days]
    made: Json = await client.call("POST", "/calendars/", 201, json={"name": name, "dates": dates, **values})
    return made


async def first_slot(client: Carillon) -> datetime:
    """Return the next noon."""
    runs = await client.call("POST", "/schedules/preview/", json={"cron": NOON, "count": 1})
    return moment(runs["next_runs"][0]["at"])


async def test_a_calendar_is_created_read_changed_and_deleted(carillon: Carillon) -> None:
    """Dates are stored in one order, each once; a stale version is refused."""
    made = await calendar(carillon, "company", "2026-12-25", "--05-01", "2026-12-25", timezone="europe/berlin")
    assert ("Europe/Berlin", ["--05-01", "2026-12-25"]) == (made["timezone"], made["dates"])
    assert (None, None, False, None) == (made["ics"], made["holidays"], made["public"], made["team_id"])
    path = "/calendars/company/"
    answer = await carillon.request("GET", path)
    assert made == answer.json()
    assert 304 == (await carillon.request("GET", path, headers={"If-None-Match": answer.headers["etag"]})).status_code
    assert [made] == (await carillon.call("GET", "/calendars/"))["items"]
    conflict = await carillon.call("POST", "/calendars/", 409, json={"name": "company"})
    assert "already" in conflict["detail"]
    changed = await carillon.call("PATCH", path, json={"holidays": "de-be", "dates": []})
    assert ("DE-BE", [], "Europe/Berlin") == (changed["holidays"], changed["dates"], changed["timezone"])
    stale = {"If-Match": answer.headers["etag"]}
    assert 412 == (await carillon.request("PATCH", path, json={"dates": []}, headers=stale)).status_code
    assert 412 == (await carillon.request("DELETE", path, headers=stale)).status_code
    renamed = await carillon.call("PATCH", path, json={"name": "closed"})
    assert "closed" == renamed["name"]
    await carillon.call("DELETE", "/calendars/closed/", 204)
    await carillon.call("GET", "/calendars/closed/", 404)
    actions = [event["action"] for event in (await carillon.call("GET", "/audit/?object_type=calendar"))["items"]]
    assert ["calendar_deleted", "calendar_changed", "calendar_changed", "calendar_created"] == actions


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"dates": ["2026-02-30"]}, "dates"),
        ({"dates": ["2026-12-24/2026-12-01"]}, "dates"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"holidays": "XX"}, "holidays"),
        ({"ics": "no calendar"}, "ics"),
    ],
)
async def test_what_is_no_calendar_is_refused_by_field(standing: Carillon, values: Json, field: str) -> None:
    """With the reason."""
    refused = await standing.call("POST", "/calendars/", 422, json={"name": "bad", **values})
    assert [field] == [error["field"] for error in refused["errors"]]


async def test_slots_that_calendars_leave_out_do_not_come(carillon: Carillon) -> None:
    """In what is planned, in the preview, in words, and in explain, which names the calendar and its entry."""
    slot = await first_slot(carillon)
    await calendar(carillon, "outing", ics=ICS.format(day=slot), timezone="Europe/Berlin")
    await calendar(carillon, "first-days", *(slot + number * DAY for number in range(3)))
    named: Json = {"cron": NOON, "exclude_calendars": ["outing", "outing"], "only_calendars": ["first-days"]}
    schedule = await carillon.schedule(**named)
    assert (["outing"], ["first-days"]) == (schedule["exclude_calendars"], schedule["only_calendars"])
    assert slot + DAY == moment(schedule["next_slot"])
    assert "only in calendar 'first-days', not in calendar 'outing'" in schedule["spec_description"]
    preview = await carillon.call("POST", "/schedules/preview/", json=named)
    assert [slot + DAY, slot + 2 * DAY] == [moment(run["at"]) for run in preview["next_runs"]]
    assert "Company outing" in preview["next_runs"][0]["note"]
    for day, reason in ((slot, "calendar 'outing' excludes it (Company outing)"), (slot + 3 * DAY, "not in calendar")):
        explained = await carillon.explain(schedule, rfc3339(day))
        assert ("not_expected", "calendar") == (explained["outcome"], explained["checks"][-1]["check"])
        assert reason in explained["sentence"]
    edit = {"exclude_calendars": [], "only_calendars": [], "days": 3}
    planned = await carillon.call("POST", f"/schedules/{schedule['id']}/plan/", json=edit)
    assert slot == moment(planned["next_run_at"]["to"])
    assert "expected" == (await carillon.explain(schedule, rfc3339(slot + DAY)))["outcome"]


async def test_a_name_that_stands_for_no_calendar_is_refused(carillon: Carillon) -> None:
    """On creation, in a batch, in a change, in the preview; public holidays need no calendar of their own."""
    workflow = await carillon.workflow()
    body = {"name": "s", "workflow_id": workflow["id"], "cron": NOON, "exclude_calendars": ["nowhere"]}
    refused = await carillon.call("POST", "/schedules/", 422, json=body)
    assert [("exclude_calendars", True)] == [
        (error["field"], "There is no calendar 'nowhere'" in error["message"]) for error in refused["errors"]
    ]
    batch = await carillon.call("POST", "/schedules/batch/", 422, json={"schedules": [body]})
    assert ["schedules[0].exclude_calendars"] == [error["field"] for error in batch["errors"]]
    preview = {"cron": NOON, "only_calendars": ["nowhere"]}
    refused = await carillon.call("POST", "/schedules/preview/", 422, json=preview)
    assert ["only_calendars"] == [error["field"] for error in refused["errors"]]
    schedule = await carillon.schedule(workflow, cron="0 12 25,27 12 *", exclude_calendars=["holidays:de-be"])
    assert (["holidays:DE-BE"], 27) == (schedule["exclude_calendars"], moment(schedule["next_slot"]).day)
    path = f"/schedules/{schedule['id']}/"
    await carillon.call("PATCH", path, 422, json={"only_calendars": ["nowhere"]})
    await carillon.call("PATCH", path, 422, json={"only_calendars": ["holidays:XX"]})
    all_days = await calendar(carillon, "all", "2026-01-01/2090-01-01")
    refused = await carillon.call("PATCH", path, 422, json={"exclude_calendars": [all_days["name"]]})
    assert "no slot" in refused["errors"][0]["message"]
    back = await carillon.call("PATCH", path, json={"exclude_calendars": []})
    assert 25 == moment(back["next_slot"]).day


async def test_a_changed_calendar_plans_its_schedules_again(
    carillon: Carillon, database: Database, redis: RedisPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with a revision for each; what a request leaves over is done by workers; one in use is not deleted."""
    slot = await first_slot(carillon)
    await calendar(carillon, "closed")
    workflow = await carillon.workflow()
    using = [await carillon.schedule(workflow, cron=NOON, exclude_calendars=["closed"]) for _ in range(3)]
    other = await carillon.schedule(workflow, cron=NOON)
    monkeypatch.setattr(calendar_replans, "BATCH_ROWS", 1)
    monkeypatch.setattr(calendar_replans, "BATCHES_AT_ONCE", 2)
    await carillon.call("PATCH", "/calendars/closed/", json={"dates": [f"{slot:%Y-%m-%d}"]})
    shown = [moment((await carillon.get(schedule))["next_slot"]) for schedule in using]
    assert {slot: 1, slot + DAY: 2} == {day: shown.count(day) for day in shown}
    replanner = CalendarReplanner(database, Ringer(Bell(redis)))
    while not await replanner.step():
        pass
    for schedule in using:
        after = await carillon.get(schedule)
        assert slot + DAY == moment(after["next_slot"])
        assert "The calendar 'closed' was changed." == (await carillon.history(schedule))[-1]["note"]
    assert other == await carillon.get(other)
    assert "not_expected" == (await carillon.explain(using[0], rfc3339(slot)))["outcome"]
    conflict = await carillon.call("DELETE", "/calendars/closed/", 409)
    assert "3 schedules use" in conflict["detail"]
    await carillon.call("PATCH", "/calendars/closed/", 409, json={"name": "open"})
    for schedule in using:
        await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"exclude_calendars": []})
    await carillon.call("DELETE", "/calendars/closed/", 204)


async def test_a_tick_plans_by_its_calendars_without_a_query_for_them(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The worker has read them once; when the calendar changes, the schedule's row does, and is read again."""
    await calendar(carillon, "gap")
    schedule = await carillon.schedule(interval_seconds=3600, exclude_calendars=["gap"])
    async with engine_of(settings) as engine:
        due = await make_due(database, schedule)
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        following = moment((await carillon.get(schedule))["next_slot"])
        span = f"{following:%Y-%m-%dT%H:%M:%S}/{following + timedelta(minutes=90):%Y-%m-%dT%H:%M:%S}"
        await carillon.call("PATCH", "/calendars/gap/", json={"dates": [span]})
        moved = moment((await carillon.get(schedule))["next_slot"])
        assert following + timedelta(hours=2) == moved
        async with database.transaction() as connection:
            # Contents that were read stay in memory: the tick does not miss them.
            await connection.execute(text("UPDATE calendar_contents SET dates = '[\"broken\"]'"))
        due = await make_due(database, schedule)
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    after = await carillon.get(schedule)
    assert ("active", 2) == (after["status"], after["run_count"])


async def test_ones_own_calendar_comes_before_a_teams_before_a_public_one(carillon: Carillon) -> None:
    """A new calendar of a name takes the place of one that comes after it, and schedules follow."""
    slot = await first_slot(carillon)
    mia = await carillon.member("mia")
    await mia.call("POST", "/calendars/", 403, json={"name": "closed", "public": True})
    await calendar(carillon, "closed", slot, public=True)
    schedule = await mia.schedule(cron=NOON, exclude_calendars=["closed"])
    assert slot + DAY == moment(schedule["next_slot"])
    await mia.call("PATCH", "/calendars/closed/", 403, json={"dates": []})
    await mia.call("DELETE", "/calendars/closed/", 403)
    conflict = await carillon.call("PATCH", "/calendars/closed/", 409, json={"public": False})
    assert "1 schedule of other owners uses" in conflict["detail"]

    team = await team_of(carillon)
    await join(carillon, team, schedule["user_profile_id"], "viewer")
    await calendar(carillon, "closed", slot, slot + DAY, team_id=team["id"])
    assert (team["id"], slot + 2 * DAY) == (
        (await mia.call("GET", "/calendars/closed/"))["owner"],
        moment((await mia.get(schedule))["next_slot"]),
    )
    await mia.call("PATCH", "/calendars/closed/", 403, json={"dates": []})
    own = await calendar(mia, "closed", *(slot + number * DAY for number in range(3)))
    assert slot + 3 * DAY == moment((await mia.get(schedule))["next_slot"])
    assert own == await mia.call("GET", "/calendars/closed/")
    assert 3 == len((await mia.call("GET", "/calendars/"))["items"])
    assert 1 == len((await mia.call("GET", "/calendars/", params={"team_id": team["id"]}))["items"])
    eve = await carillon.member("eve")
    assert [True] == [item["public"] for item in (await eve.call("GET", "/calendars/"))["items"]]
    public = await carillon.call("GET", "/calendars/closed/")
    await eve.call("GET", f"/calendars/closed/?owner={own['owner']}", 404)
    assert own == await carillon.call("GET", f"/calendars/closed/?owner={own['owner']}")
    assert public["public"]


async def test_calendars_go_to_the_heir_of_a_deleted_owner(carillon: Carillon) -> None:
    """Schedules keep their calendars; a public one that others use keeps its owner from being deleted."""
    slot = await first_slot(carillon)
    mia = await carillon.member("mia")
    made = await calendar(mia, "mine", slot)
    schedule = await mia.schedule(cron=NOON, exclude_calendars=["mine"])
    await carillon.call("PATCH", f"/calendars/mine/?owner={made['owner']}", json={"public": True})
    foreign = await carillon.schedule(cron=NOON, only_calendars=["mine"])
    path = f"/users/{made['owner']}/"
    refused = await carillon.call("DELETE", f"{path}?schedules=delete", 409)
    assert "calendars of" in refused["detail"]
    await carillon.call("DELETE", f"{path}?schedules=transfer&to={foreign['user_profile_id']}", 204)
    after = await carillon.get(schedule)
    assert (["mine"], slot + DAY) == (after["exclude_calendars"], moment(after["next_slot"]))
    assert foreign["user_profile_id"] == (await carillon.call("GET", "/calendars/mine/"))["owner"]


async def test_contents_that_no_calendar_has_any_more_are_deleted_with_the_history(
    carillon: Carillon, database: Database
) -> None:
    """Until then they stay, for slots of the past."""
    await calendar(carillon, "closed", "2026-12-24")
    await carillon.call("PATCH", "/calendars/closed/", json={"dates": ["2026-12-25"]})
    async with database.transaction() as connection:
        now = await database_now(connection)
        assert 0 == await calendars.delete_old_contents(connection, now - DAY)
        assert 1 == await calendars.delete_old_contents(connection, now)
    assert ["2026-12-25"] == (await carillon.call("GET", "/calendars/closed/"))["dates"]
