"""Good clients in a process of their own: they ask at a steady pace until told to stop, and say how they fared.

``python -m tests.attack.good_clients PORT`` says ``ready``, asks until its standard input ends,
and prints one line of JSON.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tests.bench.web import Caller, Line, request

CLIENTS = 4
PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 60.0


class Fared(msgspec.Struct):
    """What good clients saw."""

    requests: int
    errors: int
    p50_ms: float
    p99_ms: float


async def ask_until(stopping: asyncio.Event, port: int) -> Fared:
    """Ask from several clients at once; half of them open a connection for each request."""
    times: list[float] = []
    errors: list[str] = []
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(_client(Caller(port), stopping, times, errors, keeps_line=bool(number % 2)))
    times.sort()
    p50, p99 = (times[int(len(times) * share)] * 1000 if times else 0.0 for share in (0.5, 0.99))
    return Fared(len(times), len(errors), p50, p99)


async def _client(
    caller: Caller, stopping: asyncio.Event, times: list[float], errors: list[str], *, keeps_line: bool
) -> None:
    kept: Line | None = None
    while not stopping.is_set():
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                line = kept or await caller.line()
                status, _ = await line.ask(request("GET", "/api/v1/me/"))
        except (OSError, TimeoutError) as error:
            errors.append(repr(error))
            kept = None
            continue
        times.append(time.monotonic() - began)
        if status != 200:
            errors.append(str(status))
        kept = line if keeps_line else None
        if not keeps_line:
            line.close()
        await asyncio.sleep(PAUSE_SECONDS)


class GoodClients:
    """The process, as the one who starts it sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.fared = Fared(0, 0, 0.0, 0.0)

    async def stop(self) -> None:
        """Tell them to stop, and hear how they fared."""
        said, _ = await self._process.communicate(b"")
        self.fared = msgspec.json.decode(said, type=Fared)


@asynccontextmanager
async def good_clients(port: int) -> AsyncIterator[GoodClients]:
    """Ask for the length of the block; afterwards ``fared`` says how it was."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.attack.good_clients", str(port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    clients = GoodClients(process)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        yield clients
    finally:
        await clients.stop()


async def _main(port: int) -> None:
    stopping = asyncio.Event()
    await Caller(port).call("GET", "/api/v1/me/")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asking = asyncio.create_task(ask_until(stopping, port))
    await asyncio.to_thread(sys.stdin.read)
    stopping.set()
    sys.stdout.write(msgspec.json.encode(await asking).decode())


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
