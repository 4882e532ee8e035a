"""The worker's loop on arq's queue (one Lua call claims what is due), and the settings for arq's own worker."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import structlog
from arq.worker import Function, Retry, func
from redis.exceptions import RedisError

from app.config import SettingsError
from app.engine.queue_port import (
    EXECUTE,
    RUN,
    Delivered,
    MessageHandler,
    MessageStarter,
    QueueUnavailableError,
    Redeliver,
    are_arguments,
)
from app.micro_batcher import MicroBatcher
from app.queue.bell import RedisPool, bell_errors, open_patient_pool
from app.queue.lua_scripts import CLAIM, FINISH, PUT_BACK
from app.queue.message_format import (
    CANCEL_CHANNEL,
    QUEUE,
    WAKE_CHANNEL,
    GarbageError,
    Message,
    deserialize,
    serialize,
    to_message,
)

CLAIM_BATCH = 500
# The longest sleep: a lost publish delays a message by no more than this.
IDLE_SECONDS = 1.0
# While all places are taken, the loop looks again after this time.
FULL_SECONDS = 0.1
OUTAGE_PAUSE_SECONDS = 0.5
LISTEN_SECONDS = 2.0
# Log lines quote no more than this of an id or a name that anyone may have written to Redis.
SHOWN_CHARACTERS = 200

log = structlog.get_logger(__name__)

# By the function that a message names.
Handlers = Mapping[str, MessageHandler]
Starters = Mapping[str, MessageStarter]


class Delivery(msgspec.Struct, frozen=True):
    """The result of one claim: the messages, and how long until the next one is due."""

    messages: tuple[Message, ...]
    # None if nothing is queued.
    wait_seconds: float | None
    # Whether as many as asked for were claimed: there may be more.
    full: bool


class QueueWorker:
    """Delivers due messages to the handlers of the functions that they name, many at once.

    arq's own loop reads the queue and then claims message by message, several round trips for each. Here one script
    claims a whole batch and moves it behind its lease, so that long runs never fill the part of the queue that is read.
    """

    def __init__(  # noqa: PLR0913 - where it delivers to, and within which bounds
        self,
        redis: RedisPool,
        handlers: Handlers,
        *,
        starters: Starters | None = None,
        concurrency: int,
        free_places: Callable[[], int] | None = None,
        lease_seconds: float,
        on_cancel: Callable[[str], None],
        on_failure: Callable[[QueueUnavailableError], None] = lambda _error: None,
    ) -> None:
        """Prepare the loop; it starts with ``run``. A function that has a starter needs no task for its messages.

        ``free_places`` returns how many more messages this process has room for. ``on_cancel`` is called with the id of
        an execution that was called off, ``on_failure`` with the error of a claim that Redis did not answer.
        """
        self._redis = redis
        self._queue = redis.key(QUEUE)
        self._wake_channel, self._cancel_channel = redis.key(WAKE_CHANNEL), redis.key(CANCEL_CHANNEL)
        self._handlers = handlers
        self._starters = starters or {}
        self._concurrency = concurrency
        self._free_places = free_places or (lambda: concurrency)
        self._lease_ms = int(lease_seconds * 1000)
        self._on_cancel = on_cancel
        self._on_failure = on_failure
        self._owner = uuid4().hex
        self._claim = redis.register_script(CLAIM)
        self._finish = redis.register_script(FINISH)
        self._put_back = redis.register_script(PUT_BACK)
        self._finished = MicroBatcher("finish", self._finish_batch, shared=(QueueUnavailableError,))
        self._tasks: set[asyncio.Task[None]] = set()
        # The messages that starters have begun to handle.
        self._started = 0
        self._wake = asyncio.Event()
        self._task_ended = asyncio.Event()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Deliver messages until ``stop`` is called. Handlers that are running then go on."""
        listener = asyncio.create_task(self._listen())
        try:
            while not self._stopping.is_set():
                await self._deliver_once()
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    def stop(self) -> None:
        """Claim no more messages."""
        self._stopping.set()
        self._wake.set()

    async def finished(self) -> None:
        """Wait until all handlers have returned and their messages are out of the queue."""
        while self._tasks or self._started:
            self._task_ended.clear()
            await self._task_ended.wait()
        await self._finished.quiet()

    async def _deliver_once(self) -> None:
        self._wake.clear()
        places = min(self._concurrency - len(self._tasks) - self._started, self._free_places())
        if places <= 0:
            await self._wait_for_a_place()
            return
        delivery = await self._claim_due(min(places, CLAIM_BATCH))
        if delivery is None:
            await self._sleep(OUTAGE_PAUSE_SECONDS)
            return
        for message in delivery.messages:
            if message.function in self._starters:
                self._start(message)
            else:
                self._run(self._handle(message))
        # Let the handlers start and take their places before the free ones are counted again.
        await asyncio.sleep(0)
        if not delivery.full:
            await self._sleep(delivery.wait_seconds)

    async def _wait_for_a_place(self) -> None:
        """Wait for a handler to return, for a moment only: other work may free a place too, and ``stop`` may come."""
        self._task_ended.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._task_ended.wait(), FULL_SECONDS)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._handled)

    def _start(self, message: Message) -> None:
        self._started += 1
        delivered = Delivered(message.id.decode(errors="replace"))
        self._starters[message.function](delivered, message.args, partial(self._ended, message, delivered))

    def _ended(self, message: Message, delivered: Delivered, error: BaseException | None) -> None:
        """Finish a message, or put it back, as ``_handle`` does."""
        self._started -= 1
        self._task_ended.set()
        if isinstance(error, Redeliver):
            self._run(self._return(message, error.seconds))
            return
        if isinstance(error, Exception):
            log.error("message_failed", id=_shown(message.id), exc_info=error)
        elif error is not None:
            # The handling was cancelled: the message comes back when its lease ends.
            return
        if not delivered.is_replaced:
            self._finished.tell(message.id)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._task_ended.set()

    async def _claim_due(self, limit: int) -> Delivery | None:
        """Claim up to ``limit`` due messages. Return None while Redis does not answer."""
        try:
            async with bell_errors():
                claimed, wait_ms = await self._claim(keys=[self._queue], args=[self._owner, self._lease_ms, limit])
        except QueueUnavailableError as error:
            self._on_failure(error)
            return None
        wait_seconds = None if wait_ms < 0 else wait_ms / 1000
        messages = [self._read(*pair) for pair in zip(claimed[::2], claimed[1::2], strict=True)]
        return Delivery(tuple(filter(None, messages)), wait_seconds, full=len(messages) >= limit)

    def _read(self, job_id: bytes, body: bytes) -> Message | None:
        """Return the message, or None after removing from the queue what is not a message of Carillon."""
        shown_id = _shown(job_id)
        try:
            message = to_message(job_id, body)
            if message.function in self._handlers:
                return message
            log.warning("unknown_message_removed", id=shown_id, function=message.function[:SHOWN_CHARACTERS])
        except GarbageError:
            log.warning("garbage_message_removed", id=shown_id)
        self._finished.tell(job_id)
        return None

    async def _handle(self, message: Message) -> None:
        """Call the handler. Whatever it raises, the message is finished or put back, and the worker goes on."""
        delivered = Delivered(message.id.decode(errors="replace"))
        try:
            await self._handlers[message.function](delivered, *message.args, **message.kwargs)
        except Redeliver as request:
            await self._return(message, request.seconds)
            return
        except Exception:
            # The message is finished all the same: the reconciler rings again for what Postgres still expects.
            log.exception("message_failed", id=_shown(message.id))
        if not delivered.is_replaced:
            self._finished.tell(message.id)

    async def _finish_batch(self, job_ids: Sequence[bytes]) -> Sequence[bytes]:
        async with bell_errors():
            await self._finish(
                keys=[self._queue], args=[self._owner, serialize([*map(len, job_ids)]), b"".join(job_ids)]
            )
        return job_ids

    async def _return(self, message: Message, seconds: float) -> None:
        """Put a message back. If Redis fails, it comes back by itself when its lease ends."""
        args: list[str | bytes | int] = [self._owner, message.id, max(1, math.ceil(seconds * 1000))]
        with suppress(QueueUnavailableError):
            async with bell_errors():
                await self._put_back(keys=[self._queue, self._wake_channel], args=args)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until a message is due, a publish announces an earlier one, or ``stop`` is called."""
        timeout = IDLE_SECONDS if seconds is None else min(seconds, IDLE_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout)

    async def _listen(self) -> None:
        """Receive publishes. While the subscription fails, the loop still looks every ``IDLE_SECONDS``."""
        while not self._stopping.is_set():
            pubsub = self._redis.pubsub()
            try:
                await pubsub.subscribe(self._wake_channel, self._cancel_channel)
                while not self._stopping.is_set():
                    publish = await pubsub.get_message(ignore_subscribe_messages=True, timeout=LISTEN_SECONDS)
                    if publish is not None:
                        self._receive(publish["channel"], publish["data"])
            except Exception as error:  # noqa: BLE001 - whatever it is, subscribe again
                log.debug("subscription_failed", error=str(error))
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            finally:
                with suppress(RedisError, OSError):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def _receive(self, channel: bytes, data: bytes) -> None:
        if channel == self._cancel_channel.encode():
            self._on_cancel(data.decode(errors="replace"))
        else:
            self._wake.set()


def _shown(job_id: bytes) -> str:
    """Return an id as a log line shows it."""
    return job_id[:SHOWN_CHARACTERS].decode(errors="backslashreplace")


# A claim during an outage is put back again and again: arq must not drop it after some number of tries.
MAX_TRIES = 1_000_000
# Runs end by their own timeout; this only bounds what arq itself would wait for.
JOB_TIMEOUT_SECONDS = 7 * 24 * 3600
POLL_SECONDS = 0.1


def stock_arq_settings(
    redis_url: str, open_worker: Callable[[], AbstractAsyncContextManager[Handlers]], concurrency: int
) -> dict[str, Any]:
    """Return what the command ``arq app.worker.WorkerSettings`` reads.

    ``open_worker`` starts what a worker does beside the queue, and ends it. No results are kept, because a kept result
    blocks its id; the queue is read far enough that running jobs do not fill the part that is read; and the pool
    retries through an outage of Redis. In a Redis Cluster it cannot work, as the names of its keys have no hash tag.
    """
    redis = open_patient_pool(redis_url)
    if redis.key_prefix:
        raise SettingsError(
            "CARILLON_REDIS_URL names a Redis Cluster, which arq's own worker cannot use. Run `carillon worker` instead"
        )

    async def start(ctx: dict[str, Any]) -> None:
        stack = ctx["stack"] = AsyncExitStack()
        ctx["handlers"] = await stack.enter_async_context(open_worker())

    async def end(ctx: dict[str, Any]) -> None:
        # arq has cancelled its jobs by now.
        await ctx["stack"].aclose()

    return {
        "functions": [stock_arq_function(EXECUTE), stock_arq_function(RUN)],
        "queue_name": QUEUE,
        "redis_pool": redis,
        "on_startup": start,
        "on_shutdown": end,
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


def stock_arq_function(name: str) -> Function:
    """Return an arq function that calls the handler of this name. arq's word for ``Redeliver`` is ``Retry``."""

    async def call(ctx: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        # Our own loop checks arguments when it reads a message; arq's does not.
        if not are_arguments(name, args, kwargs):
            return
        try:
            await ctx["handlers"][name](None, *args)
        except Redeliver as request:
            raise Retry(defer=request.seconds) from None

    return func(call, name=name)
