"""Several worker processes under one: started together, started again when one dies, stopped together."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

import structlog

AGAIN_SECONDS = 1.0

log = structlog.get_logger(__name__)


async def run_fleet(processes: int) -> None:
    """Keep so many workers running until SIGINT or SIGTERM; they are told, and waited for."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with asyncio.TaskGroup() as group:
        for place in range(processes):
            group.create_task(_keep(place, stopping))


async def _keep(place: int, stopping: asyncio.Event) -> None:
    told = asyncio.create_task(stopping.wait())
    while not stopping.is_set():
        # Only the first answers Prometheus under the port that is set; a port has one owner.
        port = {} if place == 0 else {"CARILLON_METRICS_PORT": "0"}
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.cli", "worker", env={**os.environ, **port}
        )
        ended = asyncio.create_task(worker.wait())
        await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            with suppress(ProcessLookupError):
                worker.terminate()
            await ended
            return
        log.warning("worker_process_ended", place=place, code=ended.result())
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), AGAIN_SECONDS)
