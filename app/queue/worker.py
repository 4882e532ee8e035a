"""The worker's loop on arq's queue (one Lua call claims what is due), and the settings for a stock arq worker."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
import structlog
from arq.connections import ArqRedis
from arq.worker import Retry, func
from redis.exceptions import RedisError

from app.micro_batcher import MicroBatcher
from app.queue.bell import BellUnreachableError, bell_errors, open_patient_pool
from app.queue.scripts import CLAIM, FINISH, PUT_BACK
from app.queue.wire import (
    CANCEL_CHANNEL,
    EXECUTE,
    QUEUE,
    RUN,
    WAKE_CHANNEL,
    GarbageError,
    Message,
    deserialize,
    serialize,
    to_message,
)

CLAIM_BATCH = 500
# The longest sleep: a lost publish costs no more than this.
IDLE_SECONDS = 1.0
# How long is waited for a message to end while there is no room for another.
FULL_SECONDS = 0.1
OUTAGE_PAUSE_SECONDS = 0.5
LISTEN_SECONDS = 2.0
MAX_PUT_BACK_SECONDS = 60.0
# Of what somebody else may have written to Redis.
SHOWN_CHARACTERS = 200

log = structlog.get_logger(__name__)

WakeFunction = Callable[..., Awaitable[None]]


class Redeliver(Retry):
    """The message is to be delivered again after a delay; stock arq understands this too."""

    def __init__(self, seconds: float) -> None:
        """Ask for another delivery in so many seconds."""
        self.seconds = min(max(seconds, 0.001), MAX_PUT_BACK_SECONDS)
        super().__init__(defer=self.seconds)


class Delivery(msgspec.Struct, frozen=True):
    """What one claim brought: messages, and how long until the next one is due."""

    messages: tuple[Message, ...]
    wait_seconds: float | None
    full: bool


class QueueWorker:
    """Delivers due messages to the functions that they name, many at once."""

    def __init__(  # noqa: PLR0913 - what it delivers to, and within which bounds
        self,
        redis: ArqRedis,
        functions: Mapping[str, WakeFunction],
        ctx: dict[str, Any],
        *,
        concurrency: int,
        room: Callable[[], int] | None = None,
        lease_seconds: float,
        on_cancel: Callable[[str], None],
        on_failure: Callable[[BellUnreachableError], None] = lambda _error: None,
    ) -> None:
        """Nothing runs until ``run``.

        ``room`` says how many messages may be taken beside what others run in this process; ``on_failure`` is told of
        each claim that Redis did not answer.
        """
        self._redis = redis
        self._functions = functions
        self._ctx = ctx
        self._concurrency = concurrency
        self._free = room or (lambda: concurrency)
        self._lease_ms = int(lease_seconds * 1000)
        self._on_cancel = on_cancel
        self._owner = uuid4().hex
        self._claim = redis.register_script(CLAIM)
        self._finish = redis.register_script(FINISH)
        self._put_back = redis.register_script(PUT_BACK)
        self._ends = MicroBatcher("finish", self._finish_batch, shared=(BellUnreachableError,))
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._on_failure = on_failure

    async def run(self) -> None:
        """Deliver until ``stop`` is called; what has been delivered goes on."""
        listener = asyncio.create_task(self._listen())
        try:
            while not self._stopping.is_set():
                await self._deliver_once()
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping.set()
        self._wake.set()

    async def finished(self) -> None:
        """Wait until all that was delivered has been handled."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._ends.quiet()

    async def _deliver_once(self) -> None:
        self._wake.clear()
        room = min(self._concurrency - len(self._tasks), self._free())
        if room <= 0:
            self._room.clear()
            # With a limit: what frees a place may be no message, and the end is noticed although nothing ends.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), FULL_SECONDS)
            return
        delivery = await self._claim_due(min(room, CLAIM_BATCH))
        if delivery is None:
            await self._sleep(OUTAGE_PAUSE_SECONDS)
            return
        for message in delivery.messages:
            task = asyncio.create_task(self._handle(message))
            self._tasks.add(task)
            task.add_done_callback(self._handled)
        # They begin, and take their places, before room is looked for again.
        await asyncio.sleep(0)
        if not delivery.full:
            await self._sleep(delivery.wait_seconds)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.set()

    async def _claim_due(self, limit: int) -> Delivery | None:
        """Claim what is due; None while Redis does not answer."""
        try:
            async with bell_errors():
                claimed, wait_ms = await self._claim(keys=[QUEUE], args=[self._owner, self._lease_ms, limit])
        except BellUnreachableError as error:
            self._on_failure(error)
            return None
        wait_seconds = None if wait_ms < 0 else wait_ms / 1000
        messages = [self._read(*pair) for pair in zip(claimed[::2], claimed[1::2], strict=True)]
        return Delivery(tuple(filter(None, messages)), wait_seconds, full=len(messages) >= limit)

    def _read(self, job_id: bytes, body: bytes) -> Message | None:
        """A message, or None for garbage, which is removed so that it is met once only."""
        name = _shown(job_id)
        try:
            message = to_message(job_id, body)
            if message.function in self._functions:
                return message
            log.warning("unknown_function_in_queue", id=name, function=message.function[:SHOWN_CHARACTERS])
        except GarbageError:
            log.warning("garbage_in_queue", id=name)
        self._ends.tell(job_id)
        return None

    async def _handle(self, message: Message) -> None:
        """Call the function. Whatever it raises, this worker goes on and the message has an end."""
        try:
            await self._functions[message.function](self._ctx, *message.args, **message.kwargs)
        except Redeliver as wish:
            await self._return(message, wish.seconds)
            return
        except Exception:
            # The reconciler rings again for what Postgres still expects.
            log.exception("wake_failed", id=_shown(message.id))
        self._ends.tell(message.id)

    async def _finish_batch(self, job_ids: Sequence[bytes]) -> Sequence[bytes]:
        async with bell_errors():
            await self._finish(keys=[QUEUE], args=[self._owner, serialize([*map(len, job_ids)]), b"".join(job_ids)])
        return job_ids

    async def _return(self, message: Message, seconds: float) -> None:
        args: list[str | bytes | int] = [self._owner, message.id, max(1, math.ceil(seconds * 1000))]
        with suppress(BellUnreachableError):
            async with bell_errors():
                await self._put_back(keys=[QUEUE, WAKE_CHANNEL], args=args)

    async def _sleep(self, seconds: float | None) -> None:
        """Until something is due, a publish says that something earlier was planned, or the end."""
        timeout = IDLE_SECONDS if seconds is None else min(seconds, IDLE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout)

    async def _listen(self) -> None:
        """Hear the publishes; while this does not work, the polling goes on without."""
        while not self._stopping.is_set():
            pubsub = self._redis.pubsub()
            try:
                await pubsub.subscribe(WAKE_CHANNEL, CANCEL_CHANNEL)
                while not self._stopping.is_set():
                    heard = await pubsub.get_message(ignore_subscribe_messages=True, timeout=LISTEN_SECONDS)
                    if heard is not None:
                        self._hear(heard["channel"], heard["data"])
            except Exception as error:  # noqa: BLE001 - whatever it is, polling goes on and listening begins anew
                log.debug("listening_failed", error=str(error))
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            finally:
                with suppress(RedisError, OSError):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def _hear(self, channel: bytes, data: bytes) -> None:
        if channel == CANCEL_CHANNEL.encode():
            self._on_cancel(data.decode(errors="replace"))
        else:
            self._wake.set()


def _shown(job_id: bytes) -> str:
    """An id in a log line."""
    return job_id[:SHOWN_CHARACTERS].decode(errors="backslashreplace")


# A claim that meets an outage is put back again and again: no number of tries may drop it.
MAX_TRIES = 1_000_000
# Runs end by their own timeout; this only bounds what arq itself would wait for.
JOB_TIMEOUT_SECONDS = 7 * 24 * 3600
POLL_SECONDS = 0.1


def stock_arq_settings(
    redis_url: str, execute: WakeFunction, run: WakeFunction, on_startup: Any, on_shutdown: Any, concurrency: int
) -> dict[str, Any]:
    """What ``arq app.worker.WorkerSettings`` reads.

    No results are kept (a kept one blocks its id), running jobs never fill the window that is read, and the pool
    waits out an outage of Redis.
    """
    return {
        "functions": [func(execute, name=EXECUTE), func(run, name=RUN)],  # type: ignore[arg-type]  # arq wants kwargs
        "queue_name": QUEUE,
        "redis_pool": open_patient_pool(redis_url),
        "on_startup": on_startup,
        "on_shutdown": on_shutdown,
        "job_serializer": serialize,
        "job_deserializer": deserialize,
        "max_jobs": concurrency,
        "queue_read_limit": concurrency * 10,
        "poll_delay": POLL_SECONDS,
        "keep_result": 0,
        "max_tries": MAX_TRIES,
        "job_timeout": JOB_TIMEOUT_SECONDS,
        "allow_abort_jobs": False,
        "log_results": False,
    }
