"""Calls carry tokens that targets verify by Carillon's published keys.

Covers app.engine.oidc_keys, app.persistence.oidc_keys, app.services.oidc_keys, app.api.well_known.
"""

import asyncio
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import jwt
import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import KeySet
from msgspec.structs import replace
from sqlalchemy import text

from app import clock
from app.actions.builtin import BUILTIN
from app.actions.catalog import Action, Blocked, Catalog
from app.config import Settings
from app.domain.call_tokens import CallOrigin
from app.domain.errors import UnavailableError
from app.domain.workflows import Node
from app.engine import oidc_keys as key_rotation
from app.engine.call_tokens import CACHE_SECONDS, TokenMinter
from app.persistence import oidc_keys
from app.persistence.database import Database
from app.services import oidc_keys as publication
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, fire_and_read, http_node
from tests.support.http_sink import Call, Sink

ISSUER = "https://carillon.example"
AUDIENCE = "https://target.example"
AUTH = {"oidc": {"audience": AUDIENCE}}
DOCUMENT = Path(__file__).parents[2] / "docs" / "signatures.md"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With an issuer."""
    return replace(settings, public_url=f"{ISSUER}/")


@pytest.fixture
def minter(database: Database) -> TokenMinter:
    """A process that mints."""
    return TokenMinter(database, ISSUER)


def origin(**values: Any) -> CallOrigin:
    """Return the origin of a call of the built-in admin's."""
    known = {"scheduled_job_id": uuid4(), "entity": None, "schedule_name": "s", "workflow_id": 1, "owner_id": 1}
    return CallOrigin(**{**known, "execution_id": uuid4(), "message_id": "e.n.1", **values})


async def jwks(carillon: Carillon) -> Json:
    """Read the published keys, as a verifier does."""
    response = await carillon.raw("GET", "/.well-known/jwks.json")
    assert 200 == response.status_code, response.text
    keys: Json = response.json()
    return keys


def verified(token: str, keys: Json, audience: str = AUDIENCE) -> Json:
    """Verify a token by a library that did not sign it, and return its claims."""
    decoded = joserfc_jwt.decode(token, KeySet.import_key_set(keys), algorithms=["RS256"])  # type: ignore[arg-type]
    registry = joserfc_jwt.JWTClaimsRegistry(
        leeway=60,
        iss={"essential": True, "value": ISSUER},
        aud={"essential": True, "value": audience},
        exp={"essential": True},
    )
    registry.validate(decoded.claims)
    return dict(decoded.claims)


async def called(owner: Carillon, settings: Settings, database: Database, sink: Sink, **config: Any) -> Call:
    """Fire a schedule of a workflow of this owner, and return its call."""
    sink.calls.clear()
    schedule = await owner.schedule(await owner.workflow(http_node(sink.url, auth=AUTH, **config)))
    execution = await fire_and_read(owner, settings, database, schedule)
    assert "success" == execution["status"], execution
    return sink.calls[0]


def token_of(call: Call) -> str:
    """Return the bearer token of a call."""
    scheme, _, token = call.headers["authorization"].partition(" ")
    assert "Bearer" == scheme
    return token


async def test_a_call_carries_a_token_that_the_published_keys_verify(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Its claims name issuer, audience, schedule, owner, workflow and run; it lives for five minutes."""
    mia = await carillon.member("mia")
    call = await called(mia, settings, database, sink)
    claims = verified(token_of(call), await jwks(carillon))
    schedule = (await mia.call("GET", "/schedules/"))["items"][0]
    execution = call.headers["x-carillon-execution"]
    me = await mia.call("GET", "/me/")
    assert abs(claims["iat"] - time()) < 60
    assert {
        "iss": ISSUER,
        "sub": f"schedule:{schedule['id']}",
        "aud": AUDIENCE,
        "iat": claims["iat"],
        "exp": claims["iat"] + 300,
        "jti": f"{execution}.call.1",
        "owner": "mia",
        "owner_id": me["id"],
        "execution_id": execution,
        "schedule_name": "s",
        "workflow_id": schedule["workflow_id"],
    } == claims


async def test_two_calls_have_two_tokens(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """No token is used for a second run."""
    first, second = [token_of(await called(carillon, settings, database, sink)) for _ in range(2)]
    keys = await jwks(carillon)
    assert verified(first, keys)["jti"] != verified(second, keys)["jti"]


async def test_an_entity_is_its_own_subject(minter: TokenMinter, carillon: Carillon) -> None:
    """It has a type and an id, and no workflow."""
    token = await minter.mint(origin(scheduled_job_id=None, entity="webhook/7", workflow_id=None), AUDIENCE)
    claims = verified(token, await jwks(carillon))
    assert ("entity:webhook/7", False) == (claims["sub"], "workflow_id" in claims)


async def test_the_owner_is_who_decides_what_is_sent(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """An admin's schedule on a member's workflow carries the member's name."""
    mia = await carillon.member("mia")
    workflow = await mia.workflow(http_node(sink.url, auth=AUTH))
    schedule = await carillon.schedule(workflow, workflow_owner=workflow["user_profile_id"])
    await fire_and_read(carillon, settings, database, schedule)
    assert "mia" == verified(token_of(sink.calls[0]), await jwks(carillon))["owner"]


async def test_the_name_of_a_renamed_team_is_read_again(
    carillon: Carillon, minter: TokenMinter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a minute: another team may take the name. The id stays the same."""
    mia = await carillon.member()
    team = await mia.call("POST", "/teams/", 201, json={"name": "billing"})
    keys = await jwks(carillon)

    async def owner() -> tuple[str, int]:
        claims = verified(await minter.mint(origin(owner_id=team["id"]), AUDIENCE), keys)
        return claims["owner"], claims["owner_id"]

    assert ("team:billing", team["id"]) == await owner()
    await mia.call("PATCH", f"/teams/{team['id']}/", json={"name": "old"})
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + 60)
    assert ("team:old", team["id"]) == await owner()


@pytest.mark.parametrize("audience", ["carillon", ISSUER, f"{ISSUER}/api/v1"])
async def test_the_api_refuses_its_own_tokens(minter: TokenMinter, carillon: Carillon, audience: str) -> None:
    """Whatever their audience, of whichever owner: a target that keeps one cannot call back as the owner."""
    token = await minter.mint(origin(), audience)
    for path in ("/me/", "/schedules/", "/signing-key/"):
        response = await carillon.with_token(token).request("GET", path)
        assert (401, "unauthenticated") == (response.status_code, response.json()["code"])
    assert 401 == (await carillon.raw("POST", "/api/v1/session/", json={"token": token})).status_code


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({"auth": AUTH, "headers": {"authorization": "Bearer x"}}, "nodes[1].config", "Authorization"),
        ({"auth": {"oidc": {}}}, "nodes[1].config.auth.oidc.audience", ""),
        ({"auth": {"oidc": {"audience": ""}}}, "nodes[1].config.auth.oidc.audience", "1 to 500"),
        ({"auth": {"oidc": {"audience": "a b"}}}, "nodes[1].config.auth.oidc.audience", "1 to 500"),
        ({"auth": {"oidc": {"audience": "a", "scope": "x"}}}, "nodes[1].config.auth.oidc.scope", ""),
        ({"auth": {"basic": {}}}, "nodes[1].config.auth.basic", ""),
        ({"auth": {"oidc": {"audience": "{{ secret.X }}"}}}, "nodes[1].config.auth.oidc.audience", "secret"),
    ],
)
async def test_what_cannot_be_minted_is_refused_when_written(
    carillon: Carillon, sink: Sink, config: Json, field: str, words: str
) -> None:
    """With the field, and what is wrong with it."""
    body = workflow_body(http_node(sink.url, **config))
    answer = await carillon.call("POST", "/workflows/", 422, json=body)
    fields = {error["field"]: error["message"] for error in answer["errors"]}
    assert field in fields, answer
    assert words in fields[field]


def workflow_body(node: Json) -> Json:
    """Return the body of a workflow with this node."""
    nodes = [{"id": "start", "type": "trigger_schedule"}, node]
    return {"name": "w", "nodes": nodes, "edges": [{"from": "start", "to": node["id"]}]}


async def test_a_filled_in_audience_is_checked_again(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """A template may give the audience; nonsense is blocked and not sent."""
    node = http_node(sink.url, auth={"oidc": {"audience": "{{ trigger.payload.to }}"}})
    workflow = await carillon.workflow(node)
    good, bad = [await carillon.schedule(workflow, trigger_payload={"to": to}) for to in ("x", "x y")]
    assert "success" == (await fire_and_read(carillon, settings, database, good))["status"]
    assert "blocked" == (await fire_and_read(carillon, settings, database, bad))["status"]
    assert ["x"] == [verified(token_of(call), await jwks(carillon), "x")["aud"] for call in sink.calls]


async def test_without_a_public_url_there_are_no_tokens(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The workflow is refused with 422, a stored one is blocked, and nothing is published."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url, auth=AUTH)))
    without = replace(settings, public_url="")
    execution = await fire_and_read(carillon, without, database, schedule)
    assert ("blocked", []) == (execution["status"], sink.calls)
    assert "CARILLON_PUBLIC_URL" in execution["error"]
    async with serving(without) as bare:
        answer = await bare.call("POST", "/workflows/", 422, json=workflow_body(http_node(sink.url, auth=AUTH)))
        assert ["nodes[1].config.auth"] == [error["field"] for error in answer["errors"]]
        assert "CARILLON_PUBLIC_URL" in answer["errors"][0]["message"]
        for path in ("jwks.json", "openid-configuration"):
            response = await bare.raw("GET", f"/.well-known/{path}")
            assert (404, "not_found") == (response.status_code, response.json()["code"])


class EarlierConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of `core.http_request` in a release without `auth`, as far as this test needs it."""

    url: str


async def test_a_worker_of_an_earlier_release_blocks_what_it_does_not_know(sink: Sink) -> None:
    """It never sends the call without its token."""
    sent: list[str] = []

    async def send(config: EarlierConfig, _context: Any) -> None:
        sent.append(config.url)

    catalog = Catalog([Action(name="core.http_request", description="Send.", config=EarlierConfig, handler=send)])
    node = Node("call", "core.http_request", {"url": sink.url, "auth": AUTH})
    result = await catalog.run(node, None, dict)  # type: ignore[arg-type]
    assert isinstance(result, Blocked)
    assert ("auth" in result.reason, []) == (True, sent)


async def test_discovery_leads_to_the_keys(carillon: Carillon) -> None:
    """Without a token; both may be cached, and an unchanged list is not sent again."""
    response = await carillon.raw("GET", "/.well-known/openid-configuration")
    found = response.json()
    assert (ISSUER, f"{ISSUER}/.well-known/jwks.json") == (found["issuer"], found["jwks_uri"])
    assert ["RS256"] == found["id_token_signing_alg_values_supported"]
    assert "public, max-age=300" == response.headers["cache-control"]
    keys = await carillon.raw("GET", "/.well-known/jwks.json")
    assert ("public, max-age=300", "application/json") == (keys.headers["cache-control"], keys.headers["content-type"])
    same = await carillon.raw("GET", "/.well-known/jwks.json", headers={"If-None-Match": keys.headers["etag"]})
    assert (304, b"", keys.headers["etag"]) == (same.status_code, same.content, same.headers["etag"])
    other = await carillon.raw("GET", "/.well-known/jwks.json", headers={"If-None-Match": '"other"'})
    assert 200 == other.status_code


async def test_only_public_parts_are_published(carillon: Carillon) -> None:
    """Nothing of a key but its modulus and exponent."""
    (key,) = (await jwks(carillon))["keys"]
    assert {"kty", "kid", "use", "alg", "n", "e"} == set(key)


async def test_the_keys_are_served_from_memory(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask, and while Postgres is away."""
    before = await jwks(carillon)
    reads = 0

    async def unavailable(_connection: Any) -> Any:
        nonlocal reads
        reads += 1
        raise UnavailableError

    monkeypatch.setattr(oidc_keys, "read", unavailable)
    monkeypatch.setattr(publication, "REFRESH_SECONDS", 0.0)
    assert before == await jwks(carillon)
    monkeypatch.setattr(publication, "REFRESH_SECONDS", 60.0)
    tried = reads
    assert [before] * 20 == await asyncio.gather(*(jwks(carillon) for _ in range(20)))
    assert (1, tried) == (tried, reads)


async def test_processes_that_begin_at_once_make_one_key(settings: Settings) -> None:
    """Each with connections of its own; all tokens verify."""
    databases = [Database(settings.database_url, pool_size=1) for _ in range(4)]
    try:
        minters = [TokenMinter(database, ISSUER) for database in databases]
        minted = [minter.mint(origin(), AUDIENCE) for minter in minters for _ in range(3)]
        tokens = await asyncio.gather(*minted, *(key_rotation.ensure_key(database) for database in databases))
        async with databases[0].transaction() as connection:
            (key,) = await oidc_keys.read(connection)
    finally:
        for database in databases:
            await database.close()
    assert {key.kid} == {jwt.get_unverified_header(token)["kid"] for token in tokens if token}


async def test_processes_that_rotate_at_once_make_one_successor(database: Database) -> None:
    """A key that is due for rotation gets one successor, a day ahead, and the old one ends when that begins."""
    await key_rotation.ensure_key(database)
    await age_keys(database, days=89, minutes=1)
    await asyncio.gather(*(key_rotation.rotate_if_due(database) for _ in range(4)))
    async with database.transaction() as connection:
        old, new = await oidc_keys.read(connection)
    assert (old.retires_at, None) == (new.activates_at, new.retires_at)
    assert timedelta(hours=23, minutes=55) < new.activates_at - datetime.now(UTC) < timedelta(hours=24, minutes=5)


async def age_keys(database: Database, **time: float) -> None:
    """Move all terms of keys into the past."""
    statement = text(
        "UPDATE oidc_keys SET activates_at = activates_at - CAST(:age AS interval), "
        "retires_at = retires_at - CAST(:age AS interval)"
    )
    async with database.transaction() as connection:
        await connection.execute(statement, {"age": timedelta(**time)})


async def test_tokens_before_and_after_a_rotation_verify(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list has the new key before it signs, and the old one until its last token has expired."""
    monkeypatch.setattr(publication, "REFRESH_SECONDS", 0.0)

    async def mint() -> str:
        return await TokenMinter(database, ISSUER).mint(origin(), AUDIENCE)

    first = await mint()
    await age_keys(database, days=89, minutes=1)
    await key_rotation.rotate_if_due(database)
    ahead = await mint()
    assert 2 == len((await jwks(carillon))["keys"])
    assert kid(first) == kid(ahead)
    await age_keys(database, days=1, minutes=1)
    after = await mint()
    assert kid(first) != kid(after)
    keys = await jwks(carillon)
    assert 3 == len([verified(token, keys) for token in (first, ahead, after)])
    await age_keys(database, minutes=10)
    assert [kid(after)] == [key["kid"] for key in (await jwks(carillon))["keys"]]
    await key_rotation.rotate_if_due(database)
    async with database.transaction() as connection:
        assert [kid(after)] == [key.kid for key in await oidc_keys.read(connection)]


def kid(token: str) -> str:
    """Return the id of the key that signed a token."""
    return str(jwt.get_unverified_header(token)["kid"])


async def test_a_process_sees_a_rotation_that_another_made(
    minter: TokenMinter, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the seconds for which it caches the keys."""
    first = await minter.mint(origin(), AUDIENCE)
    await key_rotation.rotate(database, timedelta(0))
    assert kid(first) == kid(await minter.mint(origin(), AUDIENCE))
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + CACHE_SECONDS)
    assert kid(first) != kid(await minter.mint(origin(), AUDIENCE))


async def test_a_rotation_ends_keys_that_were_still_to_sign(database: Database) -> None:
    """A key that may have been stolen does not come back when an earlier plan would have had it."""
    await key_rotation.rotate(database, timedelta(days=1))
    newest = await key_rotation.rotate(database, timedelta(0))
    async with database.transaction() as connection:
        keys = await oidc_keys.read(connection)
    assert 3 == len(keys)
    assert {newest.activates_at, None} == {key.retires_at for key in keys}


async def test_an_outage_does_not_stop_the_signing(
    minter: TokenMinter, carillon: Carillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys that were read last sign on, although they are no longer fresh."""
    await minter.mint(origin(), AUDIENCE)

    async def unavailable(_before: Any) -> Any:
        raise UnavailableError

    monkeypatch.setattr(minter, "_read", unavailable)
    began = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: began + CACHE_SECONDS)
    token = await asyncio.wait_for(minter.mint(origin(), AUDIENCE), 10)
    monkeypatch.undo()
    assert AUDIENCE == verified(token, await jwks(carillon))["aud"]


async def test_the_clock_of_the_database_counts(
    minter: TokenMinter, carillon: Carillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is an hour off mints tokens that verify."""
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) - timedelta(hours=1))
    claims = verified(await minter.mint(origin(), AUDIENCE), await jwks(carillon))
    assert abs(claims["iat"] - time()) < 60


async def test_a_token_that_a_target_sends_back_is_not_stored(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Neither in the output of a node nor in the error of a run."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url, auth=AUTH)))
    for status in (200, 500):

        async def echo(request: web.Request, status: int = status) -> web.StreamResponse:
            return web.json_response({"got": request.headers["authorization"]}, status=status)

        sink.answer = echo
        execution = await fire_and_read(carillon, settings, database, schedule)
        token = token_of(sink.calls[-1])
        assert "got" in str(execution)
        assert [] == [part for part in token.split(".") if part in str(execution)]


async def test_private_keys_are_in_no_log_and_no_answer(
    carillon: Carillon,
    settings: Settings,
    database: Database,
    sink: Sink,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor is a token; the values that hold a key do not show it."""
    caplog.set_level(logging.DEBUG)
    call = await called(carillon, settings, database, sink)
    await key_rotation.rotate(database, timedelta(0))
    async with database.transaction() as connection:
        keys = await oidc_keys.read(connection)
        pems = await oidc_keys.read_private(connection, [key.kid for key in keys])
    answers = [(await carillon.request("GET", path)).text for path in ("/workflows/", "/executions/", "/actions/")]
    seen = " ".join([caplog.text, *answers, str(await jwks(carillon)), repr(key_rotation.new_key())])
    planted = [line for pem in pems.values() for line in pem.splitlines() if len(line) > 60]
    assert len(planted) > 20
    assert [] == [line for line in [*planted, token_of(call)] if line in seen]
    assert "PRIVATE KEY" not in seen
    assert "oidc_key_created" in caplog.text
    assert "oidc_key_rotated" in caplog.text


def documented_verify(address: str) -> Any:
    """Return the function of the document's Python example; it reads the keys at this address."""
    section = DOCUMENT.read_text().partition("## Tokens instead of keys")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace(f"{ISSUER}/.well-known", f"{address}/.well-known"), names)
    return names["verify"]


async def test_the_documented_example_verifies_a_real_call(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """And refuses another owner, another audience, another key and a token that has expired."""
    mia, max_ = await carillon.member("mia"), await carillon.member("max")
    verify = documented_verify(str(carillon._client.base_url))
    genuine = await called(mia, settings, database, sink)
    owner_ids = {(await mia.call("GET", "/me/"))["id"]}
    claims = await asyncio.to_thread(verify, genuine.headers, AUDIENCE, owner_ids)
    assert ("mia", AUDIENCE) == (claims["owner"], claims["aud"])
    foreign = await called(max_, settings, database, sink)
    forged = jwt.encode(
        {**claims},
        rsa.generate_private_key(65_537, 2048),
        algorithm="RS256",
        headers={"kid": kid(token_of(genuine))},
    )
    unsigned = jwt.encode({**claims}, "", algorithm="none", headers={"kid": kid(token_of(genuine))})
    for headers, audience in (
        (foreign.headers, AUDIENCE),
        (genuine.headers, "https://other.example"),
        ({"authorization": f"Bearer {forged}"}, AUDIENCE),
        ({"authorization": f"Bearer {unsigned}"}, AUDIENCE),
        ({"authorization": "Bearer x"}, AUDIENCE),
        ({}, AUDIENCE),
    ):
        with pytest.raises((ValueError, jwt.InvalidTokenError)):
            await asyncio.to_thread(verify, headers, audience, owner_ids)


@pytest.fixture
async def catalog_entry(carillon: Carillon) -> Json:
    """The entry of the action in the catalog."""
    items = (await carillon.call("GET", "/actions/"))["items"]
    entry: Json = next(item for item in items if item["name"] == "core.http_request")
    return entry


async def test_the_catalog_describes_auth(catalog_entry: Json) -> None:
    """Its schema has the audience; the built-in action is the one that is described."""
    definitions = catalog_entry["config_schema"]["$defs"]
    assert "auth" in definitions["HttpRequestConfig"]["properties"]
    assert ["audience"] == definitions["OidcAuth"]["required"]
    assert ("auth",) == next(action for action in BUILTIN if action.name == "core.http_request").needs_public_url
