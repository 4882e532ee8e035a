"""The tools of agents, and an agent's day from its first question to a person's approval.

Covers app.mcp.tools, app.mcp.next_steps.
"""

from datetime import UTC, datetime, timedelta

from app.domain.ledger import LedgerOutcome
from app.mcp.next_steps import next_step
from app.mcp.tools import TOOLS
from tests.mcp.agent_client import Agent
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json


async def test_an_agents_day(carillon: Carillon) -> None:
    """It asks, previews, creates within its lease, is refused beyond it, a person approves; the audit has it all."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    stuck = await mia.schedule(workflow, name="stuck")
    await mia.call("POST", f"/schedules/{stuck['id']}/pause/", json={"note": "holiday"})
    end = (datetime.now(UTC) + timedelta(days=400)).isoformat()
    terms = {"agent": "planner", "purpose": "reports", "expires_at": end, "max_schedules": 1, "max_runs": 10}
    lease = await mia.call("POST", "/leases/", 201, json={**terms, "review": "before"})
    agent = Agent(carillon, lease["token"], "2026-07-28")
    assert "lease_status" in (await agent.request("server/discover"))["instructions"]
    assert {tool.name for tool in TOOLS} == {tool["name"] for tool in (await agent.request("tools/list"))["tools"]}
    assert 10 == (await agent.call("lease_status"))["lease"]["left"]["runs"]

    (found,) = (await agent.call("list_schedules", q="stuck"))["schedules"]
    explained = await agent.call("explain_slot", schedule_id=found["id"])
    assert ("paused", "manual") == (explained["status"], explained["status_reason"])
    assert f"resume_schedule with schedule_id {stuck['id']}" in explained["next_step"]
    refused = await agent.call("resume_schedule", is_error=True, schedule_id=found["id"], note="go on")
    assert ("outside_lease", 403) == (refused["code"], refused["status"])

    spec: Json = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    preview = await agent.call("preview_schedule", **spec, count=3)
    assert any("the clocks in Europe/Berlin" in warning for warning in preview["warnings"])
    wanted = {"name": "report", "workflow_id": workflow["id"], "total_repeats": 9, "key": "report", **spec}
    made = await agent.call("create_schedule", **wanted)
    assert (True, "paused", "awaiting_review") == (made["created"], made["status"], made["status_reason"])
    assert made["id"] == (again := await agent.call("create_schedule", **wanted))["id"]
    assert not again["created"]
    over = await agent.call("create_schedule", is_error=True, **{**wanted, "key": "other", "name": "second"})
    assert ("lease_exhausted", 0) == (over["code"], over["left"]["schedules"])
    assert "ask mia to extend it" in over["detail"]
    wrong = await agent.call("create_schedule", is_error=True, name="x", workflow_id=workflow["id"], cron="nonsense")
    assert "cron" in [error["field"] for error in wrong["errors"]]

    await mia.call("POST", f"/leases/{lease['id']}/approve/", json={"note": "good"})
    assert "active" == (await agent.call("get_schedule", schedule_id=made["id"]))["status"]
    changed = await agent.call("update_schedule", schedule_id=made["id"], changes={"cron": "0 4 * * *"})
    assert changed["plan"]["slots"]
    await mia.call("POST", f"/leases/{lease['id']}/approve/")
    assert (await agent.call("run_schedule_now", schedule_id=made["id"]))["run_id"]
    await agent.call("pause_schedule", is_error=True, schedule_id=made["id"])
    await agent.call("pause_schedule", schedule_id=made["id"], note="enough")
    assert made["id"] == (await agent.call("stop_schedule", schedule_id=made["id"]))["stopped"]
    events = (await mia.call("GET", "/audit/", params={"object_id": made["id"]}))["items"]
    told = {event["action"]: event for event in events if event["via"] == "mcp"}
    assert {"schedule_created", "schedule_changed", "schedule_run", "schedule_paused", "schedule_deleted"} <= set(told)
    created = told["schedule_created"]
    assert ("agent:planner for mia", "mia") == (created["actor"], created["on_behalf_of"])
    assert ("create_schedule", "scripted") == (created["details"]["tool"], created["details"]["client"])
    assert "report" == created["details"]["arguments"]["name"]
    granted = (await mia.call("GET", "/audit/", params={"object_type": "lease", "object_id": lease["id"]}))["items"]
    by_mia = [event["action"] for event in reversed(granted) if event["actor"] == "mia"]
    assert ["lease_granted", "lease_approved", "lease_approved"] == by_mia


async def test_the_preview_of_a_change_keeps_what_is_left_out(carillon: Carillon) -> None:
    """As the schedule has it, in the next runs and in the plan; what is given counts, also if it is the default."""
    berlin = await carillon.schedule(await carillon.workflow(), cron="30 2 * * *", timezone="Europe/Berlin")
    agent = Agent(carillon, ADMIN_TOKEN, "2026-07-28")
    change: Json = {"schedule_id": berlin["id"], "cron": "0 4 * * *", "count": 1}
    kept = await agent.call("preview_schedule", **change)
    assert "Europe/Berlin" in kept["description"]
    moved = await agent.call("preview_schedule", **change, timezone="UTC")
    assert moved["next_runs"][0]["at"].endswith("T04:00:00Z")
    for told in (kept, moved):
        assert told["next_runs"][0]["at"] == told["plan"]["next_run_at"]["to"]
    rule = "FREQ=DAILY;BYHOUR=5;BYMINUTE=0"
    ruled = await agent.call("preview_schedule", schedule_id=berlin["id"], rrule=rule, count=1)
    assert ruled["next_runs"][0]["at"] == ruled["plan"]["next_run_at"]["to"]
    changes: Json = {"cron": "0 4 * * *", "timezone": "UTC"}
    done = await agent.call(
        "update_schedule", schedule_id=berlin["id"], changes={**changes, "plan_id": moved["plan_id"]}
    )
    assert done["plan"]["slots"]


async def test_answers_are_short_and_tools_fit_the_scope(carillon: Carillon) -> None:
    """50 schedules take less than 4,000 tokens, with long names; a token that only reads sees no tool that writes."""
    workflow = await carillon.workflow()
    body = {"workflow_id": workflow["id"], "interval_seconds": 300}
    many = [{**body, "name": f"nightly report number {n} ".ljust(255, "x")} for n in range(50)]
    await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": many})
    token = await carillon.call("POST", "/tokens/", 201, json={"name": "t", "scopes": ["read"]})
    reader = Agent(carillon, token["token"])
    result = await reader.request("tools/call", name="list_schedules", arguments={"limit": 50})
    assert 50 == len(result["structuredContent"]["schedules"])
    text = "".join(part["text"] for part in result["content"]) + str(result["structuredContent"])
    assert len(text) / 4 < 4000
    listed = (await reader.request("tools/list"))["tools"]
    assert listed
    assert all(tool["annotations"]["readOnlyHint"] for tool in listed)
    first = result["structuredContent"]["schedules"][0]["id"]
    refused = await reader.call("run_schedule_now", is_error=True, schedule_id=first)
    assert "insufficient_scope" == refused["code"]
    for tool, arguments in {
        "get_slots": {"schedule_id": first},
        "list_runs": {},
        "list_workflows": {},
        "list_actions": {},
        "lease_status": {},
    }.items():
        assert await reader.call(tool, **arguments)
    load = await reader.call("forecast_load", hours=1)
    assert load["fires"] == sum(load["by_hour"].values())
    # Whether the minute of the creation has passed decides about the last one.
    assert load["fires"] // 50 in {11, 12}
    assert {load["fires"] // 50} == {schedule["fires"] for schedule in load["busiest_schedules"]}
    assert not load["is_estimate"]
    assert "not_found" == (await reader.call("get_run", is_error=True, run_id=first))["code"]


def test_every_tool_says_what_it_takes() -> None:
    """An object at the top, and what is required."""
    for tool in TOOLS:
        schema = tool.listed["inputSchema"]
        assert ("object", False) == (schema["type"], schema["additionalProperties"])
    assert 17 == len(TOOLS)


def test_each_reason_names_a_call() -> None:
    """What mends a schedule that did not run."""
    schedule = {"id": "S", "status": "active", "lease_id": 7}
    cases = {
        "update_schedule": ({}, {"outcome": "skipped_overlap"}),
        "get_run with run_id R": ({"health": "failing"}, {"outcome": "fired", "execution_id": "R"}),
        "leases/7/approve": ({"status": "paused", "status_reason": "awaiting_review"}, {"outcome": "paused"}),
        "revive": ({"status": "dead", "last_error": "boom"}, {"outcome": "dead"}),
        "larger `total_repeats`": ({"status": "done"}, {"outcome": "done"}),
        "Nothing": ({}, {"outcome": "fired"}),
    }
    for expected, (state, explained) in cases.items():
        assert expected in next_step({**schedule, **state}, explained)
    for outcome in LedgerOutcome:
        assert "Nothing has" not in next_step(schedule, {"outcome": outcome.value})
