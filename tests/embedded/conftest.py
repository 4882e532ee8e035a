"""Folders and environments for the servers."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.embedded import EmbeddedPostgres


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in a path with spaces, below one that only its owner may enter."""
    private = tmp_path / "private"
    place = private / "a folder with spaces"
    private.mkdir(mode=0o700)
    place.mkdir()
    yield place
    # A database is tens of megabytes, and pytest would keep it.
    shutil.rmtree(private)


@pytest.fixture(scope="session")
def empty_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data of a Postgres that was set up and never used."""
    data_dir = tmp_path_factory.mktemp("embedded") / "postgres"
    server = EmbeddedPostgres(data_dir, durable=False)
    server.prepare()
    server.close()
    yield data_dir
    shutil.rmtree(data_dir)


@pytest.fixture
def set_up_folder(folder: Path, empty_cluster: Path) -> Path:
    """A folder with Postgres's data in it, copied (so it is root's, if we are root) to save the time of a set-up."""
    shutil.copytree(empty_cluster, folder / "postgres")
    return folder


@pytest.fixture
def temporary_root() -> Iterator[Path]:
    """A temporary folder open to every account, as /tmp is, that takes with it what killed processes leave there."""
    root = Path(tempfile.mkdtemp(prefix="carillon-test-"))
    root.chmod(0o1777)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def plain_environment(temporary_root: Path) -> dict[str, str]:
    """The environment without any setting of Carillon, and with a temporary folder of the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
    return {**kept, "TMPDIR": str(temporary_root)}
