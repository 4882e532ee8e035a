"""A copy of a server's programs for an account that cannot reach the original, such as one under root's 0700 home.

The copy lies in a temporary folder, so it is used only if it is ours, nobody else can write to it, and it is whole.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app.embedded.account import Account
from app.embedded.errors import NoTemporaryFolder
from app.embedded.install import Install
from app.embedded.scratch import open_to_all, program_root

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
READABLE_BY_ALL = 0o644
RUNNABLE_BY_ALL = 0o755


def reachable_install(install: Install, account: Account | None) -> Install:
    """The install itself where the account can enter all its parts, else a copy that it can run."""
    if account is None or all(open_to_all(install.root / part) for part in install.parts):
        return install
    contents = _contents(install)
    copy = msgspec.structs.replace(install, root=program_root() / f"carillon-{install.name}-{contents[:16]}")
    if not _is_good(copy, contents):
        _put_in_place(_fresh_copy(install, copy.root), copy, contents)
    return copy


def _put_in_place(fresh: Path, copy: Install, contents: str) -> None:
    """Rename the fresh copy to its place; if someone was faster, theirs must be as good."""
    _clear_damaged(copy.root)
    try:
        fresh.rename(copy.root)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if not _is_good(copy, contents):
            raise NoTemporaryFolder(f"{copy.root} is in the way and cannot be trusted: remove it") from error


def _clear_damaged(root: Path) -> None:
    """Take away our own copy that is no longer whole, as after a clean-up of old temporary files."""
    if _is_ours(root):
        aside = Path(tempfile.mkdtemp(dir=root.parent))
        root.rename(aside / root.name)
        shutil.rmtree(aside, ignore_errors=True)


def _fresh_copy(install: Install, place: Path) -> Path:
    fresh = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    for part in install.parts:
        shutil.copytree(install.root / part, fresh / part)
    _open_to_all(fresh)
    return fresh


def _open_to_all(root: Path) -> None:
    """Whatever umask the install was made under."""
    for parent, _folders, files in os.walk(root):
        Path(parent).chmod(RUNNABLE_BY_ALL)
        for file in (Path(parent, name) for name in files):
            file.chmod(RUNNABLE_BY_ALL if file.stat().st_mode & stat.S_IXUSR else READABLE_BY_ALL)


def _is_good(copy: Install, contents: str) -> bool:
    return _is_ours(copy.root) and _contents(copy) == contents


def _is_ours(root: Path) -> bool:
    """Whether this is a real folder of ours that no other account can write to."""
    try:
        found = root.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & WRITABLE_BY_OTHERS


def _contents(install: Install) -> str:
    """A digest of every file's path, size and time: enough to tell versions apart and to see what is missing."""
    return hashlib.sha256("\n".join(sorted(_listing(install))).encode()).hexdigest()


def _listing(install: Install) -> Iterator[str]:
    for part in install.parts:
        for file in (install.root / part).rglob("*"):
            if file.is_file():
                found = file.stat()
                yield f"{file.relative_to(install.root)} {found.st_size} {int(found.st_mtime)}"
