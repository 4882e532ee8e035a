"""Idempotency keys: a POST that is sent again gets the first answer again, and is not carried out again.

Covers app.api.idempotency, app.domain.idempotency, app.persistence.idempotency, app.services.idempotency.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.domain.idempotency import (
    GIVEN_UP_AFTER,
    KEPT,
    IdempotencyMismatchError,
    InProgressError,
    StoredAnswer,
    Verdict,
    decide,
    hash_request,
    is_kept,
)
from app.persistence import idempotency
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
KEY = {"Idempotency-Key": "abc-1"}


async def body_of(carillon: Carillon) -> Json:
    """Return the body of a new schedule."""
    return {"name": "s", "interval_seconds": 60, "workflow_id": (await carillon.workflow())["id"]}


async def test_the_first_answer_is_given_again(carillon: Carillon) -> None:
    """Status, body and tag; the second time it says so, and nothing is created."""
    body = await body_of(carillon)
    first = await carillon.request("POST", "/schedules/", json=body, headers=KEY)
    again = await carillon.request("POST", "/schedules", json=body, headers=KEY)
    assert (201, 201) == (first.status_code, again.status_code)
    assert (first.content, first.headers["etag"]) == (again.content, again.headers["etag"])
    assert (None, "true") == tuple(one.headers.get("idempotency-replayed") for one in (first, again))
    assert again.headers["content-type"] == first.headers["content-type"]
    assert 1 == (await carillon.call("GET", "/schedules/"))["total"]


async def test_another_request_with_the_key_is_refused(carillon: Carillon) -> None:
    """Another body, path or query; of another user the key is another."""
    body = await body_of(carillon)
    await carillon.call("POST", "/schedules/", 201, json=body, headers=KEY)
    other = {**body, "name": "other"}
    for path, changed in (("/schedules/", other), ("/schedules/preview/", body), ("/workflows/", body)):
        assert "idempotency_mismatch" == (await carillon.call("POST", path, 422, json=changed, headers=KEY))["code"]
    mia = await carillon.member()
    await mia.call("POST", "/schedules/", 201, json=await body_of(mia), headers=KEY)
    await carillon.call("PATCH", f"/workflows/{body['workflow_id']}/", json={"name": "x"}, headers=KEY)


async def test_a_refusal_is_an_answer_too_but_not_every_one(carillon: Carillon) -> None:
    """422 is given again; 403 and 404 of a moment are not in the way of what comes later."""
    body = await body_of(carillon)
    bad = {**body, "interval_seconds": 0}
    first = await carillon.request("POST", "/schedules/", json=bad, headers=KEY)
    again = await carillon.request("POST", "/schedules/", json=bad, headers=KEY)
    assert (422, 422, first.content) == (first.status_code, again.status_code, again.content)
    assert "true" == again.headers["idempotency-replayed"]
    mia = await carillon.member()
    for _ in range(2):
        await mia.call("POST", "/users/", 403, json={"username": "x"}, headers={"Idempotency-Key": "other"})
    assert [True, True, False, False, False] == [is_kept(status) for status in (201, 404, 403, 429, 503)]


async def test_requests_at_once_are_carried_out_once(carillon: Carillon) -> None:
    """The others are told to wait, or get the first answer."""
    body = await body_of(carillon)
    calls = [carillon.request("POST", "/schedules/", json=body, headers=KEY) for _ in range(20)]
    responses = await asyncio.gather(*calls)
    assert {201, 409} >= {response.status_code for response in responses}
    assert 1 == len({response.json()["id"] for response in responses if response.status_code == 201})
    assert 1 == (await carillon.call("GET", "/schedules/"))["total"]
    assert 201 == (await carillon.request("POST", "/schedules/", json=body, headers=KEY)).status_code


async def test_verbs_take_keys_and_answers_with_secrets_do_not(carillon: Carillon, database: Database) -> None:
    """A run is started once. The text of a token is stored nowhere."""
    schedule = await carillon.schedule(if_running="allow")
    runs = [await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202, headers=KEY) for _ in range(3)]
    assert 1 == len({run["id"] for run in runs})
    for path in ("/tokens/", "/session/codes/", "/signing-key/rotate/"):
        refused = await carillon.call("POST", path, 422, json={}, headers={"Idempotency-Key": path})
        assert "Idempotency-Key" == refused["errors"][0]["field"], path
    async with database.reading() as connection:
        assert ["abc-1"] == list((await connection.execute(text("SELECT key FROM idempotency_keys"))).scalars())


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 256])
async def test_what_is_no_key_is_refused(carillon: Carillon, key: str) -> None:
    """Before anything is carried out."""
    body = await body_of(carillon)
    await carillon.call("POST", "/schedules/", 422, json=body, headers={"Idempotency-Key": key.encode()})
    assert 0 == (await carillon.call("GET", "/schedules/"))["total"]


def answer(**values: Any) -> StoredAnswer:
    """Return what is known of a key."""
    known = {"request_hash": b"a", "began_at": NOW, "status": 201, "headers": {}, "body": b"x"}
    return StoredAnswer(**{**known, **values})


def test_an_old_key_is_as_good_as_new() -> None:
    """After a day; and after a minute if its request was never answered, so that a crash blocks nothing for ever."""
    second = timedelta(seconds=1)
    assert Verdict.REPLAY is decide(answer(), b"a", NOW + KEPT)
    assert Verdict.CARRY_OUT is decide(answer(), b"b", NOW + KEPT + second)
    under_way = answer(status=None)
    with pytest.raises(InProgressError):
        decide(under_way, b"a", NOW + GIVEN_UP_AFTER)
    assert Verdict.CARRY_OUT is decide(under_way, b"a", NOW + GIVEN_UP_AFTER + second)
    for known in (answer(), under_way):
        with pytest.raises(IdempotencyMismatchError):
            decide(known, b"b", NOW + GIVEN_UP_AFTER + second)
    assert hash_request(b"ab", b"c") != hash_request(b"a", b"bc")


async def test_old_keys_are_taken_over_and_dropped(carillon: Carillon, database: Database) -> None:
    """By one of those who find them, and by housekeeping."""
    body = await body_of(carillon)
    await carillon.call("POST", "/schedules/", 201, json=body, headers=KEY)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE idempotency_keys SET began_at = began_at - interval '25 hours'"))
    calls = [carillon.request("POST", "/schedules/", json=body, headers=KEY) for _ in range(5)]
    assert {201, 409, 503} >= {response.status_code for response in await asyncio.gather(*calls)}
    assert 2 == (await carillon.call("GET", "/schedules/"))["total"]
    async with database.transaction() as connection:
        assert 0 == await idempotency.drop_old(connection, datetime.now(UTC) - KEPT, 10)
        await connection.execute(text("UPDATE idempotency_keys SET began_at = began_at - interval '25 hours'"))
        assert 1 == await idempotency.drop_old(connection, datetime.now(UTC) - KEPT, 10)
