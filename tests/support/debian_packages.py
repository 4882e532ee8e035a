"""Programs of Debian's packages, unpacked without being installed, fetched once and kept; apt checks the signatures."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chart.helms import DOWNLOAD_TIMEOUT_SECONDS, one_at_a_time, run


class PackageMissingError(Exception):
    """A package could not be fetched."""


def unpacked(cache: Path, packages: Sequence[str]) -> Path:
    """Return the folder that holds the files of these packages, as below ``/``."""
    folder = cache / "files"
    with one_at_a_time(cache):
        if not folder.exists():
            _fetch(cache, packages, folder)
    return folder


def libraries_of(package: str, names: Sequence[str]) -> list[str]:
    """Return the packages that a package needs and whose names begin so; their versions differ between releases."""
    answer = run(["apt-cache", "depends", package], DOWNLOAD_TIMEOUT_SECONDS)
    needed = [line.split()[-1] for line in answer.stdout.splitlines() if "Depends:" in line]
    return [name for name in needed if name.startswith(tuple(names))]


def _fetch(cache: Path, packages: Sequence[str], target: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise PackageMissingError(f"there is no apt to fetch {' '.join(packages)} with.")
    with tempfile.TemporaryDirectory(dir=cache, prefix="incomplete-") as folder:
        answer = run(["sh", "-c", f"cd {folder} && apt-get download {' '.join(packages)}"], DOWNLOAD_TIMEOUT_SECONDS)
        files = list(Path(folder).glob("*.deb"))
        if answer.returncode or len(files) < len(packages):
            raise PackageMissingError(f"apt could not fetch {' '.join(packages)}:\n{answer.stderr}")
        for file in files:
            answer = run(["dpkg-deb", "-x", str(file), str(Path(folder, "files"))], DOWNLOAD_TIMEOUT_SECONDS)
            if answer.returncode:
                raise PackageMissingError(f"{file.name} cannot be unpacked:\n{answer.stderr}")
        Path(folder, "files").rename(target)
