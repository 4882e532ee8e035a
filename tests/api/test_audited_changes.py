"""The audit log tells of every change of schedules, workflows, webhooks and notifications, whoever made it.

Covers app.domain.audited_changes.
"""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
from structlog.testing import capture_logs

from app.config import Settings
from app.persistence import recovery
from app.persistence.database import Database
from tests.support.carillon import FAIL, Carillon, Json, fire_and_read, http_node
from tests.support.declarations import NIGHTLY, applying

SECRET = "hunter2-is-not-for-you"


async def events(carillon: Carillon, **filters: Any) -> list[Json]:
    """Return the events that a client sees, oldest first."""
    items: list[Json] = (await carillon.call("GET", "/audit/", params={"limit": 500, **filters}))["items"]
    return items[::-1]


async def actions(carillon: Carillon, **filters: Any) -> list[str]:
    """Return what happened, oldest first."""
    return [event["action"] for event in await events(carillon, **filters)]


async def test_the_life_of_a_schedule_is_told(carillon: Carillon) -> None:
    """By whom, with what differs and the note of the request."""
    job = await carillon.schedule(name="nightly")
    path = f"/schedules/{job['id']}"
    await carillon.call("PATCH", f"{path}/", json={"interval_seconds": 60})
    await carillon.call("PATCH", f"{path}/", json={"interval_seconds": 60})
    await carillon.call("POST", f"{path}/pause/", json={"note": "incident 7"})
    await carillon.call("POST", f"{path}/resume/")
    run = await carillon.call("POST", f"{path}/run/", 202)
    await carillon.call("POST", f"/executions/{run['id']}/cancel/")
    await carillon.call("DELETE", f"{path}/", 204)
    told = await events(carillon, object_type="schedule", object_id=job["id"])
    assert [
        *("schedule_created", "schedule_changed", "schedule_paused", "schedule_resumed", "schedule_run"),
        *("execution_cancelled", "schedule_deleted"),
    ] == [event["action"] for event in told]
    assert {("admin", "api", "nightly")} == {(event["actor"], event["via"], event["object_name"]) for event in told}
    assert all(event["address"] and event["request_id"] for event in told)
    assert {"interval_seconds": {"from": 300.0, "to": 60}} == told[1]["changes"]
    assert "incident 7" == told[2]["note"]
    assert {run["id"]} == {told[4]["details"]["execution_id"], told[5]["details"]["execution_id"]}


async def test_schedules_of_one_batch_have_the_origins_of_their_requests(carillon: Carillon) -> None:
    """Requests of one moment are stored together, and each event names its own request."""
    workflow = await carillon.workflow()
    ids = [f"request-{number}" for number in range(8)]
    body = {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 300}
    calls = [
        carillon.call("POST", "/schedules/", 201, json={**body, "name": one}, headers={"X-Request-Id": one})
        for one in ids
    ]
    await asyncio.gather(*calls)
    told = await events(carillon, action="schedule_created")
    assert {(one, one) for one in ids} == {(event["request_id"], event["object_name"]) for event in told}


async def test_the_life_of_a_workflow_is_told_without_its_configurations(carillon: Carillon) -> None:
    """With the ids of changed nodes; schedules that go with it have events of their own."""
    workflow = await carillon.workflow(http_node("http://127.0.0.1:1/", headers={"X-Key": SECRET}), name="report")
    job = await carillon.schedule(workflow, trigger_payload={"password": SECRET})
    nodes = [{**node} for node in workflow["nodes"]]
    nodes[1] = {**nodes[1], "config": {**nodes[1]["config"], "headers": {"X-Key": f"{SECRET}-2"}}}
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": nodes, "name": "reports"})
    await carillon.call("PATCH", f"/schedules/{job['id']}/", json={"trigger_payload": {"password": f"{SECRET}-3"}})
    await carillon.call("DELETE", f"/workflows/{workflow['id']}/", 204)
    told = await events(carillon, object_type="workflow")
    assert ["workflow_created", "workflow_changed", "workflow_deleted"] == [event["action"] for event in told]
    changed = {"added": [], "removed": [], "changed": [nodes[1]["id"]]}
    assert {"name": {"from": "report", "to": "reports"}, "nodes": changed} == told[1]["changes"]
    assert {"schedules": 1} == told[2]["details"]
    of_job = await events(carillon, object_type="schedule")
    assert ["schedule_created", "schedule_changed", "schedule_deleted"] == [event["action"] for event in of_job]
    assert {"trigger_payload": {}} == of_job[1]["changes"]
    assert SECRET not in msgspec.json.encode([*told, *of_job]).decode()


async def test_webhooks_notifications_and_breakers_are_told_without_urls(carillon: Carillon) -> None:
    """A URL may hold a key: that it changed is told, not its value."""
    url = f"https://example.org/{SECRET}"
    hook = await carillon.call("POST", "/webhooks/", 201, json={"name": "h", "url": url, "interval_minutes": 5})
    await carillon.call("PATCH", f"/webhooks/{hook['id']}/", json={"url": f"{url}2", "interval_minutes": 7})
    await carillon.call("DELETE", f"/webhooks/{hook['id']}/", 204)
    noted = await carillon.call("POST", "/notifications/", 201, json={"url": url, "events": ["run.failed"]})
    await carillon.call("PATCH", f"/notifications/{noted['id']}/", json={"active": False})
    await carillon.call("PATCH", f"/notifications/{noted['id']}/", json={"active": False})
    await carillon.call("DELETE", f"/notifications/{noted['id']}/", 204)
    hooks, notes = [await events(carillon, object_type=kind) for kind in ("webhook", "notification")]
    assert ["webhook_created", "webhook_changed", "webhook_deleted"] == [event["action"] for event in hooks]
    assert {"url": {}, "interval_minutes": {"from": 5, "to": 7}} == hooks[1]["changes"]
    assert ["notification_created", "notification_changed", "notification_deleted"] == [one["action"] for one in notes]
    assert {"active": {"from": True, "to": False}} == notes[1]["changes"]
    assert SECRET not in msgspec.json.encode([*hooks, *notes]).decode()


async def test_a_reset_of_a_breaker_is_told(carillon: Carillon, settings: Settings, database: Database) -> None:
    """And the death of the schedule whose run failed, by Carillon itself."""
    workflow = await carillon.workflow(FAIL, breaker_threshold=1)
    job = await carillon.schedule(workflow, max_retries=0)
    await fire_and_read(carillon, settings, database, job)
    await carillon.until_status(job, "dead")
    await carillon.call("POST", f"/breakers/{workflow['id']}/reset/")
    (died,) = await events(carillon, action="schedule_died")
    assert ("carillon", "engine", None, job["id"]) == tuple(
        died[name] for name in ("actor", "via", "address", "object_id")
    )
    assert {"from": "active", "to": "dead"} == died["changes"]["status"]
    (reset,) = await events(carillon, action="breaker_reset")
    assert ("admin", str(workflow["id"]), {"state": {"from": "open", "to": "closed"}}) == (
        reset["actor"],
        reset["object_id"],
        reset["changes"],
    )


async def test_a_quarantine_is_told(carillon: Carillon, database: Database) -> None:
    """As a pause by Carillon."""
    job = await carillon.schedule()
    async with database.transaction() as connection:
        assert await recovery.poison_schedule(connection, UUID(job["id"]), "boom")
    (paused,) = await events(carillon, action="schedule_paused")
    assert ("carillon", "engine", job["id"]) == (paused["actor"], paused["via"], paused["object_id"])
    assert "boom" in paused["note"]


async def test_a_plain_run_adds_no_event(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Neither does a schedule that is done: a tick writes nothing for the audit log."""
    job = await carillon.schedule(total_repeats=1)
    before = await actions(carillon)
    await fire_and_read(carillon, settings, database, job)
    await carillon.until_status(job, "done")
    assert before == await actions(carillon)


async def test_files_are_told_with_who_applied_them(carillon: Carillon, settings: Settings) -> None:
    """By the way `file`; a dry run leaves nothing."""
    async with applying(settings) as apply:
        await apply(NIGHTLY, dry_run=True)
        assert [] == await events(carillon, via="file")
        await apply(NIGHTLY)
        await apply("namespace: shop", prune=True)
    told = await events(carillon, via="file")
    assert ["workflow_created", "schedule_created", "schedule_deleted", "workflow_deleted"] == [
        event["action"] for event in told
    ]
    assert {"admin"} == {event["actor"] for event in told}


async def test_members_see_what_others_did_to_their_schedules_and_those_of_their_teams(carillon: Carillon) -> None:
    """And nothing of what belongs to others, whatever they filter by."""
    mia, tom = await carillon.member(), await carillon.member("tom")
    mine, his = await mia.schedule(name="mine"), await tom.schedule(name="his")
    team = await carillon.call("POST", "/teams/", 201, json={"name": "night"})
    me = await mia.call("GET", "/me/")
    member = {"user_id": me["id"], "role": "viewer"}
    await carillon.call("POST", f"/teams/{team['id']}/members/", 201, json=member)
    flow = await carillon.workflow(team_id=team["id"])
    ours = await carillon.schedule(flow, name="ours", team_id=team["id"])
    for job in (mine, his, ours):
        await carillon.call("POST", f"/schedules/{job['id']}/pause/")
    assert {mine["id"], ours["id"]} == {event["object_id"] for event in await events(mia, action="schedule_paused")}
    assert [] == await events(mia, object_type="schedule", object_id=his["id"])


async def test_an_export_has_all_events_of_a_span_as_lines(carillon: Carillon) -> None:
    """Newest first, over more than a page; it needs a beginning."""
    workflow = await carillon.workflow()
    body = {"schedules": [{"name": str(n), "workflow_id": workflow["id"], "interval_seconds": 60} for n in range(600)]}
    await carillon.call("POST", "/schedules/batch/", 201, json=body)
    lines = {"Accept": "application/x-ndjson"}
    response = await carillon.request("GET", "/audit/", headers=lines, params={"from": workflow["created_at"]})
    assert (200, "application/x-ndjson") == (response.status_code, response.headers["content-type"].split(";")[0])
    exported = [msgspec.json.decode(line) for line in response.text.splitlines()]
    assert 600 == len([event for event in exported if event["action"] == "schedule_created"])
    assert exported == sorted(exported, key=lambda event: event["at"], reverse=True)
    refused = await carillon.request("GET", "/audit/", headers=lines)
    assert (422, "from") == (refused.status_code, refused.json()["errors"][0]["field"])
    mia = await carillon.member()
    seen = await mia.request("GET", "/audit/", headers=lines, params={"from": workflow["created_at"]})
    assert not any('"schedule_created"' in line for line in seen.text.splitlines())


async def test_events_are_logged_for_collectors_after_the_commit(carillon: Carillon) -> None:
    """Without values, notes and names; not at all if nothing was stored."""
    job = await carillon.schedule()
    with capture_logs() as logs:
        await carillon.call("POST", f"/schedules/{job['id']}/pause/", json={"note": SECRET})
        await carillon.call("POST", f"/schedules/{job['id']}/pause/", 400)
    (entry,) = [one for one in logs if one["event"] == "audit"]
    assert ("schedule_paused", job["id"], "admin", "api", ["status", "status_reason"]) == tuple(
        entry[name] for name in ("action", "object_id", "actor", "via", "fields")
    )
    assert SECRET not in str(entry)


async def test_what_goes_with_a_user_is_told_object_by_object(carillon: Carillon) -> None:
    """Deleted with the user, or handed over to another, who sees it."""
    mia, tom, eve = [await carillon.member(name) for name in ("mia", "tom", "eve")]
    ids = [(await client.call("GET", "/me/"))["id"] for client in (mia, tom, eve)]
    gone, kept = await mia.schedule(name="gone"), await tom.schedule(name="kept")
    await carillon.call("DELETE", f"/users/{ids[0]}/", 204, params={"schedules": "delete"})
    await carillon.call("DELETE", f"/users/{ids[1]}/", 204, params={"schedules": "transfer", "to": ids[2]})
    deleted = await events(carillon, object_type="schedule", object_id=gone["id"])
    assert [("mia", "schedule_created"), ("admin", "schedule_deleted")] == [
        (event["actor"], event["action"]) for event in deleted
    ]
    assert 1 == len(await events(carillon, action="workflow_deleted"))
    (moved,) = await events(eve, object_type="schedule", object_id=kept["id"])
    assert {"user_profile_id": {"from": ids[1], "to": ids[2]}} == moved["changes"]
