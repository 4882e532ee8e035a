"""Temporary folders: for sockets, whose paths must be short, and for programs, which must be executable."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.embedded.account import PRIVATE_MODE, Account
from app.embedded.errors import NoTemporaryFolder

# A socket's path ends at 103 bytes on macOS and 107 on Linux; our folder's name and the socket's take 31 of them.
LONGEST_ROOT_BYTES = 70
# Tried after $TMPDIR, which can be too long, or private to root.
USUAL_ROOTS = ("/tmp", "/var/tmp")  # noqa: S108 - only a root; what is made in it has a random name or is checked


def open_to_all(path: Path) -> bool:
    """Whether any account may read and enter this path, and enter every folder above it."""
    entered = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    wanted = stat.S_IROTH | stat.S_IXOTH
    return entered and path.stat().st_mode & wanted == wanted


def program_root() -> Path:
    """A temporary folder from which every account can run programs."""
    for root in _roots():
        if open_to_all(root) and not os.statvfs(root).f_flag & os.ST_NOEXEC:
            return root
    raise NoTemporaryFolder(f"No temporary folder allows every user to run programs (tried {_tried()}): set TMPDIR")


class SocketFolder:
    """A short, private folder for a server's socket."""

    def __init__(self, account: Account | None) -> None:
        """Make it, for this account alone: the servers trust whoever can reach their socket."""
        self.path = Path(tempfile.mkdtemp(prefix="carillon-", dir=_socket_root(account)))
        if account is not None:
            os.chown(self.path, account.uid, account.gid)
        self.path.chmod(PRIVATE_MODE)

    def remove(self) -> None:
        """Remove it with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def _socket_root(account: Account | None) -> Path:
    for root in _roots():
        short = len(os.fsencode(root)) <= LONGEST_ROOT_BYTES
        if short and (account is None or open_to_all(root)):
            return root
    raise NoTemporaryFolder(f"No temporary folder suits the servers' sockets (tried {_tried()}): set TMPDIR")


def _roots() -> Iterator[Path]:
    for name in dict.fromkeys((tempfile.gettempdir(), *USUAL_ROOTS)):
        root = Path(name).resolve()
        if os.access(root, os.W_OK | os.X_OK):
            yield root


def _tried() -> str:
    return ", ".join(dict.fromkeys((tempfile.gettempdir(), *USUAL_ROOTS)))
