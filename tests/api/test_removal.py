"""Deleting users and teams: what others would lose is asked, and requests that meet a deletion are refused clearly.

Covers app.services.removal, app.persistence.ownership.
"""

import asyncio
from uuid import UUID

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.domain.revisions import CARILLON
from app.engine.schedule_changes import pause_scheduled_job
from app.persistence.database import Database
from tests.api.test_teams import team_of
from tests.api.test_users import id_of
from tests.support.api_server import serving
from tests.support.carillon import FAIL, Carillon, Json, fire_and_read, working
from tests.support.carillon import http_node as calling
from tests.support.databases import until_waiting
from tests.support.http_sink import Sink

URL = "http://127.0.0.1:9/"


@pytest.mark.parametrize("kind", ["user", "team"])
async def test_schedules_of_others_are_not_deleted_with_a_workflow(carillon: Carillon, kind: str) -> None:
    """They are counted in the refusal; handed over, the workflow stays, and so do they."""
    mia = await carillon.member()
    team = await team_of(mia) if kind == "team" else None
    workflow = await mia.workflow(**({"team_id": team["id"]} if team else {}))
    others = await carillon.schedule(workflow, workflow_owner=workflow["user_profile_id"])
    path = f"/teams/{team['id']}/" if team else f"/users/{await id_of(carillon, 'mia')}/"
    for params in ({}, {"schedules": "delete"}):
        problem = await carillon.call("DELETE", path, 409, params=params)
        assert ("conflict", True) == (problem["code"], ": 1. They would be deleted" in problem["detail"])
    await carillon.get(others)
    await carillon.call("DELETE", path, 204, params={"schedules": "transfer", "to": await id_of(carillon, "admin")})
    await carillon.get(others)


async def test_webhooks_need_an_answer_too(carillon: Carillon) -> None:
    """They were deleted without a word."""
    mia = await carillon.member()
    await mia.call("POST", "/webhooks/", 201, json={"url": URL, "interval_minutes": 5})
    path = f"/users/{await id_of(carillon, 'mia')}/"
    assert "webhooks" in (await carillon.call("DELETE", path, 409))["detail"]
    await carillon.call("DELETE", path, 204, params={"schedules": "delete"})


async def test_runs_of_a_deleted_user_are_called_off(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """The call that is under way is dropped."""
    released = asyncio.Event()
    sink.hold_until(released)
    mia = await carillon.member()
    schedule = await mia.schedule(await mia.workflow(calling(sink.url)))
    async with working(settings):
        await mia.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        await sink.wait_for_calls(1)
        await carillon.call("DELETE", f"/users/{await id_of(carillon, 'mia')}/?schedules=delete", 204)
        released.set()
    await carillon.call("GET", f"/schedules/{schedule['id']}/", 404)


CREATED: dict[str, Json] = {
    "/workflows/": {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]},
    "/webhooks/": {"url": URL, "interval_minutes": 5},
    "/notifications/": {"url": URL},
    "/secrets/": {"name": "KEY", "value": "v"},
    "/tokens/": {"name": "t"},
    "/teams/": {"name": "ops"},
    "/signing-key/rotate/": {},
}


@pytest.mark.parametrize("path", CREATED)
async def test_a_request_that_meets_the_deletion_of_its_user(carillon: Carillon, database: Database, path: str) -> None:
    """409, not 500."""
    mia = await carillon.member()
    user = await id_of(carillon, "mia")
    async with database.transaction() as deleting:
        await deleting.execute(text("DELETE FROM user_profiles WHERE id = :id"), {"id": user})
        request = asyncio.ensure_future(mia.request("POST", path, json=CREATED[path] or None))
        await until_waiting(deleting)
    response = await request
    assert (409, "conflict") == (response.status_code, response.json()["code"]), response.text


async def test_an_heir_who_is_being_deleted_gets_nothing(carillon: Carillon, database: Database) -> None:
    """The deletion waits for that of the heir, and is refused; what the user has stays."""
    mia = await carillon.member()
    await carillon.member("olaf")
    schedule = await mia.schedule()
    user, heir = await id_of(carillon, "mia"), await id_of(carillon, "olaf")
    async with database.transaction() as deleting:
        await deleting.execute(text("DELETE FROM user_profiles WHERE id = :id"), {"id": heir})
        params = {"schedules": "transfer", "to": heir}
        request = asyncio.ensure_future(carillon.request("DELETE", f"/users/{user}/", params=params))
        await until_waiting(deleting)
    assert 404 == (await request).status_code
    await mia.get(schedule)


async def test_a_schedule_that_is_paused_meanwhile_does_not_hold_up_a_deletion(
    carillon: Carillon, database: Database
) -> None:
    """It is left alone. The user is disabled first, so that nothing is resumed or created while others are paused."""
    mia = await carillon.member()
    schedules = [await mia.schedule() for _ in range(3)]
    user = await id_of(carillon, "mia")
    async with database.transaction() as pausing:
        await pause_scheduled_job(pausing, UUID(schedules[1]["id"]), CARILLON)
        request = asyncio.ensure_future(carillon.request("DELETE", f"/users/{user}/?schedules=pause"))
        await until_waiting(pausing)
        await mia.call("GET", "/me/", 401)
    response = await request
    assert 204 == response.status_code, response.text
    assert ["paused"] * 3 == [(await carillon.get(one))["status"] for one in schedules]


async def test_what_is_created_during_a_deletion_is_not_lost(carillon: Carillon, database: Database) -> None:
    """The check that there is nothing left holds until the user is gone."""
    await carillon.member()
    schedule = await carillon.schedule()
    user = await id_of(carillon, "mia")
    async with database.transaction() as creating:
        statement = text("UPDATE scheduled_jobs SET user_profile_id = :user, owner_id = :owner WHERE id = :id")
        await creating.execute(statement, {"user": user, "owner": str(user), "id": UUID(schedule["id"])})
        request = asyncio.ensure_future(carillon.request("DELETE", f"/users/{user}/"))
        await until_waiting(creating)
    assert 409 == (await request).status_code
    assert user == (await carillon.get(schedule))["user_profile_id"]


async def test_members_hand_over_no_more_than_the_quota_of_the_new_owner(settings: Settings) -> None:
    """Admins may. Kinds of which nothing is handed over do not count."""
    async with serving(replace(settings, quota_schedules=2, quota_workflows=9)) as carillon:
        mia = await carillon.member()
        team = await team_of(mia)
        workflow = await mia.workflow(team_id=team["id"])
        for _ in range(2):
            await mia.schedule(workflow, team_id=team["id"])
        own = await mia.schedule()
        path, params = f"/teams/{team['id']}/", {"schedules": "transfer", "to": await id_of(carillon, "mia")}
        problem = await mia.call("DELETE", path, 409, params=params)
        assert ("quota_exceeded", 2, 1) == (problem["code"], problem["limit"], problem["used"])
        assert 3 == (await mia.call("GET", "/schedules/"))["total"]
        empty = await team_of(mia, "empty")
        await mia.call("DELETE", f"/teams/{empty['id']}/", 204, params=params)
        await mia.get(own)
        await carillon.call("DELETE", path, 204, params=params)
        assert 3 == (await mia.call("GET", "/schedules/"))["total"]


@pytest.mark.parametrize("fate", ["transfer", "pause"])
async def test_a_disabled_user_gets_nothing(carillon: Carillon, fate: str) -> None:
    """Nobody would see what is handed over."""
    mia = await carillon.member()
    await carillon.member("olaf")
    await mia.schedule()
    user, heir = await id_of(carillon, "mia"), await id_of(carillon, "olaf")
    await carillon.call("PATCH", f"/users/{heir}/", json={"disabled": True})
    params = {"schedules": fate, "to": heir}
    problem = await carillon.call("DELETE", f"/users/{user}/", 422, params=params)
    assert [("to", True)] == [(error["field"], "disabled" in error["message"]) for error in problem["errors"]]
    await mia.call("GET", "/me/")


async def test_a_new_owner_opens_the_runs_that_have_ended(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """They belong to whom their schedule belongs."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    schedule = await mia.schedule(await mia.workflow(FAIL), max_retries=9)
    run = await fire_and_read(mia, settings, database, schedule)
    path = f"/executions/{run['id']}/"
    await olaf.call("GET", path, 404)
    user, heir = await id_of(carillon, "mia"), await id_of(carillon, "olaf")
    await carillon.call("DELETE", f"/users/{user}/?schedules=transfer&to={heir}", 204)
    assert "failed" == (await olaf.call("GET", path))["status"]
    assert "wrong_state" == (await olaf.call("POST", f"{path}cancel/", 400))["code"]
