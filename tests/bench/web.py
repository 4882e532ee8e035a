"""Requests a second of one API process."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.bench.stand import Stand
from tests.carillon import ADMIN_TOKEN, until

AT_ONCE = 32


async def requests_per_second(stand: Stand, seconds: float) -> dict[str, float]:
    """Create, read and list schedules as fast as they are answered."""
    await stand.forget()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    async with stand.running("api", CARILLON_PORT=str(port)):
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        base = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession(base, headers=headers) as session:
            await until(_ready(session))
            flow = {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]}
            async with session.post("/api/v1/workflows/", json=flow) as response:
                workflow = await response.json()
            body = {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 86400}
            made: list[str] = []

            async def create() -> None:
                async with session.post("/api/v1/schedules/", json=body) as response:
                    made.append((await response.json())["id"])

            async def read() -> None:
                async with session.get(f"/api/v1/schedules/{made[len(made) // 2]}/") as response:
                    await response.read()

            async def listing() -> None:
                async with session.get("/api/v1/schedules/?limit=50") as response:
                    await response.read()

            return {
                "create": await _rate(create, seconds),
                "get": await _rate(read, seconds),
                "list of 50": await _rate(listing, seconds),
            }


async def _rate(ask: Callable[[], Awaitable[None]], seconds: float) -> float:
    count, deadline, began = 0, time.monotonic() + seconds, time.monotonic()

    async def again() -> None:
        nonlocal count
        while time.monotonic() < deadline:
            await ask()
            count += 1

    await asyncio.gather(*(again() for _ in range(AT_ONCE)))
    return count / (time.monotonic() - began)


def _ready(session: aiohttp.ClientSession) -> Any:
    async def ready() -> bool:
        try:
            async with session.get("/health/ready") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    return ready
