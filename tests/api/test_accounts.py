"""Users, tokens, limits and health.

Covers app.services.users, app.services.views.accounts.
"""

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon


async def test_me(carillon: Carillon) -> None:
    """Whose token this is."""
    me = await carillon.call("GET", "/me/")
    assert ("admin", "admin") == (me["username"], me["role"])
    me = await (await carillon.member()).call("GET", "/me/")
    assert ("mia", "member") == (me["username"], me["role"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {ADMIN_TOKEN}"},
        {"Authorization": f"Bearer {ADMIN_TOKEN}x"},
        {"Authorization": "Bearer carillon_0123456789abcdef_wrong"},
        {"Authorization": "Bearer carillon_\xff\xff"},
    ],
)
async def test_without_a_good_token_everything_is_401(standing: Carillon, headers: dict[str, str]) -> None:
    """Before anything else is looked at."""
    nobody = standing.with_token("")
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for method, path in (("GET", "/me/"), ("GET", "/schedules/"), ("POST", "/schedules/"), ("DELETE", "/tokens/1/")):
        response = await nobody.request(method, path, headers=encoded)
        assert (401, "unauthenticated") == (response.status_code, response.json()["code"])
        assert "Bearer" == response.headers["www-authenticate"]


async def test_a_revoked_token_is_refused_from_then_on(carillon: Carillon) -> None:
    """204, then 401; deleting it again is 404."""
    user = await carillon.call("POST", "/users/", 201, json={"username": "bob", "role": "member"})
    token = await carillon.call("POST", f"/users/{user['id']}/tokens/", 201, json={"name": "laptop"})
    bob = carillon.with_token(token["token"])
    await bob.call("GET", "/me/")
    listed = await carillon.call("GET", f"/users/{user['id']}/tokens/")
    assert [token["id"]] == [one["id"] for one in listed["items"]]
    assert "token" not in listed["items"][0]
    await carillon.call("DELETE", f"/tokens/{token['id']}/", 204)
    await bob.call("GET", "/me/", 401)
    await carillon.call("DELETE", f"/tokens/{token['id']}/", 404)


async def test_only_hashes_are_stored(carillon: Carillon, database: Database) -> None:
    """The token itself is nowhere in the database."""
    user = await carillon.call("POST", "/users/", 201, json={"username": "bob"})
    token = (await carillon.call("POST", f"/users/{user['id']}/tokens/", 201, json={"name": "t"}))["token"]
    secret = token.split("_", 2)[2]
    assert len(secret) >= 43
    async with database.transaction() as connection:
        dump = (await connection.execute(text("SELECT row_to_json(t)::text FROM api_tokens AS t"))).scalar_one()
    assert secret not in dump


async def test_answers_with_tokens_are_kept_nowhere(carillon: Carillon) -> None:
    """Not by browsers, not by proxies."""
    made = await carillon.request("POST", "/users/1/tokens/", json={"name": "t"})
    assert (201, "no-store") == (made.status_code, made.headers["cache-control"])


async def test_users_are_for_admins(carillon: Carillon) -> None:
    """403 for members."""
    member = await carillon.member()
    for method, path in (
        ("GET", "/users/"),
        ("POST", "/users/"),
        ("GET", "/users/1/tokens/"),
    ):
        body = {"json": {"username": "x"}} if method == "POST" else {}
        problem = await member.call(method, path, 403, **body)
        assert ("insufficient_scope", True) == (problem["code"], "`admin`" in problem["detail"])
    names = [user["username"] for user in (await carillon.call("GET", "/users/"))["items"]]
    assert ["admin", "mia"] == names


async def test_a_name_is_taken_once(carillon: Carillon) -> None:
    """409 for the second."""
    await carillon.call("POST", "/users/", 201, json={"username": "bob"})
    await carillon.call("POST", "/users/", 409, json={"username": "bob"})


@pytest.mark.parametrize(
    "body", [{}, {"username": ""}, {"username": "a b"}, {"username": "a\n"}, {"username": "x", "role": "god"}]
)
async def test_bad_users_are_422(standing: Carillon, body: dict[str, str]) -> None:
    """With the field named."""
    problem = await standing.call("POST", "/users/", 422, json=body)
    assert problem["errors"][0]["field"] in {"username", "role"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, path.format(number))
        for method, path in (("GET", "/users/{}/tokens/"), ("GET", "/workflows/{}/"), ("DELETE", "/tokens/{}/"))
        for number in (99_999, 10**20, -1, -(10**20))
    ],
)
async def test_numbers_beyond_every_id_are_404(standing: Carillon, method: str, path: str) -> None:
    """Not a failure of the database."""
    await standing.call(method, path, 404)


async def test_health_and_metrics_need_no_token(carillon: Carillon) -> None:
    """For probes and scrapers."""
    assert {"status": "ok"} == (await carillon.raw("GET", "/health/live")).json()
    ready = (await carillon.raw("GET", "/health/ready")).json()
    assert ("ok", "ok", "bell") == (ready["postgres"], ready["redis"], ready["mode"])
    metrics = await carillon.raw("GET", "/metrics")
    assert 'carillon_http_requests_total{method="GET",route="/health/live",status="200"}' in metrics.text


async def test_without_postgres_it_says_so(settings: Settings) -> None:
    """503 with Retry-After, ready names what is away, live does not care."""
    away = replace(settings, database_url="postgresql+asyncpg://carillon@/x?host=/nowhere")
    async with serving(away) as carillon:
        response = await carillon.request("GET", "/schedules/")
        assert (503, "database_unavailable") == (response.status_code, response.json()["code"])
        assert response.headers["retry-after"]
        ready = await carillon.raw("GET", "/health/ready")
        assert (503, "away", "ok") == (ready.status_code, ready.json()["postgres"], ready.json()["redis"])
        assert "Postgres" in ready.json()["detail"]
        assert 200 == (await carillon.raw("GET", "/health/live")).status_code


async def test_without_redis_the_api_goes_on(settings: Settings) -> None:
    """Schedules are created; ready says that the bell is away."""
    away = replace(settings, redis_url="unix:///nowhere/valkey.sock")
    async with serving(away) as carillon:
        assert "active" == (await carillon.schedule())["status"]
        ready = await carillon.raw("GET", "/health/ready")
        assert (200, "degraded", "sweep") == (ready.status_code, ready.json()["status"], ready.json()["mode"])


async def test_an_unknown_path_and_a_wrong_method_are_problems(carillon: Carillon) -> None:
    """404 and 405, as JSON."""
    for method, path, status in (("GET", "/nothing/", 404), ("PUT", "/schedules/", 405)):
        response = await carillon.request(method, path)
        assert (status, "application/problem+json") == (response.status_code, response.headers["content-type"])
