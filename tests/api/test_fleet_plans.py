"""Plans of changes that concern many schedules: dry runs of operations and of files, and changes of calendars.

Covers app.services.fleet_plans, app.services.views.plans.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.services import bulk_operations
from tests.support.carillon import Carillon, Json, moment

DAY = timedelta(days=1)
COUNTS = ("kept", "added", "removed", "moved")


def tomorrow() -> datetime:
    """Return the beginning of the day after the next one, so that all its slots are still to come."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + 2 * DAY


async def test_a_dry_run_of_an_operation_says_what_becomes_of_fires(standing: Carillon) -> None:
    """For fields that move slots, for pauses and resumptions; schedules that refuse the change are named."""
    mia = await standing.member("fleet-mia")
    workflow = await mia.workflow()
    daily, hourly = [await mia.schedule(workflow, cron=text, name=text) for text in ("0 3 * * *", "7 * * * *")]
    once = await mia.schedule(workflow, at=(tomorrow() + 20 * DAY).isoformat(), name="once")
    fields = {"not_on": [f"{tomorrow():%A}".lower()]}
    body: Json = {"action": "set", "filter": {}, "arguments": {"fields": fields}, "dry_run": True}
    told = await mia.call("POST", "/schedules/bulk/", json=body)
    plan = told["plan"]
    assert (3, 3, 3) == (told["would_change"], plan["schedules"], plan["planned"])
    by_name = {item["name"]: item for item in plan["items"]}
    assert by_name.keys() == {"0 3 * * *", "7 * * * *", "once"}
    assert daily["id"] == by_name["0 3 * * *"]["id"]
    removed = by_name["0 3 * * *"]["slots"]["removed"]
    assert [tomorrow() + timedelta(hours=3)] == [moment(fire["at"]) for fire in removed]
    sums = {name: sum(_number(item["slots"][name]) for item in plan["items"]) for name in COUNTS}
    assert sums == plan["slots"]
    assert plan["items"][0]["id"] == hourly["id"]
    never = {**body, "arguments": {"fields": {"only_between": "05:00-06:00"}}}
    refused = (await mia.call("POST", "/schedules/bulk/", json=never))["plan"]["refused"]
    assert {daily["id"], once["id"]} >= {error["schedule_id"] for error in refused} >= {daily["id"]}
    until = (tomorrow() + DAY).isoformat()
    pause: Json = {"action": "pause", "ids": [daily["id"]], "arguments": {"until": until}, "dry_run": True}
    (item,) = (await mia.call("POST", "/schedules/bulk/", json=pause))["plan"]["items"]
    assert ("paused", tomorrow() + timedelta(hours=3)) == (item["status"], moment(item["slots"]["removed"][-1]["at"]))
    assert 0 < item["slots"]["kept"] < 7
    label: Json = {"action": "label", "filter": {}, "arguments": {"labels": {"add": {"a": "b"}}}, "dry_run": True}
    assert (await mia.call("POST", "/schedules/bulk/", json=label))["plan"] is None


async def test_a_dry_run_plans_those_that_change(standing: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many schedules some are planned, and not those that have the new values already."""
    monkeypatch.setattr(bulk_operations, "MOST_READ", 2)
    mia = await standing.member("fleet-many")
    workflow = await mia.workflow()
    for timezone in ("Europe/Berlin", "Europe/Berlin", "UTC", "Europe/Berlin", "Europe/Berlin"):
        await mia.schedule(workflow, cron="0 3 * * *", timezone=timezone)
    fields = {"timezone": "Europe/Berlin"}
    body: Json = {"action": "set", "filter": {}, "arguments": {"fields": fields}, "dry_run": True}
    told = await mia.call("POST", "/schedules/bulk/", json=body)
    assert (1, 1) == (told["would_change"], told["plan"]["planned"])


def _number(fires: int | list[Json]) -> int:
    return fires if isinstance(fires, int) else len(fires)


async def test_a_dry_run_of_documents_plans_schedules(standing: Carillon) -> None:
    """Those that are new and those that change, as they would be; nothing is stored."""
    mia = await standing.member("fleet-files")
    flow = {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]}
    document = {"namespace": "fleet", "workflows": [flow], "schedules": [{"name": "a", "workflow": "w"}]}

    async def applied(cron: str, *, dry_run: bool) -> dict[str, Any]:
        schedules = [{"name": "a", "workflow": "w", "cron": cron}, {"name": "b", "workflow": "w", "cron": "0 5 * * *"}]
        documents = [{**document, "schedules": schedules}]
        told = await mia.call("POST", "/apply/", json={"documents": documents, "dry_run": dry_run})
        return {step["name"]: step["plan"] for step in told["steps"]}

    new = await applied("30 4 * * *", dry_run=True)
    assert (None, 0, 7, "active") == (
        *(new["w"], new["a"]["slots"]["kept"]),
        *(len(new["a"]["slots"]["added"]), new["a"]["status"]),
    )
    assert {"w": None, "a": None, "b": None} == await applied("30 4 * * *", dry_run=False)
    changed = await applied("40 4 * * *", dry_run=True)
    assert changed["b"] is None
    moves = changed["a"]["slots"]["moved"]
    assert {timedelta(minutes=10)} == {moment(one["to"]["at"]) - moment(one["from"]["at"]) for one in moves[1:]}
    (schedule,) = (await mia.call("GET", "/schedules/?q=a"))["items"]
    assert schedule["next_run_at"] == changed["a"]["next_run_at"]["from"]
    await applied("40 4 * * *", dry_run=False)
    assert changed["a"]["next_run_at"]["to"] == (await mia.get(schedule))["next_run_at"]


async def test_the_plan_of_a_calendar_is_what_its_change_does(standing: Carillon) -> None:
    """Slots that it removes and gives back, of the schedules that one sees; what a change is refused for is refused."""
    mia = await standing.member("fleet-calendar")
    day = tomorrow()
    await mia.call("POST", "/calendars/", 201, json={"name": "closed", "dates": [f"{day + DAY:%Y-%m-%d}"]})
    workflow = await mia.workflow()
    used = await mia.schedule(workflow, cron="0 3 * * *", name="used", exclude_calendars=["closed"])
    await mia.schedule(workflow, cron="0 3 * * *", name="other")
    body = {"dates": [f"{day:%Y-%m-%d}"], "days": 5}
    plan = await mia.call("POST", "/calendars/closed/plan/", json=body)
    assert {"from": [f"{day + DAY:%Y-%m-%d}"], "to": [f"{day:%Y-%m-%d}"]} == plan["changes"]["dates"]
    assert (1, 1, used["id"]) == (plan["schedules"], plan["planned"], plan["items"][0]["id"])
    slots = plan["items"][0]["slots"]
    assert ([day + timedelta(hours=3)], [day + timedelta(hours=27)]) == (
        [moment(fire["at"]) for fire in slots["removed"]],
        [moment(fire["at"]) for fire in slots["added"]],
    )
    assert {"kept": slots["kept"], "added": 1, "removed": 1, "moved": 0} == plan["slots"]
    assert used == await mia.get(used)
    await mia.call("PATCH", "/calendars/closed/", json={"dates": body["dates"]})
    coming = await mia.call("GET", f"/schedules/{used['id']}/upcoming/", params={"limit": 5})
    times = [moment(item["at"]) for item in coming["items"]]
    assert (False, True) == (day + timedelta(hours=3) in times, day + timedelta(hours=27) in times)
    unchanged = await mia.call("POST", "/calendars/closed/plan/", json={})
    assert ({}, 0, []) == (unchanged["changes"], unchanged["planned"], unchanged["items"])
    refused = await mia.call("POST", "/calendars/closed/plan/", 422, json={"dates": ["2026-02-30"]})
    assert "dates" == refused["errors"][0]["field"]
    stranger = await standing.member("fleet-stranger")
    await stranger.call("POST", "/calendars/closed/plan/", 404, json=body)


async def test_the_plan_of_a_public_calendar_counts_ones_own_schedules(standing: Carillon) -> None:
    """Not those of others, whatever the change."""
    await standing.call("POST", "/calendars/", 201, json={"name": "feast", "dates": ["2027-01-01"], "public": True})
    await standing.schedule(await standing.workflow(), cron="0 3 * * *", exclude_calendars=["feast"])
    mia = await standing.member("fleet-public")
    await mia.schedule(await mia.workflow(), cron="0 3 * * *", exclude_calendars=["feast"])
    for body in ({"dates": ["2027-01-02"]}, {"public": False}):
        assert 1 == (await mia.call("POST", "/calendars/feast/plan/", json=body))["schedules"]
    await standing.call("POST", "/calendars/feast/plan/", 409, json={"public": False})
