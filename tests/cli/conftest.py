"""Applying files to the test's database, and the command line over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.config import Settings
from tests.support.carillon import Carillon
from tests.support.command_line import CommandLine, command_line
from tests.support.declarations import Applying, applying


@pytest.fixture
async def apply(settings: Settings) -> AsyncIterator[Applying]:
    """Apply on the test's stores."""
    async with applying(settings) as opened:
        yield opened


@pytest.fixture
def cli(standing: Carillon, tmp_path: Path) -> CommandLine:
    """The command line of the admin, on an API that many tests share."""
    return command_line(standing, tmp_path)
