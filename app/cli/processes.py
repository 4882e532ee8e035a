"""``carillon up``, ``api``, ``worker``, ``operator`` and ``migrate``: the processes of a deployment.

This module imports neither the services nor the database: ``up`` and the parent of several workers never use them, and
would only start later and hold more memory. The other processes import what they need when they run.
"""

import asyncio
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated

import structlog
import uvloop
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from app.config import Settings, SettingsError, load_settings, require_stores
from app.embedded import EmbeddedError
from app.embedded.child_process import standard_output
from app.embedded.data_folder import settings_with_database
from app.embedded.stack import run_stack
from app.observability.logs import set_up_logging
from app.observability.serving import ALL_ADDRESSES, listen_on_all, serving
from app.observability.worker_group import WorkerGroupAnswers

FAILED = 1
STARTUP_FAILURE = 3
_FLAG = Parameter(negative="")
# Allocations between two garbage collections of the youngest generation; Python's default is 700.
COLLECT_AFTER_ALLOCATIONS = 50_000
RESTART_SECONDS = 1.0

log = structlog.get_logger(__name__)


def up() -> None:
    """Run the API and a worker on this machine, with embedded Postgres and Valkey unless their URLs are set."""
    try:
        asyncio.run(run_stack(load_settings(), os.environ, standard_output()))
    except (SettingsError, EmbeddedError, OSError) as error:
        _print_error(error)
        sys.exit(1)


def _print_error(error: Exception) -> None:
    """Print the error as one red line; the quoted output of a server may have several lines."""
    message = " ".join(str(error).split())
    Console(stderr=True).print(Text(f"carillon up: {message}", style="red"), soft_wrap=True)


def api() -> None:
    """Serve the HTTP API."""
    settings = require_stores(load_settings())
    from app.api.server import Server, raise_file_limit, server_config

    raise_file_limit(settings.http_connections)
    config = server_config("app.asgi:application", settings, factory=True, loop="uvloop")
    server = Server(config, when_ready=collect_garbage_seldom)
    # Without a socket uvicorn opens one of its own for the host.
    sockets = [listen_on_all(settings.port)] if settings.host == ALL_ADDRESSES else None
    with suppress(KeyboardInterrupt):
        server.run(sockets)
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def migrate(
    *, wait: bool = False, wait_seconds: float = 0.0, grant_to: str = "", drop_old: Annotated[bool, _FLAG] = False
) -> None:
    """Bring the database schema up to date.

    Parameters
    ----------
    wait
        Do not migrate; wait until another process has done it.
    wait_seconds
        How long to wait for a database that cannot be reached.
    grant_to
        Give this role the rights that the API and the workers need, if they do not log in as the owner of the tables.
    drop_old
        Drop the partitions of the history that are older than CARILLON_HISTORY_DAYS, which only their owner can do.
    """
    from app.cli.interaction import Progress
    from app.client.connection import say
    from app.domain.errors import UnavailableError
    from app.persistence.database import unreachable_fields
    from app.persistence.migrations import until_migrated

    settings = settings_with_database()
    set_up_logging(settings.log_format, settings.log_level)
    progress = Progress("migrate")
    try:
        asyncio.run(
            until_migrated(settings.database_url)
            if wait
            else _migrate(settings, wait_seconds, grant_to, progress.note, drop_old=drop_old)
        )
    except UnavailableError as error:
        progress.end()
        log.error("migration_failed", **unreachable_fields(error))  # noqa: TRY400 - an outage, not a defect
        sys.exit(FAILED)
    except KeyboardInterrupt:
        say("\nInterrupted. A revision is applied as a whole or not at all; repeat the command to finish the rest.")
        raise
    finally:
        progress.end()
    Console().print("The database is up to date.")


async def _migrate(
    settings: Settings, wait_seconds: float, role: str, report: Callable[[str], None], *, drop_old: bool
) -> None:
    from app.engine.housekeeping import Housekeeper
    from app.persistence.database import Database
    from app.persistence.migrations import grant_to
    from app.persistence.migrations import migrate as migrate_database

    url = settings.migration_database_url or settings.database_url
    await migrate_database(url, wait_seconds, report)
    if role:
        await grant_to(url, role)
    if drop_old:
        database = Database(url, pool_size=1)
        try:
            await Housekeeper(database, settings.history_days, settings.audit_days).keep_weeks()
        finally:
            await database.close()


def worker(*, processes: int = 1, answer_at: Annotated[Path | None, Parameter(show=False)] = None) -> None:
    """Run schedules until stopped by SIGINT or SIGTERM.

    Parameters
    ----------
    processes
        The number of worker processes, for a machine with several cores.
    answer_at
        For one of several processes: the socket on which it answers its parent.
    """
    settings = require_stores(load_settings())
    set_up_logging(settings.log_format, settings.log_level)
    if processes > 1:
        uvloop.run(run_worker_group(processes, settings.host, settings.metrics_port, settings.metrics_token))
        return
    from app.worker import run_until_signalled

    if answer_at:
        structlog.contextvars.bind_contextvars(process=answer_at.stem)
    collect_garbage_seldom()
    uvloop.run(run_until_signalled(settings, answer_at))


def operator() -> None:
    """Apply the schedules and workflows that are objects of Kubernetes, until stopped by SIGINT or SIGTERM.

    It runs in a pod, with a service account that may read and change these objects.
    """
    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    from app.kubernetes.operator import run_until_signalled

    uvloop.run(run_until_signalled(settings))


def collect_garbage_seldom() -> None:
    """Make garbage collection rare, and leave out what there is: the objects of the program, which stay.

    A worker and an API make few cycles, and most of their objects live as long as their run or their request. Looking
    through the 200,000 objects of an API took 0.1 seconds, every few seconds, and each time a request waited for it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_ALLOCATIONS, 20, 20)


async def run_worker_group(processes: int, host: str, port: int, metrics_token: str = "") -> None:
    """Keep this many workers running until SIGINT or SIGTERM, then stop them and wait for them.

    If there is a port, health and metrics of all of them are served there as those of one worker.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carillon-")))
        sockets = [folder / f"{number}.sock" for number in range(processes)]
        answers = WorkerGroupAnswers(sockets)
        if port:
            await stack.enter_async_context(serving((host, port), answers, metrics_token))
        async with asyncio.TaskGroup() as group:
            for socket in sockets:
                group.create_task(_keep_worker_running(socket, answers, stopping))


async def _keep_worker_running(socket: Path, answers: WorkerGroupAnswers, stopping: asyncio.Event) -> None:
    stop_requested = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        command = (sys.executable, "-m", "app.cli", "worker", "--answer-at", str(socket))
        process = await asyncio.create_subprocess_exec(*command)
        exited = asyncio.create_task(process.wait())
        await asyncio.wait({exited, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            with suppress(ProcessLookupError):
                process.terminate()
            await exited
            return
        answers.process_exited(socket)
        log.warning("worker_process_ended", process=socket.stem, code=exited.result())
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), RESTART_SECONDS)
