"""Limits over HTTP: who may see and change them, what is refused, and that one in use is kept.

Covers app.api.limits. Covers app.services.limits. Covers app.persistence.limits. Covers app.persistence.tables.limits.
"""

import pytest

from app.persistence.database import Database
from tests.support.carillon import Carillon, Json

PATH = "/limits/crm/"
CRM = {"name": "crm", "max_concurrent": 2}


async def test_a_limit_from_creation_to_deletion(carillon: Carillon) -> None:
    """With its tag, its audit events, and a second one of the same name refused."""
    made = await carillon.call("POST", "/limits/", 201, json={**CRM, "rate": "100/s", "burst": 5})
    shown = {name: made[name] for name in ("name", "max_concurrent", "rate", "burst", "public", "held", "waiting")}
    assert {**CRM, "rate": "100/s", "burst": 5, "public": False, "held": 0, "waiting": 0} == shown
    assert "conflict" == (await carillon.call("POST", "/limits/", 409, json=CRM))["code"]
    response = await carillon.request("GET", PATH)
    tag = response.headers["etag"]
    changed = await carillon.call("PATCH", PATH, json={"rate": None, "burst": None}, headers={"If-Match": tag})
    assert (None, None, 2) == (changed["rate"], changed["burst"], changed["max_concurrent"])
    await carillon.call("DELETE", PATH, 412, headers={"If-Match": tag})
    await carillon.call("DELETE", PATH, 204)
    await carillon.call("GET", PATH, 404)
    events = (await carillon.call("GET", "/audit/", params={"object_type": "limit"}))["items"]
    assert ["limit_deleted", "limit_changed", "limit_created"] == [event["action"] for event in events]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x"}, "max_concurrent"),
        ({"name": "x", "max_concurrent": 1, "burst": 3}, "burst"),
        ({"name": "x", "max_concurrent": 0}, "max_concurrent"),
        ({"name": "x", "rate": "100"}, "rate"),
        ({"name": "a b", "max_concurrent": 1}, "name"),
        ({"name": "x", "max_concurrent": 1, "held": 3}, "held"),
    ],
)
async def test_what_is_no_limit_is_refused_by_field(carillon: Carillon, body: Json, field: str) -> None:
    """Types, bounds and rules of several fields."""
    problem = await carillon.call("POST", "/limits/", 422, json=body)
    assert field in {error["field"] for error in problem["errors"]}


async def test_a_name_means_ones_own_before_a_teams_before_a_public_one(carillon: Carillon) -> None:
    """Members see and name public limits, and change only what is theirs or their team's."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    await carillon.call("POST", "/limits/", 201, json={**CRM, "max_concurrent": 9, "public": True})
    assert 403 == (await mia.request("POST", "/limits/", json={**CRM, "public": True})).status_code
    assert 9 == (await mia.call("GET", PATH))["max_concurrent"]
    await mia.call("PATCH", PATH, 404, json={"max_concurrent": 1})
    await mia.call("POST", "/limits/", 201, json={**CRM, "max_concurrent": 5, "team_id": team["id"]})
    assert 5 == (await mia.call("GET", PATH))["max_concurrent"]
    await mia.call("POST", "/limits/", 201, json={**CRM, "max_concurrent": 3})
    assert 3 == (await mia.call("GET", PATH))["max_concurrent"]
    assert 5 == (await mia.call("GET", PATH, params={"team_id": team["id"]}))["max_concurrent"]
    assert 9 == (await olaf.call("GET", PATH))["max_concurrent"]
    assert [3, 5, 9] == [one["max_concurrent"] for one in (await mia.call("GET", "/limits/"))["items"]]
    assert [9] == [one["max_concurrent"] for one in (await olaf.call("GET", "/limits/"))["items"]]
    page = await mia.call("GET", "/limits/", params={"limit": 2})
    rest = await mia.call("GET", "/limits/", params={"limit": 2, "cursor": page["next_cursor"]})
    assert [9] == [one["max_concurrent"] for one in rest["items"]]


async def test_what_names_a_limit_keeps_it(carillon: Carillon) -> None:
    """Schedules and workflows; an unknown name is refused wherever it is written, and none is stored."""
    workflow = await carillon.workflow()
    body = {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 60, "limit": "crm"}
    for method, path, sent in (
        ("POST", "/schedules/", body),
        ("POST", "/schedules/batch/", {"schedules": [body]}),
        ("PUT", "/schedules/by-key/k/", body),
        ("PATCH", f"/workflows/{workflow['id']}/", {"limit": "crm"}),
        ("PATCH", f"/schedules/{(await carillon.schedule(workflow))['id']}/", {"limit": "crm"}),
    ):
        problem = await carillon.call(method, path, 422, json=sent)
        assert "There is no limit 'crm'" in str(problem["errors"]), path
    await carillon.call("POST", "/limits/", 201, json=CRM)
    schedule = await carillon.call("POST", "/schedules/", 201, json=body)
    assert "crm" == schedule["limit"]
    await carillon.call("DELETE", PATH, 409)
    await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"limit": None})
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"limit": "crm"})
    await carillon.call("DELETE", PATH, 409)
    await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"limit": None})
    await carillon.call("DELETE", PATH, 204)


async def test_limits_go_with_what_their_owner_hands_over(carillon: Carillon, database: Database) -> None:
    """The new owner's schedules find the limit; one whose name the new owner has is gone with its owner."""
    mia = await carillon.member()
    me = (await carillon.call("GET", "/me/"))["id"]
    await mia.call("POST", "/limits/", 201, json=CRM)
    schedule = await mia.schedule(limit="crm")
    user = (await mia.call("GET", "/me/"))["id"]
    await carillon.call("DELETE", f"/users/{user}/", 204, params={"schedules": "transfer", "to": me})
    assert "crm" == (await carillon.get(schedule))["limit"]
    assert 2 == (await carillon.call("GET", PATH))["max_concurrent"]
    async with database.transaction() as connection:
        rows = await connection.exec_driver_sql("SELECT count(*) FROM limits")
        assert [(1,)] == [tuple(row) for row in rows]
