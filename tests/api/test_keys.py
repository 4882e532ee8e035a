"""Keys: an owner's name for a schedule or a workflow, by which tools create and change it in one call.

Covers app.api.filters, app.persistence.keys.
"""

import asyncio
from typing import Any

import pytest

from tests.support.carillon import Carillon, Json

SPEC = {"name": "nightly", "interval_seconds": 300}
KEY = "shop/nightly:v1"
NODES = {"nodes": [{"id": "start", "type": "trigger_schedule"}]}


async def put(client: Carillon, path: str, expected: int, /, **values: Any) -> Json:
    """Put a schedule by its key."""
    made: Json = await client.call("PUT", f"/schedules/by-key/{path}/", expected, json={**SPEC, **values})
    return made


async def test_put_creates_changes_and_leaves_alone(carillon: Carillon) -> None:
    """201, then 200; what does not differ is not written, and what is left out has its default."""
    workflow = (await carillon.workflow())["id"]
    made = await put(carillon, KEY, 201, workflow_id=workflow, description="x", labels={"team": "shop"})
    assert (KEY, "x", {"team": "shop"}) == (made["key"], made["description"], made["labels"])
    same = await put(carillon, KEY, 200, workflow_id=workflow, description="x", labels={"team": "shop"}, key=KEY)
    assert made == same
    assert 1 == len(await carillon.history(made))
    changed = await put(carillon, KEY, 200, workflow_id=workflow, interval_seconds=60)
    assert (made["id"], "", {}, 60) == tuple(
        changed[name] for name in ("id", "description", "labels", "interval_seconds")
    )
    assert 2 == len(await carillon.history(made))
    path = f"/schedules/by-key/{KEY}/"
    assert changed == await carillon.call("GET", path)
    await carillon.call("DELETE", path, 204)
    for method in ("GET", "DELETE"):
        await carillon.call(method, path, 404)


async def test_put_lifts_no_pause(carillon: Carillon) -> None:
    """A person has paused it: a tool that applies its files again must not resume it."""
    workflow = (await carillon.workflow())["id"]
    made = await put(carillon, KEY, 201, workflow_id=workflow)
    await carillon.call("POST", f"/schedules/{made['id']}/pause/")
    for interval in (300, 60):
        after = await put(carillon, KEY, 200, workflow_id=workflow, interval_seconds=interval)
        assert ("paused", interval) == (after["status"], after["interval_seconds"])


async def test_a_key_is_unique_for_its_owner(carillon: Carillon) -> None:
    """A second one is refused by POST, in a batch, and by PATCH; another owner, and a team, have keys of their own."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    first = await mia.schedule(workflow, key=KEY)
    body = {**SPEC, "workflow_id": workflow["id"], "key": KEY}
    assert "key_taken" == (await mia.call("POST", "/schedules/", 409, json=body))["code"]
    await mia.call("POST", "/schedules/batch/", 422, json={"schedules": [body]})
    twice = {**body, "key": "new"}
    await mia.call("POST", "/schedules/batch/", 422, json={"schedules": [twice, twice]})
    other = await mia.schedule(workflow)
    assert "key_taken" == (await mia.call("PATCH", f"/schedules/{other['id']}/", 409, json={"key": KEY}))["code"]
    await carillon.schedule(key=KEY)
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    own = {"team_id": team["id"]}
    theirs = await mia.workflow(**own)
    made = await put(mia, KEY, 201, workflow_id=theirs["id"], **own)
    assert made["id"] == (await mia.call("GET", f"/schedules/by-key/{KEY}/", params=own))["id"]
    assert first["id"] == (await mia.call("GET", f"/schedules/by-key/{KEY}/"))["id"]
    await (await carillon.member("olaf")).call("GET", f"/schedules/by-key/{KEY}/", 404, params=own)
    await mia.call("PATCH", f"/schedules/{first['id']}/", json={"key": None})
    await mia.call("GET", f"/schedules/by-key/{KEY}/", 404)


async def test_clients_that_put_one_key_make_one_schedule(carillon: Carillon) -> None:
    """Whoever is first creates it; the others find it."""
    workflow = (await carillon.workflow())["id"]
    body = {**SPEC, "workflow_id": workflow}
    calls = [carillon.request("PUT", f"/schedules/by-key/{KEY}/", json=body) for _ in range(50)]
    responses = await asyncio.gather(*calls)
    assert [200] * 49 + [201] == sorted(response.status_code for response in responses)
    assert 1 == len({response.json()["id"] for response in responses})
    assert 1 == (await carillon.call("GET", "/schedules/"))["total"]
    told = await carillon.call("GET", "/audit/", params={"object_type": "schedule"})
    assert ["schedule_created"] == [event["action"] for event in told["items"]]
    posted = await asyncio.gather(
        *(carillon.request("POST", "/schedules/", json={**body, "key": "posted"}) for _ in range(20))
    )
    assert [201] + [409] * 19 == sorted(response.status_code for response in posted)


@pytest.mark.parametrize("key", ["a b", "ü", "x" * 201, "%00", "a%2500"])
async def test_what_is_no_key_is_not_found(carillon: Carillon, key: str) -> None:
    """In a path 404, but 422 if it would be created; in a body 422, and so is a key that differs from the path."""
    workflow = (await carillon.workflow())["id"]
    await carillon.call("GET", f"/schedules/by-key/{key}/", 404)
    await carillon.call("DELETE", f"/workflows/by-key/{key}/", 404)
    for refused in (
        await put(carillon, key, 422, workflow_id=workflow),
        await carillon.call("PUT", f"/workflows/by-key/{key}/", 422, json={"name": "w", **NODES}),
    ):
        assert ["key"] == [error["field"] for error in refused["errors"]]
    await carillon.call("POST", "/schedules/", 422, json={**SPEC, "workflow_id": workflow, "key": "a b"})
    refused = await put(carillon, KEY, 422, workflow_id=workflow, key="other")
    assert ["key"] == [error["field"] for error in refused["errors"]]
    await put(carillon, KEY, 404, workflow_id=98765)


async def test_workflows_have_keys_too(carillon: Carillon) -> None:
    """The same calls, of the same owner, beside a schedule of the same key."""
    path = "/workflows/by-key/shop/report/"
    body = {"name": "report", **NODES}
    made = await carillon.call("PUT", path, 201, json=body)
    assert made == await carillon.call("PUT", path, json=body) == await carillon.call("GET", path)
    changed = await carillon.call("PUT", path, json={**body, "name": "other", "labels": {"a": "b"}})
    assert (made["id"], "other", {"a": "b"}) == (changed["id"], changed["name"], changed["labels"])
    assert "key_taken" == (await carillon.call("POST", "/workflows/", 409, json={**body, "key": "shop/report"}))["code"]
    await put(carillon, "shop/report", 201, workflow_id=made["id"])
    await (await carillon.member()).call("GET", path, 404)
    calls = [carillon.request("PUT", "/workflows/by-key/many/", json=body) for _ in range(20)]
    assert [200] * 19 + [201] == sorted(one.status_code for one in await asyncio.gather(*calls))
    await carillon.call("DELETE", path, 204)
    await carillon.call("GET", path, 404)


@pytest.mark.parametrize("key", ["/lead", "end/", "a//b"])
async def test_a_path_names_a_key_with_all_its_slashes(carillon: Carillon, key: str) -> None:
    """Otherwise an object that a POST has made could not be found, and a PUT would make one of another key."""
    workflow = (await carillon.workflow())["id"]
    made = await carillon.schedule(key=key)
    for path in (key, key.replace("/", "%2F")):
        assert made["id"] == (await put(carillon, path, 200, workflow_id=workflow, name="changed"))["id"]
        assert made["id"] == (await carillon.call("GET", f"/schedules/by-key/{path}/"))["id"]
