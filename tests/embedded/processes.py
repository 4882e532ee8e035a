"""Looking at processes from outside, and waiting for what they do."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.02
CHECKOUT = Path(__file__).parents[2]

T = TypeVar("T")


def wait_for(question: Callable[[], T], what: str) -> T:
    """The first answer that is true."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (answer := question()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS} s for {what}"
        time.sleep(POLL_SECONDS)
    return answer


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has collected yet has."""
    return _status(pid).get("State", "Z").startswith("Z")


def user_of(pid: int) -> int:
    """The effective uid of a process."""
    return int(_status(pid)["Uid"].split()[1])


def descendants(pid: int) -> set[int]:
    """All living processes that come from this one, by their parents."""
    found = {pid}
    parents = {int(entry.name): int(_status(int(entry.name)).get("PPid", 0)) for entry in Path("/proc").glob("[0-9]*")}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child for child in found - {pid} if not is_gone(child)}


def _status(pid: int) -> dict[str, str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}
    return {}


class Running:
    """A process of ours with its output."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Hold the process and the file that it writes to."""
        self.process = process
        self.pid = process.pid
        self._log = log

    @property
    def output(self) -> str:
        """All that it has printed so far."""
        return self._log.read_text()

    def line(self, part: str) -> str:
        """The first line with this part, as soon as it is there."""
        return wait_for(lambda: self._find(part), f"{part!r} in {self.output!r}")

    def _find(self, part: str) -> str:
        assert part in self.output or self.process.poll() is None, f"ended without {part!r}: {self.output}"
        return next((line for line in self.output.splitlines(keepends=True) if part in line and line[-1] == "\n"), "")

    def ends(self) -> int:
        """Its exit code, when it has ended."""
        return self.process.wait(DEADLINE_SECONDS)


@contextmanager
def running(
    log: Path,
    script: str,
    *arguments: object,
    env: Mapping[str, str],
    output: int | None = None,
) -> Iterator[Running]:
    """Run a script of this folder; whatever the test does, the process and all that came from it end."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=output or file,
            stderr=subprocess.STDOUT,
            env={**env, "PYTHONPATH": str(CHECKOUT)},
        )
    try:
        yield Running(process, log)
    finally:
        left = descendants(process.pid)
        process.kill()
        process.wait()
        wait_for(lambda: all(map(is_gone, left)), f"the end of {left}")
