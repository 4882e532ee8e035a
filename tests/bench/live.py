"""Streams of pulses: what subscribers of ``GET /api/v1/live/`` cost the API, and how many of them get each pulse."""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from app.api.server import raise_file_limit
from tests.bench.fires import Fires, measure
from tests.bench.stand import Stand
from tests.bench.web import free_port, ready_caller, request
from tests.support.carillon import until

PULSE = b"event: pulse"


FIRES_PER_SECOND = 1000


class Live(msgspec.Struct):
    """What so many open streams cost in percent of a core, the pulses of each, and fires with and without them."""

    subscribers: int
    cpu_percent: float
    idle_cpu_percent: float
    pulses_per_second: float
    fires_without: Fires
    fires_with: Fires


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
    """Open so many streams with one token, as tabs of one deployment have them, first alone and then beside fires."""
    raise_file_limit(subscribers)
    fires_without = await measure(stand, FIRES_PER_SECOND, seconds)
    await stand.forget()
    port = free_port()
    # All streams come from one address here.
    most = str(subscribers + 16)
    async with stand.running("api", CARILLON_PORT=str(port), CARILLON_HTTP_CONNECTIONS_PER_ADDRESS=most) as api:
        await ready_caller(port)
        idle = await _cpu_percent(api.cpu_seconds, seconds)
        loop = asyncio.get_running_loop()
        streams = [(await loop.create_connection(Stream, "127.0.0.1", port))[1] for _ in range(subscribers)]
        await until(lambda: _all_have_begun(streams))
        before, began = sum(stream.pulses for stream in streams), time.monotonic()
        percent = await _cpu_percent(api.cpu_seconds, seconds)
        pulses = sum(stream.pulses for stream in streams) - before
        rate = pulses / (time.monotonic() - began) / subscribers
        fires_with = await measure(stand, FIRES_PER_SECOND, seconds)
        for stream in streams:
            assert stream.transport is not None
            assert not stream.transport.is_closing(), "a stream has ended"
            stream.transport.close()
    return Live(subscribers, percent, idle, rate, fires_without, fires_with)


async def _all_have_begun(streams: Sequence[Stream]) -> bool:
    return all(stream.pulses for stream in streams)


async def _cpu_percent(used: Callable[[], float], seconds: float) -> float:
    before, began = used(), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (used() - before) / (time.monotonic() - began)
