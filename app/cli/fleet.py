"""Several worker processes under one: started together, started again when one dies, stopped together."""

import asyncio
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import structlog

from app.observability.fleets import FleetAnswers
from app.observability.serving import serving

AGAIN_SECONDS = 1.0

log = structlog.get_logger(__name__)


async def run_fleet(processes: int, host: str, port: int, metrics_token: str = "") -> None:
    """Keep so many workers running until SIGINT or SIGTERM; they are told, and waited for. A port answers for all."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carillon-")))
        sockets = [folder / f"{place}.sock" for place in range(processes)]
        answers = FleetAnswers(sockets)
        if port:
            await stack.enter_async_context(serving((host, port), answers, metrics_token))
        async with asyncio.TaskGroup() as group:
            for socket in sockets:
                group.create_task(_keep(socket, answers, stopping))


async def _keep(socket: Path, answers: FleetAnswers, stopping: asyncio.Event) -> None:
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
