"""Sessions of browsers: cookies for tokens and codes, their ends, and requests that other sites cause.

Covers app.api.cookies, app.api.sessions, app.persistence.sessions, app.services.authentication, app.services.sessions.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.api.cookies import LOOPBACK_NAME, SECURE_NAME
from app.config import Settings
from app.engine.housekeeping import Housekeeper
from app.persistence.database import Database
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json, moment

SAME = {"Sec-Fetch-Site": "same-origin"}


async def login(carillon: Carillon, **body: Any) -> str:
    """Log in and return the cookie's secret."""
    response = await carillon.with_token("").request("POST", "/session/", json=body or {"token": ADMIN_TOKEN})
    assert 204 == response.status_code, response.text
    secret: str = response.cookies[LOOPBACK_NAME]
    return secret


class Page:
    """A page of a browser that is logged in."""

    def __init__(self, carillon: Carillon, secret: str, name: str = LOOPBACK_NAME) -> None:
        self._carillon = carillon.with_token("")
        self._cookie = f"{name}={secret}"

    async def call(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        """Send a request with the cookie; by default as a page of the same origin does."""
        headers = {"Cookie": self._cookie, **options.pop("headers", SAME)}
        response: httpx.Response = await self._carillon.request(method, path, headers=headers, **options)
        assert expected == response.status_code, response.text
        return response.json() if response.content else None


async def test_a_token_is_exchanged_for_a_cookie(carillon: Carillon, database: Database) -> None:
    """That no script can read, of which only a hash is stored, and that ends within twelve hours."""
    response = await carillon.with_token("").request("POST", "/session/", json={"token": ADMIN_TOKEN})
    cookie = response.headers["set-cookie"]
    for attribute in ("HttpOnly", "Path=/", "SameSite=Strict", "Max-Age=43200"):
        assert attribute in cookie.split("; ")
    assert "secure" not in cookie.lower()
    assert "no-store" == response.headers["cache-control"]
    page = Page(carillon, response.cookies[LOOPBACK_NAME])
    shown = await page.call("GET", "/session/")
    assert ("admin", "admin", ["read", "operate", "write", "admin"]) == (
        shown["user"]["username"],
        shown["role"],
        shown["scopes"],
    )
    assert timedelta(hours=11) < moment(shown["expires_at"]) - datetime.now(UTC) <= timedelta(hours=12)
    await page.call("POST", "/workflows/", 422, json={})
    async with database.transaction() as connection:
        dump = (await connection.execute(text("SELECT row_to_json(s)::text FROM sessions AS s"))).scalar_one()
    assert response.cookies[LOOPBACK_NAME] not in dump


async def test_over_tls_or_to_another_host_the_cookie_is_secure(carillon: Carillon) -> None:
    """With the prefix by which browsers take it from this host alone, over TLS."""
    response = await carillon.with_token("").request(
        "POST", "/session/", json={"token": ADMIN_TOKEN}, headers={"Host": "carillon.example"}
    )
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"{SECURE_NAME}=")
    assert "secure" in cookie.lower()
    secret = cookie.partition("=")[2].partition(";")[0]
    page = Page(carillon, secret, SECURE_NAME)
    await page.call("GET", "/session/", headers={"Host": "carillon.example"})
    await page.call("GET", "/session/", 401)


@pytest.mark.parametrize("body", [{}, {"token": "x", "code": "y"}, {"token": ""}, {"token": 5}])
async def test_what_is_neither_a_token_nor_a_code_is_422(standing: Carillon, body: Json) -> None:
    """Exactly one of them."""
    assert 422 == (await standing.with_token("").request("POST", "/session/", json=body)).status_code


@pytest.mark.parametrize("body", [{"token": "wrong"}, {"code": "wrong"}, {"token": "carillon_0123456789abcdef_x"}])
async def test_a_wrong_token_or_code_is_401(standing: Carillon, body: Json) -> None:
    """And sets no cookie."""
    response = await standing.with_token("").request("POST", "/session/", json=body)
    assert (401, False) == (response.status_code, "set-cookie" in response.headers)


async def test_a_code_is_good_once_and_for_ten_minutes(carillon: Carillon, database: Database) -> None:
    """For the user and the token that made it."""
    mia = await carillon.member()
    made = await mia.call("POST", "/session/codes/", 201)
    assert timedelta(minutes=9) < moment(made["expires_at"]) - datetime.now(UTC) <= timedelta(minutes=10)
    page = Page(carillon, await login(carillon, code=made["code"]))
    assert "mia" == (await page.call("GET", "/session/"))["user"]["username"]
    await carillon.with_token("").call("POST", "/session/", 401, json={"code": made["code"]})
    old = await mia.call("POST", "/session/codes/", 201)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE session_codes SET expires_at = clock_timestamp()"))
    await carillon.with_token("").call("POST", "/session/", 401, json={"code": old["code"]})


async def test_a_session_reaches_as_far_as_its_token(carillon: Carillon) -> None:
    """And ends with it."""
    token = await carillon.call("POST", "/tokens/", 201, json={"name": "t", "scopes": ["read"]})
    page = Page(carillon, await login(carillon, token=token["token"]))
    await page.call("GET", "/schedules/")
    assert "insufficient_scope" == (await page.call("POST", "/schedules/", 403, json={}))["code"]
    await carillon.call("DELETE", f"/tokens/{token['id']}/", 204)
    await page.call("GET", "/schedules/", 401)


@pytest.mark.parametrize(
    "change", ["seen_at = seen_at - interval '2 hours'", "expires_at = clock_timestamp()"], ids=["idle", "too old"]
)
async def test_a_session_ends_by_itself(carillon: Carillon, database: Database, change: str) -> None:
    """When it was not used for two hours, and after twelve."""
    page = Page(carillon, await login(carillon))
    await page.call("GET", "/session/")
    async with database.transaction() as connection:
        await connection.execute(text(f"UPDATE sessions SET {change}"))
    await page.call("GET", "/session/", 401)


async def test_sessions_are_listed_and_ended(carillon: Carillon) -> None:
    """Each with where it came from; one's own, and for an admin anybody's."""
    mia = await carillon.member()
    token = (await mia.call("POST", "/tokens/", 201, json={"name": "t"}))["token"]
    here, there = [Page(carillon, await login(carillon, token=token)) for _ in range(2)]
    current, other = sorted((await here.call("GET", "/sessions/"))["items"], key=lambda one: not one["is_current"])
    assert (True, False, "127.0.0.1") == (current["is_current"], other["is_current"], current["address"])
    await Page(carillon, await login(carillon)).call("GET", "/sessions/")
    olaf = await carillon.member("olaf")
    await olaf.call("DELETE", f"/sessions/{other['id']}/", 404)
    await here.call("DELETE", f"/sessions/{other['id']}/", 204)
    await there.call("GET", "/session/", 401)
    await here.call("DELETE", "/session/", 204)
    await here.call("GET", "/session/", 401)
    last = Page(carillon, await login(carillon, token=token))
    (left,) = (await last.call("GET", "/sessions/"))["items"]
    await carillon.call("DELETE", f"/sessions/{left['id']}/", 204)
    await last.call("GET", "/session/", 401)


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "HERE"}, False),
        ({"Origin": "HERE"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({}, False),
    ],
)
async def test_an_unsafe_call_by_cookie_must_come_from_our_own_pages(
    carillon: Carillon, headers: dict[str, str], allowed: bool
) -> None:
    """Else it is 403, whoever is logged in; reading is not affected."""
    page = Page(carillon, await login(carillon))
    host = (await carillon.raw("GET", "/health/live")).url
    here = f"http://{host.host}:{host.port}"
    sent = {name: here if value == "HERE" else value for name, value in headers.items()}
    answer = await page.call("POST", "/workflows/", 422 if allowed else 403, json={}, headers=sent)
    assert allowed or "cross_site" == answer["code"]
    await page.call("GET", "/session/", headers=sent)


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/merge-patch+json", True),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=x", False),
        ("text/x+json", False),
        (None, False),
    ],
)
async def test_the_body_of_a_call_by_cookie_is_json(carillon: Carillon, kind: str | None, allowed: bool) -> None:
    """The forms of a page can send other bodies, and scripts of other sites can send those without asking."""
    page = Page(carillon, await login(carillon))
    headers = {"Sec-Fetch-Site": "same-origin"} | ({} if kind is None else {"Content-Type": kind})
    answer = await page.call("POST", "/workflows/", 422 if allowed else 403, content=b"{}", headers=headers)
    assert allowed or ("cross_site", True) == (answer["code"], "application/json" in answer["detail"])
    await page.call("POST", "/session/codes/", 201, headers={"Sec-Fetch-Site": "same-origin"})


async def test_another_site_cannot_log_a_browser_in(carillon: Carillon) -> None:
    """Into an account of its own, to see what the user then does there."""
    nobody = carillon.with_token("")
    problem = await nobody.call(
        "POST", "/session/", 403, json={"token": ADMIN_TOKEN}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert "cross_site" == problem["code"]


async def test_a_bearer_token_is_not_affected(carillon: Carillon) -> None:
    """Also with a cookie beside it, and from another site: no browser sends a token by itself."""
    headers = {"Cookie": f"{LOOPBACK_NAME}=x", "Sec-Fetch-Site": "cross-site"}
    await carillon.call("POST", "/workflows/", 422, json={}, headers=headers)


async def test_a_session_is_bounded_by_the_token_that_began_it(carillon: Carillon) -> None:
    """Neither the session, nor a code, nor a session of that code makes a token that lives longer."""
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    token = await carillon.call("POST", "/tokens/", 201, json={"name": "t", "expires_at": ends})
    page = Page(carillon, await login(carillon, token=token["token"]))
    code = (await page.call("POST", "/session/codes/", 201))["code"]
    for one in (page, Page(carillon, await login(carillon, code=code))):
        made = await one.call("POST", "/tokens/", 201, json={"name": "t"})
        assert token["expires_at"] == made["expires_at"]
        assert token["expires_at"] == (await one.call("GET", "/session/"))["expires_at"]


async def test_sessions_that_have_ended_are_not_listed_and_soon_deleted(carillon: Carillon, database: Database) -> None:
    """Nor codes, nor tokens that ended a month ago."""
    await carillon.call("POST", "/session/codes/", 201)
    tokens = [(await carillon.call("POST", "/tokens/", 201, json={"name": "t"}))["id"] for _ in range(2)]
    for _ in range(2):
        await login(carillon)
    async with database.transaction() as connection:
        for change in (
            "sessions SET seen_at = seen_at - interval '3 hours' WHERE id = (SELECT min(id) FROM sessions)",
            "session_codes SET expires_at = clock_timestamp()",
            f"api_tokens SET expires_at = clock_timestamp() - interval '31 days' WHERE id = {tokens[0]}",
            f"api_tokens SET expires_at = clock_timestamp() - interval '29 days' WHERE id = {tokens[1]}",
        ):
            await connection.execute(text(f"UPDATE {change}"))
    assert 1 == len((await carillon.call("GET", "/sessions/"))["items"])
    await Housekeeper(database, 0).step()
    async with database.transaction() as connection:
        counts = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM session_codes)"
        assert (1, 0) == tuple((await connection.execute(text(counts))).one())
    assert [tokens[1]] == [one["id"] for one in (await carillon.call("GET", "/tokens/"))["items"]]


async def test_a_user_has_a_bounded_number_of_sessions(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have ended do not count."""
    monkeypatch.setattr("app.services.sessions.MOST_SESSIONS", 2)
    page = Page(carillon, await login(carillon))
    await login(carillon)
    refused = await carillon.with_token("").request("POST", "/session/", json={"token": ADMIN_TOKEN})
    assert (409, "conflict") == (refused.status_code, refused.json()["code"])
    await page.call("DELETE", "/session/", 204)
    await login(carillon)


async def test_a_call_with_the_cookie_of_an_ended_session_says_so(standing: Carillon) -> None:
    """It does not ask for a bearer token, which a browser does not have."""
    answer = await Page(standing, "x" * 43).call("GET", "/session/", 401)
    assert "Log in again" in answer["detail"]


async def test_what_is_missing_for_a_login_is_named(standing: Carillon) -> None:
    """By a field, in one sentence."""
    problem = await standing.with_token("").call("POST", "/session/", 422, json={})
    assert [{"field": "token", "message": "Exactly one of `token` and `code` is needed."}] == problem["errors"]


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://carillon.example", True),
        ("https://public.example:8443", True),
        ("http://carillon.example", False),
        ("https://public.example", False),
        ("", False),
    ],
)
async def test_behind_a_proxy_with_tls_the_origin_is_that_of_the_browser(
    settings: Settings, origin: str, allowed: bool
) -> None:
    """TLS ends at the proxy, so that the connection to it has none; the proxy may send another host."""
    async with serving(replace(settings, public_url="https://public.example:8443/base/")) as carillon:
        host = {"Host": "carillon.example"}
        response = await carillon.with_token("").request(
            "POST", "/session/", json={"token": ADMIN_TOKEN}, headers={**host, "Origin": "https://carillon.example"}
        )
        assert 204 == response.status_code
        secret = response.headers["set-cookie"].partition("=")[2].partition(";")[0]
        page = Page(carillon, secret, SECURE_NAME)
        await page.call("POST", "/workflows/", 422 if allowed else 403, json={}, headers={**host, "Origin": origin})
