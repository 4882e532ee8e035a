"""A ``carillon`` process and what a test can see of it: its log, its port, its exit code."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

Json = dict[str, Any]


def free_port() -> int:
    """Return a port of loopback that is free at the moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class Watched:
    """A process with settings of its own; it and its children are killed when the block ends."""

    def __init__(self, log: Path, *command: str, **settings: str) -> None:
        self._log = log
        self._command = (sys.executable, "-m", "app.cli", *command)
        self.port = free_port()
        ports = {"CARILLON_PORT": str(self.port), "CARILLON_METRICS_PORT": str(self.port)}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
        self._env = inherited | ports | {f"CARILLON_{name.upper()}": value for name, value in settings.items()}

    async def __aenter__(self) -> Self:
        with self._log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()

    @property
    def output(self) -> str:
        """Everything that the process has printed so far."""
        return self._log.read_text()

    @property
    def lines(self) -> list[Json]:
        """The lines of its log; one that is not JSON fails the test."""
        return [msgspec.json.decode(line) for line in self.output.splitlines(keepends=True) if line.endswith("\n")]

    def said(self, event: str) -> list[Json]:
        """Return the lines of one event."""
        return [line for line in self.lines if line["event"] == event]

    async def get(self, path: str, **options: Any) -> httpx.Response | None:
        """Request a path; None while the port is closed. A process that has ended fails the test."""
        assert self.process.returncode is None, self.output
        with suppress(httpx.TransportError):
            return await self._client.get(path, **options)
        return None

    async def readiness(self) -> tuple[int, Json] | None:
        """Return the status and the body of ``/health/ready``, or None while the port is closed."""
        answer = await self.get("/health/ready")
        return None if answer is None else (answer.status_code, answer.json())

    async def stopped(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 60)
