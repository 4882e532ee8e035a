"""``carillon api``, ``worker`` and ``migrate``: the processes one by one."""

import asyncio
import gc
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import structlog
import uvicorn
import uvloop
from cyclopts import Parameter
from rich.console import Console

from app.cli.stores import settings_with_database
from app.config import load_settings
from app.observability.logs import set_up_logging
from app.wiring import require_stores

STARTUP_FAILURE = 3
COLLECT_AFTER = 50_000


def spare_the_collector() -> None:
    """Look for garbage in cycles seldom: there is little of it, and much that lives as long as its run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def api() -> None:
    """Serve the HTTP API."""
    settings = require_stores(load_settings())
    # Imported here: the other commands do without it.
    from app.api.server import raise_file_limit, server_config

    raise_file_limit(settings.http_connections)
    server = uvicorn.Server(server_config("app.asgi:application", settings, factory=True, loop="uvloop"))
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def worker(*, processes: int = 1, answer_at: Annotated[Path | None, Parameter(show=False)] = None) -> None:
    """Fire schedules until stopped.

    Parameters
    ----------
    processes
        How many of them, for a machine with several cores.
    answer_at
        For one of several: the socket where it answers the one that has started it.
    """
    settings = require_stores(load_settings())
    set_up_logging(settings.log_format, settings.log_level)
    if processes > 1:
        # Imported here: whoever only looks after others does without the worker.
        from app.cli.fleet import run_fleet

        uvloop.run(run_fleet(processes, settings.host, settings.metrics_port, settings.metrics_token))
        return
    # And the other commands do without it too.
    from app.worker import run_until_signalled

    if answer_at:
        structlog.contextvars.bind_contextvars(process=answer_at.stem)
    spare_the_collector()
    uvloop.run(run_until_signalled(settings, answer_at))


def migrate(*, wait: bool = False) -> None:
    """Bring the database's schema up to date.

    Parameters
    ----------
    wait
        Change nothing, and wait until somebody else has done it.
    """
    # Imported here: Alembic takes a while.
    from app.persistence.migrations import migrate as migrate_database
    from app.persistence.migrations import until_migrated

    settings = settings_with_database()
    set_up_logging(settings.log_format, settings.log_level)
    asyncio.run(until_migrated(settings.database_url) if wait else migrate_database(settings.database_url))
    Console().print("The database is up to date.")
