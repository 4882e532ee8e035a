"""The ``carillon`` command in the test's own process, on an API that runs in the test's loop."""

import asyncio
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from app.cli.main import run_command
from tests.support.carillon import ADMIN_TOKEN, Carillon

PROGRAM = Path(sys.executable).with_name("carillon")


class Done(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return what was printed, decoded."""
        assert 0 == self.code, self.err or self.out
        return msgspec.json.decode(self.out)


class CommandLine:
    """Runs commands as one user, with a folder of their own for contexts."""

    def __init__(self, server: str, folder: Path, token: str = ADMIN_TOKEN) -> None:
        self.server = server
        self.folder = folder
        self.environ = {"CARILLON_URL": server, "CARILLON_TOKEN": token}

    async def __call__(self, *words: str, stdin: str = "", environ: dict[str, str] | None = None) -> Done:
        """Run a command in a thread, because the API that it calls is in this one."""
        return await asyncio.to_thread(self.run, words, stdin, environ)

    def run(self, words: tuple[str, ...], stdin: str = "", environ: dict[str, str] | None = None) -> Done:
        """Run a command with these variables instead of the usual ones."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        given = self.environ if environ is None else environ
        with (
            _environment(self.variables(given)),
            _stdin(stdin),
            redirect_stdout(out),
            redirect_stderr(err),
            # The loggers of this process stay as they are: set up once, they would keep the output of this command.
            patch("structlog.configure"),
            patch("app.observability.logs._redirect_libraries"),
        ):
            code = run_command(words)
        return Done(int(code), _text(out), _text(err))

    def variables(self, given: dict[str, str]) -> dict[str, str]:
        """Return the whole environment of a command: nothing of the tester's own contexts and servers."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
        folders = {name: str(self.folder / name) for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "CARILLON_DATA_DIR")}
        return {**own, **folders, "NO_COLOR": "1", "COLUMNS": "200", **given}


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _stdin(text: str) -> Iterator[None]:
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before


def command_line(carillon: Carillon, folder: Path) -> CommandLine:
    """Return the command line of the admin of an API."""
    return CommandLine(str(carillon._client.base_url).rstrip("/"), folder)
