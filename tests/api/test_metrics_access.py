"""Who may read the metrics: a port of their own, or a token.

Covers app.observability.serving.
"""

from pathlib import Path

import httpx
from msgspec.structs import replace

from app.config import Settings
from app.observability.metrics import CONTENT_TYPE
from tests.support.api_server import serving
from tests.support.carillon import until
from tests.support.watched_process import Watched, free_port

TOKEN = "the-token-of-prometheus"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


async def test_metrics_have_a_port_of_their_own(settings: Settings) -> None:
    """There they are, with health; on the API's port they are not, and not in its document."""
    port = free_port()
    async with serving(replace(settings, api_metrics_port=port)) as carillon:
        assert 404 == (await carillon.raw("GET", "/metrics")).status_code
        assert "/metrics" not in (await carillon.raw("GET", "/schema/openapi.json")).json()["paths"]
        assert 200 == (await carillon.raw("GET", "/health/ready")).status_code
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert "carillon_schedules" in (await client.get("/metrics")).text
            assert "ok" == (await client.get("/health/ready")).json()["status"]
            assert 200 == (await client.get("/health/live")).status_code


async def test_metrics_ask_for_their_token(settings: Settings) -> None:
    """On the API's port: 401 without, and nobody else's token will do."""
    async with serving(replace(settings, metrics_token=TOKEN, rate_limit_per_minute=3)) as carillon:
        metrics = await carillon.raw("GET", "/metrics", headers=WITH_TOKEN)
        assert (200, CONTENT_TYPE) == (metrics.status_code, metrics.headers["content-type"])
        answers = [await carillon.raw("GET", "/metrics", headers=carillon._headers) for _ in range(4)]
        assert [401, 401, 401, 429] == [answer.status_code for answer in answers]
        assert "Bearer" == answers[0].headers["www-authenticate"]
        assert 200 == (await carillon.raw("GET", "/metrics", headers=WITH_TOKEN)).status_code


async def test_their_port_asks_for_the_token_too(settings: Settings) -> None:
    """Health does not."""
    port = free_port()
    async with (
        serving(replace(settings, api_metrics_port=port, metrics_token=TOKEN)),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        assert 401 == (await client.get("/metrics")).status_code
        assert 200 == (await client.get("/metrics", headers=WITH_TOKEN)).status_code
        assert 200 == (await client.get("/health/ready")).status_code


async def test_workers_ask_for_the_token(settings: Settings, tmp_path: Path) -> None:
    """Several under one ask it once, and are asked without it on their sockets."""
    stores = {"database_url": settings.database_url, "redis_url": settings.redis_url}
    async with Watched(tmp_path / "log", "worker", "--processes", "2", **stores, metrics_token=TOKEN) as fleet:

        async def answered() -> bool:
            answer = await fleet.get("/metrics", headers=WITH_TOKEN)
            return answer is not None and "carillon_build_info" in answer.text

        await until(answered)
        refused = await fleet.get("/metrics")
        assert refused is not None
        assert 401 == refused.status_code
