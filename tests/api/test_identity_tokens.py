"""Tokens of identity providers as bearer tokens: which are accepted, which user they stand for, and forged ones.

Covers app.persistence.identities, app.services.identities, app.services.identity_providers.
"""

import asyncio
import base64
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, strategies
from hypothesis import settings as examples
from msgspec.structs import replace
from sqlalchemy import text
from structlog.testing import capture_logs

from app.config import Settings
from app.domain.identity_tokens import LAST_SECOND, MOST_TOKEN_CHARACTERS
from app.persistence import identities
from app.persistence.database import Database
from app.services import identity_providers
from app.services.authentication import Authenticator
from app.services.identities import Identities, TrustedIssuer
from app.services.identity_providers import IdentityProvider, ProviderAddress
from app.wiring import kubernetes_address
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json, moment
from tests.support.oidc_provider import Key, Provider, certificate, encoded

KEYS = [Key(f"key-{name}", name) for name in ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")]
OTHERS_KEY = Key("first")


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """An identity provider with a key of each kind."""
    async with Provider(*KEYS) as opened:
        yield opened


@pytest.fixture
async def trusting(provider: Provider, settings: Settings) -> AsyncIterator[Carillon]:
    """An API that accepts the tokens of the provider."""
    configured = replace(settings, oidc_issuer=provider.issuer, oidc_admin_group="ops")
    async with serving(configured) as client:
        yield client


async def me(carillon: Carillon, token: str, expected: int = 200) -> Json:
    """Ask who a token stands for."""
    shown: Json = await carillon.with_token(token).call("GET", "/me/", expected)
    return shown


async def stored(database: Database) -> tuple[int, int]:
    """Return the number of users and of identities."""
    async with database.reading() as connection:
        counts = "SELECT (SELECT count(*) FROM user_profiles), (SELECT count(*) FROM identities)"
        row = (await connection.execute(text(counts))).one()
    return row[0], row[1]


@pytest.mark.parametrize("index", range(6))
async def test_a_valid_token_of_an_unknown_subject_makes_a_member(
    trusting: Carillon, provider: Provider, database: Database, index: int
) -> None:
    """With any of the allowed algorithms; the next token of the subject is the same user's."""
    key = provider.keys[index]
    first = await me(trusting, key.sign(provider.claims(preferred_username="jane")))
    assert ("jane", "member") == (first["username"], first["role"])
    again = await me(trusting, key.sign(provider.claims(preferred_username="renamed", aud=["x", "carillon"])))
    assert first["id"] == again["id"]
    assert (2, 1) == await stored(database)


async def test_a_token_shows_when_it_ends_and_makes_no_token_that_outlives_it(
    trusting: Carillon, provider: Provider
) -> None:
    """A short-lived token must not be traded for one without an end, nor for a longer session."""
    holder = trusting.with_token(provider.token())
    ends = moment((await holder.call("GET", "/session/"))["expires_at"])
    assert timedelta(seconds=200) < ends - datetime.now(UTC) <= timedelta(seconds=300)
    made = await holder.call("POST", "/tokens/", 201, json={"name": "t"})
    assert ends == moment(made["expires_at"])
    response = await trusting.with_token("").request("POST", "/session/", json={"token": provider.token()})
    cookie = {"Cookie": f"carillon={response.cookies['carillon']}", "Sec-Fetch-Site": "same-origin"}
    session = await trusting.with_token("").request("GET", "/session/", headers=cookie)
    assert abs(moment(session.json()["expires_at"]) - ends) < timedelta(seconds=30)


async def test_a_session_of_an_identity_token_is_not_traded_for_a_longer_token(
    trusting: Carillon, provider: Provider
) -> None:
    """Neither by the session, nor by a code that it makes, nor by a code of the token itself."""
    bearer = provider.token()
    ends = moment((await trusting.with_token(bearer).call("GET", "/session/"))["expires_at"])
    nobody = trusting.with_token("")

    async def cookie(**body: str) -> dict[str, str]:
        response = await nobody.request("POST", "/session/", json=body)
        return {"Cookie": f"carillon={response.cookies['carillon']}", "Sec-Fetch-Site": "same-origin"}

    first = await cookie(token=bearer)
    codes = [
        (await nobody.call("POST", "/session/codes/", 201, headers=first))["code"],
        (await trusting.with_token(bearer).call("POST", "/session/codes/", 201))["code"],
    ]
    for headers in (first, *[await cookie(code=code) for code in codes]):
        made = await nobody.call("POST", "/tokens/", 201, json={"name": "t"}, headers=headers)
        assert ends == moment(made["expires_at"])
        assert ends == moment((await nobody.call("GET", "/session/", headers=headers))["expires_at"])


async def test_a_code_ends_with_the_token_that_made_it(
    trusting: Carillon, provider: Provider, database: Database
) -> None:
    """Although it would be good for ten minutes."""
    code = (await trusting.with_token(provider.token()).call("POST", "/session/codes/", 201))["code"]
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE session_codes SET credential_ends_at = clock_timestamp()"))
    await trusting.with_token("").call("POST", "/session/", 401, json={"code": code})


async def test_a_token_without_its_time_changes_nothing_of_a_known_user(trusting: Carillon, provider: Provider) -> None:
    """It may be older than the claims that took the role; a new user gets what it says."""
    undated = provider.token(groups=["ops"], iat=None)
    assert "admin" == (await me(trusting, undated))["role"]
    assert "member" == (await me(trusting, provider.token(groups=[])))["role"]
    assert "member" == (await me(trusting, undated))["role"]
    assert "member" == (await me(trusting, provider.token(groups=["ops"], iat=None, jti="another")))["role"]


async def test_odd_claims_are_no_error(provider: Provider, settings: Settings) -> None:
    """The last second of all dates, and groups that the database cannot store."""
    configured = replace(settings, oidc_issuer=provider.issuer, oidc_team_prefix="carillon-")
    async with serving(configured) as carillon:
        await carillon.call("POST", "/teams/", 201, json={"name": "ops"})
        groups = ["carillon-a\x00b", "carillon-\ud800", "carillon-" + "x" * 300, "carillon-ops"]
        token = provider.token(exp=LAST_SECOND, groups=groups)
        teams = await carillon.with_token(token).call("GET", "/teams/")
        assert ["ops"] == [team["name"] for team in teams["items"]]
        made = await carillon.with_token(token).call("POST", "/tokens/", 201, json={"name": "t"})
        assert made["expires_at"].startswith("9999-")
        assert 204 == (await carillon.with_token("").request("POST", "/session/", json={"token": token})).status_code


async def test_a_user_made_by_hand_is_never_taken_over(trusting: Carillon, provider: Provider) -> None:
    """Nor the built-in admin: a subject of the same name becomes another user."""
    local = await trusting.call("POST", "/users/", 201, json={"username": "jane"})
    for name, subject in (("jane", "a"), ("jane", "b"), ("admin", "c"), ("Admin", "d"), ("plugin:x", "e"), ("🔔", "f")):
        shown = await me(trusting, provider.token(sub=subject, preferred_username=name))
        assert shown["id"] != local["id"]
        assert shown["username"].lower() not in {"jane", "admin"}
        assert "member" == shown["role"]
        assert ":" not in shown["username"]


async def test_the_admin_group_decides_on_the_role_at_each_new_token(trusting: Carillon, provider: Provider) -> None:
    """An older token does not bring the role back that a newer one took."""
    now = int(datetime.now(UTC).timestamp())
    admins = provider.token(groups=["dev", "ops"], iat=now - 20)
    assert "admin" == (await me(trusting, admins))["role"]
    await trusting.with_token(admins).call("GET", "/users/")
    assert "member" == (await me(trusting, provider.token(groups=["dev"], iat=now - 10)))["role"]
    assert "member" == (await me(trusting, admins))["role"]
    await trusting.with_token(admins).call("GET", "/users/", 403)
    assert "admin" == (await me(trusting, provider.token(groups=["ops"], iat=now)))["role"]


async def test_groups_make_members_of_teams(provider: Provider, settings: Settings) -> None:
    """As long as the newest token names them; what people decided stays, and other groups count for nothing."""
    configured = replace(settings, oidc_issuer=provider.issuer, oidc_team_prefix="carillon-")
    now = int(datetime.now(UTC).timestamp())

    def token(age: int, *groups: str) -> str:
        return provider.token(sub="jane", preferred_username="jane", iat=now - age, groups=list(groups))

    async with serving(configured) as admin:
        ids = {name: (await admin.call("POST", "/teams/", 201, json={"name": name}))["id"] for name in ("a", "b", "c")}

        async def roles(bearer: str) -> dict[str, str]:
            shown = await admin.with_token(bearer).call("GET", "/teams/")
            return {team["name"]: team["role"] for team in shown["items"]}

        jane = (await me(admin, token(50)))["id"]
        await admin.call("POST", f"/teams/{ids['c']}/members/", 201, json={"user_id": jane, "role": "viewer"})
        groups = ("carillon-a", "carillon-b:viewer", "carillon-c:owner", "carillon-z", "b", "carillon-a:nonsense")
        assert {"a": "editor", "b": "viewer", "c": "viewer"} == await roles(token(40, *groups))
        assert {"a": "editor", "b": "operator", "c": "viewer"} == await roles(
            token(30, "carillon-a", "carillon-b:operator", "carillon-b:viewer")
        )
        await admin.call("PATCH", f"/teams/{ids['a']}/members/{jane}/", json={"role": "operator"})
        assert {"a": "operator", "c": "viewer"} == await roles(token(20))
        assert {"a": "operator", "c": "viewer"} == await roles(token(35, *groups)), "an older token changes nothing"
        events = (await admin.call("GET", "/audit/", params={"object_type": "team", "object_id": str(ids["b"])}))[
            "items"
        ]
        changed = ["team_member_removed", "team_member_changed", "team_member_added", "team_created"]
        assert changed == [event["action"] for event in events]


async def test_claims_undo_no_decision_and_leave_no_team_without_an_owner(
    provider: Provider, settings: Settings
) -> None:
    """Who was removed by hand stays out until added by hand; the last owner by claims stays one, which is logged."""
    configured = replace(settings, oidc_issuer=provider.issuer, oidc_team_prefix="carillon-")
    now = int(datetime.now(UTC).timestamp())

    def token(subject: str, age: int, *groups: str) -> str:
        return provider.token(sub=subject, preferred_username=subject, iat=now - age, groups=list(groups))

    async with serving(configured) as admin:
        team = await admin.call("POST", "/teams/", 201, json={"name": "a"})
        members = f"/teams/{team['id']}/members/"

        async def role(bearer: str) -> str | None:
            shown = (await admin.with_token(bearer).call("GET", "/teams/"))["items"]
            return shown[0]["role"] if shown else None

        assert "owner" == await role(token("jane", 50, "carillon-a:owner"))
        assert "editor" == await role(token("max", 50, "carillon-a"))
        ids = {one["username"]: one["user_id"] for one in (await admin.call("GET", members))["items"]}
        await admin.call("DELETE", f"{members}{ids['max']}/", 204)
        assert await role(token("max", 40, "carillon-a")) is None
        await admin.call("POST", members, 201, json={"user_id": ids["max"], "role": "viewer"})
        assert "viewer" == await role(token("max", 30, "carillon-a"))
        await admin.call("DELETE", f"{members}{ids['admin']}/", 204)
        with capture_logs() as events:
            for groups in ((), ("carillon-a:viewer",)):
                assert "owner" == await role(token("jane", 40 - len(groups), *groups))
        kept = [event for event in events if event["event"] == "team_owner_kept"]
        assert [(team["id"], ids["jane"])] * 2 == [(event["team"], event["user"]) for event in kept]
        await admin.call("PATCH", f"{members}{ids['max']}/", json={"role": "owner"})
        assert await role(token("jane", 20)) is None


async def test_the_last_use_of_an_identity_waits_for_nobody(
    trusting: Carillon, provider: Provider, database: Database
) -> None:
    """A row that another transaction holds is left out."""
    await me(trusting, provider.token())
    async with database.transaction() as holder:
        row = (await holder.execute(text("SELECT id FROM identities FOR UPDATE"))).one()
        async with database.transaction() as connection, asyncio.timeout(3):
            await identities.note_use(connection, {row.id: datetime.now(UTC)})


async def test_without_an_admin_group_roles_are_given_by_hand(provider: Provider, settings: Settings) -> None:
    """And tokens leave them alone."""
    async with serving(replace(settings, oidc_issuer=provider.issuer)) as carillon:
        user = await me(carillon, provider.token(groups=["ops", ""]))
        assert "member" == user["role"]
        await carillon.call("PATCH", f"/users/{user['id']}/", json={"role": "admin"})
        later = int(datetime.now(UTC).timestamp()) + 5
        assert "admin" == (await me(carillon, provider.token(iat=later)))["role"]


async def test_a_disabled_user_is_refused_at_once_and_a_deleted_one_begins_anew(
    trusting: Carillon, provider: Provider
) -> None:
    """Although the token was verified before and is cached."""
    token = provider.token()
    user = await me(trusting, token)
    await trusting.call("PATCH", f"/users/{user['id']}/", json={"disabled": True})
    await me(trusting, token, 401)
    await me(trusting, provider.token(groups=["ops"]), 401)
    await trusting.call("PATCH", f"/users/{user['id']}/", json={"disabled": False})
    assert user["id"] == (await me(trusting, token))["id"]
    await trusting.call("DELETE", f"/users/{user['id']}/", 204)
    assert user["id"] != (await me(trusting, token))["id"]


async def test_requests_at_once_make_one_user(trusting: Carillon, provider: Provider, database: Database) -> None:
    """However many first requests there are."""
    shown = await asyncio.gather(*(me(trusting, provider.token(jti=str(index))) for index in range(12)))
    assert 1 == len({user["id"] for user in shown})
    assert (2, 1) == await stored(database)


async def test_an_ordinary_token_costs_one_query_and_a_known_identity_too(
    provider: Provider, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is asked only for keys, and only once."""
    authenticator = Authenticator(database, ADMIN_TOKEN, trusting_identities(database, provider))
    token = provider.token()
    made = await authenticator.by_token(token)
    calls = len(provider.paths)
    queries: list[str] = []
    reading = database.reading

    def counted(name: str = "reading") -> Any:
        queries.append(name)
        return reading(name)

    monkeypatch.setattr(database, "reading", counted)
    assert made.user_id == (await authenticator.by_token(token)).user_id
    await authenticator.by_token(ADMIN_TOKEN)
    assert (2, calls) == (len(queries), len(provider.paths))
    await authenticator.store_uses()
    async with database.transaction() as connection:
        seen = (await connection.execute(text("SELECT last_seen_at FROM identities"))).scalar_one()
    assert datetime.now(UTC) - seen < timedelta(minutes=5)


def trusting_identities(database: Database, provider: Provider) -> Identities:
    """Return what accepts the tokens of the provider, without an API around it."""
    address = ProviderAddress(issuer=provider.issuer)
    return Identities(database, [TrustedIssuer(provider=IdentityProvider(address), audience="carillon")])


# Forged tokens: what a request could present instead of a valid token. Each is a function of the provider.
Forgery = Callable[[Provider], str]


def _unsigned(claims: Json, algorithm: str) -> str:
    head = json.dumps({"alg": algorithm, "typ": "JWT"}).encode()
    return f"{encoded(head)}.{encoded(json.dumps(claims).encode())}."


def _hmac_with_the_public_key(provider: Provider, form: str) -> str:
    public = provider.keys[0].private.public_key()
    secrets = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(provider.keys[0].public).encode(),
    }
    head = json.dumps({"alg": "HS256", "typ": "JWT", "kid": provider.keys[0].kid}).encode()
    signed = f"{encoded(head)}.{encoded(json.dumps(provider.claims()).encode())}"
    return f"{signed}.{encoded(hmac.digest(secrets[form], signed.encode(), 'sha256'))}"


def _with_signature(token: str, change: Callable[[bytes], bytes]) -> str:
    signed, _, signature = token.rpartition(".")
    return f"{signed}.{encoded(change(base64.urlsafe_b64decode(signature + '==')))}"


def _as_der(signature: bytes) -> bytes:
    half = len(signature) // 2
    return encode_dss_signature(int.from_bytes(signature[:half]), int.from_bytes(signature[half:]))


def _repeated(provider: Provider) -> str:
    claims = json.dumps(provider.claims(aud="somebody-else"))[:-1] + ', "aud": "carillon"}'
    return provider.keys[0].sign(claims.encode())


def _at(seconds: float) -> int:
    return int(datetime.now(UTC).timestamp() + seconds)


def _of_the_other(provider: Provider, **header: Any) -> str:
    return OTHERS_KEY.sign(provider.claims(), **{"kid": provider.keys[0].kid, **header})


FORGED: dict[str, Forgery] = {
    "alg none": lambda p: _unsigned(p.claims(), "none"),
    "alg None": lambda p: _unsigned(p.claims(), "NONE"),
    "alg none with a signature": lambda p: p.keys[0].sign(p.claims(), alg="none"),
    "no alg": lambda p: p.keys[0].sign(p.claims(), alg=None),
    "alg is a list": lambda p: p.keys[0].sign(p.claims(), alg=["RS256"]),
    "HS256 with the public key as PEM": lambda p: _hmac_with_the_public_key(p, "pem"),
    "HS256 with the public key as DER": lambda p: _hmac_with_the_public_key(p, "der"),
    "HS256 with the public key as JWK": lambda p: _hmac_with_the_public_key(p, "jwk"),
    "the signature is missing": lambda p: p.token().rpartition(".")[0] + ".",
    "the signature is of another token": lambda p: (
        p.token(sub="x").rpartition(".")[0] + "." + p.token().rpartition(".")[2]
    ),
    "another algorithm than the key has": lambda p: p.keys[0].sign(p.claims(), kid=p.keys[2].kid),
    "the algorithm of another kind of key": lambda p: p.keys[0].sign(p.claims(), alg="ES256"),
    "unknown kid": lambda p: p.keys[0].sign(p.claims(), kid="another"),
    "kid is a path": lambda p: p.keys[0].sign(p.claims(), kid="../../../../dev/null"),
    "kid is SQL": lambda p: p.keys[0].sign(p.claims(), kid="' OR 1=1 --"),
    "kid is a number": lambda p: p.keys[0].sign(p.claims(), kid=5),
    "kid is a list": lambda p: p.keys[0].sign(p.claims(), kid=[p.keys[0].kid]),
    "kid is endless": lambda p: p.keys[0].sign(p.claims(), kid="k" * 300),
    "a key of somebody else": _of_the_other,
    "a key of somebody else, without kid": lambda p: _of_the_other(p, kid=None),
    "a key of its own in jwk": lambda p: _of_the_other(p, jwk=OTHERS_KEY.public),
    "the address of its own keys in jku": lambda p: _of_the_other(p, jku=f"{p.issuer}/forged"),
    "the address of its own certificate in x5u": lambda p: _of_the_other(p, x5u=f"{p.issuer}/forged"),
    "its own certificate in x5c": lambda p: _of_the_other(p, x5c=["MIIB"]),
    "crit": lambda p: p.keys[0].sign(p.claims(), crit=["exp"], exp=1),
    "empty crit": lambda p: p.keys[0].sign(p.claims(), crit=[]),
    "b64 is false": lambda p: p.keys[0].sign(p.claims(), b64=False, crit=["b64"]),
    "b64 is false without crit": lambda p: p.keys[0].sign(p.claims(), b64=False),
    "a logout token": lambda p: p.keys[0].sign(p.claims(), typ="logout+jwt"),
    "typ is a number": lambda p: p.keys[0].sign(p.claims(), typ=1),
    "another issuer": lambda p: p.token(iss="https://accounts.example.org"),
    "the issuer with a slash": lambda p: p.token(iss=f"{p.issuer}/"),
    "the issuer in capitals": lambda p: p.token(iss=p.issuer.upper()),
    "no issuer": lambda p: p.token(iss=None),
    "the issuer is a list": lambda p: p.token(iss=[p.issuer]),
    "another audience": lambda p: p.token(aud="other"),
    "an audience that begins alike": lambda p: p.token(aud="carillon-other"),
    "a list of other audiences": lambda p: p.token(aud=["other", "carillon2"]),
    "no audience": lambda p: p.token(aud=None),
    "an empty list of audiences": lambda p: p.token(aud=[]),
    "the audience is an object": lambda p: p.token(aud={"carillon": True}),
    "expired": lambda p: p.token(exp=_at(-61)),
    "expired long ago": lambda p: p.token(exp=0),
    "no end": lambda p: p.token(exp=None),
    "the end is a text": lambda p: p.token(exp="9999999999"),
    "the end is true": lambda p: p.token(exp=True),
    "the end is infinite": lambda p: p.token(exp=float("inf")),
    "the end is no number": lambda p: p.token(exp=float("nan")),
    "the end is beyond all dates": lambda p: p.token(exp=10**400),
    "negative end": lambda p: p.token(exp=-(10**12)),
    "not yet valid": lambda p: p.token(nbf=_at(90)),
    "issued in the future": lambda p: p.token(iat=_at(90)),
    "nbf is a text": lambda p: p.token(nbf="0"),
    "no subject": lambda p: p.token(sub=None),
    "empty subject": lambda p: p.token(sub=""),
    "the subject is a number": lambda p: p.token(sub=5),
    "endless subject": lambda p: p.token(sub="s" * 256),
    "a NUL in the subject": lambda p: p.token(sub="a\x00b"),
    "half a character in the subject": lambda p: p.token(sub="\ud800"),
    "repeated claims": _repeated,
    "repeated header": lambda p: p.keys[0].sign_raw(
        b'{"alg":"none","alg":"RS256","kid":"' + p.keys[0].kid.encode() + b'"}', json.dumps(p.claims()).encode()
    ),
    "claims are a list": lambda p: p.keys[0].sign(b"[1]"),
    "claims are not JSON": lambda p: p.keys[0].sign(b"{"),
    "claims are in UTF-16": lambda p: p.keys[0].sign(json.dumps(p.claims()).encode("utf-16")),
    "claims nested deeply": lambda p: p.keys[0].sign(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "huge": lambda p: p.token(padding="x" * MOST_TOKEN_CHARACTERS),
    "padded": lambda p: p.token() + "=",
    "with a line break": lambda p: p.token().replace(".", ".\t", 1),
    "in standard base64": lambda p: p.token().replace(".", ".+", 1),
    "four parts": lambda p: f"{p.token()}.x",
    "five parts, as encrypted tokens have": lambda p: f"{p.token()}.x.y",
    "three empty parts": lambda _: "..",
    "ES256 as DER": lambda p: _with_signature(p.keys[2].sign(p.claims()), _as_der),
    "ES256 of zeros": lambda p: _with_signature(p.keys[2].sign(p.claims()), lambda s: bytes(len(s))),
    "ES256 with leading zeros": lambda p: _with_signature(
        p.keys[2].sign(p.claims()), lambda s: b"\x00" + s[:32] + b"\x00" + s[32:]
    ),
    "ES256 cut short": lambda p: _with_signature(p.keys[2].sign(p.claims()), lambda s: s[:-1]),
    "Ed25519 of zeros": lambda p: _with_signature(p.keys[5].sign(p.claims()), lambda s: bytes(len(s))),
}


async def test_every_forged_token_is_refused_alike_and_leaves_nothing(
    trusting: Carillon, provider: Provider, database: Database
) -> None:
    """With the answer that any wrong token gets."""
    wrong = (await trusting.with_token("carillon_0123456789abcdef_wrong").request("GET", "/me/")).json()
    before = await stored(database)
    await me(trusting, provider.token())
    accepted = []
    for name, forge in FORGED.items():
        response = await trusting.with_token(forge(provider)).request("GET", "/me/")
        if (response.status_code, response.json()) != (401, wrong):
            accepted.append((name, response.status_code, response.text))
    assert [] == accepted
    assert (before[0] + 1, before[1] + 1) == await stored(database)
    assert "/realm/forged" not in provider.paths


async def test_short_keys_and_keys_for_encryption_are_not_used(settings: Settings) -> None:
    """Although the provider publishes them."""
    weak, sealing = Key("weak", bits=1024), Key("sealing", use="enc")
    async with (
        Provider(Key("good"), weak, sealing) as provider,
        serving(replace(settings, oidc_issuer=provider.issuer)) as carillon,
    ):
        await me(carillon, provider.token())
        await me(carillon, weak.sign(provider.claims()), 401)
        await me(carillon, sealing.sign(provider.claims()), 401)


async def test_no_changed_byte_of_a_valid_token_is_accepted(
    provider: Provider, settings: Settings, database: Database
) -> None:
    """Not even one that only changes how the same bytes are written."""
    identities = trusting_identities(database, provider)
    texts = [key.sign(provider.claims()) for key in provider.keys]
    for valid in texts:
        await identities.by_token(valid)
    loop = asyncio.get_running_loop()

    @examples(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategies.sampled_from(texts), strategies.data())
    def check(valid: str, data: strategies.DataObject) -> None:
        # The last characters hold bits that no byte has.
        index = data.draw(strategies.sampled_from([len(valid) - 1, *range(len(valid))]))
        other = data.draw(strategies.characters(min_codepoint=0, max_codepoint=0x17F).filter(valid[index].__ne__))
        changed = valid[:index] + other + valid[index + 1 :]
        waiting = asyncio.run_coroutine_threadsafe(identities.by_token(changed), loop)
        assert "UnauthenticatedError" == type(waiting.exception(60)).__name__

    await asyncio.to_thread(check)


async def test_clocks_may_differ_by_a_minute(trusting: Carillon, provider: Provider) -> None:
    """In both directions."""
    for claims in ({"exp": _at(-30)}, {"nbf": _at(30)}, {"iat": _at(30)}, {"iat": None}):
        await me(trusting, provider.token(**claims))


async def test_a_new_key_is_found_and_a_withdrawn_one_forgotten(
    provider: Provider, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown key ids make us ask the provider at once, but only some times, and then twice a minute."""
    identities = trusting_identities(database, provider)
    first, second, unknown = provider.keys[0], Key("second"), Key("unknown")
    await identities.by_token(first.sign(provider.claims()))
    provider.keys = [second]
    await identities.by_token(second.sign(provider.claims()))
    with pytest.raises(Exception, match="bearer"):
        await identities.by_token(first.sign(provider.claims(jti="withdrawn")))
    asked = len(provider.paths)
    for index in range(identity_providers.MOST_REFRESHES + 3):
        with pytest.raises(Exception, match="bearer"):
            await identities.by_token(unknown.sign(provider.claims(jti=str(index))))
    before = identity_providers.MOST_REFRESHES - 2
    assert asked + 2 * before == len(provider.paths), "two calls for each time, and two times were before"
    third = Key("third")
    provider.keys.append(third)
    with pytest.raises(Exception, match="bearer"):
        await identities.by_token(third.sign(provider.claims()))
    monkeypatch.setattr(identity_providers, "MOST_REFRESHES", 100)
    await identities.by_token(third.sign(provider.claims()))


async def test_a_provider_that_is_away_is_503_until_it_is_back(
    provider: Provider, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is refused for good, ordinary tokens work, and keys that are known go on being used."""
    monkeypatch.setattr(identity_providers, "FIRST_KEYS_SECONDS", 0.0)
    provider.status = 500
    async with serving(replace(settings, oidc_issuer=provider.issuer)) as carillon:
        refused = await carillon.with_token(provider.token()).request("GET", "/me/")
        assert (503, "identity_provider_unavailable") == (refused.status_code, refused.json()["code"])
        await carillon.call("GET", "/me/")
        assert "identity_provider_unreachable" in caplog.text
        provider.status = 200
        await me(carillon, provider.token())
        provider.status = 500
        monkeypatch.setattr(identity_providers, "KEYS_SECONDS", 0.0)
        monkeypatch.setattr(identity_providers, "REFRESH_SECONDS", 0.0)
        await me(carillon, provider.token(jti="later"))


async def test_a_provider_that_hangs_delays_nobody_whose_key_is_known(
    provider: Provider, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are due to be fetched again are fetched in the background."""
    async with serving(replace(settings, oidc_issuer=provider.issuer)) as carillon:
        await me(carillon, provider.token())
        monkeypatch.setattr(identity_providers, "KEYS_SECONDS", 0.0)
        monkeypatch.setattr(identity_providers, "REFRESH_SECONDS", 0.0)
        monkeypatch.setattr(identity_providers, "CALL_SECONDS", 60.0)
        provider.answering.clear()
        try:
            async with asyncio.timeout(30):
                for number in range(3):
                    await me(carillon, provider.token(jti=str(number)))
            asked = len(provider.paths)
        finally:
            provider.answering.set()
    assert 3 == asked, "the first two calls, and one that hangs"


async def test_keys_that_nobody_asked_for_are_fetched_before_they_are_believed(
    provider: Provider, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key may have been withdrawn in the meantime."""
    identities = trusting_identities(database, provider)
    first = provider.keys[0]
    await identities.by_token(first.sign(provider.claims()))
    provider.keys = [Key("second")]
    monkeypatch.setattr(identity_providers, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(identity_providers, "REFRESH_SECONDS", 0.0)
    with pytest.raises(Exception, match="bearer"):
        await identities.by_token(first.sign(provider.claims(jti="withdrawn")))


@pytest.mark.parametrize(
    "metadata",
    [{"issuer": "https://other.example"}, {"jwks_uri": "file:///etc/passwd"}, {"jwks_uri": 5}, {"jwks_uri": ""}],
)
async def test_metadata_of_another_issuer_is_not_used(provider: Provider, settings: Settings, metadata: Json) -> None:
    """Nor metadata with addresses that cannot be."""
    provider.metadata = metadata
    async with serving(replace(settings, oidc_issuer=provider.issuer)) as carillon:
        assert 503 == (await carillon.with_token(provider.token()).request("GET", "/me/")).status_code


async def test_why_a_token_was_refused_is_logged_once_and_without_the_token(
    trusting: Carillon, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is not told."""
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            token = provider.token(aud="other")
            await me(trusting, token, 401)
    lines = [record.getMessage() for record in caplog.records if "identity_token_refused" in record.getMessage()]
    assert 1 == len(lines)
    assert "wrong_audience" in lines[0]
    assert token not in caplog.text


async def test_without_an_issuer_no_identity_token_is_accepted(carillon: Carillon, provider: Provider) -> None:
    """And the provider is not called."""
    await me(carillon, provider.token(), 401)
    assert [] == provider.paths


async def test_service_accounts_of_kubernetes_need_no_secret(
    provider: Provider, settings: Settings, tmp_path: Path
) -> None:
    """Their issuer is asked with the token of a file, which is read anew for each call."""
    token_file = tmp_path / "token"
    token_file.write_text("the-token-of-the-pod\n")
    configured = replace(settings, kubernetes_issuer=provider.issuer, kubernetes_token_file=str(token_file))
    async with serving(configured) as carillon:
        subject = "system:serviceaccount:shop:orders"
        user = await me(carillon, provider.token(sub=subject, aud=["carillon"], groups=["ops"]))
        assert ("system-serviceaccount-shop-orders", "member") == (user["username"], user["role"])
    assert {"Bearer the-token-of-the-pod"} == set(provider.authorizations)


async def test_a_private_certificate_authority_is_trusted_if_it_is_named(settings: Settings, tmp_path: Path) -> None:
    """And no other: a server whose certificate nobody vouches for is not believed."""
    authority, tls = certificate(tmp_path)
    async with Provider(KEYS[0], tls=tls) as provider:
        named = replace(settings, oidc_issuer=provider.issuer, oidc_ca_file=str(authority))
        async with serving(named) as carillon:
            await me(carillon, provider.token())
        for ca_file in ("", str(tmp_path / "nowhere")):
            async with serving(replace(named, oidc_ca_file=ca_file)) as carillon:
                await me(carillon, provider.token(), 503)


def test_the_files_of_the_pod_are_for_the_api_server_alone(settings: Settings, tmp_path: Path) -> None:
    """An issuer elsewhere must not get the pod's token."""
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text("x")
    inside = replace(settings, kubernetes_issuer="https://kubernetes.default.svc.cluster.local")
    outside = replace(settings, kubernetes_issuer="https://kubernetes.default.example.evil.test.example")
    elsewhere = replace(settings, kubernetes_issuer="https://oidc.cloud.example/id/1")
    assert str(tmp_path / "token") == kubernetes_address(inside, tmp_path).token_file
    assert str(tmp_path / "ca.crt") == kubernetes_address(inside, tmp_path).ca_file
    for other in (outside, elsewhere):
        assert ("", "") == (kubernetes_address(other, tmp_path).token_file, kubernetes_address(other, tmp_path).ca_file)
    assert "" == kubernetes_address(inside, tmp_path / "nowhere").token_file
