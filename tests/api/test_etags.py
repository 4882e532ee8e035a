"""Entity tags: which changes they tell of, and requests that are refused because their client knows an old version.

Covers app.api.etags, app.domain.etags, app.services.preconditions.
"""

from typing import Any

import pytest
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, fire_and_read

NODES = {"nodes": [{"id": "start", "type": "trigger_schedule"}]}
OBJECTS = {
    "/workflows/": ({"name": "w", **NODES}, {"name": "x"}),
    "/webhooks/": ({"url": "http://127.0.0.1:9/", "interval_minutes": 5}, {"name": "x"}),
    "/notifications/": ({"url": "http://127.0.0.1:9/"}, {"active": False}),
    "/teams/": ({"name": "ops"}, {"name": "x"}),
    "/users/": ({"username": "olaf"}, {"role": "admin"}),
}


async def tag(client: Carillon, path: str) -> str:
    """Return the tag of an object."""
    response = await client.request("GET", path)
    assert 200 == response.status_code
    return str(response.headers["etag"])


@pytest.mark.parametrize("path", OBJECTS)
async def test_every_object_has_a_tag_that_changes_with_it(carillon: Carillon, path: str) -> None:
    """The same in every answer about the same version; a stale one is refused, a fresh one and `*` are not."""
    body, change = OBJECTS[path]
    made = await carillon.request("POST", path, json=body)
    here = f"{path}{made.json()['id']}/"
    first = await tag(carillon, here)
    assert first == made.headers["etag"]
    stale = {"If-Match": '"0123"'}
    assert "precondition_failed" == (await carillon.call("PATCH", here, 412, json=change, headers=stale))["code"]
    assert first == await tag(carillon, here)
    patched = await carillon.request("PATCH", here, json=change, headers={"If-Match": f'"x", W/{first}'})
    assert (200, True) == (patched.status_code, patched.headers["etag"] != first)
    assert patched.headers["etag"] == await tag(carillon, here)
    await carillon.call("DELETE", here, 412, headers={"If-Match": first})
    await carillon.call("DELETE", here, 204, headers={"If-Match": "*"})


async def test_a_schedules_tag_follows_edits_and_status_but_no_ticks(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Counters move with every tick: a client that edits the name must not be refused for that."""
    schedule = await carillon.schedule(interval_seconds=1, key="k")
    path = f"/schedules/{schedule['id']}/"
    first = await tag(carillon, path)
    assert first == await tag(carillon, "/schedules/by-key/k/")
    await fire_and_read(carillon, settings, database, schedule)
    assert 1 == (await carillon.get(schedule))["run_count"]
    assert first == await tag(carillon, path)
    assert first != await _patched(carillon, path, name="other")
    second = await tag(carillon, path)
    paused = await carillon.request("POST", f"{path}pause/", headers={"If-Match": second})
    assert (200, True) == (paused.status_code, paused.headers["etag"] not in {first, second})
    for method, verb in (("POST", "resume/"), ("POST", "run/"), ("POST", "pause/"), ("DELETE", ""), ("PATCH", "")):
        assert (
            "precondition_failed"
            == (await carillon.call(method, f"{path}{verb}", 412, headers={"If-Match": second}))["code"]
        )
    async with database.reading() as connection:
        count = "SELECT count(*) FROM workflow_executions WHERE trigger = 'manual'"
        assert 0 == (await connection.execute(text(count))).scalar_one()
    third = paused.headers["etag"]
    resumed = await carillon.request("POST", f"{path}resume/", headers={"If-Match": third})
    # It is as it was before the pause, but for the next run: who knows it from then does not know it now.
    for known in (first, second, third):
        await carillon.call("DELETE", path, 412, headers={"If-Match": known})
    await carillon.call("DELETE", path, 204, headers={"If-Match": resumed.headers["etag"]})


async def _patched(carillon: Carillon, path: str, **values: Any) -> str:
    return str((await carillon.request("PATCH", path, json=values)).headers["etag"])


async def test_304_only_for_an_equal_answer(carillon: Carillon, settings: Settings, database: Database) -> None:
    """A schedule that has moved is sent again although its tag is the same."""
    schedule = await carillon.schedule(interval_seconds=1, start_at="2040-01-01T00:00:00Z")
    path = f"/schedules/{schedule['id']}/"
    known = {"If-None-Match": await tag(carillon, path)}
    same = await carillon.request("GET", path, headers=known)
    assert (304, b"", known["If-None-Match"]) == (same.status_code, same.content, same.headers["etag"])
    assert 200 == (await carillon.request("GET", path, headers={"If-None-Match": '"other"'})).status_code
    await fire_and_read(carillon, settings, database, schedule)
    moved = await carillon.request("GET", path, headers=known)
    assert (200, known["If-None-Match"]) == (moved.status_code, moved.headers["etag"])
    workflow = f"/workflows/{schedule['workflow_id']}/"
    known = {"If-None-Match": await tag(carillon, workflow)}
    assert 304 == (await carillon.request("GET", workflow, headers=known)).status_code
    await carillon.call("PATCH", workflow, json={"name": "renamed"})
    assert 200 == (await carillon.request("GET", workflow, headers=known)).status_code


@pytest.mark.parametrize(
    "turns", [("pause/", "resume/"), ({"every": "2h"}, {"every": "1h"}), ({"name": "t"}, {"name": "s"})]
)
async def test_an_edit_there_and_back_is_sent_again(carillon: Carillon, turns: tuple[Any, Any]) -> None:
    """The values are the same, but the next run may be another one; so the answers have other tags."""
    schedule = await carillon.schedule(name="s", every="1h", interval_seconds=None)
    path = f"/schedules/{schedule['id']}/"
    tags = [await tag(carillon, path)]
    for turn in turns:
        ask = ("POST", f"{path}{turn}", None) if isinstance(turn, str) else ("PATCH", path, turn)
        answer = await carillon.request(ask[0], ask[1], json=ask[2])
        tags.append(answer.headers["etag"])
        assert tags[-1] == await tag(carillon, path)
        known = {"If-None-Match": ", ".join(tags[:-1])}
        now = await carillon.request("GET", path, headers=known)
        assert (200, answer.json()) == (now.status_code, now.json())
        known = {"If-None-Match": tags[-1]}
        assert 304 == (await carillon.request("GET", path, headers=known)).status_code
    assert len(turns) + 1 == len(set(tags))


async def test_an_edit_that_changes_nothing_changes_no_tag(carillon: Carillon) -> None:
    """A client that applies the same again does not make the knowledge of others stale."""
    body: Json = {"name": "s", "every": "1h", "workflow_id": (await carillon.workflow())["id"]}
    made = await carillon.request("PUT", "/schedules/by-key/k/", json=body)
    again = await carillon.request("PUT", "/schedules/by-key/k/", json=body)
    patched = await carillon.request("PATCH", f"/schedules/{made.json()['id']}/", json={"name": "s"})
    tags = {response.headers["etag"] for response in (made, again, patched)}
    assert {await tag(carillon, "/schedules/by-key/k/")} == tags


async def test_the_namespace_of_a_file_changes_the_tag(carillon: Carillon, database: Database) -> None:
    """It is shown, and nothing of the schedule's row tells that it has changed."""
    schedule = await carillon.schedule(start_at="2040-01-01T00:00:00Z")
    path = f"/schedules/{schedule['id']}/"
    known = {"If-None-Match": await tag(carillon, path)}
    async with database.transaction() as connection:
        await connection.execute(
            text("INSERT INTO managed_schedules (namespace, name, scheduled_job_id) VALUES ('shop', 's', :id)"),
            {"id": schedule["id"]},
        )
    response = await carillon.request("GET", path, headers=known)
    assert (200, "shop") == (response.status_code, response.json()["namespace"])


async def test_a_renamed_workflow_changes_the_answer_about_its_schedules(carillon: Carillon) -> None:
    """They show its name."""
    schedule = await carillon.schedule(start_at="2040-01-01T00:00:00Z")
    path = f"/schedules/{schedule['id']}/"
    known = {"If-None-Match": await tag(carillon, path)}
    await carillon.call("PATCH", f"/workflows/{schedule['workflow_id']}/", json={"name": "renamed"})
    response = await carillon.request("GET", path, headers=known)
    assert (200, "renamed") == (response.status_code, response.json()["workflow_name"])


async def test_put_only_if_it_does_not_exist(carillon: Carillon) -> None:
    """`If-None-Match: *` on PUT."""
    body: Json = {"name": "s", "interval_seconds": 60, "workflow_id": (await carillon.workflow())["id"]}
    absent = {"If-None-Match": "*"}
    await carillon.call("PUT", "/schedules/by-key/k/", 201, json=body, headers=absent)
    await carillon.call("PUT", "/schedules/by-key/k/", 412, json=body, headers=absent)
    await carillon.call("PUT", "/schedules/by-key/k/", 412, json=body, headers={"If-Match": '"x"'})
    fresh = {"If-Match": await tag(carillon, "/schedules/by-key/k/")}
    await carillon.call("PUT", "/schedules/by-key/k/", json={**body, "name": "t"}, headers=fresh)
    await carillon.call("PUT", "/workflows/by-key/k/", 201, json={"name": "w", **NODES}, headers=absent)
    await carillon.call("PUT", "/workflows/by-key/k/", 412, json={"name": "w", **NODES}, headers=absent)


@pytest.mark.parametrize("expected", ['"0123"', "*"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/schedules/by-key/gone/", {"name": "s", "interval_seconds": 60}),
        ("/workflows/by-key/gone/", {"name": "w", **NODES}),
        ("/secrets/GONE/", {"value": "x", "allowed_hosts": ["127.0.0.1"]}),
    ],
)
async def test_put_does_not_create_what_the_client_knows_a_version_of(
    carillon: Carillon, path: str, body: Json, expected: str
) -> None:
    """Somebody has deleted it since the client read it."""
    if path.startswith("/schedules/"):
        body = {**body, "workflow_id": (await carillon.workflow())["id"]}
    refused = await carillon.call("PUT", path, 412, json=body, headers={"If-Match": expected})
    assert "precondition_failed" == refused["code"]
    await carillon.call("PUT", path, 201, json=body)


async def test_a_new_execution_has_a_tag(carillon: Carillon) -> None:
    """As every answer about one object has."""
    schedule = await carillon.schedule()
    started = await carillon.request("POST", f"/schedules/{schedule['id']}/run/")
    assert (202, True) == (started.status_code, "etag" in started.headers)
