"""Schedules on workflows of others: only for admins, and only if the request names the workflow's owner."""

import pytest

from tests.support.carillon import Carillon, Json

EVERY = {"name": "s", "interval_seconds": 300}


async def test_a_foreign_workflow_needs_its_owners_id(carillon: Carillon) -> None:
    """409 that names the owner, also for a wrong id; with the right one the schedule is made, and does not show it."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    body: Json = {**EVERY, "workflow_id": workflow["id"]}
    owner = workflow["user_profile_id"]
    for named in ({}, {"workflow_owner": None}, {"workflow_owner": owner + 1000}):
        problem = await carillon.call("POST", "/schedules/", 409, json={**body, **named})
        assert ("foreign_workflow", owner) == (problem["code"], problem["workflow_owner"])
        assert f"`workflow_owner`: {owner}" in problem["detail"]
    made = await carillon.call("POST", "/schedules/", 201, json={**body, "workflow_owner": owner})
    assert "workflow_owner" not in made
    await carillon.call("POST", "/schedules/", 422, json={**body, "workflow_owner": "mia"})


async def test_members_still_see_no_foreign_workflows(carillon: Carillon) -> None:
    """404, whoever is named."""
    mia = await carillon.member()
    workflow = await carillon.workflow()
    body = {**EVERY, "workflow_id": workflow["id"], "workflow_owner": workflow["user_profile_id"]}
    await mia.call("POST", "/schedules/", 404, json=body)
    schedule = await mia.schedule()
    moved = {"workflow_id": workflow["id"], "workflow_owner": workflow["user_profile_id"]}
    await mia.call("PATCH", f"/schedules/{schedule['id']}/", 404, json=moved)


async def test_ones_own_workflow_may_be_named(carillon: Carillon) -> None:
    """The right id changes nothing, a wrong one is refused."""
    workflow = await carillon.workflow()
    body = {**EVERY, "workflow_id": workflow["id"]}
    await carillon.call("POST", "/schedules/", 201, json={**body, "workflow_owner": workflow["user_profile_id"]})
    problem = await carillon.call("POST", "/schedules/", 409, json={**body, "workflow_owner": 4711})
    assert "foreign_workflow" == problem["code"]


async def test_moving_a_schedule_to_a_foreign_workflow(carillon: Carillon) -> None:
    """Foreign is what is not of the schedule's owner, whoever moves it; where it is already it may stay."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    hers, his = await mia.workflow(), await olaf.workflow()
    schedule = await mia.schedule()
    path = f"/schedules/{schedule['id']}/"
    moved = await carillon.call("PATCH", path, json={"workflow_id": hers["id"]})
    assert hers["id"] == moved["workflow_id"]
    problem = await carillon.call("PATCH", path, 409, json={"workflow_id": his["id"], "name": "x"})
    assert ("foreign_workflow", his["user_profile_id"]) == (problem["code"], problem["workflow_owner"])
    unchanged = await carillon.get(schedule)
    assert ("s", hers["id"]) == (unchanged["name"], unchanged["workflow_id"])
    named = {"workflow_id": his["id"], "workflow_owner": his["user_profile_id"]}
    await carillon.call("PATCH", path, json=named)
    await carillon.call("PATCH", path, json={"workflow_id": his["id"], "name": "stays"})
    await carillon.call("PATCH", path, json={"workflow_owner": his["user_profile_id"]})
    await carillon.call("PATCH", path, 409, json={"workflow_owner": hers["user_profile_id"]})


@pytest.mark.parametrize(("extra", "status", "code"), [([], 409, "foreign_workflow"), ([9999], 422, "validation")])
async def test_a_batch_names_each_foreign_workflow(
    carillon: Carillon, extra: list[int], status: int, code: str
) -> None:
    """409 if nothing else is wrong, else 422; by index, and nothing is made."""
    mia = await carillon.member()
    mine, hers = await carillon.workflow(), await mia.workflow()
    bodies: list[Json] = [{**EVERY, "workflow_id": number} for number in (mine["id"], hers["id"], *extra)]
    problem = await carillon.call("POST", "/schedules/batch/", status, json={"schedules": bodies})
    assert code == problem["code"]
    fields = ["schedules[1].workflow_owner", *(["schedules[2].workflow_id"] if extra else [])]
    assert sorted(fields) == sorted(error["field"] for error in problem["errors"])
    assert 0 == (await carillon.call("GET", "/schedules/"))["total"]
    named = [bodies[0], {**bodies[1], "workflow_owner": hers["user_profile_id"]}]
    made = await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": named})
    assert 2 == len(made["items"])
