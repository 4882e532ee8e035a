"""The first generation of the SDK, fetched once and kept in a folder of its own: both are the package ``mcp``."""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.chart.helms import DOWNLOAD_TIMEOUT_SECONDS, one_at_a_time, run

LOCK = Path(__file__).with_name("sdk-1.lock")


class SdkMissingError(Exception):
    """The earlier SDK could not be fetched."""


def earlier_sdk(cache: Path) -> Path:
    """Return the folder that has the locked SDK; there is one for each version of the lock, whole or not at all."""
    folder = cache / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    with one_at_a_time(cache):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="incomplete-") as scratch:
                _install(Path(scratch, "ready"))
                Path(scratch, "ready").rename(folder)
    return folder


def _install(target: Path) -> None:
    """Install the locked packages by hash; what they need beside these is installed for development."""
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(target))
    command = [sys.executable, "-m", "pip", "install", *options, "--requirement", str(LOCK)]
    try:
        answer = run(command, DOWNLOAD_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SdkMissingError(f"pip took over {error.timeout} s to fetch it.") from error
    if answer.returncode:
        raise SdkMissingError(f"pip could not fetch {LOCK.name}:\n{answer.stderr}")
