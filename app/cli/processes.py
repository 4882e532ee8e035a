"""``carillon up``, ``api``, ``worker`` and ``migrate``: the processes of a deployment."""

import asyncio
import gc
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated

import structlog
import uvicorn
import uvloop
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from app.cli.operators import settings_with_database
from app.config import SettingsError, load_settings, require_stores
from app.embedded import EmbeddedError
from app.embedded.child_process import standard_output
from app.embedded.stack import run_stack
from app.observability.logs import set_up_logging
from app.observability.serving import serving
from app.observability.worker_group import WorkerGroupAnswers

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
        uvloop.run(run_worker_group(processes, settings.host, settings.metrics_port, settings.metrics_token))
        return
    # Imported here: the other commands, and the parent of several workers, do without it.
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


AGAIN_SECONDS = 1.0

log = structlog.get_logger(__name__)


async def run_worker_group(processes: int, host: str, port: int, metrics_token: str = "") -> None:
    """Keep so many workers running until SIGINT or SIGTERM; they are told, and waited for. A port answers for all."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carillon-")))
        sockets = [folder / f"{place}.sock" for place in range(processes)]
        answers = WorkerGroupAnswers(sockets)
        if port:
            await stack.enter_async_context(serving((host, port), answers, metrics_token))
        async with asyncio.TaskGroup() as group:
            for socket in sockets:
                group.create_task(_keep(socket, answers, stopping))


async def _keep(socket: Path, answers: WorkerGroupAnswers, stopping: asyncio.Event) -> None:
    told = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        command = (sys.executable, "-m", "app.cli", "worker", "--answer-at", str(socket))
        worker = await asyncio.create_subprocess_exec(*command)
        ended = asyncio.create_task(worker.wait())
        await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            with suppress(ProcessLookupError):
                worker.terminate()
            await ended
            return
        answers.ended(socket)
        log.warning("worker_process_ended", process=socket.stem, code=ended.result())
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), AGAIN_SECONDS)


def up() -> None:
    """Run the API and a worker here, on embedded Postgres and Valkey unless URLs name others."""
    try:
        asyncio.run(run_stack(load_settings(), os.environ, standard_output()))
    except (SettingsError, EmbeddedError, OSError) as error:
        _print_error(error)
        sys.exit(1)


def _print_error(error: Exception) -> None:
    """One red line; a server's last words may have been several."""
    words = " ".join(str(error).split())
    Console(stderr=True).print(Text(f"carillon up: {words}", style="red"), soft_wrap=True)
