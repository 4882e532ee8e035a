"""Teams: who sees them, who decides who belongs to them, and what becomes of what a deleted team has.

Covers app.api.teams, app.services.teams, app.persistence.teams.
"""

import asyncio

import pytest
from sqlalchemy import text

from app.persistence.database import Database
from app.services import teams
from app.services.teams import MOST_OWNED_TEAMS
from tests.api.test_users import id_of
from tests.support.carillon import Carillon, Json
from tests.support.databases import until_waiting


async def team_of(owner: Carillon, name: str = "ops") -> Json:
    """Create a team of this user."""
    made: Json = await owner.call("POST", "/teams/", 201, json={"name": name})
    return made


async def join(owner: Carillon, team: Json, user_id: int, role: str) -> Json:
    """Add a user to a team."""
    body = {"user_id": user_id, "role": role}
    added: Json = await owner.call("POST", f"/teams/{team['id']}/members/", 201, json=body)
    return added


async def member_with(carillon: Carillon, owner: Carillon, team: Json, role: str) -> Carillon:
    """Create a user who has this role in a team, and is named after it."""
    client = await carillon.member(role)
    await join(owner, team, await id_of(carillon, role), role)
    return client


async def test_who_creates_a_team_owns_it_and_others_do_not_see_it(carillon: Carillon) -> None:
    """Admins see and change all teams."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team = await team_of(mia)
    assert {"id", "name", "role", "created_at", "quotas"} == set(team)
    assert ("ops", "owner") == (team["name"], team["role"])
    path = f"/teams/{team['id']}/"
    assert team == await mia.call("GET", path)
    assert [team] == (await mia.call("GET", "/teams/"))["items"]
    assert [] == (await olaf.call("GET", "/teams/"))["items"]
    for method in ("GET", "PATCH", "DELETE"):
        await olaf.call(method, path, 404)
    for method, below in (("GET", ""), ("PATCH", "1/"), ("DELETE", "1/")):
        await olaf.call(method, f"{path}members/{below}", 404)
    assert [None] == [one["role"] for one in (await carillon.call("GET", "/teams/"))["items"]]
    assert "dev" == (await carillon.call("PATCH", path, json={"name": "dev"}))["name"]
    await mia.call("POST", "/teams/", 409, json={"name": "dev"})
    second = await team_of(mia, "ops")
    await mia.call("PATCH", f"/teams/{second['id']}/", 409, json={"name": "dev"})
    for bad in ("", "a:b", "x" * 201, "a\n"):
        await mia.call("POST", "/teams/", 422, json={"name": bad})
    await carillon.call("GET", "/teams/99999999999/", 404)
    await carillon.call("GET", f"/teams/{await id_of(carillon, 'mia')}/", 404)


async def test_a_team_is_no_user(carillon: Carillon) -> None:
    """It is not listed among users, has no tokens, and is not changed or deleted as one."""
    team = await team_of(carillon)
    assert ["admin"] == [one["username"] for one in (await carillon.call("GET", "/users/"))["items"]]
    path = f"/users/{team['id']}/"
    await carillon.call("GET", path, 404)
    await carillon.call("PATCH", path, 404, json={"role": "admin"})
    await carillon.call("DELETE", path, 404)
    await carillon.call("POST", f"{path}tokens/", 404, json={"name": "t"})
    await carillon.call("POST", "/users/", 422, json={"username": "team:ops"})


async def test_owners_decide_who_belongs_to_a_team(carillon: Carillon) -> None:
    """Others of the team see its members and may leave; a role holds from the next request."""
    mia = await carillon.member()
    team = await team_of(mia)
    eve = await member_with(carillon, mia, team, "editor")
    user, path = await id_of(carillon, "editor"), f"/teams/{team['id']}/members/"
    members = (await eve.call("GET", path))["items"]
    assert [("mia", "owner"), ("editor", "editor")] == [(one["username"], one["role"]) for one in members]
    assert {"user_id", "username", "role", "added_at"} == set(members[0])
    olaf = await carillon.member("olaf")
    other = await id_of(carillon, "olaf")
    problem = await eve.call("POST", path, 403, json={"user_id": other, "role": "viewer"})
    assert "`owner`" in problem["detail"]
    await eve.call("PATCH", f"{path}{user}/", 403, json={"role": "owner"})
    await eve.call("PATCH", f"/teams/{team['id']}/", 403, json={"name": "mine"})
    await eve.call("DELETE", f"/teams/{team['id']}/", 403)
    await eve.call("DELETE", f"{path}{members[0]['user_id']}/", 403)
    await mia.call("POST", path, 409, json={"user_id": user, "role": "viewer"})
    for unknown in (98765, team["id"]):
        await mia.call("POST", path, 422, json={"user_id": unknown, "role": "viewer"})
    await mia.call("POST", path, 422, json={"user_id": other, "role": "admin"})
    assert "owner" == (await mia.call("PATCH", f"{path}{user}/", json={"role": "owner"}))["role"]
    await eve.call("POST", path, 201, json={"user_id": other, "role": "viewer"})
    await olaf.call("DELETE", f"{path}{other}/", 204)
    await olaf.call("GET", path, 404)
    await mia.call("DELETE", f"{path}{other}/", 404)


async def test_a_user_is_added_by_name_or_by_id(carillon: Carillon) -> None:
    """Exactly one of them; what is not a user is refused in one way."""
    mia = await carillon.member()
    await carillon.member("olaf")
    team = await team_of(mia)
    path, other = f"/teams/{team['id']}/members/", await id_of(carillon, "olaf")
    both = {"username": "olaf", "user_id": other}
    for named in ({}, both, {"username": None, "user_id": None}):
        problem = await mia.call("POST", path, 422, json={"role": "viewer", **named})
        assert "Exactly one of `user_id` and `username`" in problem["errors"][0]["message"]
    messages = set()
    for name, value in (("username", "nobody"), ("username", "OLAF"), ("user_id", 98765), ("user_id", team["id"])):
        (error,) = (await mia.call("POST", path, 422, json={"role": "viewer", name: value}))["errors"]
        assert name == error["field"]
        messages.add(error["message"])
    assert {"There is no such user."} == messages
    added = await mia.call("POST", path, 201, json={"role": "viewer", "username": "olaf"})
    assert (other, "olaf") == (added["user_id"], added["username"])


async def test_a_change_that_changes_nothing_leaves_no_trace(carillon: Carillon) -> None:
    """Neither of a member nor of a name; what changes shows both values."""
    mia = await carillon.member()
    team = await team_of(mia)
    await carillon.member("olaf")
    await join(mia, team, await id_of(carillon, "olaf"), "editor")
    path = f"/teams/{team['id']}/"
    member = f"{path}members/{await id_of(carillon, 'olaf')}/"
    for changes in ({}, {"role": "editor"}):
        assert "editor" == (await mia.call("PATCH", member, json=changes))["role"]
    for rename in ({}, {"name": "ops"}):
        assert "ops" == (await mia.call("PATCH", path, json=rename))["name"]
    await mia.call("PATCH", member, json={"role": "viewer"})
    params = {"object_type": "team", "object_id": str(team["id"])}
    events = (await mia.call("GET", "/audit/", params=params))["items"]
    assert ["team_member_changed", "team_member_added", "team_created"] == [event["action"] for event in events]
    assert {"role": {"from": "editor", "to": "viewer"}} == events[0]["changes"]


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_changes_of_members_lock_the_user_before_the_membership(
    carillon: Carillon, database: Database, method: str
) -> None:
    """As claims do: two that meet wait for each other in one order only."""
    mia = await carillon.member()
    await carillon.member("olaf")
    team, user = await team_of(mia), await id_of(carillon, "olaf")
    await join(mia, team, user, "viewer")
    path, body = f"/teams/{team['id']}/members/{user}/", {"json": {"role": "editor"}} if method == "PATCH" else {}
    async with database.transaction() as claims:
        await claims.execute(text("SELECT FROM user_profiles WHERE id = :id FOR NO KEY UPDATE"), {"id": user})
        request = asyncio.ensure_future(mia.request(method, path, **body))
        await until_waiting(claims)
        await claims.execute(
            text("UPDATE team_members SET role = 'operator' WHERE user_profile_id = :id"), {"id": user}
        )
    response = await request
    assert (200 if method == "PATCH" else 204) == response.status_code, response.text


async def test_a_team_keeps_an_owner(carillon: Carillon) -> None:
    """The last one cannot leave, get a lesser role, or be deleted."""
    mia = await carillon.member()
    team = await team_of(mia)
    user = await id_of(carillon, "mia")
    path = f"/teams/{team['id']}/members/{user}/"
    await mia.call("DELETE", path, 409)
    await mia.call("PATCH", path, 409, json={"role": "editor"})
    assert "owner" == (await mia.call("PATCH", path, json={"role": "owner"}))["role"]
    assert "'ops'" in (await carillon.call("DELETE", f"/users/{user}/", 409))["detail"]
    await carillon.member("olaf")
    await join(mia, team, await id_of(carillon, "olaf"), "owner")
    await mia.call("DELETE", path, 204)
    await carillon.call("DELETE", f"/users/{user}/", 204)


async def test_admins_create_any_number_of_teams(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """They belong to all of them, and would run out."""
    monkeypatch.setattr(teams, "MOST_TEAMS", 2)
    mia = await carillon.member()
    for number in range(3):
        await team_of(carillon, f"admins {number}")
    await team_of(mia, "one")
    await team_of(mia, "two")
    await mia.call("POST", "/teams/", 409, json={"name": "three"})


async def test_members_own_a_bounded_number_of_teams(carillon: Carillon) -> None:
    """Each team has quotas of its own; admins may create more."""
    mia = await carillon.member()
    for number in range(MOST_OWNED_TEAMS):
        await team_of(mia, f"team {number}")
        await team_of(carillon, f"admins {number}")
    await mia.call("POST", "/teams/", 409, json={"name": "more"})
    await team_of(carillon, "more")


@pytest.mark.parametrize("fate", [None, "delete", "transfer", "pause"])
async def test_what_becomes_of_what_a_deleted_team_has(
    carillon: Carillon, database: Database, fate: str | None
) -> None:
    """Without an answer a team with schedules is kept; what is handed over belongs to the new owner in every way."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team, heir = await team_of(mia), await team_of(mia, "dev")
    foreign = await team_of(olaf, "foreign")
    own = {"team_id": team["id"]}
    schedule = await mia.schedule(await mia.workflow(**own), **own)
    await mia.call("POST", "/secrets/", 201, json={"name": "KEY", "value": "v", **own})
    path = f"/teams/{team['id']}/"
    if fate is None:
        assert "schedules=pause" in (await mia.call("DELETE", path, 409))["detail"]
        for to, status in ((None, 422), (team["id"], 422), (foreign["id"], 404), (98765, 404)):
            params = {"schedules": "transfer", **({} if to is None else {"to": to})}
            await mia.call("DELETE", path, status, params=params)
        await mia.get(schedule)
        return
    to = {"to": heir["id"]} if fate == "transfer" else {}
    await mia.call("DELETE", path, 204, params={"schedules": fate, **to})
    await mia.call("GET", path, 404)
    async with database.transaction() as connection:
        assert (
            0
            == (
                await connection.execute(
                    text("SELECT count(*) FROM team_members WHERE team_id = :id"), {"id": team["id"]}
                )
            ).scalar_one()
        )
    if fate == "delete":
        await mia.call("GET", f"/schedules/{schedule['id']}/", 404)
        return
    found = await mia.get(schedule)
    owner = heir["id"] if fate == "transfer" else await id_of(carillon, "mia")
    team_id = heir["id"] if fate == "transfer" else None
    assert (owner, str(owner), team_id) == (found["user_profile_id"], found["owner_id"], found["team_id"])
    assert ("active" if fate == "transfer" else "paused") == found["status"]
    (secret,) = (await mia.call("GET", "/secrets/"))["items"]
    assert (owner, team_id) == (secret["owner"], secret["team_id"])


async def test_what_a_user_has_can_go_to_a_team(carillon: Carillon) -> None:
    """When the user is deleted."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team = await team_of(olaf)
    schedule = await mia.schedule()
    user = await id_of(carillon, "mia")
    await carillon.call("DELETE", f"/users/{user}/?schedules=transfer&to={team['id']}", 204)
    assert team["id"] == (await olaf.get(schedule))["team_id"]
