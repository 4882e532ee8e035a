"""The live pulse: one a second for all who watch, until the right to watch ends.

Covers app.services.live.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from app.api.cookies import LOOPBACK_NAME
from app.config import Settings
from app.services import live
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json, until

SECONDS = 30


class Watching:
    """An open stream, read as a browser reads it."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def pulse(self) -> Json:
        """Return the next pulse."""
        async with asyncio.timeout(SECONDS):
            async for line in self._lines:
                if line.startswith("data: "):
                    return dict(msgspec.json.decode(line.removeprefix("data: ")))
        raise AssertionError("The stream has ended.")

    async def ends(self) -> bool:
        """Wait until the stream ends."""
        async with asyncio.timeout(SECONDS):
            async for _ in self._lines:
                pass
        return True


@asynccontextmanager
async def watching(carillon: Carillon, token: str = ADMIN_TOKEN, **headers: str) -> AsyncIterator[Watching]:
    """Open a stream with a token, or with other headers."""
    given = headers or {"Authorization": f"Bearer {token}"}
    client: httpx.AsyncClient = carillon._client
    async with client.stream("GET", "/api/v1/live/", headers=given, timeout=SECONDS) as response:
        assert (200, "text/event-stream") == (
            response.status_code,
            response.headers["content-type"].split(";")[0],
        )
        yield Watching(response)


async def test_a_stream_ends_between_two_pulses(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials are checked more often than a pulse is computed: within a second, whenever one is revoked."""
    monkeypatch.setattr(live, "PULSE_SECONDS", 4 * SECONDS)
    token = await carillon.call("POST", "/tokens/", 201, json={"name": "watch"})
    async with watching(carillon, token["token"]) as stream:
        await stream.pulse()
        await carillon.call("DELETE", f"/tokens/{token['id']}/", 204)
        assert await stream.ends()


async def test_a_pulse_tells_what_changes_from_second_to_second(carillon: Carillon) -> None:
    """Again and again; the version moves with every change."""
    async with watching(carillon) as stream:
        first = await stream.pulse()
        assert (0, 0, "bell", True) == tuple(first[name] for name in ("due", "running", "mode", "schedules_enabled"))
        await carillon.schedule()

        async def moved() -> bool:
            return bool((await stream.pulse())["version"] != first["version"])

        await until(moved)


async def test_all_who_see_the_same_get_the_same_bytes(carillon: Carillon) -> None:
    """Which are computed once for all of them."""
    async with watching(carillon) as one, watching(carillon) as two:
        seen = [(await one.pulse())["at"] for _ in range(3)]
        others = [(await two.pulse())["at"] for _ in range(3)]
    assert set(seen) & set(others)


async def test_members_see_figures_of_their_own(carillon: Carillon) -> None:
    """Nothing of others moves their version."""
    made = await carillon.call("POST", "/users/", 201, json={"username": "mia"})
    token = (await carillon.call("POST", f"/users/{made['id']}/tokens/", 201, json={"name": "t"}))["token"]
    async with watching(carillon, token) as stream:
        first = await stream.pulse()
        await carillon.schedule()
        for _ in range(2):
            assert first["version"] == (await stream.pulse())["version"]
        await carillon.with_token(token).schedule()

        async def moved() -> bool:
            return bool((await stream.pulse())["version"] != first["version"])

        await until(moved)


async def test_a_stream_ends_with_its_token(carillon: Carillon) -> None:
    """When the token is deleted, and when its user is disabled."""
    made = await carillon.call("POST", "/users/", 201, json={"username": "mia"})
    path = f"/users/{made['id']}"
    tokens = [await carillon.call("POST", f"{path}/tokens/", 201, json={"name": "t"}) for _ in range(2)]
    async with watching(carillon, tokens[0]["token"]) as one, watching(carillon, tokens[1]["token"]) as two:
        await one.pulse()
        await two.pulse()
        await carillon.call("DELETE", f"/tokens/{tokens[0]['id']}/", 204)
        assert await one.ends()
        await two.pulse()
        await carillon.call("PATCH", f"{path}/", json={"disabled": True})
        assert await two.ends()


async def test_a_stream_ends_when_its_rights_change(carillon: Carillon) -> None:
    """It would go on with the figures of all others."""
    made = await carillon.call("POST", "/users/", 201, json={"username": "mia", "role": "admin"})
    token = (await carillon.call("POST", f"/users/{made['id']}/tokens/", 201, json={"name": "t"}))["token"]
    async with watching(carillon, token) as stream:
        await stream.pulse()
        await carillon.call("PATCH", f"/users/{made['id']}/", json={"role": "member"})
        assert await stream.ends()


async def test_a_stream_ends_with_its_session(carillon: Carillon) -> None:
    """A browser has a cookie, and no token."""
    login = await carillon.with_token("").request("POST", "/session/", json={"token": ADMIN_TOKEN})
    cookie = f"{LOOPBACK_NAME}={login.cookies[LOOPBACK_NAME]}"
    same = {"Sec-Fetch-Site": "same-origin"}
    async with watching(carillon, Cookie=cookie, **same) as stream:
        await stream.pulse()
        await carillon.with_token("").call("DELETE", "/session/", 204, headers={"Cookie": cookie, **same})
        assert await stream.ends()


async def test_a_stream_goes_on_without_redis(settings: Settings) -> None:
    """And says that workers poll."""
    async with (
        serving(replace(settings, redis_url="unix:///nowhere/redis.sock")) as carillon,
        watching(carillon) as one,
    ):
        assert "sweep" == (await one.pulse())["mode"]
        assert "sweep" == (await one.pulse())["mode"]


async def test_streams_end_at_once_when_the_server_stops(settings: Settings) -> None:
    """They do not hold a shutdown up until its grace is over."""
    async with serving(settings) as carillon:
        url = f"{carillon._client.base_url}/api/v1/live/"

        async def watch(began: asyncio.Event) -> bool:
            headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
            client = httpx.AsyncClient(trust_env=False, timeout=SECONDS)
            async with client, client.stream("GET", url, headers=headers) as response:
                stream = Watching(response)
                await stream.pulse()
                began.set()
                # The server closes the connection within the response.
                with contextlib.suppress(httpx.RemoteProtocolError):
                    await stream.ends()
            return True

        began = asyncio.Event()
        task = asyncio.create_task(watch(began))
        async with asyncio.timeout(SECONDS):
            await began.wait()
    async with asyncio.timeout(live.HEARTBEAT_SECONDS):
        assert await task


async def test_strangers_see_no_pulse(carillon: Carillon) -> None:
    """As with every other call."""
    stranger = await carillon.with_token("").request("GET", "/live/")
    assert 401 == stranger.status_code
