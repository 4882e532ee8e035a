"""Leases of agents: what their tokens may do, what is refused beyond them, and how people extend, adopt and revoke.

Covers app.api.agent_leases, app.services.agent_leases, app.services.views.leases, app.persistence.agent_leases,
app.engine.agent_leases, app.engine.lease_bounds.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from app.config import Settings
from app.domain.ticks import Tick
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, engine_of, make_due, moment, until, working


def later(**span: float) -> str:
    """A moment from now, as clients write it."""
    return (datetime.now(UTC) + timedelta(**span)).isoformat()


async def lease_of(owner: Carillon, **terms: Any) -> tuple[Json, Carillon]:
    """Grant a lease; return it and the client of its agent."""
    body = {"agent": "nightly", "purpose": "try", "expires_at": later(hours=1), **terms}
    lease: Json = await owner.call("POST", "/leases/", 201, json=body)
    return lease, owner.with_token(lease["token"])


async def test_an_agent_makes_schedules_within_its_lease_and_no_more(carillon: Carillon) -> None:
    """Bounds are compiled into the schedule; what goes beyond is refused with what is left and who can extend it."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    lease, agent = await lease_of(mia, max_schedules=2, max_runs=10, min_interval_seconds=60, max_retries=1)
    assert {"schedules": 2, "runs": 10, "writes": None} == lease["left"]
    made = await agent.schedule(workflow, name="a", total_repeats=4)
    assert (lease["id"], 1, moment(lease["expires_at"])) == (
        made["lease_id"],
        made["max_retries"],
        moment(made["end_at"]),
    )
    base = {"name": "x", "workflow_id": workflow["id"], "total_repeats": 1}
    fields = {
        "total_repeats": {**base, "interval_seconds": 60, "total_repeats": 0},
        "interval_seconds": {**base, "interval_seconds": 59},
        "cron": {**base, "cron": "0 0 1 1 *"},
        "at": {**base, "at": later(hours=2)},
    }
    for field, body in fields.items():
        refused = await agent.call("POST", "/schedules/", 422, json=body)
        assert field in [error["field"] for error in refused["errors"]], refused
    refused = await agent.call("POST", "/schedules/", 409, json={**base, "interval_seconds": 60, "total_repeats": 7})
    assert ("lease_exhausted", {"schedules": 1, "runs": 6, "writes": None}, "mia") == (
        refused["code"],
        refused["left"],
        refused["extended_by"],
    )
    assert "ask mia to extend it" in refused["detail"]
    await agent.schedule(workflow, name="b", after="10m")
    refused = await agent.call("POST", "/schedules/", 409, json={**base, "after": "10m"})
    assert "lease_exhausted" == refused["code"]
    # What it does not use goes back.
    await agent.call("DELETE", f"/schedules/{made['id']}/", 204)
    shown = await agent.call("GET", f"/leases/{lease['id']}/")
    assert ({"schedules": 1, "runs": 9, "writes": None}, 3) == (shown["left"], shown["used"]["writes"])
    assert "token" not in shown


async def test_concurrent_requests_cannot_overdraw_a_lease(carillon: Carillon) -> None:
    """A loop of creations leaves exactly as many schedules as the lease allows, over POST, PUT and batches."""
    workflow = await carillon.workflow()
    lease, agent = await lease_of(carillon, max_schedules=5, max_runs=100)
    body = {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 300, "total_repeats": 7}
    posts = [agent.request("POST", "/schedules/", json=body) for _ in range(20)]
    puts = [agent.request("PUT", f"/schedules/by-key/k{n}/", json=body) for n in range(5)]
    batches = [agent.request("POST", "/schedules/batch/", json={"schedules": [body] * 3}) for _ in range(3)]
    statuses = [response.status_code for response in await asyncio.gather(*posts, *puts, *batches)]
    assert {201, 409} == set(statuses)
    shown = await carillon.call("GET", f"/leases/{lease['id']}/")
    assert (5, 35, 5) == (shown["used"]["schedules"], shown["used"]["runs"], len(shown["schedule_ids"]))


async def test_an_agent_reads_what_its_owner_sees_and_changes_only_its_own(carillon: Carillon) -> None:
    """Its token makes no tokens, leases, sessions or workflows; the author of its changes is the agent."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    theirs = await mia.schedule(workflow, name="theirs")
    lease, agent = await lease_of(mia)
    assert 200 == (await agent.request("GET", f"/schedules/{theirs['id']}/")).status_code
    path = f"/schedules/{theirs['id']}"
    refused = [
        *[("POST", f"{path}/{verb}/") for verb in ("pause", "run")],
        *[("PATCH", f"{path}/"), ("DELETE", f"{path}/")],
        *[("POST", "/tokens/"), ("POST", "/leases/"), ("POST", "/session/codes/"), ("POST", "/workflows/")],
        *[("POST", f"/leases/{lease['id']}/approve/"), ("PATCH", f"/leases/{lease['id']}/"), ("GET", "/signing-key/")],
    ]
    for method, target in refused:
        answer = await agent.call(method, target, 403, **({} if method in {"GET", "DELETE"} else {"json": {}}))
        assert "outside_lease" == answer["code"], target
    assert 403 == (await agent.request("POST", "/session/", json={"token": lease["token"]})).status_code
    own = await agent.schedule(workflow, total_repeats=2)
    await agent.call("POST", f"/schedules/{own['id']}/pause/", json={"note": "enough"})
    history = await mia.history(own)
    assert ["agent:nightly for mia"] * 2 == [change["by"] for change in history]
    events = (await mia.call("GET", "/audit/", params={"object_id": own["id"]}))["items"]
    assert {("agent:nightly for mia", "mia", lease["id"])} == {
        (event["actor"], event["on_behalf_of"], event["details"]["lease_id"]) for event in events
    }
    # A rotated token is bound to the lease as well.
    (token,) = [one for one in (await mia.call("GET", "/tokens/"))["items"] if one["name"] == "agent:nightly"]
    rotated = mia.with_token((await mia.call("POST", f"/tokens/{token['id']}/rotate/", 201))["token"])
    await rotated.call("POST", f"{path}/pause/", 403)
    olaf = await carillon.member("olaf")
    await olaf.call("GET", f"/leases/{lease['id']}/", 404)
    assert [] == (await olaf.call("GET", "/leases/"))["items"]


async def test_a_lease_names_its_workflows_and_bounds_its_changes(carillon: Carillon) -> None:
    """Another workflow is refused, on PATCH too, and so is one that acts as its owner without being named."""
    allowed, other = await carillon.workflow(), await carillon.workflow()
    tools = {"id": "t", "type": "scheduler_tools", "config": {"tool": "list_schedules", "arguments": {}}}
    acting = await carillon.workflow(tools)
    lease, agent = await lease_of(carillon, workflows=[allowed["id"]], max_writes=2)
    made = await agent.schedule(allowed, total_repeats=1)
    body = {"name": "x", "workflow_id": other["id"], "after": "1m"}
    assert "outside_lease" == (await agent.call("POST", "/schedules/", 403, json=body))["code"]
    await agent.call("PATCH", f"/schedules/{made['id']}/", 403, json={"workflow_id": other["id"]})
    await agent.call("PATCH", f"/schedules/{made['id']}/", 422, json={"total_repeats": 0})
    await agent.call("PATCH", f"/schedules/{made['id']}/", 200, json={"description": "d"})
    spent = await agent.call("PATCH", f"/schedules/{made['id']}/", 409, json={"description": "e"})
    assert ("lease_exhausted", 0) == (spent["code"], spent["left"]["writes"])
    _, free = await lease_of(carillon)
    await free.call("POST", "/schedules/", 403, json={**body, "workflow_id": acting["id"]})
    await carillon.call("PATCH", f"/leases/{lease['id']}/", json={"max_writes": 0, "workflows": [acting["id"]]})
    await agent.schedule(acting, after="1m")


async def test_runs_on_request_and_cancelled_runs_count(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A cancelled run is a repeat that is made again: without the lease's own count it would run for ever."""
    workflow = await carillon.workflow()
    lease, agent = await lease_of(carillon, max_runs=4)
    made = await agent.schedule(workflow, total_repeats=2, if_running="allow")
    for _ in range(2):
        await agent.call("POST", f"/schedules/{made['id']}/run/", 202)
    refused = await agent.call("POST", f"/schedules/{made['id']}/run/", 409)
    assert "lease_exhausted" == refused["code"]
    for _ in range(2):
        due = await make_due(database, made)
        async with engine_of(settings) as engine:
            await engine.claim_directly([Tick(UUID(made["id"]), due["generation"])])
        for run in await carillon.runs(made):
            if run["status"] in {"pending", "running"} and run["trigger"] == "schedule":
                await agent.call("POST", f"/executions/{run['id']}/cancel/")
    assert ("done", "repeat_limit") == ((after := await carillon.get(made))["status"], after["status_reason"])
    assert 4 == (await agent.call("GET", f"/leases/{lease['id']}/"))["used"]["runs"]
    # An edit would let it run again, and the lease is used up.
    await carillon.call("PATCH", f"/schedules/{made['id']}/", 409, json={"total_repeats": 3})


async def test_nothing_fires_after_the_end_of_a_lease(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A late tick pauses its schedule, and its slot is missed. The others are paused too, until it is extended."""
    workflow = await carillon.workflow()
    lease, agent = await lease_of(carillon)
    late, idle = [await agent.schedule(workflow, name=name, total_repeats=5) for name in ("late", "idle")]
    once = await agent.schedule(workflow, name="once", after="10m")
    due = await make_due(database, late, seconds_ago=2)
    async with database.transaction() as connection:
        for table in ("agent_leases", "api_tokens"):
            await connection.execute(text(f"UPDATE {table} SET expires_at = now() - interval '1 ms'"))
        ended = "UPDATE scheduled_jobs SET lease_ends_at = now() - interval '1 ms', end_at = now() - interval '1 ms'"
        await connection.execute(text(ended))
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(late["id"]), due["generation"])
    assert [] == await carillon.runs(late)
    assert ["missed"] == [entry["outcome"] for entry in await carillon.ledger(late)]
    await agent.call("GET", "/schedules/", 401)
    async with working(settings):
        for schedule in (late, idle, once):
            shown = await carillon.until_status(schedule, "paused")
            assert "lease_expired" == shown["status_reason"]
    await carillon.call("POST", f"/schedules/{idle['id']}/resume/", 400)
    await carillon.call("POST", f"/schedules/{idle['id']}/run/", 400)
    end = later(hours=2)
    assert "active" == (await carillon.call("PATCH", f"/leases/{lease['id']}/", json={"expires_at": end}))["status"]
    shown = await carillon.get(idle)
    assert ("active", moment(shown["end_at"])) == (shown["status"], datetime.fromisoformat(end))
    assert 200 == (await agent.request("GET", "/schedules/")).status_code
    actions = [event["action"] for event in (await carillon.call("GET", "/audit/"))["items"]]
    assert {"lease_granted", "lease_expired", "lease_changed"} <= set(actions)


async def test_a_revoked_lease_ends_at_once(carillon: Carillon, settings: Settings) -> None:
    """Its token is refused, its schedules are paused, and their runs are cancelled; an adopted one goes on."""
    sleeper = {"id": "wait", "type": "core.delay", "config": {"seconds": 60}}
    workflow = await carillon.workflow(sleeper)
    lease, agent = await lease_of(carillon)
    made, kept = [await agent.schedule(workflow, name=name, total_repeats=3) for name in ("made", "kept")]
    adopted = await carillon.call("POST", f"/leases/{lease['id']}/adopt/", json={"schedule_ids": [kept["id"]]})
    assert [made["id"]] == adopted["schedule_ids"]
    async with working(settings):
        run = await agent.call("POST", f"/schedules/{made['id']}/run/", 202)

        async def status() -> str:
            return str((await carillon.call("GET", f"/executions/{run['id']}/"))["status"])

        async def is_running() -> bool:
            return await status() == "running"

        await until(is_running)
        revoked = await carillon.call("POST", f"/leases/{lease['id']}/revoke/", json={"note": "too eager"})
        assert "revoked" == revoked["status"]
        assert "cancelled" == await status()
    await agent.call("GET", "/schedules/", 401)
    shown = await carillon.get(made)
    assert ("paused", "lease_revoked") == (shown["status"], shown["status_reason"])
    shown = await carillon.get(kept)
    assert ("active", None, None) == (shown["status"], shown["lease_id"], shown["end_at"])
    await carillon.call("POST", f"/schedules/{made['id']}/resume/", 400)
    await carillon.call("POST", f"/leases/{lease['id']}/revoke/", 400)
    await carillon.call("PATCH", f"/leases/{lease['id']}/", 400, json={"max_runs": 1})


async def test_a_person_reviews_what_an_agent_makes(carillon: Carillon) -> None:
    """Before it runs, and again after each change by the agent; or afterwards, by a flag."""
    workflow = await carillon.workflow()
    lease, agent = await lease_of(carillon, review="before")
    made = await agent.schedule(workflow, total_repeats=3)
    assert ("paused", "awaiting_review", None) == (made["status"], made["status_reason"], made["next_run_at"])
    refused = await agent.call("POST", f"/schedules/{made['id']}/resume/", 400)
    assert "approve" in refused["detail"]
    assert refused == await agent.call("POST", f"/schedules/{made['id']}/run/", 400)
    tried = await carillon.call("POST", f"/schedules/{made['id']}/run/", 202)
    await carillon.call("POST", f"/executions/{tried['id']}/cancel/")
    assert refused == await agent.call("POST", f"/executions/{tried['id']}/again/", 400)
    later = await agent.schedule(workflow, total_repeats=3)
    path, seen = f"/leases/{lease['id']}/approve/", {"note": "fine", "schedule_ids": [made["id"]]}
    theirs = await carillon.schedule(workflow)
    await carillon.call("POST", path, 422, json={"schedule_ids": [made["id"], theirs["id"]]})
    assert [later["id"]] == (await carillon.call("POST", path, json=seen))["awaiting_review"]
    assert [] == (await carillon.call("POST", path))["awaiting_review"]
    shown = await carillon.get(made)
    assert ("active", "") == (shown["status"], shown["status_reason"])
    assert shown["next_run_at"]
    changed = await agent.call("PATCH", f"/schedules/{made['id']}/", json={"trigger_payload": {"a": 1}})
    assert ("paused", "awaiting_review") == (changed["status"], changed["status_reason"])
    _, flagged = await lease_of(carillon, review="after", agent="flagged")
    other = await flagged.schedule(workflow, total_repeats=3)
    assert ("active", "awaiting_review") == (other["status"], other["status_reason"])
