"""The worker process: ``carillon worker``, and ``WorkerSettings`` for arq's own ``arq app.worker.WorkerSettings``."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from app.config import Settings, load_settings, require_stores
from app.domain.run_ids import parse_uuid
from app.domain.ticks import Tick
from app.engine.queue_port import EXECUTE, RUN, Delivered, OnEnd
from app.engine.ringing import BellHealth
from app.engine.ticks import TickEngine
from app.engine.worker_runtime import WorkerRuntime
from app.observability.logs import set_up_logging
from app.observability.metrics import POSTGRES_UP, REDIS_UP
from app.observability.serving import Address, Health, OwnAnswers, serving
from app.queue.worker import Handlers, QueueWorker, Starters, stock_arq_settings
from app.services.system import readiness_of
from app.wiring import wire_worker

log = structlog.get_logger(__name__)

# How long the last messages may take to leave the queue. One that stays does no harm: it matches nothing any more.
FINISH_SECONDS = 2.0


def handlers_of(engine: TickEngine) -> Handlers:
    """Return the functions that messages name. The queue has checked the arguments before it calls one."""

    async def execute_scheduled_job(delivered: Delivered | None, job_id: str, generation: int) -> None:
        await engine.execute_scheduled_job(parse_uuid(job_id), generation, delivered)

    async def run_execution(_delivered: Delivered | None, execution_id: str, token: int) -> None:
        await engine.run_execution(parse_uuid(execution_id), token)

    return {EXECUTE: execute_scheduled_job, RUN: run_execution}


def starters_of(engine: TickEngine) -> Starters:
    """Return what begins to handle messages without a task for each."""

    def begin_tick(delivered: Delivered, args: Sequence[Any], on_end: OnEnd) -> None:
        job_id, generation = args
        engine.begin_tick(Tick(parse_uuid(job_id), generation), delivered, on_end)

    return {EXECUTE: begin_tick}


async def run_until_signalled(settings: Settings, answer_at: Path | None = None) -> None:
    """Work until SIGINT or SIGTERM.

    With ``answer_at`` this is one of several processes: probes are answered on that socket, the parent has the port.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await run_worker(settings, stopping, answer_at)


async def run_worker(settings: Settings, stopping: asyncio.Event, answer_at: Path | None = None) -> None:
    """Work until ``stopping`` is set, then hand back what is unfinished."""
    own_port = (settings.host, settings.metrics_port) if settings.metrics_port else None
    address: Address | None = answer_at or own_port
    async with wire_worker(settings) as parts:
        worker = QueueWorker(
            parts.redis,
            handlers_of(parts.engine),
            starters=starters_of(parts.engine),
            concurrency=settings.worker_concurrency,
            free_places=lambda: parts.engine.room,
            lease_seconds=settings.lease_seconds,
            on_cancel=parts.runtime.call_off,
            on_failure=parts.bell_health.failed,
        )
        POSTGRES_UP.set_function(lambda: parts.runtime.reaches_database)
        REDIS_UP.set_function(lambda: not parts.bell_health.problem)
        async with AsyncExitStack() as stack:
            if address:
                answers = OwnAnswers(partial(_health, parts.runtime, parts.bell_health))
                # On the socket only the parent process asks, and it has checked the token already.
                token = "" if answer_at else settings.metrics_token
                await stack.enter_async_context(serving(address, answers, token))
            parts.engine.keep_near_ticks()
            await parts.runtime.begin()
            log.info("worker_started", concurrency=settings.worker_concurrency)
            await _work(worker, parts.runtime, settings.drain_seconds, stopping)


def _health(runtime: WorkerRuntime, bell_health: BellHealth) -> Health:
    """Return what this worker knows already: probes cost no query, however many there are."""
    readiness = readiness_of(runtime.problem(), bell_health.problem, bell_health.warning)
    return Health(readiness.postgres == "ok", msgspec.json.encode(readiness))


async def _work(worker: QueueWorker, runtime: WorkerRuntime, drain_seconds: float, stopping: asyncio.Event) -> None:
    delivering = asyncio.create_task(worker.run())
    stop_requested = asyncio.create_task(stopping.wait())
    # If the loop crashes, the process ends too, and its supervisor starts a new one.
    await asyncio.wait({delivering, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    log.info("worker_draining", seconds=drain_seconds)
    worker.stop()
    await asyncio.wait({delivering})
    await runtime.end(drain_seconds)
    with suppress(TimeoutError):
        await asyncio.wait_for(worker.finished(), FINISH_SECONDS)
    log.info("worker_stopped")
    stop_requested.cancel()
    delivering.result()


@asynccontextmanager
async def _beside_stock_arq() -> AsyncIterator[Handlers]:
    """Run all parts of a worker but the queue's loop, which is arq's own."""
    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    async with wire_worker(settings) as parts:
        await parts.runtime.begin()
        try:
            yield handlers_of(parts.engine)
        finally:
            await parts.runtime.end(0)


def __getattr__(name: str) -> Any:
    """Make ``WorkerSettings`` when it is asked for: it needs the environment, and importing this module must not."""
    if name != "WorkerSettings":
        raise AttributeError(name)
    settings = require_stores(load_settings())
    options = stock_arq_settings(settings.redis_url, _beside_stock_arq, settings.worker_concurrency)
    return type("WorkerSettings", (), options)
