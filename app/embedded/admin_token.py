"""The admin's token that ``carillon up`` makes, kept in the data folder so that it outlives a restart."""

import os
import secrets
import tempfile
from pathlib import Path

from app.embedded.errors import DataFolderUnusable

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
