"""``carillon api``, ``worker`` and ``migrate``: the processes one by one."""

import asyncio

import uvicorn
import uvloop
from rich.console import Console

from app.cli.stores import settings_with_database
from app.config import load_settings
from app.observability.logs import set_up_logging
from app.wiring import require_stores

GRACE_SECONDS = 5


def api() -> None:
    """Serve the HTTP API."""
    settings = require_stores(load_settings())
    uvicorn.run(
        "app.asgi:application",
        factory=True,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def worker() -> None:
    """Fire schedules until stopped."""
    # Imported here: the other two do without the worker.
    from app.worker import run_until_signalled

    settings = require_stores(load_settings())
    set_up_logging(settings.log_format, settings.log_level)
    uvloop.run(run_until_signalled(settings))


def migrate() -> None:
    """Bring the database's schema up to date."""
    # Imported here: Alembic takes a while.
    from app.persistence.migrations import migrate as migrate_database

    asyncio.run(migrate_database(settings_with_database().database_url))
    Console().print("The database is up to date.")
