"""Search over schedules and workflows, of what one may see.

Covers app.api.search, app.persistence.search, app.services.search.
"""

from typing import Any

from tests.support.carillon import Carillon

URL = "https://API.shop.example:8443/x?y={{ trigger.payload.y }}"
CALL = {"id": "call", "type": "core.http_request", "config": {"url": URL}}


async def found(client: Carillon, q: str, **params: Any) -> list[tuple[str, str, str]]:
    """Return type, name and matching field of what a search finds."""
    items = (await client.call("GET", "/search/", params={"q": q, **params}))["items"]
    return [(item["type"], item["name"], item["match"]) for item in items]


async def test_names_keys_ids_and_hosts(carillon: Carillon) -> None:
    """What begins with the text comes first; a schedule is found by the host that its workflow calls."""
    workflow = await carillon.workflow(CALL, name="report flow", key="flows/1")
    schedule = await carillon.schedule(workflow, name="Nightly report", key="k/1")
    await carillon.schedule(workflow, name="report daily")
    expected = {("schedule", "report daily", "name"), ("workflow", "report flow", "name")}
    results = await found(carillon, "REPORT")
    assert (expected, ("schedule", "Nightly report", "name")) == (set(results[:2]), results[2])
    assert [("schedule", "Nightly report", "id")] == await found(carillon, schedule["id"])
    assert ("workflow", "report flow", "id") in await found(carillon, str(workflow["id"]))
    assert [("schedule", "Nightly report", "key")] == await found(carillon, "K/")
    hosts = await found(carillon, "api.shop")
    assert {("workflow", "report flow"), ("schedule", "report daily"), ("schedule", "Nightly report")} == {
        one[:2] for one in hosts
    }
    assert {"target_host"} == {one[2] for one in hosts}
    assert 1 == len(await found(carillon, "report", limit=1))
    assert [] == await found(carillon, "%") == await found(carillon, "nothing like it")
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"nodes": [workflow["nodes"][0]], "edges": []})
    assert [] == await found(carillon, "api.shop")


async def test_whole_names_and_beginnings_of_ids(carillon: Carillon) -> None:
    """A whole name is found among many newer ones that contain it, and an id by its first digits."""
    workflow = await carillon.workflow(name="flow")
    oldest = await carillon.schedule(workflow, name="bill")
    for number in range(3):
        await carillon.schedule(workflow, name=f"bill {number}")
    (first,) = (await carillon.call("GET", "/search/", params={"q": "bill", "limit": 1}))["items"]
    assert oldest["id"] == first["id"]
    for text in (oldest["id"][:6], oldest["id"][:12].upper()):
        (found,) = (await carillon.call("GET", "/search/", params={"q": text}))["items"]
        assert (oldest["id"], "id") == (found["id"], found["match"])


async def test_only_what_one_may_see(carillon: Carillon) -> None:
    """One's own, that of one's teams, and with a restricted token what belongs to its workflows."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    own = await mia.workflow(name="x own")
    await mia.schedule(await mia.workflow(name="x team", team_id=team["id"]), name="x shared", team_id=team["id"])
    assert {"x own", "x team", "x shared"} == {name for _, name, _ in await found(mia, "x ")}
    assert [] == await found(olaf, "x ")
    assert 3 == len(await found(carillon, "x "))
    token = await mia.call("POST", "/tokens/", 201, json={"name": "t", "restrict": {"workflow_ids": [own["id"]]}})
    assert [("workflow", "x own", "name")] == await found(mia.with_token(token["token"]), "x ")
