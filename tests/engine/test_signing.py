"""A signature says whose call it is, and which run made it.

Covers app.engine.node_resources, app.persistence.secrets.
"""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from standardwebhooks import Webhook, WebhookVerificationError

from app.config import Settings
from app.domain.errors import UnavailableError
from app.engine.node_resources import SigningKeyCache
from app.persistence import secrets
from app.persistence.database import Database
from tests.support.carillon import FAIL, Carillon, Json, http_node, until, working
from tests.support.http_sink import Call, Sink

OPERATORS = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DOCUMENT = Path(__file__).parents[2] / "docs" / "signatures.md"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With the operators' key."""
    return replace(settings, signing_secret=OPERATORS)


async def called(owner: Carillon, settings: Settings, sink: Sink, node: Json | None = None) -> Call:
    """A call of a workflow of this owner."""
    schedule = await owner.schedule(await owner.workflow(node or http_node(sink.url)))
    return await fired(owner, settings, sink, schedule)


async def fired(owner: Carillon, settings: Settings, sink: Sink, schedule: Json) -> Call:
    """The call of a schedule that is run by hand."""
    sink.calls.clear()
    await owner.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    async with working(settings):
        await sink.wait_for_calls(1)
    return sink.calls[0]


def signed_by(call: Call, *keys: str) -> list[bool]:
    """By which of these keys a call is signed."""
    return [_verifies(key, call) for key in keys]


def _verifies(key: str, call: Call) -> bool:
    try:
        Webhook(key).verify(call.body, call.headers)
    except WebhookVerificationError:
        return False
    return True


async def key_of(owner: Carillon) -> str:
    """An owner's key."""
    return str((await owner.call("GET", "/signing-key/"))["key"])


async def test_a_members_calls_are_signed_with_the_members_key_alone(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Not at all before there is one; never with another's, nor with the operators'."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    maxs, admins = await key_of(max_), await key_of(carillon)
    assert "webhook-signature" not in (await called(mia, settings, sink)).headers
    mias = await key_of(mia)
    call = await called(mia, settings, sink)
    assert [True, False, False, False] == signed_by(call, mias, maxs, admins, OPERATORS)
    assert 1 == len(call.headers["webhook-signature"].split())


async def test_an_admins_calls_are_signed_with_the_operators_key_and_their_own(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """As far as there is one."""
    assert [True] == signed_by(await called(carillon, settings, sink), OPERATORS)
    own = await key_of(carillon)
    assert [True, True] == signed_by(await called(carillon, settings, sink), OPERATORS, own)


async def test_whoever_decides_what_is_sent_signs_it(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """An admin's schedule on a member's workflow lends the member no key."""
    mia = await carillon.member()
    mias, admins = await key_of(mia), await key_of(carillon)
    schedule = await mia.schedule(await mia.workflow(http_node(sink.url)))
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE scheduled_jobs SET user_profile_id = (SELECT min(id) FROM user_profiles WHERE role = 'admin')")
        )
    call = await fired(carillon, settings, sink, schedule)
    assert [True, False, False] == signed_by(call, mias, admins, OPERATORS)


async def test_what_is_signed_names_its_run(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Execution, node and attempt; the idempotency key is what it was."""
    node = {**http_node(sink.url), "id": "Größe 1/2"}
    call = await called(carillon, settings, sink, node)
    execution = call.headers["x-carillon-execution"]
    assert f"{execution}.{quote('Größe 1/2', safe='')}.1" == call.headers["webhook-id"]
    moved = Call(call.method, call.path, {**call.headers, "webhook-id": f"{execution}.other.1"}, call.body)
    assert [True, False] == [*signed_by(call, OPERATORS), *signed_by(moved, OPERATORS)]
    assert call.headers["idempotency-key"] not in call.headers["webhook-id"]


async def test_a_key_is_made_once_and_is_its_owners(carillon: Carillon) -> None:
    """Also where many ask at the same time; in the form of Standard Webhooks."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    answers = await asyncio.gather(*(mia.call("GET", "/signing-key/") for _ in range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", answers[0]["key"])
    assert answers[0]["previous"] is None
    assert answers[0]["key"] != await key_of(max_)
    response = await mia.request("GET", "/signing-key/")
    assert "no-store" == response.headers["cache-control"]
    await mia.with_token("").call("GET", "/signing-key/", 401)


async def test_a_rotated_key_overlaps_with_the_one_before(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Both sign, until the old one retires."""
    mia = await carillon.member()
    first = await mia.call("GET", "/signing-key/")
    second = await mia.call("POST", "/signing-key/rotate/")
    assert (first["key_id"], first["key"]) == (second["previous"]["key_id"], second["previous"]["key"])
    assert second == await mia.call("GET", "/signing-key/")
    call = await called(mia, settings, sink)
    assert [True, True, False] == signed_by(call, first["key"], second["key"], OPERATORS)
    async with database.transaction() as connection:
        left = text("SELECT extract(epoch FROM retires_at - now()) FROM signing_keys WHERE retires_at IS NOT NULL")
        assert 23 * 3600 < (await connection.execute(left)).scalar_one() < 25 * 3600
        retire = "UPDATE signing_keys SET retires_at = clock_timestamp() WHERE retires_at IS NOT NULL"
        await connection.execute(text(retire))
    assert (await mia.call("GET", "/signing-key/"))["previous"] is None
    assert [False, True] == signed_by(await called(mia, settings, sink), first["key"], second["key"])


async def test_rotating_twice_drops_the_oldest_key(carillon: Carillon, database: Database) -> None:
    """And rotations at the same time come one after another, each with a key of its own."""
    mia = await carillon.member()
    first = await mia.call("GET", "/signing-key/")
    made = await asyncio.gather(*(mia.call("POST", "/signing-key/rotate/") for _ in range(4)))
    assert 5 == len({first["key"], *(answer["key"] for answer in made)})
    last = await mia.call("GET", "/signing-key/")
    async with database.transaction() as connection:
        kept = (await connection.execute(text("SELECT key FROM signing_keys"))).scalars().all()
    assert {last["key"], last["previous"]["key"]} == set(kept)


async def test_keys_are_remembered_for_a_while_and_through_an_outage(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call costs no query; a worker that has lost Postgres goes on signing."""
    mia = await carillon.member()
    await key_of(mia)
    owner = (await mia.call("GET", "/me/"))["id"]
    cache = SigningKeyCache(database)
    before = await cache.keys_of(owner)
    asked = 0

    async def away(*_: Any) -> dict[int, list[str]]:
        nonlocal asked
        asked += 1
        raise UnavailableError

    monkeypatch.setattr(secrets, "read_signing_keys", away)
    assert (before, 0) == (await cache.keys_of(owner), asked)
    cache._cache.keep(owner, tuple(before), 0.0)
    assert (before, 1) == (await cache.keys_of(owner), asked)


async def test_a_notification_is_signed_with_its_owners_key(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """And names its delivery."""
    mia = await carillon.member()
    key = await key_of(mia)
    await mia.call("POST", "/notifications/", 201, json={"url": sink.url})
    schedule = await mia.schedule(await mia.workflow(FAIL))
    await mia.call("POST", f"/schedules/{schedule['id']}/run/", 202)

    async def told() -> bool:
        return bool(sink.calls)

    async with working(settings):
        await until(told)
    assert [True, False] == signed_by(sink.calls[0], key, OPERATORS)
    assert re.fullmatch(r"notice\.\d+\.1", sink.calls[0].headers["webhook-id"])


def documented(language: str) -> str:
    """The code that the documentation shows."""
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


async def test_the_documented_verification_works(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """In Python, and in JavaScript where there is Node: a forged call and another's key are refused."""
    mia = await carillon.member()
    await key_of(mia)
    keys = await mia.call("POST", "/signing-key/rotate/")
    call = await called(mia, settings, sink)
    cases: list[tuple[str, bytes, bool]] = [
        (keys["key"], call.body, True),
        (keys["previous"]["key"], call.body, True),
        (OPERATORS, call.body, False),
        (keys["key"], call.body + b" ", False),
    ]
    for key, body, good in cases:
        assert good == in_python(key, call.headers, body)
        if shutil.which("node"):
            assert good == await asyncio.to_thread(in_javascript, key, call.headers, body)
    assert not in_python(keys["key"], {**call.headers, "webhook-timestamp": "1700000000"}, call.body)


def in_python(key: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether the documented function takes a call."""
    names: dict[str, Any] = {}
    exec(documented("python"), names)
    try:
        names["verify"](key, headers, body)
    except ValueError:
        return False
    return True


def in_javascript(key: str, headers: dict[str, str], body: bytes) -> bool:
    """The same by Node."""
    arguments = f"{json.dumps(key)}, {json.dumps(headers)}, Buffer.from({json.dumps(body.hex())}, 'hex')"
    script = f"{documented('javascript')}\nverify({arguments});"
    return not subprocess.run(["node", "-e", script], check=False, capture_output=True, timeout=60).returncode
