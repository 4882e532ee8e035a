"""Requests a second of one API process, asked by a client that costs next to nothing."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from tests.bench.stand import Stand
from tests.support.carillon import ADMIN_TOKEN, until

AT_ONCE = 32


class Answered(msgspec.Struct):
    """How fast requests were answered."""

    per_second: float
    p50_ms: float
    p99_ms: float


class Line(asyncio.Protocol):
    """One connection: a request at a time, as bytes, and its answer."""

    def __init__(self) -> None:
        self._seen = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self._seen += data
        head, found, rest = self._seen.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        length = next(
            (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
        )
        if len(rest) >= length:
            self._seen = rest[length:]
            answer, self._answer = self._answer, None
            answer.set_result((int(head[9:12]), rest[:length]))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body."""
        self._answer = asyncio.get_running_loop().create_future()
        assert self._transport is not None
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


class Caller:
    """Asks one API."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def line(self) -> Line:
        """A connection."""
        _, line = await asyncio.get_running_loop().create_connection(Line, "127.0.0.1", self._port)
        return line

    async def call(self, method: str, path: str, body: Any = None, token: str = ADMIN_TOKEN) -> Any:
        """One request, and what came of it."""
        line = await self.line()
        try:
            status, answer = await line.ask(request(method, path, body, token))
        finally:
            line.close()
        assert status < 300, (status, answer[:300])
        return json.loads(answer)

    async def rate(self, make: Callable[[], bytes], seconds: float, at_once: int = AT_ONCE) -> Answered:
        """As fast as they are answered, on so many connections."""
        deadline, began = time.monotonic() + seconds, time.monotonic()
        times: list[float] = []

        async def again() -> None:
            line = await self.line()
            while (now := time.monotonic()) < deadline or not times:
                status, answer = await line.ask(make())
                assert status < 300, (status, answer[:300])
                times.append(time.monotonic() - now)
            line.close()

        await asyncio.gather(*(again() for _ in range(at_once)))
        times.sort()
        elapsed = time.monotonic() - began
        return Answered(len(times) / elapsed, 1000 * times[len(times) // 2], 1000 * times[int(len(times) * 0.99)])


def request(method: str, path: str, body: Any = None, token: str = ADMIN_TOKEN) -> bytes:
    """A request as it goes over the wire."""
    content = b"" if body is None else json.dumps(body).encode()
    return (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode() + content


async def ready_caller(port: int) -> Caller:
    """An API that answers."""
    caller = Caller(port)

    async def ready() -> bool:
        try:
            await caller.call("GET", "/health/ready")
        except (OSError, AssertionError):
            return False
        return True

    await until(ready)
    return caller


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


async def requests_per_second(stand: Stand, seconds: float) -> dict[str, Answered]:
    """Create, read and list schedules."""
    await stand.forget()
    port = free_port()
    async with stand.running("api", CARILLON_PORT=str(port)):
        caller = await ready_caller(port)
        flow = await caller.call(
            "POST", "/api/v1/workflows/", {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]}
        )
        body = {"name": "s", "workflow_id": flow["id"], "interval_seconds": 86400}
        create = request("POST", "/api/v1/schedules/", body)
        created = await caller.rate(lambda: create, seconds)
        made = [one["id"] for one in (await caller.call("GET", "/api/v1/schedules/?limit=100"))["items"]]
        return {
            "create": created,
            "get": await caller.rate(_in_turn([request("GET", f"/api/v1/schedules/{one}/") for one in made]), seconds),
            "list of 50": await caller.rate(lambda: request("GET", "/api/v1/schedules/?limit=50"), seconds),
        }


def _in_turn(requests: Sequence[bytes]) -> Callable[[], bytes]:
    number = -1

    def following() -> bytes:
        nonlocal number
        number += 1
        return requests[number % len(requests)]

    return following
