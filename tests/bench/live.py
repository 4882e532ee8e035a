"""Streams of pulses: what subscribers of ``GET /api/v1/live/`` cost the API, and how many of them get each pulse."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from tests.bench.stand import Stand
from tests.bench.web import free_port, ready_caller, request

PULSE = b"event: pulse"


class Live(msgspec.Struct):
    """What so many open streams cost, in percent of a core, and the pulses that each got in a second."""

    subscribers: int
    cpu_percent: float
    idle_cpu_percent: float
    pulses_per_second: float


class Stream(asyncio.Protocol):
    """An open stream, of which the pulses are counted."""

    def __init__(self) -> None:
        self.pulses = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(request("GET", "/api/v1/live/"))

    def data_received(self, data: bytes) -> None:
        """Count what arrives."""
        self.pulses += data.count(PULSE)


async def measure_live(stand: Stand, subscribers: int, seconds: float) -> Live:
    """Open so many streams with one token, as tabs of one deployment have them."""
    port = free_port()
    async with stand.running("api", CARILLON_PORT=str(port)) as api:
        await ready_caller(port)
        idle = await _cpu_percent(api.cpu_seconds, seconds)
        loop = asyncio.get_running_loop()
        streams = [(await loop.create_connection(Stream, "127.0.0.1", port))[1] for _ in range(subscribers)]
        await asyncio.sleep(3)
        before = sum(stream.pulses for stream in streams)
        began = time.monotonic()
        percent = await _cpu_percent(api.cpu_seconds, seconds)
        pulses = sum(stream.pulses for stream in streams) - before
        rate = pulses / (time.monotonic() - began) / subscribers
        for stream in streams:
            if stream.transport is not None:
                stream.transport.close()
    return Live(subscribers, percent, idle, rate)


async def _cpu_percent(used: Callable[[], float], seconds: float) -> float:
    before, began = used(), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (used() - before) / (time.monotonic() - began)
