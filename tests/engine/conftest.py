"""Fixtures that several tests of the engine use."""

from collections.abc import AsyncIterator

import pytest

from tests.support.callbacks import Target


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    """A target on loopback."""
    async with Target() as target:
        yield target
