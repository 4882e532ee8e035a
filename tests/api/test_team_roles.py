"""What each role in a team allows: every route about one object of a team, by role; and objects of teams in lists."""

from typing import Any

import pytest

from app.domain.access import Scope
from tests.api.test_scopes import CALLS
from tests.api.test_teams import member_with, team_of
from tests.support.carillon import Carillon, Json

ALLOWED = {"viewer": Scope.READ, "operator": Scope.OPERATE, "editor": Scope.WRITE, "owner": Scope.WRITE}
# Calls about an object that belongs to a user alone, or that other tests cover; a new one is about an object of a team.
NOT_OWNED = ("/users/", "/tokens/", "/sessions/", "/teams/", "/secrets/")
LISTS = ("/workflows/", "/schedules/", "/webhooks/", "/notifications/", "/executions/", "/breakers/", "/secrets/")
WEBHOOK = {"url": "http://127.0.0.1:9/", "interval_minutes": 5}


async def objects_of(owner: Carillon, team: Json) -> dict[str, Any]:
    """Create an object of each kind for a team, and return their ids by the names that paths have for them."""
    own = {"team_id": team["id"]}
    workflow = await owner.workflow(breaker_threshold=3, **own)
    schedule = await owner.schedule(workflow, **own)
    run = await owner.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    webhook = await owner.call("POST", "/webhooks/", 201, json={**WEBHOOK, **own})
    notification = await owner.call("POST", "/notifications/", 201, json={"url": "http://127.0.0.1:9/", **own})
    for made in (workflow, schedule, webhook, notification):
        assert (team["id"], team["id"]) == (made["team_id"], made["user_profile_id"])
    return {
        "workflow_id:int": workflow["id"],
        "schedule_id:uuid": schedule["id"],
        "execution_id:uuid": run["id"],
        "webhook_id:int": webhook["id"],
        "notification_id:int": notification["id"],
    }


def calls_on(ids: dict[str, Any]) -> list[tuple[str, str, Scope]]:
    """Return all calls about one object, with these ids; deletions last, and of workflows after all others."""
    found = []
    for method, path, needed in CALLS:
        if "{" in path and not path.startswith(NOT_OWNED):
            found.append((method, f"{path.replace('{', '').replace('}', '')}/", needed))
    for name, value in ids.items():
        found = [(method, path.replace(name, str(value)), needed) for method, path, needed in found]
    assert not [path for _, path, _ in found if ":" in path]
    return sorted(found, key=lambda call: (call[0] == "DELETE", call[1].startswith("/workflows")))


@pytest.mark.parametrize("role", ["viewer", "operator", "editor", "owner", None])
async def test_every_route_by_role(carillon: Carillon, role: str | None) -> None:
    """What the role does not allow is 403 for those who see the object, and 404 for others."""
    mia = await carillon.member()
    team = await team_of(mia)
    client = await carillon.member("stranger") if role is None else await member_with(carillon, mia, team, role)
    calls = calls_on(await objects_of(mia, team))
    assert len(calls) > 25
    for method, path, needed in calls:
        response = await client.request(method, path)
        code = response.json().get("code", "") if response.content else ""
        if role is None:
            assert 404 == response.status_code, (method, path, response.text)
        elif ALLOWED[role].includes(needed):
            assert response.status_code in {200, 202, 204, 400, 409}, (method, path, response.text)
        else:
            assert (403, "insufficient_scope") == (response.status_code, code), (method, path, response.text)


@pytest.mark.parametrize("role", ["viewer", "operator", "editor"])
async def test_who_creates_objects_for_a_team(carillon: Carillon, role: str) -> None:
    """Editors and owners; a team that one does not belong to looks as if it did not exist, and no user is a team."""
    mia = await carillon.member()
    team = await team_of(mia)
    client = await member_with(carillon, mia, team, role)
    workflow = await mia.workflow(team_id=team["id"])
    bodies: dict[str, Json] = {
        "/workflows/": {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]},
        "/schedules/": {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 60},
        "/webhooks/": WEBHOOK,
        "/notifications/": {"url": "http://127.0.0.1:9/"},
        "/secrets/": {"name": "KEY", "value": "v"},
    }
    for path, body in bodies.items():
        made = await client.call("POST", path, 201 if role == "editor" else 403, json={**body, "team_id": team["id"]})
        if role == "editor":
            assert team["id"] == made["team_id"]
        for unknown in (98765, (await client.call("GET", "/me/"))["id"]):
            for caller in (client, carillon):
                refused = await caller.call("POST", path, 404, json={**body, "team_id": unknown})
                assert "team" in refused["detail"], path
    batch = [{**bodies["/schedules/"], "team_id": team["id"]}, {**bodies["/schedules/"], "team_id": 98765}]
    await carillon.call("POST", "/schedules/batch/", 422, json={"schedules": batch})
    await mia.call("POST", "/schedules/batch/", 201, json={"schedules": batch[:1]})
    await mia.call("PATCH", f"/workflows/{workflow['id']}/", 422, json={"team_id": None})


async def test_lists_have_what_is_ones_own_and_the_teams(carillon: Carillon) -> None:
    """Newest first over all owners, page by page and by offset; `team_id` chooses one team."""
    mia = await carillon.member()
    ops, dev = await team_of(mia), await team_of(mia, "dev")
    made = []
    for number in range(9):
        team_id = (None, ops["id"], dev["id"])[number % 3]
        made.append(await mia.schedule(await mia.workflow(team_id=team_id), team_id=team_id, name=str(number)))
    names = [str(number) for number in reversed(range(9))]
    whole = await mia.call("GET", "/schedules/")
    assert (names, 9, None) == ([one["name"] for one in whole["items"]], whole["total"], whole["next_cursor"])
    paged: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await mia.call("GET", "/schedules/", params={"limit": 2, **cursor})
        paged += [one["name"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert names == paged
    middle = await mia.call("GET", "/schedules/", params={"limit": 3, "offset": 4, "fields": "name,team_id"})
    assert ["4", "3", "2"] == [one["name"] for one in middle["items"]]
    assert [ops["id"], None, dev["id"]] == [one["team_id"] for one in middle["items"]]
    workflows = (await mia.call("GET", "/workflows/", params={"limit": 4}))["items"]
    assert [one["workflow_id"] for one in reversed(made)][:4] == [one["id"] for one in workflows]


async def test_every_list_takes_a_team(carillon: Carillon) -> None:
    """For members of the team and admins; others get an empty list, as for a team that does not exist."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team = await team_of(mia)
    ids = await objects_of(mia, team)
    await mia.call("POST", "/secrets/", 201, json={"name": "KEY", "value": "v", "team_id": team["id"]})
    await mia.schedule(await mia.workflow(breaker_threshold=3))
    for path in LISTS:
        params = {"team_id": team["id"]}
        for client in (mia, carillon):
            assert 1 == len((await client.call("GET", path, params=params))["items"]), path
        assert [] == (await olaf.call("GET", path, params=params))["items"], path
        for unknown in (98765, (await mia.call("GET", "/me/"))["id"]):
            assert [] == (await carillon.call("GET", path, params={"team_id": unknown}))["items"], path
        assert [] == (await olaf.call("GET", path))["items"], path
    by_schedule = {"scheduled_job_id": ids["schedule_id:uuid"]}
    assert 1 == len((await mia.call("GET", "/executions/", params=by_schedule))["items"])
    assert [] == (await olaf.call("GET", "/executions/", params=by_schedule))["items"]


async def test_only_what_may_be_deleted_is_deleted_together(carillon: Carillon) -> None:
    """Schedules of a team in which one only reads are ignored, like those of others."""
    mia = await carillon.member()
    team = await team_of(mia)
    vera = await member_with(carillon, mia, team, "viewer")
    shared = await mia.schedule(await mia.workflow(team_id=team["id"]), team_id=team["id"])
    own = await vera.schedule()
    await vera.call("POST", "/schedules/batch-delete/", 204, json={"schedule_ids": [shared["id"], own["id"]]})
    await mia.get(shared)
    await vera.call("GET", f"/schedules/{own['id']}/", 404)


async def test_secrets_and_signing_keys_of_a_team(carillon: Carillon) -> None:
    """Editors and owners change them; viewers see names. A secret can be shared with a team."""
    mia = await carillon.member()
    team = await team_of(mia)
    eve, vera = await member_with(carillon, mia, team, "editor"), await member_with(carillon, mia, team, "viewer")
    own = {"team_id": team["id"]}
    made = await eve.call("PUT", "/secrets/KEY/", 201, json={"value": "v", "allowed_hosts": ["example.com"], **own})
    assert (team["id"], team["id"], False) == (made["owner"], made["team_id"], made["shared_to_you"])
    await mia.call("PUT", "/secrets/KEY/", json={"value": "w", **own})
    await mia.call("POST", "/secrets/", 409, json={"name": "KEY", "value": "w", **own})
    assert ["KEY"] == [one["name"] for one in (await vera.call("GET", "/secrets/"))["items"]]
    await vera.call("PUT", "/secrets/KEY/", 403, json={"value": "w", **own})
    await vera.call("DELETE", "/secrets/KEY/", 403, params=own)
    await vera.call("GET", "/signing-key/", 403, params=own)
    await vera.call("POST", "/signing-key/rotate/", 403, params=own)
    key = await eve.call("GET", "/signing-key/", params=own)
    assert key == await mia.call("GET", "/signing-key/", params=own)
    assert key != await mia.call("GET", "/signing-key/")
    assert key["key"] == (await mia.call("POST", "/signing-key/rotate/", params=own))["previous"]["key"]
    await carillon.call("GET", "/signing-key/", 404, params={"team_id": (await mia.call("GET", "/me/"))["id"]})
    lent = {"name": "LENT", "value": "v", "allowed_hosts": ["example.com"], "shared_with": [team["id"]]}
    await carillon.call("POST", "/secrets/", 201, json=lent)
    shown = {one["name"]: one for one in (await vera.call("GET", "/secrets/"))["items"]}
    assert (True, [team["id"]], None) == tuple(
        shown["LENT"][name] for name in ("shared_to_you", "shared_with", "team_id")
    )
    call = {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/"}}
    for name in ("KEY", "LENT"):
        call["config"] = {"url": "https://example.com/", "headers": {"x": f"{{{{ secret.{name} }}}}"}}
        await eve.workflow(call, **own)
        await eve.call(
            "POST", "/workflows/", 422, json={"name": "w", "nodes": [{"id": "a", "type": "trigger_schedule"}, call]}
        )
    await eve.call("DELETE", "/secrets/KEY/", 204, params=own)
