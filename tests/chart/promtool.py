"""Where the tests of the alerts get promtool from: the PATH, or Debian's package, fetched once and kept."""

import shutil
import tempfile
from pathlib import Path

from tests.chart.helms import DOWNLOAD_TIMEOUT_SECONDS, one_at_a_time, run

PACKAGE = "prometheus"


class PromtoolMissingError(Exception):
    """No promtool could be found or fetched."""


def find_promtool(cache: Path) -> Path:
    """The path of a promtool that runs here."""
    on_the_path = shutil.which("promtool")
    if on_the_path:
        return Path(on_the_path)
    binary = cache / "usr" / "bin" / "promtool"
    with one_at_a_time(cache):
        if not binary.exists():
            fetch(cache)
    return binary


def fetch(cache: Path) -> None:
    """Unpack Debian's package without installing it; apt checks its signature."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise PromtoolMissingError(f"promtool is not on the PATH, and there is no apt to fetch {PACKAGE} with.")
    with tempfile.TemporaryDirectory(dir=cache, prefix="incomplete-") as folder:
        answer = run(["sh", "-c", f"cd {folder} && apt-get download {PACKAGE}"], DOWNLOAD_TIMEOUT_SECONDS)
        packages = list(Path(folder).glob("*.deb"))
        if answer.returncode or not packages:
            raise PromtoolMissingError(f"promtool is not on the PATH, and apt could not fetch it:\n{answer.stderr}")
        unpacked = Path(folder, "unpacked")
        answer = run(["dpkg-deb", "-x", str(packages[0]), str(unpacked)], DOWNLOAD_TIMEOUT_SECONDS)
        if answer.returncode:
            raise PromtoolMissingError(f"{packages[0].name} cannot be unpacked:\n{answer.stderr}")
        (cache / "usr" / "bin").mkdir(parents=True, exist_ok=True)
        (unpacked / "usr" / "bin" / "promtool").rename(cache / "usr" / "bin" / "promtool")
