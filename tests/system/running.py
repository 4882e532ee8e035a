"""A whole Carillon in processes of its own: ``carillon up`` as a person would start it."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Self

import httpx

from app.config import load_settings
from tests.support.carillon import ADMIN_TOKEN, Carillon, until

PROGRAM = Path(sys.executable).with_name("carillon")
STOP_SECONDS = 10.0


class RunningCarillon:
    """``carillon up`` on a data folder, with everything it prints."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")},
            "CARILLON_PORT": "0",
            "CARILLON_DATA_DIR": str(data_dir),
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_LEASE_SECONDS": "3",
            "CARILLON_RECONCILE_SECONDS": "0.5",
            **settings,
        }
        self.lines: list[str] = []

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            PROGRAM, "up", env=self._env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self._reading = asyncio.create_task(self._read())
        self.url = await until(self._ready)
        self._client = httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False)
        self.carillon = Carillon(self._client, load_settings({}))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        if self.process.returncode is None:
            self.process.terminate()
            await asyncio.wait_for(self.process.wait(), 60)
        await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip())

    async def _ready(self) -> str | None:
        assert self.process.returncode is None, "\n".join(self.lines)
        found = [re.fullmatch(r"Carillon is ready at (http://\S+)", line) for line in self.lines]
        return next((match.group(1) for match in found if match), None)

    def child(self, name: str) -> int:
        """The process id of a child, by the command that an operator sees."""
        for pid in self.descendants():
            process = Path(f"/proc/{pid}")
            # A child of Carillon shows its command; a server's process has the server's name.
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
            if name in arguments or name == (process / "comm").read_text().strip():
                return pid
        raise AssertionError(f"no child {name}")

    def descendants(self) -> list[int]:
        """All processes below this one."""
        found, ahead = [], [self.process.pid]
        while ahead:
            pid = ahead.pop()
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                children = [int(child) for child in task.read_text().split()]
                found += children
                ahead += children
        return found

    def environment_of(self, name: str) -> dict[str, str]:
        """What a child was told."""
        lines = Path(f"/proc/{self.child(name)}/environ").read_bytes().decode().split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def kill(self, name: str) -> int:
        """Kill a child with -9."""
        pid = self.child(name)
        os.kill(pid, signal.SIGKILL)
        return pid


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
