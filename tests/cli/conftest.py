"""Applying files to the test's database."""

from collections.abc import AsyncIterator

import pytest

from app.config import Settings
from tests.support.declarations import Applying, applying


@pytest.fixture
async def apply(settings: Settings) -> AsyncIterator[Applying]:
    """Apply on the test's stores."""
    async with applying(settings) as opened:
        yield opened
