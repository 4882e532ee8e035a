"""Tokens: how far they reach, when they end, when they were used, and who may touch them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, moment, until


def in_days(days: float) -> str:
    """Return a time so many days from now, as a body has it."""
    return (datetime.now(UTC) + timedelta(days=days)).isoformat().replace("+00:00", "Z")


async def made(carillon: Carillon, **terms: Any) -> Json:
    """Create a token of one's own."""
    token: Json = await carillon.call("POST", "/tokens/", 201, json={"name": "t", **terms})
    return token


async def test_a_token_without_terms_has_the_scopes_of_the_role(carillon: Carillon) -> None:
    """Of an admin and of a member; it has no end and was not used."""
    mia = await carillon.member()
    everything = ["read", "operate", "write", "admin"]
    for client, scopes in ((carillon, everything), (mia, everything[:-1])):
        token = await made(client)
        assert (scopes, None, None, None) == tuple(
            token[name] for name in ("scopes", "expires_at", "last_used_at", "restrict")
        )
        listed = (await client.call("GET", "/tokens/"))["items"]
        assert token["id"] in {one["id"] for one in listed}
        assert all("token" not in one for one in listed)


async def test_a_token_never_makes_one_that_reaches_further(carillon: Carillon) -> None:
    """Neither in scope, nor in time, nor beyond its restriction."""
    narrow = await made(carillon, scopes=["operate"], expires_at=in_days(1), restrict={"workflow_ids": [7]})
    holder = carillon.with_token(narrow["token"])
    problem = await holder.call("POST", "/tokens/", 403, json={"name": "t", "scopes": ["write"]})
    assert ("insufficient_scope", True) == (problem["code"], "`write`" in problem["detail"])
    inherited = await made(holder)
    assert (narrow["scopes"], narrow["expires_at"], narrow["restrict"]) == (
        inherited["scopes"],
        inherited["expires_at"],
        inherited["restrict"],
    )
    later = await made(holder, expires_at=in_days(300), restrict={"workflow_ids": [8]})
    assert (narrow["expires_at"], narrow["restrict"]) == (later["expires_at"], later["restrict"])
    sooner = await made(holder, scopes=["read"], expires_at=in_days(0.5))
    assert (["read"], True) == (sooner["scopes"], sooner["expires_at"] < narrow["expires_at"])


async def test_a_token_cannot_touch_one_that_reaches_further(carillon: Carillon) -> None:
    """Rotating it would hand its rights out; deleting it would lock others out."""
    wide = await made(carillon)
    reader = carillon.with_token((await made(carillon, scopes=["read"]))["token"])
    for method, path in (("DELETE", f"/tokens/{wide['id']}/"), ("POST", f"/tokens/{wide['id']}/rotate/")):
        assert "insufficient_scope" == (await reader.call(method, path, 403))["code"]
    equal = await made(carillon, scopes=["read"])
    await reader.call("DELETE", f"/tokens/{equal['id']}/", 204)


async def test_members_manage_their_own_tokens_only(carillon: Carillon) -> None:
    """Others' do not exist for them; admins reach all."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    token = await made(mia)
    await olaf.call("DELETE", f"/tokens/{token['id']}/", 404)
    await olaf.call("POST", f"/tokens/{token['id']}/rotate/", 404)
    await carillon.call("DELETE", f"/tokens/{token['id']}/", 204)
    await mia.with_token(token["token"]).call("GET", "/me/", 401)


@pytest.mark.parametrize("body", [{"expires_at": "2020-01-01T00:00:00Z"}, {"scopes": []}, {"scopes": ["god"]}])
async def test_bad_terms_are_422(standing: Carillon, body: Json) -> None:
    """With the field named."""
    problem = await standing.call("POST", "/tokens/", 422, json={"name": "t", **body})
    assert next(iter(body)) in problem["errors"][0]["field"]


async def test_a_token_that_has_expired_is_refused(carillon: Carillon, database: Database) -> None:
    """By the database's clock, at once."""
    token = await made(carillon, expires_at=in_days(1))
    holder = carillon.with_token(token["token"])
    await holder.call("GET", "/me/")
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE api_tokens SET expires_at = clock_timestamp()"))
    assert "unauthenticated" == (await holder.call("GET", "/me/", 401))["code"]


async def test_rotation_with_and_without_overlap(carillon: Carillon, database: Database) -> None:
    """The new token has the terms of the old one, which ends at once or after the grace period."""
    old = await made(carillon, scopes=["write"], expires_at=in_days(30))
    new: Json = await carillon.call("POST", f"/tokens/{old['id']}/rotate/", 201, json={"grace_seconds": 3600})
    assert (old["scopes"], old["expires_at"], old["name"]) == (new["scopes"], new["expires_at"], new["name"])
    for token in (old, new):
        await carillon.with_token(token["token"]).call("GET", "/me/")
    (listed,) = [one for one in (await carillon.call("GET", "/tokens/"))["items"] if one["id"] == old["id"]]
    assert moment(listed["expires_at"]) < datetime.now(UTC) + timedelta(hours=2)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE api_tokens SET expires_at = clock_timestamp() WHERE id = :id"), old)
    await carillon.with_token(old["token"]).call("GET", "/me/", 401)
    own = carillon.with_token(new["token"])
    newest: Json = await own.call("POST", f"/tokens/{new['id']}/rotate/", 201)
    await own.call("GET", "/me/", 401)
    await carillon.with_token(newest["token"]).call("GET", "/me/")


async def test_what_has_ended_or_was_replaced_is_not_rotated(carillon: Carillon, database: Database) -> None:
    """The new token would end with the old one, or before it was ever used."""
    replaced, ended = await made(carillon), await made(carillon)
    await carillon.call("POST", f"/tokens/{replaced['id']}/rotate/", 201, json={"grace_seconds": 3600})
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE api_tokens SET expires_at = clock_timestamp() WHERE id = :id"), ended)
    for token, why in ((replaced, "was replaced"), (ended, "has ended")):
        problem = await carillon.call("POST", f"/tokens/{token['id']}/rotate/", 400)
        assert ("wrong_state", True) == (problem["code"], why in problem["detail"])


async def test_labels_of_a_restriction_are_labels(standing: Carillon) -> None:
    """A token for labels that no object can have would reach nothing, without a word."""
    problem = await standing.call("POST", "/tokens/", 422, json={"name": "t", "restrict": {"labels": {"a b": "c"}}})
    assert "restrict.labels" in problem["errors"][0]["field"]


async def test_a_token_begins_with_its_prefix(carillon: Carillon) -> None:
    """By which the holder of a token finds it in the list."""
    token = await made(carillon)
    assert token["token"].startswith(f"{token['prefix']}_")
    assert token["prefix"] in {one["prefix"] for one in (await carillon.call("GET", "/tokens/"))["items"]}


async def test_the_last_use_is_stored_to_the_minute(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a delay, and once more when the API stops."""
    monkeypatch.setattr("app.wiring.STORE_USES_SECONDS", 0.05)
    async with serving(settings) as carillon:
        token = await made(carillon)
        await carillon.with_token(token["token"]).call("GET", "/me/")

        async def is_stored() -> Json | None:
            items: list[Json] = (await carillon.call("GET", "/tokens/"))["items"]
            return next((one for one in items if one["id"] == token["id"] and one["last_used_at"]), None)

        shown = await until(is_stored)
        assert (0, 0) == (moment(shown["last_used_at"]).second, moment(shown["last_used_at"]).microsecond)
        assert datetime.now(UTC) - moment(shown["last_used_at"]) < timedelta(minutes=5)
        monkeypatch.setattr("app.wiring.STORE_USES_SECONDS", 3600)
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE api_tokens SET last_used_at = NULL"))
        await carillon.with_token(token["token"]).call("GET", "/me/")
    async with database.transaction() as connection:
        stored = (await connection.execute(text("SELECT last_used_at FROM api_tokens"))).scalars().all()
    assert None not in stored


async def test_a_restricted_token_reaches_nothing_that_is_not_made_for_it(carillon: Carillon) -> None:
    """A call that does not keep to restrictions is refused, whatever it is about."""
    token = await made(carillon, restrict={"workflow_ids": [1]})
    holder = carillon.with_token(token["token"])
    await holder.call("GET", "/me/")
    for method, path in (("GET", "/webhooks/"), ("GET", "/users/"), ("GET", "/secrets/"), ("POST", "/workflows/")):
        assert "restricted" == (await holder.call(method, path, 403))["code"]


async def test_a_token_never_rotates_or_deletes_one_that_ends_later(carillon: Carillon) -> None:
    """A token that ends in minutes must not be traded for one without an end."""
    mia = await carillon.member()
    endless, lasting = await made(mia), await made(mia, expires_at=in_days(300))
    short = mia.with_token((await made(mia, expires_at=in_days(0.001)))["token"])
    for token in (endless, lasting):
        for method, path in (("POST", f"/tokens/{token['id']}/rotate/"), ("DELETE", f"/tokens/{token['id']}/")):
            assert "ends later" in (await short.call(method, path, 403))["detail"]
    sooner = await made(mia, expires_at=in_days(0.0005))
    await short.call("POST", f"/tokens/{sooner['id']}/rotate/", 201)


async def test_an_admins_token_that_ends_makes_no_longer_ones_for_others(carillon: Carillon) -> None:
    """Neither new ones nor by rotation; ending a token of others is always possible."""
    mia = await carillon.member()
    user = (await mia.call("GET", "/me/"))["id"]
    endless, short = await made(mia), await made(carillon, expires_at=in_days(0.01))
    admin = carillon.with_token(short["token"])
    token = await admin.call("POST", f"/users/{user}/tokens/", 201, json={"name": "t"})
    assert short["expires_at"] == token["expires_at"]
    await admin.call("POST", f"/tokens/{endless['id']}/rotate/", 403)
    await admin.call("DELETE", f"/tokens/{endless['id']}/", 204)


async def test_a_replaced_token_cannot_touch_its_successor(carillon: Carillon) -> None:
    """Also if both end at the same time: whoever stole the old one would follow every rotation."""
    old = await made(carillon, expires_at=in_days(0.01))
    new = await carillon.call("POST", f"/tokens/{old['id']}/rotate/", 201, json={"grace_seconds": 86_400})
    thief = carillon.with_token(old["token"])
    for method, path in (("POST", f"/tokens/{new['id']}/rotate/"), ("DELETE", f"/tokens/{new['id']}/")):
        assert "was replaced" in (await thief.call(method, path, 403))["detail"]
    await thief.call("DELETE", f"/tokens/{old['id']}/", 204)
    await carillon.with_token(new["token"]).call("GET", "/me/")


@pytest.mark.parametrize("restrict", [{}, {"workflow_ids": []}, {"labels": {}}, {"namespace": None}])
async def test_an_empty_restriction_is_422(standing: Carillon, restrict: Json) -> None:
    """It would make a token that reaches everything."""
    problem = await standing.call("POST", "/tokens/", 422, json={"name": "t", "restrict": restrict})
    assert "restrict" == problem["errors"][0]["field"]


async def test_a_workflow_that_is_named_often_is_listed_once(carillon: Carillon) -> None:
    """The restriction of a token has no repetitions."""
    workflow = await carillon.workflow()
    token = await made(carillon, restrict={"workflow_ids": [workflow["id"]] * 3})
    assert [workflow["id"]] == token["restrict"]["workflow_ids"]
    assert 1 == len((await carillon.with_token(token["token"]).call("GET", "/workflows/"))["items"])


async def test_scopes_of_a_token_stay_after_a_promotion(carillon: Carillon) -> None:
    """A token with scopes makes tokens with scopes, and does not touch those without, which follow the role."""
    mia = await carillon.member()
    user = (await mia.call("GET", "/me/"))["id"]
    unscoped = await made(mia)
    writer = mia.with_token((await made(mia, scopes=["write"]))["token"])
    child = await made(writer)
    assert "fixed" in (await writer.call("POST", f"/tokens/{unscoped['id']}/rotate/", 403))["detail"]
    rotated = await writer.call("POST", f"/tokens/{child['id']}/rotate/", 201)
    await carillon.call("PATCH", f"/users/{user}/", json={"role": "admin"})
    await mia.with_token(rotated["token"]).call("GET", "/users/", 403)
    await mia.with_token(unscoped["token"]).call("GET", "/users/")


async def test_a_token_for_feeds_reads_nothing_else(carillon: Carillon) -> None:
    """It may stand in an address, so that a log or a proxy knows it; it begins no session either."""
    feed = await made(carillon, kind="feed")
    assert ["read"] == feed["scopes"]
    holder = carillon.with_token(feed["token"])
    for method, path in (("GET", "/me/"), ("GET", "/schedules/"), ("POST", "/tokens/"), ("GET", "/session/")):
        assert "feed_only" == (await holder.call(method, path, 403))["code"]
    login = await carillon.with_token("").request("POST", "/session/", json={"token": feed["token"]})
    assert (403, False) == (login.status_code, "set-cookie" in login.headers)
    problem = await carillon.call("POST", "/tokens/", 422, json={"name": "t", "kind": "feed", "scopes": ["write"]})
    assert "scopes" == problem["errors"][0]["field"]


async def test_a_user_has_a_bounded_number_of_tokens(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotation without a grace period is possible then, with one it is not; ended tokens do not count."""
    monkeypatch.setattr("app.services.users.MOST_TOKENS", 3)
    mia = await carillon.member()
    last = [await made(mia) for _ in range(2)][-1]
    assert "conflict" == (await mia.call("POST", "/tokens/", 409, json={"name": "t"}))["code"]
    await mia.call("POST", f"/tokens/{last['id']}/rotate/", 409, json={"grace_seconds": 60})
    await mia.call("POST", f"/tokens/{last['id']}/rotate/", 201)
