"""The data folder of ``carillon up``: its lock, the admin token, and the file with the URL of the embedded Postgres."""

import fcntl
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from app.config import Settings, SettingsError, load_settings
from app.embedded.errors import DataFolderInUse, DataFolderUnusable

LOCK_NAME = "carillon.lock"
PID_BYTES = 32
TOKEN_NAME = "admin-token"  # noqa: S105 - a file's name
TOKEN_BYTES = 32
URL_FILE_NAME = "database-url"
API_URL_FILE_NAME = "api-url"


class DataFolderLock:
    """A lock on the data folder. The kernel releases it when this process dies, even by kill -9."""

    def __init__(self, data_dir: Path) -> None:
        """Name the folder; nothing is created or locked yet."""
        self.data_dir = data_dir
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise an error with the pid of the process that holds it."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataFolderInUse(self._in_use_message(file)) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Release the lock. The file stays: if it were removed, two processes could lock two files of the same name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        """Take the lock for the duration of a block."""
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.release()

    def _open(self) -> int:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            return os.open(self.data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataFolderUnusable(
                f"The data folder {self.data_dir} cannot be used: {error.strerror}; set CARILLON_DATA_DIR to another"
            ) from error

    def _in_use_message(self, file: int) -> str:
        holder = os.pread(file, PID_BYTES, 0).decode(errors="replace").strip() or "unknown"
        os.close(file)
        return (
            f"The data folder {self.data_dir} is in use by another Carillon (pid {holder}): "
            "stop that one, or set CARILLON_DATA_DIR to another folder"
        )


def stored_admin_token(data_dir: Path) -> str:
    """Return the admin token of this data folder; the first call creates it."""
    file = data_dir / TOKEN_NAME
    try:
        token = file.read_text().strip() if file.exists() else ""
        return token or _create_token(file)
    except OSError as error:
        raise DataFolderUnusable(
            f"The admin token cannot be stored in {file}: {error.strerror}; set CARILLON_ADMIN_TOKEN, or set "
            "CARILLON_DATA_DIR to another folder"
        ) from error


def _create_token(file: Path) -> str:
    """Write a new token to a temporary file and rename it: the file is complete, and private from the start."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{file.name}-", dir=file.parent)
    with os.fdopen(handle, "w") as fresh:
        fresh.write(f"{token}\n")
    Path(name).replace(file)
    return token


def write_url_file(data_dir: Path, url: str) -> None:
    """Write the current URL of the embedded Postgres; its socket is in another folder after every start."""
    (data_dir / URL_FILE_NAME).write_text(f"{url}\n")


def remove_url_file(data_dir: Path) -> None:
    """Remove the file with the URL, since the server has stopped."""
    with suppress(OSError):
        (data_dir / URL_FILE_NAME).unlink()


def write_api_url_file(data_dir: Path, url: str) -> None:
    """Write the address of the API, by which commands on this machine find it."""
    with suppress(FileNotFoundError):
        (data_dir / API_URL_FILE_NAME).write_text(f"{url}\n")


def remove_api_url_file(data_dir: Path) -> None:
    """Remove the file with the address of the API, since it has stopped."""
    with suppress(OSError):
        (data_dir / API_URL_FILE_NAME).unlink()


def read_url_file(data_dir: Path) -> str:
    """Return the URL of the embedded Postgres; empty if no ``carillon up`` runs on this data folder."""
    try:
        return (data_dir / URL_FILE_NAME).read_text().strip()
    except OSError:
        return ""


def settings_with_database() -> Settings:
    """Return the settings; if they name no database, with that of a ``carillon up`` that runs on the data folder.

    It lives here and not among the commands, so that ``carillon up`` and the parent of several workers, which never
    open a database, do not import what the other commands need.
    """
    settings = load_settings()
    if settings.database_url:
        return settings
    url = read_url_file(Path(settings.data_dir).expanduser())
    if not url:
        raise SettingsError(
            f"CARILLON_DATABASE_URL is not set, and no `carillon up` runs on the data folder {settings.data_dir}. "
            "Set CARILLON_DATABASE_URL, or start `carillon up`, or set CARILLON_DATA_DIR to the folder it runs on"
        )
    return msgspec.structs.replace(settings, database_url=url)
