"""What travels through Redis: arq's job format in msgpack, under ids that are computed from the state they wake."""

import math
from datetime import datetime
from typing import Any

import msgspec
from arq.constants import default_queue_name, expires_extra_ms
from arq.jobs import DeserializationError, deserialize_job_raw, serialize_job

from app.domain.executions import PendingRun
from app.domain.schedules import PlannedTick, ScheduledJob

QUEUE = default_queue_name
EPOCH_KEY = "carillon:epoch"
FILLING_KEY = "carillon:filling"
PROBE_KEY = "carillon:probe"
WAKE_CHANNEL = "carillon:wake"
CANCEL_CHANNEL = "carillon:cancel"

EXECUTE = "execute_scheduled_job"
RUN = "run_execution"

# Never pickle: whoever can write to Redis would run code in the worker.
serialize = msgspec.msgpack.Encoder().encode
deserialize = msgspec.msgpack.Decoder().decode


class Wake(msgspec.Struct, frozen=True):
    """A message to be delivered at a time: which function to call with what."""

    id: str
    function: str
    args: tuple[Any, ...]
    due: datetime

    def score(self) -> int:
        """Its place in the queue: milliseconds, rounded up, so that it never rings early."""
        return math.ceil(self.due.timestamp() * 1000)

    def body(self) -> bytes:
        """The job as arq stores it."""
        return serialize_job(self.function, self.args, {}, None, self.score(), serializer=serialize)


class Message(msgspec.Struct, frozen=True):
    """A message that a worker has claimed."""

    id: str
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class GarbageError(Exception):
    """Something in the queue is not a message of ours."""

    code = "garbage_in_queue"


# A body outlives its due time by this, so that an outage of the workers does not orphan its queue entry.
BODY_EXTRA_MS: int = expires_extra_ms


def tick_wake(job: ScheduledJob | PlannedTick) -> Wake:
    """The message for a schedule's pending tick. n and rc are labels for people; the generation decides."""
    if job.next_run_at is None:
        raise AssertionError(f"schedule {job.id} has no pending tick")
    name = f"sched-{job.id}-n{job.current_repeat}-rc{job.current_retry}-g{job.generation}"
    return Wake(name, EXECUTE, (str(job.id), job.generation), job.next_run_at)


def execution_wake(run: PendingRun) -> Wake:
    """The message that starts an execution which exists already."""
    name = f"exec-{run.execution_id}-t{run.token}"
    return Wake(name, RUN, (str(run.execution_id), run.token), run.due_at)


def to_message(job_id: str, body: bytes) -> Message:
    """A claimed body as a message, or ``GarbageError``."""
    try:
        function, args, kwargs, _try, _enqueued = deserialize_job_raw(body, deserializer=deserialize)
        return Message(job_id, str(function), tuple(args), dict(kwargs))
    except (DeserializationError, TypeError, ValueError) as error:
        raise GarbageError(f"job {job_id} cannot be read") from error
