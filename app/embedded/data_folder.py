"""The data folder of ``carillon up``: its lock, the admin's token, and the file with the database's URL."""

import fcntl
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from app.embedded.errors import DataFolderInUse, DataFolderUnusable

LOCK_NAME = "carillon.lock"
PID_BYTES = 32


class DataFolderLock:
    """Held by this process; the kernel releases it when the process dies, however it dies."""

    def __init__(self, data_dir: Path) -> None:
        """Name the folder; nothing is touched yet."""
        self.data_dir = data_dir
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, or say who holds it."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataFolderInUse(self._in_use(file)) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Let it go. The file stays: removing it would let two processes lock two files of one name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        """Take the lock for the length of a block."""
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self.release()

    def _open(self) -> int:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            return os.open(self.data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataFolderUnusable(
                f"The data folder {self.data_dir} cannot be used: {error.strerror}; set CARILLON_DATA_DIR to another"
            ) from error

    def _in_use(self, file: int) -> str:
        holder = os.pread(file, PID_BYTES, 0).decode(errors="replace").strip() or "unknown"
        os.close(file)
        return (
            f"The data folder {self.data_dir} is in use by another Carillon (pid {holder}): "
            "stop that one, or set CARILLON_DATA_DIR to another folder"
        )


TOKEN_NAME = "admin-token"  # noqa: S105 - a file's name
TOKEN_BYTES = 32


def kept_admin_token(data_dir: Path) -> str:
    """The token of this data folder, made at the first call."""
    file = data_dir / TOKEN_NAME
    try:
        token = file.read_text().strip() if file.exists() else ""
        return token or _make(file)
    except OSError as error:
        raise DataFolderUnusable(f"The admin's token cannot be kept in {file}: {error.strerror}") from error


def _make(file: Path) -> str:
    """Write it whole or not at all, readable for us alone from its first moment."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{file.name}-", dir=file.parent)
    with os.fdopen(handle, "w") as fresh:
        fresh.write(f"{token}\n")
    Path(name).replace(file)
    return token


NOTICE_NAME = "database-url"


def write_url_file(data_dir: Path, url: str) -> None:
    """Tell where the embedded Postgres of this data folder listens now."""
    (data_dir / NOTICE_NAME).write_text(f"{url}\n")


def remove_url_file(data_dir: Path) -> None:
    """It listens no more."""
    with suppress(OSError):
        (data_dir / NOTICE_NAME).unlink()


def read_url_file(data_dir: Path) -> str:
    """Where it listens; empty if nothing runs on this data folder."""
    try:
        return (data_dir / NOTICE_NAME).read_text().strip()
    except OSError:
        return ""
