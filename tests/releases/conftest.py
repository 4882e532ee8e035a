"""The two releases of an upgrade."""

import pytest

from tests.releases.release import Release, ReleaseMissingError, install_next, install_previous
from tests.support.skip_reports import leave_untested


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The last release."""
    try:
        return install_previous(tmp_path_factory.mktemp("release") / "previous")
    except ReleaseMissingError as error:
        # A gate that was handed a copy without its history cannot fetch it.
        return leave_untested(str(error), curable=False)


@pytest.fixture(scope="session")
def following(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What is being worked on, as the next one."""
    return install_next(tmp_path_factory.mktemp("release") / "next")
