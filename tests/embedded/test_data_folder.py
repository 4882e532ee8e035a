"""What is kept in the data folder beside the servers' data: the lock and the admin's token."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.embedded import DataFolderInUse, DataFolderLock, DataFolderUnusable
from app.embedded.data_folder import stored_admin_token
from tests.embedded.processes import CHECKOUT

HOLDER = """
import pathlib, signal, sys
from app.embedded import DataFolderLock
DataFolderLock(pathlib.Path(sys.argv[1])).acquire()
print("held", flush=True)
signal.pause()
"""


def test_a_second_holder_is_told_who_holds_it(folder: Path) -> None:
    """The error names the folder and the process, and the lock is free again after its release."""
    with DataFolderLock(folder):
        expected = f"{folder} is in use by another Carillon (pid {os.getpid()})"
        with pytest.raises(DataFolderInUse, match=re.escape(expected)):
            DataFolderLock(folder).acquire()
    with DataFolderLock(folder):
        pass


def test_a_killed_holder_lets_go(folder: Path) -> None:
    """After kill -9 the kernel has released the lock; no file needs to be removed by hand."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=CHECKOUT) as holder:
        assert holder.stdout is not None
        assert b"held\n" == holder.stdout.readline()
        with pytest.raises(DataFolderInUse, match=str(holder.pid)):
            DataFolderLock(folder).acquire()
        holder.kill()
        holder.wait()
    with DataFolderLock(folder):
        assert f"{os.getpid()}\n" == (folder / "carillon.lock").read_text()


def test_an_impossible_folder_is_named(folder: Path) -> None:
    """A file in the folder's place is an error about the setting, not a traceback."""
    (folder / "file").touch()
    with pytest.raises(DataFolderUnusable, match="set CARILLON_DATA_DIR to another"):
        DataFolderLock(folder / "file/data").acquire()
    with pytest.raises(DataFolderUnusable, match="admin token cannot be stored"):
        stored_admin_token(folder / "file/data")


def test_the_admin_token_stays_the_same(folder: Path) -> None:
    """It is made once, is long, and only its owner may read it."""
    token = stored_admin_token(folder / "data")
    assert token == stored_admin_token(folder / "data")
    assert 43 == len(token)
    assert 0o600 == (folder / "data/admin-token").stat().st_mode & 0o777


def test_an_empty_token_file_is_filled(folder: Path) -> None:
    """A blank file would let nobody in."""
    (folder / "admin-token").touch()
    assert stored_admin_token(folder)
