"""Real servers for the whole run: one Postgres, one Valkey, and a fresh database for each test."""

import gc
import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis as redis_client
import structlog

from app.config import Settings
from app.embedded import EmbeddedPostgres, EmbeddedValkey
from app.persistence.database import Database
from app.persistence.migrations import migrate_now
from app.queue.bell import RedisPool, open_pool
from tests.support.api_server import serving
from tests.support.carillon import Carillon, settings_on
from tests.support.databases import fresh_database
from tests.support.http_sink import Sink
from tests.support.hypothesis_examples import load_profile
from tests.support.memory_folder import use_memory
from tests.support.skip_reports import say_what_was_left

load_profile()
# Before anything asks for a temporary folder.
MEMORY_FOLDER = use_memory()


@pytest.fixture(scope="session", autouse=True)
def _logging() -> None:
    """Events go to the standard library's logging, which pytest captures."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(key_order=["event"])],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A Postgres with a migrated template to copy."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg") / "postgres", durable=False) as server:
        migrate_now(server.url)
        yield server


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """A Valkey that all tests share, one after another."""
    with EmbeddedValkey(tmp_path_factory.mktemp("vk") / "valkey") as server:
        yield server


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """A database of the test's own, with all tables, and empty but for the built-in admin."""
    async with fresh_database(postgres) as url:
        yield url


@pytest.fixture
def redis_url(valkey: EmbeddedValkey) -> str:
    """An empty Redis."""
    with redis_client.Redis.from_url(valkey.url) as client:
        client.flushall()
    return valkey.url


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings with short leases, so that recovery takes seconds."""
    return settings_on(database_url, redis_url, tmp_path)


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    """The test's database."""
    opened = Database(settings.database_url, pool_size=5)
    yield opened
    await opened.close()


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[RedisPool]:
    """The test's Redis."""
    pool = open_pool(settings.redis_url)
    yield pool
    await pool.aclose()


@pytest.fixture
async def carillon(settings: Settings) -> AsyncIterator[Carillon]:
    """The API, in this process, on the real servers."""
    async with serving(settings) as client:
        yield client


@pytest.fixture(scope="session")
async def standing(
    postgres: EmbeddedPostgres, valkey: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Carillon]:
    """An API that many tests share: for those that are refused, or that look at nothing but what they made."""
    folder = tmp_path_factory.mktemp("standing")
    async with fresh_database(postgres) as url, serving(settings_on(url, valkey.url, folder)) as client:
        client.refuse_cookies()
        yield client


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    """An HTTP target that remembers every call."""
    async with Sink() as opened:
        yield opened


# These take long: begun last, one of them would keep the others waiting.
LONG = (
    *(
        "tests/attack/",
        "tests/chaos/",
        "tests/releases/",
        "tests/system/",
        "tests/simulation/",
        "tests/engine/test_hostile",
    ),
    "tests/test_dockerfile.py::test_the_image_runs",
)


def pytest_unconfigure() -> None:
    """Give the memory back."""
    if MEMORY_FOLDER is not None:
        shutil.rmtree(MEMORY_FOLDER, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What this machine could not test."""
    say_what_was_left(terminalreporter)


def pytest_collection_finish() -> None:
    """The modules stay: without them, the garbage collector takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
