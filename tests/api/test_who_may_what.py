"""Every call about one object, by who makes it, how far the token reaches, and whose the object is.

The calls come from the table of routes in tests/api/test_scopes.py: a new route is in this test too.
"""

from typing import Any

import pytest

from app.domain.access import Scope
from tests.api.test_scopes import CALLS
from tests.api.test_teams import member_with, team_of
from tests.support.carillon import Carillon, Json

# Calls about an object that belongs to a user alone, or that other tests cover; a new one is about an owned object.
# Keys are names of one's own: another's is not found, whatever one may do to the object (tests/api/test_keys.py).
NOT_OWNED = (
    *("/users/", "/tokens/", "/sessions/", "/teams/", "/secrets/"),
    *("/schedules/by-key/", "/workflows/by-key/"),
)
# Calls about objects that belong to no workflow: a restricted token reaches none of them.
WITHOUT_WORKFLOW = ("/webhooks/", "/notifications/")
WEBHOOK = {"url": "http://127.0.0.1:9/", "interval_minutes": 5}
# The highest scope that a user has for an object; None for whom the object does not exist.
RIGHTS: dict[str, Scope | None] = {
    "admin on another's": Scope.ADMIN,
    "admin on a team's": Scope.ADMIN,
    "member on their own": Scope.WRITE,
    "member on another's": None,
    "member on a team's": None,
    "viewer": Scope.READ,
    "operator": Scope.OPERATE,
    "editor": Scope.WRITE,
    "owner": Scope.WRITE,
}


async def objects_of(owner: Carillon, team: Json | None = None) -> dict[str, Any]:
    """Create an object of each kind, for a team if there is one; return their ids by the names that paths have."""
    own = {} if team is None else {"team_id": team["id"]}
    workflow = await owner.workflow(breaker_threshold=3, **own)
    schedule = await owner.schedule(workflow, **own)
    run = await owner.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    webhook = await owner.call("POST", "/webhooks/", 201, json={**WEBHOOK, **own})
    notification = await owner.call("POST", "/notifications/", 201, json={"url": "http://127.0.0.1:9/", **own})
    for made in (workflow, schedule, webhook, notification):
        assert team is None or (team["id"], team["id"]) == (made["team_id"], made["user_profile_id"])
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
    assert len(found) > 25
    return sorted(found, key=lambda call: (call[0] == "DELETE", call[1].startswith("/workflows")))


async def limited(client: Carillon, token: Scope, **terms: Any) -> Carillon:
    """Return a client of the same user with a token of this scope."""
    made = await client.call("POST", "/tokens/", 201, json={"name": "t", "scopes": [token], **terms})
    return client.with_token(made["token"])


async def check(client: Carillon, calls: list[tuple[str, str, Scope]], rights: Scope | None, token: Scope) -> None:
    """Make all calls; each must be allowed, hidden, or refused for its scope, and in this order of precedence."""
    for method, path, needed in calls:
        response = await client.request(method, path)
        code = response.json().get("code", "") if response.content else ""
        told = (method, path, token, response.text)
        if not token.includes(needed):
            # Refused before anything is looked up: it tells nothing of the object.
            assert (403, "insufficient_scope") == (response.status_code, code), told
        elif rights is None:
            assert (404, "not_found") == (response.status_code, code), told
        elif rights.includes(needed):
            assert response.status_code in {200, 202, 204, 400, 409}, told
        else:
            assert (403, "insufficient_scope") == (response.status_code, code), told


@pytest.mark.parametrize("who", RIGHTS)
async def test_every_route_by_person_token_and_owner(carillon: Carillon, who: str) -> None:
    """The least of role, token and role in the team counts; what is out of sight does not exist."""
    mia = await carillon.member()
    team = None if who.endswith(("another's", "their own")) else await team_of(mia)
    match who.split(" ", 1)[0]:
        case "admin":
            client = carillon
        case "member" if who.endswith("their own"):
            client = mia
        case "member":
            client = await carillon.member("stranger")
        case role:
            assert team is not None
            client = await member_with(carillon, mia, team, role)
    rights = RIGHTS[who]
    ids = await objects_of(mia, team)
    # A user's token cannot have more than the user's role.
    for token in [scope for scope in Scope if scope is not Scope.ADMIN or client is carillon]:
        await check(await limited(client, token), calls_on(ids), rights, token)
        if rights is not None and rights.includes(Scope.WRITE) and token is Scope.WRITE:
            ids = await objects_of(mia, team)


@pytest.mark.parametrize("token", [Scope.READ, Scope.OPERATE, Scope.WRITE])
async def test_a_restricted_token_reaches_its_workflows_and_what_belongs_to_them(
    carillon: Carillon, token: Scope
) -> None:
    """With their schedules, executions and breakers, as far as its scope; everything else does not exist for it."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    inside, outside, others = await objects_of(mia), await objects_of(mia), await objects_of(olaf)
    restrict = {"workflow_ids": [inside["workflow_id:int"], others["workflow_id:int"]]}
    client = await limited(mia, token, restrict=restrict)
    for ids, rights in ((outside, None), (others, None), (inside, Scope.WRITE)):
        belonging = [call for call in calls_on(ids) if not call[1].startswith(WITHOUT_WORKFLOW)]
        await check(client, belonging, rights, token)
        for method, path, needed in calls_on(ids):
            if path.startswith(WITHOUT_WORKFLOW) and token.includes(needed):
                assert "restricted" == (await client.call(method, path, 403))["code"]


async def test_lists_of_a_restricted_token(carillon: Carillon) -> None:
    """They have what belongs to its workflows, in one order over all of them, and filters do not widen them."""
    mia = await carillon.member()
    every = [await mia.workflow(name=str(number), breaker_threshold=3) for number in range(3)]
    made = [await mia.schedule(every[number % 3], name=str(number)) for number in range(9)]
    for schedule in made[:3]:
        await mia.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    first, second, outside = (workflow["id"] for workflow in every)
    client = await limited(mia, Scope.WRITE, restrict={"workflow_ids": [first, second]})

    async def names(**params: Any) -> list[str]:
        return [one["name"] for one in (await client.call("GET", "/schedules/", params=params))["items"]]

    assert ["7", "6", "4", "3", "1", "0"] == await names()
    assert ["4", "3"] == await names(limit=2, offset=2)
    assert (["7", "4", "1"], []) == (await names(workflow_id=second), await names(workflow_id=outside))
    page = await client.call("GET", "/schedules/", params={"limit": 4})
    assert (6, ["1", "0"]) == (page["total"], await names(cursor=page["next_cursor"]))
    for path, key, expected in (
        ("/workflows/", "id", [second, first]),
        ("/breakers/", "workflow_id", [first, second]),
        ("/executions/", "workflow_id", [second, first]),
    ):
        assert expected == [one[key] for one in (await client.call("GET", path))["items"]], path
    for params in ({"workflow_id": outside}, {"scheduled_job_id": made[2]["id"]}):
        assert [] == (await client.call("GET", "/executions/", params=params))["items"]
    body = {"name": "new", "interval_seconds": 60}
    await client.call("POST", "/schedules/", 201, json={**body, "workflow_id": first})
    await client.call("POST", "/schedules/", 404, json={**body, "workflow_id": outside})
    await client.call("POST", "/schedules/batch/", 422, json={"schedules": [{**body, "workflow_id": outside}]})
    await client.call("PATCH", f"/schedules/{made[0]['id']}/", 404, json={"workflow_id": outside})
    await client.call("PATCH", f"/schedules/{made[0]['id']}/", json={"workflow_id": second})
    ids = [made[2]["id"], made[4]["id"]]
    await client.call("POST", "/schedules/batch-delete/", 204, json={"schedule_ids": ids})
    await mia.get(made[2])
    await mia.call("GET", f"/schedules/{made[4]['id']}/", 404)
    assert "restricted" == (await client.call("POST", "/workflows/", 403, json={}))["code"]


async def test_a_restricted_token_does_not_change_what_its_workflows_do(carillon: Carillon) -> None:
    """Their nodes act with all rights of the owner, on other schedules and with secrets too."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    client = await limited(mia, Scope.WRITE, restrict={"workflow_ids": [workflow["id"]]})
    path = f"/workflows/{workflow['id']}/"
    refused: list[Json] = [{"nodes": workflow["nodes"]}, {"edges": []}, {"name": "x", "nodes": workflow["nodes"]}]
    for changes in refused:
        problem = await client.call("PATCH", path, 403, json=changes)
        assert ("restricted", True) == (problem["code"], "`nodes` and `edges`" in problem["detail"])
    unchanged = await mia.call("GET", path)
    assert ("w", workflow["nodes"], workflow["edges"]) == tuple(unchanged[name] for name in ("name", "nodes", "edges"))
    assert "x" == (await client.call("PATCH", path, json={"name": "x", "max_concurrent_runs": 2}))["name"]
    await client.call("DELETE", path, 204)


@pytest.mark.parametrize("restrict", [{"labels": {"team": "shop"}}, {"namespace": "shop"}])
async def test_a_token_for_what_no_object_has_reaches_no_object(carillon: Carillon, restrict: Json) -> None:
    """It fails closed, together with workflows too."""
    ids = await objects_of(carillon)
    for terms in (restrict, {**restrict, "workflow_ids": [ids["workflow_id:int"]]}):
        client = await limited(carillon, Scope.ADMIN, restrict=terms)
        assert [] == (await client.call("GET", "/schedules/"))["items"]
        await client.call("GET", f"/schedules/{ids['schedule_id:uuid']}/", 404)
