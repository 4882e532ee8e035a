"""Releases of Carillon, installed side by side: each in a folder of its own, on the packages of this environment."""

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from alembic.script import ScriptDirectory

from app.persistence.migrations import alembic_config

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("carillon")
# One line: the version of the last release, and its commit.
PREVIOUS = Path(__file__).with_name("previous.txt")
EXPANSION = Path(__file__).with_name("expansion.py")
# Building takes two seconds; a busy machine takes its time.
COMMAND_TIMEOUT_SECONDS = 300
# A process says with this where its code is.
WHERE = "import app, migrations; print(app.__file__); print(migrations.__file__)"


class ReleaseMissingError(Exception):
    """The history of this copy does not go back to the release."""


class Release(msgspec.Struct, frozen=True):
    """The code of one version, found in a folder before everything else."""

    version: str
    root: Path

    def environment(self, **settings: str) -> dict[str, str]:
        """What its processes are told: nothing of ours but these settings."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
        return inherited | {"PYTHONPATH": str(self.root)} | settings

    def migrations(self) -> list[Path]:
        """Its migrations, in their order."""
        return sorted((self.root / "migrations" / "versions").glob("*.py"))

    async def start(self, *words: str, settings: Mapping[str, str], output: int) -> asyncio.subprocess.Process:
        """Run one of its commands, with both outputs to a file or a pipe."""
        return await asyncio.create_subprocess_exec(
            PROGRAM,
            *words,
            env=self.environment(**settings),
            # What it starts itself, as a module, looks here before it looks anywhere else.
            cwd=self.root,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output if output >= 0 else asyncio.subprocess.STDOUT,
        )

    async def run(self, *words: str, settings: Mapping[str, str], seconds: float = 120) -> tuple[int, str]:
        """Run one to its end: its exit code, and what it said."""
        process = await self.start(*words, settings=settings, output=asyncio.subprocess.PIPE)
        try:
            said, _ = await asyncio.wait_for(process.communicate(), seconds)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, said.decode()


# What is being worked on, as it is.
CURRENT = Release("current", ROOT)


def install_previous(into: Path) -> Release:
    """The last release, out of the history."""
    version, commit = PREVIOUS.read_text().split()
    with _working_folder() as sources:
        _extract(version, commit, sources)
        return _install(version, sources, into)


def install_next(into: Path) -> Release:
    """What is being worked on, as a release that expands the schema once more than it does."""
    release = _install("next", ROOT, into)
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    text = EXPANSION.read_text().replace('"head of this tree"', f'"{head}"')
    (release.root / "migrations" / "versions" / "9999_expansion.py").write_text(text)
    return release


def _extract(version: str, commit: str, into: Path) -> None:
    """The tree of a commit."""
    archive = into.with_suffix(".tar")
    try:
        _run("git", "-c", "safe.directory=*", "-C", str(ROOT), "archive", "--output", str(archive), commit)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise ReleaseMissingError(
            f"the upgrade from release {version}: its commit {commit} is not in this copy's history ({said.strip()}). "
            "In a shallow clone, `git fetch --unshallow` brings it."
        ) from error
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")


def _install(version: str, sources: Path, into: Path) -> Release:
    """As the image has it: the wheel, with its migrations, its version and its entry points."""
    offline = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    _run(sys.executable, "-m", "pip", "install", *offline, "--target", str(into), str(sources))
    release = Release(version, into)
    found = _run(sys.executable, "-c", WHERE, env=release.environment(), cwd=into).split()
    if [str(into / package / "__init__.py") for package in ("app", "migrations")] != found:
        raise AssertionError(f"{into} is not where the code of release {version} comes from, but {found}")
    return release


def _run(*words: str, **options: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=COMMAND_TIMEOUT_SECONDS, **options
    )
    return done.stdout


@contextmanager
def _working_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="carillon-release-"))
    try:
        (folder / "tree").mkdir()
        yield folder / "tree"
    finally:
        shutil.rmtree(folder)
