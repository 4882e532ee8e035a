"""A whole deployment to attack: Postgres, Valkey, one API and one worker, both with a memory limit."""

import asyncio
import resource
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx
from redis.asyncio import Redis

from tests.bench.stand import Running, Stand
from tests.bench.web import free_port, ready_caller
from tests.support.carillon import ADMIN_TOKEN

CRON_TOKEN = "the-token-of-the-pings"
# Good clients ask from 127.0.0.1; every connection of an attacker counts for this address.
HOSTILE_ADDRESS = "127.0.0.2"
# Address space that a process may take beside what it has when it is ready.
SPARE_MEGABYTES = 256


class Target:
    """The deployment, and what an attacker or an operator can see of it."""

    def __init__(self, **settings: str) -> None:
        """With these settings for every process."""
        self.stand = Stand()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._worker_port = free_port()
        self._settings = {
            "CARILLON_PORT": str(self.port),
            "CARILLON_METRICS_PORT": str(self._worker_port),
            "CARILLON_RATE_LIMIT_PER_MINUTE": "1000000",
            "CARILLON_AUTH_FAILURES_PER_MINUTE": "300",
            "CRON_RUN_TOKEN": CRON_TOKEN,
            **settings,
        }
        self._stack = AsyncExitStack()
        self._log = self.stand.folder / "log"

    async def __aenter__(self) -> Self:
        """Start everything, and set the memory limits once it is ready."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.stand)
            self.api = await stack.enter_async_context(self.stand.running("api", self._log, **self._settings))
            self.worker = await stack.enter_async_context(self.stand.running("worker", self._log, **self._settings))
            await ready_caller(self.port)
            await ready_caller(self._worker_port)
            for process in (self.api, self.worker):
                limit_memory(process, SPARE_MEGABYTES)
            client = httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False)
            self.client = await stack.enter_async_context(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything."""
        await self._stack.aclose()

    async def get(self, path: str, token: str = ADMIN_TOKEN) -> httpx.Response:
        """A good request."""
        return await self.client.get(path, headers={"Authorization": f"Bearer {token}"})

    async def worker_is_well(self) -> bool:
        """Whether the worker says that nothing is missing."""
        found = await self.client.get(f"http://127.0.0.1:{self._worker_port}/health/ready")
        return bool(found.json()["status"] == "ok")

    def errors(self) -> list[str]:
        """What the processes have said at the level error so far: no client may make them."""
        return [line for line in self._log.read_text().splitlines() if '"level": "error"' in line]

    async def redis_keys(self, pattern: str) -> int:
        """How many keys of this pattern Redis holds."""
        client: Any = Redis.from_url(self.stand.valkey.url)
        try:
            return len(await client.keys(pattern))
        finally:
            await client.aclose()


def limit_memory(process: Running, spare_megabytes: int) -> None:
    """Let a process take so much address space beside what it has now, and not more."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    size = next(int(line.split()[1]) for line in lines if line.startswith("VmSize")) * 1024
    limit = size + spare_megabytes * 1024 * 1024
    resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, limit))


def is_alive(process: Running) -> bool:
    """Whether the process that was started still runs."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def peak_megabytes(process: Running, until: asyncio.Event) -> float:
    """The most memory that a process held, looked at several times a second until the event."""
    peak = 0.0
    while not until.is_set():
        if is_alive(process):
            peak = max(peak, process.megabytes())
        try:
            await asyncio.wait_for(until.wait(), 0.1)
        except TimeoutError:
            continue
    return peak
