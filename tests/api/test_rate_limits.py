"""Who is counted, and who is refused: users by themselves, logins and failed attempts by their address.

Covers app.api.requests, app.queue.rate_counter.
"""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from msgspec.structs import replace

from app.api.rate_limits import RateLimits
from app.api.requests import TrustedProxies
from app.config import Settings, SettingsError, load_settings
from app.domain.client_addresses import counted_as
from app.queue.bell import RedisPool, open_pool
from app.queue.rate_counter import RedisCounter
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon

CRON = "the-token-of-the-pings"
LIMIT = 3
PROXY = "127.0.0.0/8"


@pytest.fixture
def limited(settings: Settings) -> Settings:
    """Three a minute."""
    return replace(settings, rate_limit_per_minute=LIMIT, cron_run_token=CRON)


@pytest.fixture
async def carillon(limited: Settings) -> AsyncIterator[Carillon]:
    """An API that allows three a minute."""
    async with serving(limited) as served:
        yield served


async def statuses(carillon: Carillon, times: int, path: str = "/api/v1/me/", **options: Any) -> list[int]:
    """The answers to a request that is sent so often."""
    return [(await carillon.raw("GET", path, **options)).status_code for _ in range(times)]


def bearer(token: str, forwarded: str = "") -> dict[str, Any]:
    """The options of a request with a token, and what a proxy says about it."""
    headers = {"Authorization": f"Bearer {token}"}
    return {"headers": headers | ({"X-Forwarded-For": forwarded} if forwarded else {})}


async def keys(redis: RedisPool) -> set[bytes]:
    """What is counted in Redis."""
    return set(await redis.keys("carillon:limit:*"))


async def test_a_user_who_asks_too_often_is_refused_alone(settings: Settings) -> None:
    """429 with Retry-After; another user from the same address goes on, and so does health."""
    async with serving(settings) as carillon:
        member = await carillon.member()
    async with serving(replace(settings, rate_limit_per_minute=LIMIT)) as carillon:
        answers = [await carillon.request("GET", "/me/") for _ in range(LIMIT + 1)]
        assert [200, 200, 200, 429] == [answer.status_code for answer in answers]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert "too_many_requests" == answers[-1].json()["code"]
        assert [200] * LIMIT == await statuses(carillon, LIMIT, headers=member._headers)
        assert 200 == (await carillon.raw("GET", "/health/live")).status_code


async def test_tokens_and_sessions_of_a_user_count_together(settings: Settings) -> None:
    """A user makes as many of both as they like."""
    async with serving(settings) as carillon:
        tokens = [(await carillon.call("POST", "/tokens/", 201, json={"name": "t"}))["token"] for _ in range(LIMIT)]
    async with serving(replace(settings, rate_limit_per_minute=LIMIT)) as carillon:
        assert [200] * LIMIT == [(await statuses(carillon, 1, **bearer(token)))[0] for token in tokens]
        assert [429] == await statuses(carillon, 1, headers=carillon._headers)


async def test_logins_count_for_the_address(carillon: Carillon, redis: RedisPool) -> None:
    """Also those that succeed: each stores a session."""
    logins = [await carillon.raw("POST", "/api/v1/session/", json={"token": ADMIN_TOKEN}) for _ in range(LIMIT + 1)]
    assert [204] * LIMIT + [429] == [answer.status_code for answer in logins]
    assert b"carillon:limit:login:127.0.0.1" in await keys(redis)


async def test_failed_attempts_count_for_the_address_and_stop_nobody_else(carillon: Carillon, redis: RedisPool) -> None:
    """Made-up tokens get 401, then 429; the right one works; Redis holds one counter for all of them."""
    made_up = [f"carillon_{number:016x}_nothing" for number in range(10)]
    answers = [await carillon.raw("GET", "/api/v1/me/", **bearer(token)) for token in [*made_up, "x", "rubbish"]]
    assert [401] * LIMIT + [429] * 9 == [answer.status_code for answer in answers]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert {b"carillon:limit:address:127.0.0.1"} == await keys(redis)
    assert 200 == (await carillon.request("GET", "/me/")).status_code


async def test_guesses_at_the_cron_token_are_limited(carillon: Carillon) -> None:
    """401, then 429; the right token still works."""
    guesses = [(await statuses(carillon, 1, "/api/cron/run", **bearer(f"guess{n}")))[0] for n in range(5)]
    assert [401, 401, 401, 429, 429] == guesses
    assert [200] == await statuses(carillon, 1, "/api/cron/run", **bearer(CRON))


async def test_guesses_at_callback_tokens_are_limited(settings: Settings, limited: Settings) -> None:
    """At the end of an execution and at its heartbeat."""
    async with serving(settings) as carillon:
        schedule = await carillon.schedule()
        execution = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)

    async def guess(kind: str) -> httpx.Response:
        path = f"/api/v1/executions/{execution['id']}/{kind}/"
        return await served.raw("POST", path, json={"status": "success"}, **bearer(uuid4().hex))

    async with serving(limited) as served:
        answers = [await guess(kind) for kind in ("complete", "heartbeat") * 3]
    assert [401] * LIMIT + [429] * 3 == [answer.status_code for answer in answers]


async def test_nobody_is_believed_about_where_a_request_comes_from(carillon: Carillon, redis: RedisPool) -> None:
    """Without trusted proxies X-Forwarded-For means nothing, from loopback neither."""
    for number in range(LIMIT + 1):
        found = await statuses(carillon, 1, **bearer("wrong", forwarded=f"203.0.113.{number}"))
    assert [429] == found
    assert {b"carillon:limit:address:127.0.0.1"} == await keys(redis)


async def test_behind_a_trusted_proxy_each_client_is_counted(limited: Settings, redis: RedisPool) -> None:
    """By the rightmost address that is not a proxy's: what a client puts before it does not help."""
    async with serving(replace(limited, trusted_proxies=PROXY)) as carillon:
        guilty = bearer("wrong", forwarded="198.51.100.9, 203.0.113.7, 127.0.0.9")
        assert [401, 401, 401, 429] == await statuses(carillon, LIMIT + 1, **guilty)
        invented = bearer("wrong", forwarded="198.51.100.10, 203.0.113.7")
        assert [429] == await statuses(carillon, 1, **invented)
        innocent = bearer("wrong", forwarded="203.0.113.8")
        assert [401] == await statuses(carillon, 1, **innocent)
    assert {b"carillon:limit:address:203.0.113.7", b"carillon:limit:address:203.0.113.8"} == await keys(redis)


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "203.0.113.1", "192.0.2.1"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", "203.0.113.1", "203.0.113.1"),
        ("10.1.2.3", "203.0.113.1, 10.9.9.9", "203.0.113.1"),
        ("10.1.2.3", "203.0.113.1, 192.0.2.5, 10.9.9.9", "192.0.2.5"),
        ("10.1.2.3", "10.0.0.1, 10.0.0.2", "10.0.0.1"),
        ("10.1.2.3", "203.0.113.1, unknown", "10.1.2.3"),
        ("10.1.2.3", "unknown, 10.0.0.2", "10.0.0.2"),
        ("10.1.2.3", "203.0.113.1," + "10.0.0.1," * 5000, "10.1.2.3"),
        ("::ffff:10.1.2.3", " 2001:db8::1 ", "2001:db8::1"),
        ("unknown", "203.0.113.1", "unknown"),
    ],
)
def test_the_client_behind_proxies(peer: str, forwarded: str, client: str) -> None:
    """The rightmost hop that is not trusted."""
    proxies = TrustedProxies(load_settings({"CARILLON_TRUSTED_PROXIES": "10.0.0.0/8"}).proxy_networks)
    assert client == proxies.client_of(peer, forwarded)


def test_what_an_address_is_counted_as() -> None:
    """A client with a network of IPv6 is one client."""
    assert "2001:db8::/64" == counted_as("2001:db8::1") == counted_as("2001:db8::ffff:1")
    assert "192.0.2.1" == counted_as("192.0.2.1") == counted_as("::ffff:192.0.2.1")
    assert "unknown" == counted_as("testclient")


def test_a_bad_proxy_is_refused_by_name() -> None:
    """Before anything starts."""
    with pytest.raises(SettingsError, match="CARILLON_TRUSTED_PROXIES"):
        load_settings({"CARILLON_TRUSTED_PROXIES": "10.0.0.0/8, ingress"})


async def test_without_redis_nobody_is_refused() -> None:
    """The API works without Redis, so a limit that cannot be counted does not apply."""
    pool = open_pool("unix:///nowhere/valkey.sock")
    limits = RateLimits(RedisCounter(pool), 1)
    assert [None, None] == [await limits.count_request(1), await limits.count_request(1)]
    assert [None, None] == [await limits.count_failure("192.0.2.1"), await limits.count_failure("192.0.2.1")]
    await pool.aclose()


@pytest.mark.parametrize(("requests", "failures", "expected"), [(0, 5, 0), (9, 0, 9), (9, 5, 5), (5, 9, 5)])
async def test_failed_logins_have_the_smaller_limit(requests: int, failures: int, expected: int) -> None:
    """A request limit of 0 switches both limits off."""
    asked: list[int] = []

    class Counter:
        """Remembers the limit that it is asked to apply."""

        async def count(self, _key: str, limit: int, _window_seconds: int) -> float:
            asked.append(limit)
            return 0

    await RateLimits(Counter(), requests, failures).count_failure("192.0.2.1")
    assert ([expected] if expected else []) == asked
