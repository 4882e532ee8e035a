"""Temporary folders in memory, where there is enough of it: the suite creates and deletes very many small files.

A file system on a disk looks for a free inode among those that were deleted in the last minutes; with a new Postgres or
a new database for many tests that was a fifth of the processor's time.
"""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "carillon-tests-"
# The whole suite needs two of them at most.
NEEDED_BYTES = 8 * 2**30


def use_memory() -> Path | None:
    """Let ``tempfile``, pytest and all children use a folder in memory, and return it.

    Return None if there is not enough memory, if the folder could not hold programs, or if ``TMPDIR`` says where
    temporary files belong. It is set for the other processes of the run, which are started by the first.
    """
    if "TMPDIR" in os.environ or not _has_room():
        return None
    _remove_left_ones()
    folder = MEMORY / f"{PREFIX}{os.getpid()}"
    # The servers have an account of their own, which must reach its sockets.
    folder.mkdir(mode=0o711)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    return folder


def _has_room() -> bool:
    try:
        place = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    is_usable = os.access(MEMORY, os.W_OK) and not place.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return is_usable and min(available, place.f_bavail * place.f_frsize) >= NEEDED_BYTES


def _remove_left_ones() -> None:
    """Remove the folders of runs that were killed."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        if not Path(f"/proc/{folder.name.removeprefix(PREFIX)}").exists():
            shutil.rmtree(folder, ignore_errors=True)
