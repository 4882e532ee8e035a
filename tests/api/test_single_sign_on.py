"""Browsers log in at an identity provider: the whole way, and every way in which it can go wrong.

Covers app.api.sessions, app.api.cookies, app.services.single_sign_on.
"""

from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import text
from structlog.testing import capture_logs

from app.config import Settings
from app.persistence.database import Database
from app.services import identity_providers
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Key, Provider

KEYS = [Key("first"), Key("second")]
LOGIN_COOKIE = "carillon-login"
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """An identity provider."""
    async with Provider(KEYS[0]) as opened:
        yield opened


@pytest.fixture
def configured(settings: Settings, provider: Provider) -> Settings:
    """The settings of a deployment with single sign-on."""
    return replace(
        settings,
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
        oidc_admin_group="ops",
    )


@pytest.fixture
async def browser(configured: Settings) -> AsyncIterator["Browser"]:
    """A browser at an API with single sign-on."""
    async with serving(configured) as carillon:
        yield Browser(carillon)


class Page(HTMLParser):
    """The path that a page goes on to by itself."""

    goes_to = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look for the refresh."""
        given = dict(attrs)
        if tag == "meta" and given.get("http-equiv") == "refresh":
            self.goes_to = (given["content"] or "").partition("url=")[2]


class Browser:
    """Keeps cookies by name, as a browser does for one host."""

    def __init__(self, carillon: Carillon) -> None:
        self.carillon = carillon.with_token("")
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, expected: int = 200, **options: Any) -> httpx.Response:
        """Open a page below /api/v1, and keep the cookies that it sets."""
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        headers |= options.pop("headers", {})
        response = await self.carillon.request("GET", path, headers=headers, **options)
        assert expected == response.status_code, response.text
        for line in response.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        self.cookies = {name: value for name, value in self.cookies.items() if value}
        return response

    async def start(self, **query: str) -> str:
        """Begin a login; return the address at the provider."""
        response = await self.get("/session/oidc/start", 302, params=query)
        location: str = response.headers["location"]
        return location

    async def login(self, provider: Provider, **query: str) -> httpx.Response:
        """Log in; return the last page."""
        asked = urlsplit(await self.start(**query)).query
        return await self.get(f"/session/oidc/callback?{provider.authorize(asked)}")

    async def session(self, expected: int = 200) -> Json:
        """Ask who is logged in."""
        shown: Json = (await self.get("/session/", expected, headers=SAME)).json()
        return shown


async def sessions_stored(database: Database) -> int:
    """Return the number of sessions."""
    async with database.reading() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM sessions"))).scalar_one())


async def test_a_browser_logs_in_and_comes_back_to_its_page(browser: Browser, provider: Provider) -> None:
    """By a page of our own, because a strict cookie is not sent with a redirect from another site."""
    response = await browser.login(provider, return_to="/console/schedules?a=1&b=2")
    page = Page()
    page.feed(response.text)
    assert "/console/schedules?a=1&b=2" == page.goes_to
    assert response.headers["content-type"].startswith("text/html")
    assert "no-store" == response.headers["cache-control"]
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    (session,) = [line for line in response.headers.get_list("set-cookie") if line.startswith("carillon=")]
    for attribute in ("httponly", "samesite=strict", "path=/"):
        assert attribute in session.lower()
    assert LOGIN_COOKIE not in browser.cookies
    shown = await browser.session()
    assert ("jane", "member") == (shown["user"]["username"], shown["role"])


async def test_the_provider_is_asked_as_the_standard_has_it(browser: Browser, provider: Provider) -> None:
    """Nothing that the cookie keeps secret is in the address, and the client proves who it is."""
    location = await browser.start()
    assert location.startswith(f"{provider.issuer}/authorize?")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
    origin = str(browser.carillon._client.base_url).rstrip("/")
    assert f"{origin}/api/v1/session/oidc/callback" == asked["redirect_uri"]
    assert browser.cookies[LOGIN_COOKIE].partition(".")[0] not in location
    await browser.get(f"/session/oidc/callback?{provider.authorize(urlsplit(location).query)}")
    (form,) = provider.forms
    assert {"grant_type", "code", "redirect_uri", "code_verifier"} == set(form)
    assert (provider.authorizations[-1] or "").startswith("Basic ")


async def test_the_cookie_of_a_login_is_sent_from_the_providers_page_and_short_lived(browser: Browser) -> None:
    """Lax, for ten minutes, out of reach of scripts; with the prefix of secure cookies behind TLS."""
    response = await browser.get("/session/oidc/start", 302)
    for attribute in ("httponly", "samesite=lax", "max-age=600", "path=/"):
        assert attribute in response.headers["set-cookie"].lower()
    behind_tls = await browser.get("/session/oidc/start", 302, headers={"Host": "carillon.example"})
    assert behind_tls.headers["set-cookie"].startswith(f"__Host-{LOGIN_COOKIE}=")
    assert "secure" in behind_tls.headers["set-cookie"].lower()
    asked = parse_qs(urlsplit(behind_tls.headers["location"]).query)
    assert ["https://carillon.example/api/v1/session/oidc/callback"] == asked["redirect_uri"]


async def test_a_login_follows_the_groups_and_is_the_user_of_the_bearer_tokens(
    browser: Browser, provider: Provider
) -> None:
    """A demotion at the provider holds from the next login on, for sessions that are open too."""
    now = provider.claims()["iat"]
    provider.user = {"sub": "1", "preferred_username": "jane", "groups": ["ops"], "iat": now - 10}
    await browser.login(provider)
    first = await browser.session()
    assert "admin" == first["role"]
    bearer = browser.carillon.with_token(provider.token(sub="1", groups=["ops"], iat=now - 10))
    assert first["user"]["id"] == (await bearer.call("GET", "/me/"))["id"]
    other = Browser(browser.carillon)
    provider.user = {**provider.user, "groups": [], "iat": now}
    await other.login(provider)
    assert ("member", "member") == ((await other.session())["role"], (await browser.session())["role"])


async def test_logging_out_ends_the_session_and_names_the_providers_logout(
    browser: Browser, provider: Provider
) -> None:
    """Sessions that were begun by a token have no session at the provider."""
    await browser.login(provider)
    logout = urlsplit((await browser.session())["logout_url"])
    assert f"{provider.issuer}/logout" == f"{logout.scheme}://{logout.netloc}{logout.path}"
    assert [CLIENT_ID] == parse_qs(logout.query)["client_id"]
    assert parse_qs(logout.query)["post_logout_redirect_uri"][0].endswith("/console/")
    cookie = {"Cookie": f"carillon={browser.cookies['carillon']}", **SAME}
    assert 204 == (await browser.carillon.request("DELETE", "/session/", headers=cookie)).status_code
    await browser.session(401)
    admin = Carillon(browser.carillon._client, browser.carillon.settings)
    assert (await admin.call("GET", "/session/"))["logout_url"] is None


@pytest.mark.parametrize(
    "return_to",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/%0d%0a\r\nx", ""],
)
async def test_a_login_leads_to_no_other_site(browser: Browser, return_to: str) -> None:
    """Open redirects are refused before the provider is asked."""
    response = await browser.get("/session/oidc/start", 422, params={"return_to": return_to})
    assert "return_to" == response.json()["errors"][0]["field"]


async def test_markup_in_the_path_is_text_on_the_page(browser: Browser, provider: Provider) -> None:
    """Nothing of it runs."""
    path = '/console/"><script>alert(1)</script>'
    response = await browser.login(provider, return_to=path)
    assert "<script>" not in response.text
    page = Page()
    page.feed(response.text)
    assert path == page.goes_to


async def refused(browser: Browser, query: str, database: Database) -> None:
    """Require that a callback is refused without a detail, and that nobody is logged in by it."""
    response = await browser.get(f"/session/oidc/callback?{query}", 401)
    assert "login_failed" == response.json()["code"]
    for detail in ("internal detail", "invalid_grant", "nonce", "signature"):
        assert detail not in response.text
    assert "carillon" not in browser.cookies
    assert 0 == await sessions_stored(database)


async def test_an_answer_without_its_attempt_is_refused(
    browser: Browser, provider: Provider, database: Database
) -> None:
    """Of another browser, of another attempt, changed, repeated, or an error of the provider."""
    asked = urlsplit(await browser.start()).query
    stranger = Browser(browser.carillon)
    await refused(stranger, provider.authorize(asked), database)
    await stranger.start()
    await refused(stranger, provider.authorize(asked), database)
    answer = provider.authorize(asked)
    await refused(browser, answer.replace("state=", "state=x"), database)
    await refused(browser, answer.replace("code=", "code=x"), database)
    await refused(browser, answer.replace("iss=", "iss=x"), database)
    await refused(browser, "error=access_denied&error_description=internal+detail", database)
    await refused(browser, "", database)
    cookies = dict(browser.cookies)
    browser.cookies[LOGIN_COOKIE] = cookies[LOGIN_COOKIE].rpartition(".")[0] + ".L2V2aWw"
    await refused(browser, answer, database)
    browser.cookies = cookies
    await browser.get(f"/session/oidc/callback?{answer}")
    await browser.session()
    browser.cookies = cookies
    assert 401 == (await browser.get(f"/session/oidc/callback?{answer}", 401)).status_code


async def test_a_login_at_the_provider_bounds_no_token(browser: Browser, provider: Provider) -> None:
    """The user has logged in, and may make tokens without an end, as with a token of their own."""
    await browser.login(provider)
    cookie = {"Cookie": f"carillon={browser.cookies['carillon']}", **SAME}
    response = await browser.carillon.request("POST", "/tokens/", json={"name": "t"}, headers=cookie)
    assert (201, None) == (response.status_code, response.json()["expires_at"])


async def test_answers_of_an_address_are_counted_before_the_provider_is_called(
    configured: Settings, provider: Provider
) -> None:
    """Anybody can begin a login and send answers that they have made up."""
    async with serving(replace(configured, rate_limit_per_minute=3)) as carillon:
        browser = Browser(carillon)
        asked = urlsplit(await browser.start()).query
        answer = provider.authorize(asked).replace("code=", "code=x")
        for expected in (401, 401, 429, 429):
            await browser.get(f"/session/oidc/callback?{answer}", expected)
        await browser.get("/session/oidc/start", 429)
    assert 2 == len(provider.forms)


@pytest.mark.parametrize(
    ("error", "logged"),
    [("access_denied", {"access_denied"}), ("x" * 101, set()), ("<script>", set()), ("a\nb", set())],
)
async def test_the_error_code_of_the_provider_is_logged(browser: Browser, error: str, logged: set[str]) -> None:
    """If it has the form of one: it comes from outside."""
    state = parse_qs(urlsplit(await browser.start()).query)["state"][0]
    with capture_logs() as lines:
        await browser.get("/session/oidc/callback", 401, params={"error": error, "state": state})
    assert logged == {line["provider_error"] for line in lines if "provider_error" in line}
    assert ["no_code"] == [line["reason"] for line in lines if line["event"] == "login_failed"]


async def test_the_error_code_of_a_refused_exchange_is_logged(browser: Browser, provider: Provider) -> None:
    """Such as a wrong secret of the client, which only an operator can mend."""
    asked = urlsplit(await browser.start()).query
    answer = provider.authorize(asked).replace("code=", "code=x")
    with capture_logs() as lines:
        await browser.get(f"/session/oidc/callback?{answer}", 401)
    assert [("code_refused", "invalid_grant")] == [
        (line["reason"], line["provider_error"]) for line in lines if line["event"] == "login_failed"
    ]


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of another login"},
        {"nonce": None},
        {"aud": "carillon"},
        {"aud": [CLIENT_ID, "other"]},
        {"azp": "other"},
        {"iss": "https://other.example"},
        {"exp": 1},
        {"sub": ""},
    ],
)
async def test_a_wrong_id_token_is_refused(
    browser: Browser, provider: Provider, database: Database, claims: Json
) -> None:
    """Although it comes from the provider itself."""
    provider.id_token_claims = claims
    await refused(browser, provider.authorize(urlsplit(await browser.start()).query), database)


async def test_an_id_token_with_a_forged_signature_is_refused(
    browser: Browser, provider: Provider, database: Database
) -> None:
    """The connection to the provider is not enough."""
    asked = urlsplit(await browser.start()).query
    KEYS[1].kid = KEYS[0].kid
    provider.keys = [KEYS[1]]
    await refused(browser, provider.authorize(asked), database)


async def test_a_disabled_user_cannot_log_in(browser: Browser, provider: Provider, database: Database) -> None:
    """And sessions that are open end at once."""
    await browser.login(provider)
    user = (await browser.session())["user"]
    admin = Carillon(browser.carillon._client, browser.carillon.settings)
    await admin.call("PATCH", f"/users/{user['id']}/", json={"disabled": True})
    await browser.session(401)
    again = Browser(browser.carillon)
    answer = provider.authorize(urlsplit(await again.start()).query)
    assert "login_failed" == (await again.get(f"/session/oidc/callback?{answer}", 401)).json()["code"]
    assert 1 == await sessions_stored(database)


@pytest.mark.parametrize("methods", [["client_secret_post"], ["client_secret_basic"], ["private_key_jwt"]])
async def test_the_client_proves_itself_as_the_provider_wants(
    browser: Browser, provider: Provider, methods: list[str]
) -> None:
    """In a header or in the form."""
    provider.metadata = {"token_endpoint_auth_methods_supported": methods}
    await browser.login(provider)
    is_header = methods == ["client_secret_basic"]
    assert is_header is ("client_secret" not in provider.forms[0])
    assert is_header is (provider.authorizations[-1] is not None)


async def test_a_public_client_has_no_secret(configured: Settings, provider: Provider) -> None:
    """PKCE alone proves that the code is its own."""
    async with serving(replace(configured, oidc_client_secret="")) as carillon:
        await Browser(carillon).login(provider)
    assert CLIENT_ID == provider.forms[0]["client_id"]
    assert "client_secret" not in provider.forms[0]


async def test_a_provider_that_is_away_is_503(
    browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a code of its own, and without its address."""
    monkeypatch.setattr(identity_providers, "FIRST_KEYS_SECONDS", 0.0)
    provider.status = 500
    response = await browser.get("/session/oidc/start", 503)
    assert "identity_provider_unavailable" == response.json()["code"]
    assert provider.issuer not in response.text
    provider.status = 200
    await browser.login(provider)


@pytest.mark.parametrize("path", ["/session/oidc/start", "/session/oidc/callback?code=x&state=y"])
async def test_without_a_client_there_is_no_single_sign_on(settings: Settings, provider: Provider, path: str) -> None:
    """Although tokens of the issuer may be accepted."""
    async with serving(replace(settings, oidc_issuer=provider.issuer)) as carillon:
        response = await Browser(carillon).get(path, 404)
        assert "CARILLON_OIDC_CLIENT_ID" in response.json()["detail"]
    assert [] == provider.paths
