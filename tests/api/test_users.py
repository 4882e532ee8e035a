"""Users are disabled, enabled, given another role and deleted; what becomes of their schedules is asked."""

from uuid import UUID

import pytest

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, engine_of, make_due


async def id_of(carillon: Carillon, name: str) -> int:
    """Return the id of a user."""
    users: list[Json] = (await carillon.call("GET", "/users/"))["items"]
    return next(int(user["id"]) for user in users if user["username"] == name)


async def test_a_disabled_user_is_refused_at_once_and_the_schedules_go_on(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Unless they are to be paused; enabled again, everything is as before."""
    mia = await carillon.member()
    user = await id_of(carillon, "mia")
    schedule = await mia.schedule()
    disabled = await carillon.call("PATCH", f"/users/{user}/", json={"disabled": True})
    assert (True, True) == (disabled["disabled"], disabled["disabled_at"] is not None)
    await mia.call("GET", "/me/", 401)
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    assert "success" == (await carillon.get(schedule))["last_outcome"]
    await carillon.call("PATCH", f"/users/{user}/", json={"schedules": "pause"})
    paused = await carillon.get(schedule)
    assert ("paused", "manual") == (paused["status"], paused["status_reason"])
    enabled = await carillon.call("PATCH", f"/users/{user}/", json={"disabled": False})
    assert (False, None) == (enabled["disabled"], enabled["disabled_at"])
    assert "paused" == (await mia.get(schedule))["status"]


async def test_a_role_holds_from_the_next_request(carillon: Carillon) -> None:
    """Promoted and demoted; a token never has more than the role."""
    mia = await carillon.member()
    user = await id_of(carillon, "mia")
    await mia.call("GET", "/users/", 403)
    await carillon.call("PATCH", f"/users/{user}/", json={"role": "admin"})
    await mia.call("GET", "/users/")
    await carillon.call("PATCH", f"/users/{user}/", json={"role": "member"})
    await mia.call("GET", "/users/", 403)


async def test_nobody_is_locked_out_by_mistake(carillon: Carillon) -> None:
    """Oneself, the built-in admin and plugins stay as they are."""
    admin = await id_of(carillon, "admin")
    for body in ({"disabled": True}, {"role": "member"}):
        assert "conflict" == (await carillon.call("PATCH", f"/users/{admin}/", 409, json=body))["code"]
    await carillon.call("DELETE", f"/users/{admin}/", 409)
    ada = await carillon.call("POST", "/users/", 201, json={"username": "ada", "role": "admin"})
    token = await carillon.call("POST", f"/users/{ada['id']}/tokens/", 201, json={"name": "t"})
    other = carillon.with_token(token["token"])
    await other.call("PATCH", f"/users/{ada['id']}/", 409, json={"disabled": True})
    await other.call("PATCH", f"/users/{admin}/", 409, json={"disabled": True})


async def test_a_user_with_schedules_is_deleted_only_with_an_answer(carillon: Carillon) -> None:
    """Without any, at once; unknown users are 404."""
    mia = await carillon.member()
    user = await id_of(carillon, "mia")
    await mia.schedule()
    problem = await carillon.call("DELETE", f"/users/{user}/", 409)
    assert "schedules=pause" in problem["detail"]
    await carillon.call("DELETE", f"/users/{user}/?schedules=transfer", 422)
    await carillon.call("DELETE", f"/users/{user}/?schedules=transfer&to={user}", 422)
    await carillon.call("DELETE", f"/users/{user}/?schedules=transfer&to=98765", 404)
    await carillon.member("olaf")
    await carillon.call("DELETE", f"/users/{await id_of(carillon, 'olaf')}/", 204)
    await carillon.call("DELETE", "/users/98765/", 404)


@pytest.mark.parametrize("fate", ["delete", "transfer", "pause"])
async def test_what_becomes_of_the_schedules(
    carillon: Carillon, settings: Settings, database: Database, fate: str
) -> None:
    """Deleted, handed over, or paused and handed over to the admin; the user is gone in any case."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    user, heir = await id_of(carillon, "mia"), await id_of(carillon, "olaf")
    schedule = await mia.schedule()
    webhook = await mia.call("POST", "/webhooks/", 201, json={"url": "http://127.0.0.1:9/", "interval_minutes": 5})
    await mia.call("POST", "/secrets/", 201, json={"name": "KEY", "value": "v", "allowed_hosts": ["example.com"]})
    to = f"&to={heir}" if fate == "transfer" else ""
    await carillon.call("DELETE", f"/users/{user}/?schedules={fate}{to}", 204)
    await mia.call("GET", "/me/", 401)
    if fate == "delete":
        await carillon.call("GET", f"/schedules/{schedule['id']}/", 404)
        await carillon.call("GET", f"/webhooks/{webhook['id']}/", 404)
        return
    owner = olaf if fate == "transfer" else carillon
    found = await owner.get(schedule)
    assert ("active" if fate == "transfer" else "paused") == found["status"]
    assert str(found["user_profile_id"]) == found["owner_id"]
    await owner.call("GET", f"/webhooks/{webhook['id']}/")
    assert ["KEY"] == [one["name"] for one in (await owner.call("GET", "/secrets/"))["items"]]
    await owner.call("PATCH", f"/schedules/{schedule['id']}/", json={"name": "mine now"})
    if fate == "transfer":
        due = await make_due(database, schedule)
        async with engine_of(settings) as engine:
            await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        assert "success" == (await owner.get(schedule))["last_outcome"]
