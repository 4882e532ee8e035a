"""What is due next, as a list and as a calendar, and the small calls beside it.

Covers app.api.upcoming, app.services.upcoming.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.config import Settings
from app.domain.icalendar import read_events
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, engine_of, make_due, moment

HOUR = timedelta(hours=1)


def span(since: datetime, until: datetime) -> Json:
    """Return the parameters of a span."""
    return {"from": since.isoformat(), "to": until.isoformat()}


async def feed_token(client: Carillon, **terms: Any) -> str:
    """Return a token that may be part of an address."""
    made = await client.call("POST", "/tokens/", 201, json={"name": "calendar", "kind": "feed", **terms})
    return str(made["token"])


async def test_the_coming_fires_of_one_and_of_all(standing: Carillon) -> None:
    """In the order of their due times, of what one sees alone, and with slot and due time."""
    mia = await standing.member("upcoming-mia")
    hourly = await mia.schedule(cron="0 * * * *", name="hourly")
    jittery = await mia.schedule(interval_seconds=3600, jitter_seconds=1800, name="jittery")
    await mia.schedule(name="paused")
    rest = await mia.schedule(interval_seconds=60, name="rest")
    await mia.call("POST", f"/schedules/{rest['id']}/pause/")
    since = datetime.now(UTC).replace(microsecond=0) + HOUR
    every = await mia.call("GET", "/upcoming/", params=span(since, since + 3 * HOUR))
    assert every["is_complete"]
    assert sorted(every["items"], key=lambda item: moment(item["at"])) == every["items"]
    assert {"hourly", "jittery", "paused"} == {item["schedule_name"] for item in every["items"]}
    own = await mia.call("GET", f"/schedules/{hourly['id']}/upcoming/", params=span(since, since + 3 * HOUR))
    assert [item for item in every["items"] if item["schedule_id"] == hourly["id"]] == own["items"]
    assert [0, 0, 0] == [moment(item["at"]).minute for item in own["items"]]
    shifted = [item for item in every["items"] if item["schedule_id"] == jittery["id"]]
    assert all(timedelta(0) <= moment(item["at"]) - moment(item["slot"]) < HOUR / 2 for item in shifted)
    assert [item for item in shifted if item["at"] != item["slot"]]
    first = await mia.call("GET", "/upcoming/", params={"limit": 1})
    assert (1, False) == (len(first["items"]), first["is_complete"])
    stranger = await standing.member("upcoming-stranger")
    assert {"items": [], "is_complete": True} == await stranger.call("GET", "/upcoming/")
    await stranger.call("GET", f"/schedules/{hourly['id']}/upcoming/", 404)
    backwards = await mia.call("GET", "/upcoming/", 422, params=span(since, since))
    assert "to" == backwards["errors"][0]["field"]


async def test_a_calendar_by_bearer_and_by_a_token_in_the_address(carillon: Carillon) -> None:
    """Only a token that was made for it may stand in an address, and it reads nothing else."""
    mia = await carillon.member("upcoming-feed")
    schedule = await mia.schedule(cron="30 * * * *", name="Report; daily")
    other = await mia.schedule(cron="45 * * * *", name="other")
    token = await feed_token(mia)
    for path, names in (
        ("/upcoming.ics", {"Report; daily", "other"}),
        (f"/schedules/{schedule['id']}/upcoming.ics", {"Report; daily"}),
    ):
        by_bearer = await mia.request("GET", path)
        by_feed = await mia.raw("GET", f"/api/v1{path}", params={"feed": token})
        for response in (by_bearer, by_feed):
            assert (200, "text/calendar; charset=utf-8") == (response.status_code, response.headers["content-type"])
            events = read_events(response.text, "UTC")
            assert (500, names) == (len(events), {event.summary for event in events})
    api_token = (await mia.call("POST", "/tokens/", 201, json={"name": "t", "scopes": ["read"]}))["token"]
    for refused in (api_token, "nonsense"):
        response = await mia.raw("GET", "/api/v1/upcoming.ics", params={"feed": refused})
        assert (401, "unauthenticated") == (response.status_code, response.json()["code"])
    assert 401 == (await mia.raw("GET", "/api/v1/upcoming/", params={"feed": token})).status_code
    assert "feed_only" == (await mia.with_token(token).call("GET", "/upcoming/", 403))["code"]
    narrow = await feed_token(mia, restrict={"workflow_ids": [other["workflow_id"]]})
    only = await mia.raw("GET", "/api/v1/upcoming.ics", params={"feed": narrow})
    assert {"other"} == {event.summary for event in read_events(only.text, "UTC")}
    hidden = await mia.raw("GET", f"/api/v1/schedules/{schedule['id']}/upcoming.ics", params={"feed": narrow})
    assert 404 == hidden.status_code


async def test_time_zones_are_listed(standing: Carillon) -> None:
    """By name, on one page unless a limit is given."""
    zones = (await standing.call("GET", "/timezones/"))["items"]
    offsets = {zone["name"]: zone["offset_seconds"] for zone in zones}
    assert (0, 20_700) == (offsets["UTC"], offsets["Asia/Kathmandu"])
    page = await standing.call("GET", "/timezones/", params={"limit": 2})
    rest = await standing.call("GET", "/timezones/", params={"cursor": page["next_cursor"]})
    assert (zones, None) == ([*page["items"], *rest["items"]], rest["next_cursor"])


async def test_a_workflow_is_validated_without_being_stored(standing: Carillon) -> None:
    """Errors name the node and the field; what a POST would accept is valid."""
    mia = await standing.member("upcoming-validate")
    start = {"id": "start", "type": "trigger_schedule"}
    call = {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/{{ secret.NONE }}"}}
    sound = {"nodes": [start, {"id": "work", "type": "core.noop"}], "edges": [{"from": "start", "to": "work"}]}
    path = "/workflows/validate/"
    assert {"valid": True, "errors": []} == await mia.call("POST", path, json=sound)
    told = await mia.call("POST", path, json={"nodes": [start, call, {"id": "odd", "type": "core.odd"}], "edges": []})
    assert (False, ["odd"]) == (told["valid"], [error["node"] for error in told["errors"]])
    assert "nodes[2].type" == told["errors"][0]["field"]
    told = await mia.call("POST", path, json={"nodes": [start, call]})
    assert (False, ["call"]) == (told["valid"], [error["node"] for error in told["errors"]])
    for broken in (
        {},
        {"nodes": "x"},
        {"nodes": [start, {"id": 7}]},
        {**sound, "unknown": 1},
        {**sound, "team_id": 9999},
    ):
        told = await mia.call("POST", path, json=broken)
        assert not told["valid"], broken
        assert all(error["field"] and error["message"] for error in told["errors"])
    assert [] == (await mia.call("GET", "/workflows/"))["items"]


async def test_a_run_is_started_again_with_its_payload(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The payload is that of the run, not that which the schedule has now; `active` finds what is under way."""
    schedule = await carillon.schedule(trigger_payload={"a": 1})
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    (run,) = await carillon.runs(schedule)
    await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"trigger_payload": {"a": 2}})
    again = await carillon.call("POST", f"/executions/{run['id']}/again/", 202)
    assert ("manual", "pending") == (again["trigger"], again["status"])
    assert {"a": 1} == (await carillon.call("GET", f"/executions/{again['id']}/"))["payload"]
    assert "conflict" == (await carillon.call("POST", f"/executions/{run['id']}/again/", 409))["code"]
    queued = await carillon.call("POST", f"/executions/{run['id']}/again/", 202, json={"if_running": "allow"})
    ids = {}
    for active in ("true", "false"):
        listed = await carillon.call("GET", "/executions/", params={"active": active})
        ids[active] = {one["id"] for one in listed["items"]}
    assert ({again["id"], queued["id"]}, {run["id"]}) == (ids["true"], ids["false"])
    events = await carillon.call("GET", "/audit/", params={"action": "schedule_run"})
    assert [run["id"], run["id"]] == [event["details"]["again"] for event in events["items"]]
