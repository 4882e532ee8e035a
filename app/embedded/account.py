"""Who a server runs as, and the folders that are handed over to that account."""

import os
from pathlib import Path

import msgspec

from app.embedded.errors import DataFolderUnusable

PRIVATE_MODE = 0o700


class Account(msgspec.Struct, frozen=True):
    """A user and group of the system, by number."""

    uid: int
    gid: int


# "nobody" on every Linux of today. Postgres refuses root, and Valkey needs none of its powers.
UNPRIVILEGED = Account(65534, 65534)


def server_account(data_dir: Path) -> Account | None:
    """Who shall run the server of this folder; None is ourselves.

    As root it is the folder's owner, so that ``sudo`` once does not take the data away from its user.
    """
    if os.geteuid() != 0:
        return None
    if not data_dir.exists():
        return UNPRIVILEGED
    owner = data_dir.stat()
    return Account(owner.st_uid, owner.st_gid) if owner.st_uid else UNPRIVILEGED


def private_folder(folder: Path, account: Account | None) -> None:
    """Make the folder, if need be, so that its server's account alone can look into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _hand_over(folder, account)
        folder.chmod(PRIVATE_MODE)
    except OSError as error:
        raise DataFolderUnusable(f"The folder {folder} cannot be used: {error.strerror}") from error


def _hand_over(folder: Path, account: Account | None) -> None:
    """Give away the folder with all that is in it, if it is root's (new, or copied there by root)."""
    if account is None or folder.stat().st_uid == account.uid:
        return
    for parent, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.chown(Path(parent, name), account.uid, account.gid, follow_symlinks=False)
