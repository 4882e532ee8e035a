"""One browser and one Carillon with example schedules for all tests of the console that this process runs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser

from app.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.console.example_data import example_fleet
from tests.console.visitor import Visitor, open_browser, visiting
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, settings_on, until, working
from tests.support.databases import fresh_database


class Fleet:
    """A running Carillon and the example schedules in it."""

    def __init__(self, carillon: Carillon, schedules: dict[str, Json]) -> None:
        self.carillon = carillon
        self.schedules = schedules
        self.origin = str(carillon._client.base_url).rstrip("/")


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A real browser."""
    async with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
async def fleet(
    postgres: EmbeddedPostgres, valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Fleet]:
    """The examples, after a worker has let them fire a few times.

    It does not go on working: all tests of this process share the queue.
    """
    folder = tmp_path_factory.mktemp("console")
    async with fresh_database(postgres) as url:
        settings = settings_on(url, valkey.url, folder)
        async with serving(settings) as carillon:
            schedules = await example_fleet(carillon)

            async def has_fired() -> Any:
                return len(await carillon.ledger(schedules["import"])) > 2

            async with working(settings):
                await until(has_fired)
            yield Fleet(carillon, schedules)


@pytest.fixture
async def stranger(browser: Browser, fleet: Fleet) -> AsyncIterator[Visitor]:
    """A visitor who is not logged in."""
    async with visiting(browser, fleet.origin) as visitor:
        yield visitor


@pytest.fixture
async def visitor(stranger: Visitor, fleet: Fleet) -> Visitor:
    """A visitor who is logged in as the admin."""
    await stranger.log_in(fleet.carillon)
    return stranger
