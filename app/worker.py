"""The worker process: ``carillon worker``, and ``WorkerSettings`` for the stock ``arq app.worker.WorkerSettings``."""

import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from app.config import Settings, load_settings, require_stores
from app.domain.identities import uuid_of
from app.engine.ticks import TickEngine
from app.engine.worker_runtime import WorkerRuntime
from app.observability.logs import set_up_logging
from app.observability.serving import Address, Health, OwnAnswers, serving
from app.queue.bell import BellHealth
from app.queue.wire import EXECUTE, RUN, are_arguments
from app.queue.worker import QueueWorker, stock_arq_settings
from app.services.system import readiness_of
from app.wiring import wire_worker

log = structlog.get_logger(__name__)

Context = dict[str, Any]

# The last messages are taken out of the queue; they would match nothing any more.
FINISH_SECONDS = 2.0


async def execute_scheduled_job(ctx: Context, job_id: str, generation: int) -> None:
    """The function that a schedule's message names."""
    # Our own worker has looked at them already; a stock one has not.
    if are_arguments(EXECUTE, (job_id, generation), {}):
        engine: TickEngine = ctx["engine"]
        await engine.execute_scheduled_job(uuid_of(job_id), generation)


async def run_execution(ctx: Context, execution_id: str, token: int) -> None:
    """The function that the message of a manual or handed-back execution names."""
    if are_arguments(RUN, (execution_id, token), {}):
        engine: TickEngine = ctx["engine"]
        await engine.run_execution(uuid_of(execution_id), token)


async def run_until_signalled(settings: Settings, answer_at: Path | None = None) -> None:
    """Work until SIGINT or SIGTERM. One of several answers on a socket, the port is another's."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await run_worker(settings, stopping, answer_at)


async def run_worker(settings: Settings, stopping: asyncio.Event, answer_at: Path | None = None) -> None:
    """Work until told to stop, then hand back what is unfinished."""
    own_port = (settings.host, settings.metrics_port) if settings.metrics_port else None
    address: Address | None = answer_at or own_port
    async with wire_worker(settings) as parts:
        worker = QueueWorker(
            parts.redis,
            {EXECUTE: execute_scheduled_job, RUN: run_execution},
            {"engine": parts.engine},
            concurrency=settings.worker_concurrency,
            room=lambda: parts.engine.places.room,
            lease_seconds=settings.lease_seconds,
            on_cancel=parts.life.call_off,
            on_failure=parts.bell_health.failed,
        )
        async with AsyncExitStack() as beside:
            if address:
                answers = OwnAnswers(partial(_health, parts.life, parts.bell_health))
                # Whoever started it asks on the socket, and has asked for the token already.
                token = "" if answer_at else settings.metrics_token
                await beside.enter_async_context(serving(address, answers, token))
            await parts.life.begin()
            log.info("worker_started", concurrency=settings.worker_concurrency)
            await _work(worker, parts.life, settings.drain_seconds, stopping)


def _health(life: WorkerRuntime, bell_health: BellHealth) -> Health:
    """What this worker has found out by itself: to be asked costs nothing, however often."""
    found = readiness_of(life.lacks(), bell_health.problem)
    return Health(found.postgres == "ok", msgspec.json.encode(found))


async def _work(worker: QueueWorker, life: WorkerRuntime, drain_seconds: float, stopping: asyncio.Event) -> None:
    delivering = asyncio.create_task(worker.run())
    told = asyncio.create_task(stopping.wait())
    # A delivery that dies ends the worker too: whoever supervises it starts a whole one.
    await asyncio.wait({delivering, told}, return_when=asyncio.FIRST_COMPLETED)
    log.info("worker_draining", seconds=drain_seconds)
    worker.stop()
    await asyncio.wait({delivering})
    await life.end(drain_seconds)
    with suppress(TimeoutError):
        await asyncio.wait_for(worker.finished(), FINISH_SECONDS)
    log.info("worker_stopped")
    told.cancel()
    delivering.result()


async def _begin(ctx: Context) -> None:
    """Arq's on_startup: the same parts, kept up beside the stock loop."""
    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    stack = ctx["stack"] = AsyncExitStack()
    parts = ctx["parts"] = await stack.enter_async_context(wire_worker(settings))
    ctx["engine"] = parts.engine
    await parts.life.begin()


async def _end(ctx: Context) -> None:
    """Arq's on_shutdown: its jobs are cancelled by now, what they ran is handed back."""
    await ctx["parts"].life.end(0)
    await ctx["stack"].aclose()


def __getattr__(name: str) -> Any:
    """``WorkerSettings`` is made when it is asked for: it needs the environment, importing this module does not."""
    if name != "WorkerSettings":
        raise AttributeError(name)
    settings = require_stores(load_settings())
    hooks = stock_arq_settings(
        settings.redis_url, execute_scheduled_job, run_execution, _begin, _end, settings.worker_concurrency
    )
    return type("WorkerSettings", (), hooks)
