"""Every call about one object, by who makes it, how far the token reaches, and whose the object is.

The calls come from the table of routes in tests/api/test_scopes.py: a new route is in this test too.

Covers app.persistence.restrictions.
"""

from typing import Any
from uuid import uuid4

import pytest

from app.config import Settings
from app.domain.access import Scope, TeamRole
from app.persistence.database import Database
from tests.api.test_scopes import CALLS, code_of
from tests.api.test_teams import join, member_with, team_of
from tests.support.carillon import FAIL, Carillon, Json, fire_and_read, make_due
from tests.support.declarations import applying

# Calls about users, teams and what belongs to them have a table of their own below; a new one is about an owned object.
ACCOUNTS = ("/users/", "/tokens/", "/sessions/", "/teams/", "/secrets/", "/limits/", "/leases/")
# Keys are names of one's own: another's is not found, whatever one may do to the object (tests/api/test_keys.py).
BY_KEY = ("/schedules/by-key/", "/workflows/by-key/")
# Operations belong to who started them: tests/engine/test_bulk_operations.py.
OPERATIONS = ("/operations/",)
# Other answers to allowed calls: the schedule is not dead, and has a run, which is cancelled before it is run again.
OTHER_ANSWERS = {"revive": (400, "wrong_state"), "run": (409, "conflict"), "again": (202, "")}
OTHER_ANSWERS |= {"skip": (422, "validation"), "backfill": (422, "validation")}
# Calls about objects that belong to no workflow: a restricted token reaches none of them.
WITHOUT_WORKFLOW = ("/webhooks/", "/notifications/", "/calendars/")
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
    calendar = await owner.call("POST", "/calendars/", 201, json={"name": uuid4().hex, **own})
    for made in (workflow, schedule, webhook, notification):
        assert team is None or (team["id"], team["id"]) == (made["team_id"], made["user_profile_id"])
    return {
        "workflow_id:int": workflow["id"],
        "schedule_id:uuid": schedule["id"],
        "execution_id:uuid": run["id"],
        "webhook_id:int": webhook["id"],
        "notification_id:int": notification["id"],
        "calendar_name:str": calendar["name"],
    }


def calls_on(ids: dict[str, Any]) -> list[tuple[str, str, Scope]]:
    """Return all calls about one object, with these ids; deletions last, and of workflows after all others."""
    found = []
    for method, path, needed in CALLS:
        if "{" in path and not path.startswith((*ACCOUNTS, *BY_KEY, *OPERATIONS)):
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


def answer_to(method: str, path: str) -> tuple[int, str]:
    """Return status and code of the answer to an allowed call about a new object."""
    return (204, "") if method == "DELETE" else OTHER_ANSWERS.get(path.split("/")[-2], (200, ""))


async def check(client: Carillon, calls: list[tuple[str, str, Scope]], rights: Scope | None, token: Scope) -> None:
    """Make all calls; each must be allowed, hidden, or refused for its scope, and in this order of precedence."""
    for method, path, needed in calls:
        response = await client.request(method, path)
        code = code_of(response)
        told = (method, path, token, response.text)
        if not token.includes(needed):
            # Refused before anything is looked up: it tells nothing of the object.
            assert (403, "insufficient_scope") == (response.status_code, code), told
        elif rights is None:
            assert (404, "not_found") == (response.status_code, code), told
        elif rights.includes(needed):
            assert answer_to(method, path) == (response.status_code, code), told
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
    # A user's token cannot have more than the user's role.
    for token in [scope for scope in Scope if scope is not Scope.ADMIN or client is carillon]:
        calls = calls_on(await objects_of(mia, team))
        await check(await limited(client, token), calls, RIGHTS[who], token)


Answers = dict[str, tuple[int, str]]
DENIED, FORBIDDEN, HIDDEN = (403, "insufficient_scope"), (403, "forbidden"), (404, "not_found")
# By call, what each of these people is answered who has a token of the needed scope. All objects are of the owner: the
# team, its secret, its limit and its members, and the owner's own token and session.
OF_ALL: Answers = dict.fromkeys(("admin", "owner", "editor", "operator", "viewer"), (200, "")) | {"stranger": HIDDEN}
OF_ADMINS: Answers = dict.fromkeys(OF_ALL, DENIED)
OF_OWNERS: Answers = {"editor": FORBIDDEN, "operator": DENIED, "viewer": DENIED, "stranger": HIDDEN}
OF_EDITORS: Answers = {"operator": DENIED, "viewer": DENIED, "stranger": HIDDEN}
OWN: Answers = dict.fromkeys(OF_ALL, HIDDEN)


def for_those(answers: Answers, status: int, *who: str) -> Answers:
    """Return a row of the table in which these people may do it."""
    return answers | dict.fromkeys(who, (status, ""))


ON_ACCOUNTS: dict[tuple[str, str], Answers] = {
    ("GET", "/users/{user_id:int}"): for_those(OF_ADMINS, 200, "admin"),
    ("PATCH", "/users/{user_id:int}"): for_those(OF_ADMINS, 200, "admin"),
    ("GET", "/users/{user_id:int}/tokens"): for_those(OF_ADMINS, 200, "admin"),
    ("POST", "/users/{user_id:int}/tokens"): for_those(OF_ADMINS, 201, "admin"),
    ("DELETE", "/users/{user_id:int}"): for_those(OF_ADMINS, 204, "admin"),
    ("GET", "/teams/{team_id:int}"): OF_ALL,
    ("GET", "/teams/{team_id:int}/members"): OF_ALL,
    ("PATCH", "/teams/{team_id:int}"): for_those(OF_OWNERS, 200, "admin", "owner"),
    ("POST", "/teams/{team_id:int}/members"): for_those(OF_OWNERS, 201, "admin", "owner"),
    ("PATCH", "/teams/{team_id:int}/members/{user_id:int}"): for_those(OF_OWNERS, 200, "admin", "owner"),
    ("DELETE", "/teams/{team_id:int}/members/{user_id:int}"): for_those(OF_OWNERS, 204, "admin", "owner"),
    ("PUT", "/secrets/{secret_name:str}"): for_those(OF_EDITORS, 200, "admin", "owner", "editor"),
    ("DELETE", "/secrets/{secret_name:str}"): for_those(OF_EDITORS, 204, "admin", "owner", "editor"),
    ("GET", "/limits/{limit_name:str}"): OF_ALL,
    ("PATCH", "/limits/{limit_name:str}"): for_those(OF_EDITORS, 200, "admin", "owner", "editor"),
    ("DELETE", "/limits/{limit_name:str}"): for_those(OF_EDITORS, 204, "admin", "owner", "editor"),
    ("DELETE", "/teams/{team_id:int}"): for_those(OF_OWNERS, 204, "admin", "owner"),
    ("POST", "/leases/{lease_id:int}/approve"): for_those(OWN, 200, "admin", "owner"),
    ("POST", "/leases/{lease_id:int}/adopt"): for_those(OWN, 200, "admin", "owner"),
    ("POST", "/leases/{lease_id:int}/revoke"): for_those(OWN, 200, "admin", "owner"),
    ("GET", "/leases/{lease_id:int}"): for_those(OWN, 200, "admin", "owner"),
    ("PATCH", "/leases/{lease_id:int}"): for_those(OWN, 200, "admin", "owner"),
    ("DELETE", "/sessions/{session_id:int}"): for_those(OWN, 204, "admin", "owner"),
    ("POST", "/tokens/{token_id:int}/rotate"): for_those(OWN, 201, "admin", "owner"),
    ("DELETE", "/tokens/{token_id:int}"): for_those(OWN, 204, "admin", "owner"),
}
# What a member may do to their own, and only a token of an admin to that of others.
OWN_OR_ADMINS = ("/tokens/", "/sessions/")


def test_every_call_about_accounts_has_a_row() -> None:
    """A new route without a row fails."""
    about = {(method, path) for method, path, _ in CALLS if "{" in path and path.startswith(ACCOUNTS)}
    assert about == set(ON_ACCOUNTS)


async def accounts_of(carillon: Carillon, owner: Carillon, team: Json) -> dict[str, Any]:
    """Create a user in the team, and a secret, a token and a session; return ids by the names that paths have."""
    user = await carillon.call("POST", "/users/", 201, json={"username": uuid4().hex})
    await owner.call("POST", f"/teams/{team['id']}/members/", 201, json={"user_id": user["id"], "role": "viewer"})
    secret = f"S{uuid4().hex}"
    await owner.call("POST", "/secrets/", 201, json={"name": secret, "value": "v", "team_id": team["id"]})
    limit = {"name": uuid4().hex, "max_concurrent": 1, "team_id": team["id"]}
    await owner.call("POST", "/limits/", 201, json=limit)
    terms = {"name": "t", "scopes": ["read"]}
    logged_in, token = [await owner.call("POST", "/tokens/", 201, json=terms) for _ in range(2)]
    await owner.call("POST", "/session/", 204, json={"token": logged_in["token"]})
    session = max((await owner.call("GET", "/sessions/"))["items"], key=lambda one: int(one["id"]))
    until = {"agent": "a", "expires_at": "2900-01-01T00:00:00Z"}
    lease = await owner.call("POST", "/leases/", 201, json=until)
    return {
        "lease_id:int": lease["id"],
        "user_id:int": user["id"],
        "team_id:int": team["id"],
        "secret_name:str": secret,
        "limit_name:str": limit["name"],
        "token_id:int": token["id"],
        "session_id:int": session["id"],
    }


async def options_of(carillon: Carillon, method: str, path: str, team: Json) -> Json:
    """Return the body or the parameters that a call needs."""
    match method, path.split("/")[1], path.rsplit("/", maxsplit=1)[-1]:
        case "POST", "users", "tokens":
            return {"json": {"name": "t"}}
        case "POST", "teams", "members":
            user = await carillon.call("POST", "/users/", 201, json={"username": uuid4().hex})
            return {"json": {"user_id": user["id"], "role": "viewer"}}
        case "POST", "tokens", "rotate":
            # The old token is there until it is deleted.
            return {"json": {"grace_seconds": 600}}
        case "PUT", "secrets", _:
            return {"json": {"value": "w", "team_id": team["id"]}}
        case (_, "limits", _) | ("DELETE", "secrets", _):
            return {"params": {"team_id": team["id"]}}
        case _:
            return {}


def answer_on_accounts(who: str, call: tuple[str, str], needed: Scope, token: Scope) -> tuple[int, str]:
    """Return status and code of the answer to a call about accounts."""
    if needed is Scope.ADMIN and who != "admin":
        return DENIED
    if not token.includes(needed):
        return DENIED
    if who == "admin" and call[1].startswith(OWN_OR_ADMINS) and token is not Scope.ADMIN:
        return HIDDEN
    return ON_ACCOUNTS[call][who]


@pytest.mark.parametrize("who", OF_ALL)
async def test_every_call_about_accounts_by_person_and_token(carillon: Carillon, who: str) -> None:
    """Users are the admins' business, tokens and sessions one's own, teams their owners'."""
    mia = await carillon.member("mia")
    client = {"admin": carillon, "owner": mia}.get(who) or await carillon.member(who)
    needed = {(method, path): scope for method, path, scope in CALLS}
    for token in [scope for scope in Scope if scope is not Scope.ADMIN or client is carillon]:
        team = await team_of(mia, f"team {token}")
        if who in set(TeamRole) and client is not mia:
            await join(mia, team, (await client.call("GET", "/me/"))["id"], who)
        ids = await accounts_of(carillon, mia, team)
        caller = await limited(client, token)
        # What is deleted comes last: members before the team, and the team after its secret.
        for method, path in sorted(ON_ACCOUNTS, key=lambda call: (call[0] == "DELETE", -call[1].count("/"))):
            filled = path.replace("{", "").replace("}", "")
            for name, value in ids.items():
                filled = filled.replace(name, str(value))
            response = await caller.request(method, f"{filled}/", **await options_of(carillon, method, path, team))
            code = response.json().get("code", "") if response.content else ""
            expected = answer_on_accounts(who, (method, path), needed[method, path], token)
            assert expected == (response.status_code, code), (method, path, token, response.text)


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
    """Together with workflows too."""
    ids = await objects_of(carillon)
    for terms in (restrict, {**restrict, "workflow_ids": [ids["workflow_id:int"]]}):
        client = await limited(carillon, Scope.ADMIN, restrict=terms)
        for path in ("/schedules/", "/workflows/", "/executions/", "/breakers/"):
            assert [] == (await client.call("GET", path))["items"], path
        for method, path, _ in calls_on(ids):
            if not path.startswith(WITHOUT_WORKFLOW):
                await client.call(method, path, 404)


async def test_a_token_that_is_restricted_to_labels(carillon: Carillon) -> None:
    """It reaches schedules and workflows that have all of them, and what belongs to these schedules."""
    mia = await carillon.member()
    labels = {"team": "shop", "env": "prod"}
    workflow = await mia.workflow(labels={**labels, "x": "y"}, breaker_threshold=3)
    made = [
        await mia.schedule(workflow, name=name, labels=one) for name, one in (("in", labels), ("out", {"team": "shop"}))
    ]
    runs = [await mia.call("POST", f"/schedules/{schedule['id']}/run/", 202) for schedule in made]
    other = await mia.workflow(labels={"team": "web", "env": "prod"}, breaker_threshold=3)
    client = await limited(mia, Scope.WRITE, restrict={"labels": labels})
    for path, key, expected in (
        ("/schedules/", "name", ["in"]),
        ("/workflows/", "id", [workflow["id"]]),
        ("/breakers/", "workflow_id", [workflow["id"]]),
        ("/executions/", "id", [runs[0]["id"]]),
    ):
        assert expected == [one[key] for one in (await client.call("GET", path))["items"]], path
    for params in ({"label": "team=web"}, {"label": ["team=shop", "team=web"]}, {"q": "out"}):
        assert [] == (await client.call("GET", "/schedules/", params=params))["items"]
    assert ["in"] == [one["name"] for one in (await client.call("GET", "/search/", params={"q": "in"}))["items"]]
    for schedule, run, status in ((made[0], runs[0], 200), (made[1], runs[1], 404)):
        for path in (
            f"/schedules/{schedule['id']}/",
            f"/schedules/{schedule['id']}/ledger/",
            f"/executions/{run['id']}/",
        ):
            await client.call("GET", path, status)
    await client.call("GET", f"/workflows/{other['id']}/", 404)
    body = {"name": "new", "interval_seconds": 60, "workflow_id": workflow["id"]}
    refused = await client.call("POST", "/schedules/", 403, json=body)
    assert ("restricted", True) == (refused["code"], "`team=shop`" in refused["detail"])
    await client.call("POST", "/schedules/", 201, json={**body, "labels": labels})
    await client.call("POST", "/schedules/", 404, json={**body, "labels": labels, "workflow_id": other["id"]})
    await client.call("POST", "/schedules/batch-delete/", 204, json={"schedule_ids": [one["id"] for one in made]})
    await mia.call("GET", f"/schedules/{made[0]['id']}/", 404)
    await mia.get(made[1])


async def test_a_token_that_is_restricted_to_a_namespace(carillon: Carillon, settings: Settings) -> None:
    """It reaches what files of the namespace declare, and creates nothing beside them."""
    declared = """
    namespace: shop
    workflows: [{name: w, nodes: [{id: start, type: trigger_schedule}]}]
    schedules: [{name: declared, workflow: w, every: 5m}]
    """
    async with applying(settings) as apply:
        assert [] == (await apply(declared)).problems
    by_hand = await carillon.schedule(name="by hand")
    client = await limited(carillon, Scope.WRITE, restrict={"namespace": "shop"})
    (schedule,) = (await client.call("GET", "/schedules/"))["items"]
    (workflow,) = (await client.call("GET", "/workflows/"))["items"]
    assert ("declared", "w") == (schedule["name"], workflow["name"])
    assert [] == (await client.call("GET", "/schedules/", params={"namespace": "other"}))["items"]
    await client.call("POST", f"/schedules/{schedule['id']}/pause/")
    await client.call("GET", f"/schedules/{by_hand['id']}/", 404)
    body = {"name": "new", "interval_seconds": 60, "workflow_id": workflow["id"]}
    assert "restricted" == (await client.call("POST", "/schedules/", 403, json=body))["code"]


@pytest.mark.parametrize("restrict", [{"labels": {"team": "shop"}}, {"namespace": "shop"}])
async def test_counts_and_operations_keep_to_labels_and_namespaces(
    carillon: Carillon, settings: Settings, database: Database, restrict: Json
) -> None:
    """They leave out the other schedules and workflows of the owner, of which some need attention."""
    declared = """
    namespace: shop
    workflows: [{name: w, labels: {team: shop}, nodes: [{id: start, type: trigger_schedule}]}]
    schedules: [{name: in, workflow: w, every: 5m, labels: {team: shop}}]
    """
    async with applying(settings) as apply:
        assert [] == (await apply(declared)).problems
    (within,) = (await carillon.call("GET", "/schedules/"))["items"]
    beside = await carillon.schedule({"id": within["workflow_id"]}, name="out")
    failing = await carillon.workflow(FAIL, breaker_threshold=1)
    dead = await carillon.schedule(failing, name="dead", max_retries=0)
    await fire_and_read(carillon, settings, database, dead)
    await make_due(database, beside, 30)
    client = await limited(carillon, Scope.WRITE, restrict=restrict)
    kinds = {one["kind"] for one in (await carillon.call("GET", "/overview/"))["attention"]}
    assert {"dead", "late", "breaker_open"} <= kinds
    overview = await client.call("GET", "/overview/")
    assert {"active": 1, "paused": 0, "done": 0, "dead": 0} == overview["counts"]["status"]
    assert (1, 0) == (sum(overview["counts"]["health"].values()), overview["due"])
    assert [] == [one for one in overview["attention"] if one["object_type"] != "settings"]
    for chosen, reasons in (
        ({"filter": {}}, []),
        ({"ids": [within["id"], beside["id"], dead["id"]]}, [{"reason": "not_found", "count": 2}]),
    ):
        order = {"action": "pause", **chosen}
        tried = await client.call("POST", "/schedules/bulk/", json={**order, "dry_run": True})
        assert (1, reasons) == (tried["count"], tried["skipped"])
        assert 1 == (await client.call("POST", "/schedules/bulk/", 202, json=order))["total"]
    for path in ("/stats/outcomes/", "/stats/lateness/"):
        assert "restricted" == (await client.call("GET", path, 403))["code"]
