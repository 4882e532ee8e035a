"""The processes of a deployment."""

import asyncio
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.releases.release import Release
from tests.support.carillon import until

RESTART_SECONDS = 0.3
END_SECONDS = 15.0
# Where a process of each kind answers whoever asks for its health.
PORTS = {"api": "CARILLON_PORT", "worker": "CARILLON_METRICS_PORT"}
# Warnings that no machine causes, however slow it is.
DEFECTS = {
    *("batch_retried_individually", "partition_creation_failed", "garbage_message_removed"),
    # What release 0.1.0 calls them: it runs in the tests of upgrades.
    *("batch_spoilt", "week_not_made", "garbage_in_queue"),
}


class Member:
    """A process of a deployment. It is started again whenever it dies, unless it is held down."""

    def __init__(self, name: str, command: str, release: Release, settings: Mapping[str, str], log: Path) -> None:
        """Not started yet."""
        self.name = name
        self.release = release
        self.starts = 0
        self.process: asyncio.subprocess.Process | None = None
        self.extra: dict[str, str] = {}
        self._command = command
        port = str(_free_port())
        self.url = f"http://127.0.0.1:{port}"
        self._settings = {**settings, PORTS[command]: port}
        self._log = log
        self._held_down = False
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run, and be kept running."""
        self._keeper = asyncio.create_task(self._keep())

    async def end(self, seconds: float = END_SECONDS) -> None:
        """Run no more: told to stop, and killed if that takes too long."""
        self._held_down = True
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self._keeper is not None:
            with_patience = asyncio.wait({self._keeper}, timeout=seconds)
            _, late = await with_patience
            if late:
                self.send(signal.SIGKILL)
                await self._keeper

    def send(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def restart(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal, and wait until there is a new one."""
        before = self.process
        self.send(number)
        await until(self._is_other_than(before))

    async def is_ready(self) -> bool:
        """Whether it says so itself."""
        said = await self.readiness()
        return said is not None and said["status"] != "unavailable"

    async def readiness(self) -> dict[str, Any] | None:
        """What it says of itself; None while it does not answer."""
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
                said: dict[str, Any] = (await client.get(f"{self.url}/health/ready")).json()
        except (httpx.HTTPError, ValueError):
            return None
        return said

    def defects(self) -> list[str]:
        """What it has said that is wrong with its code or with the schema, or that is no event at all."""
        lines = self._log.read_text().splitlines()
        events = [msgspec.json.decode(line) for line in lines if line.startswith("{")]
        unknown = [line for line in lines if not line.startswith("{")]
        return [*unknown, *(str(event) for event in events if event["level"] == "error" or event["event"] in DEFECTS)]

    def _is_other_than(self, before: Any) -> Any:
        async def other() -> bool:
            return self.process is not before and self.process is not None

        return other

    async def _keep(self) -> None:
        while not self._held_down:
            with self._log.open("ab") as log:
                self.process = await self.release.start(
                    self._command, settings=self._settings | self.extra, output=log.fileno()
                )
            self.starts += 1
            await self.process.wait()
            await asyncio.sleep(RESTART_SECONDS)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
