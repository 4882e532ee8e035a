"""What travels through Redis: arq's job format in msgpack, under ids that are computed from the state they wake."""

import math
import re
from collections.abc import Mapping, Sequence
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

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The largest generation and the largest token that the database can hold.
_LARGEST = {EXECUTE: 2**63 - 1, RUN: 2**31 - 1}

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
    """A message that a worker has claimed. Its id stays as it came: whoever writes to Redis may use any bytes."""

    id: bytes
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


def to_message(job_id: bytes, body: bytes) -> Message:
    """A claimed body as a message, or ``GarbageError``."""
    try:
        function, args, kwargs, _try, _enqueued = deserialize_job_raw(body, deserializer=deserialize)
        message = Message(job_id, str(function), tuple(args), dict(kwargs))
    except (DeserializationError, TypeError, ValueError) as error:
        raise GarbageError(f"the job {job_id!r} cannot be read") from error
    if message.function in _LARGEST and not are_arguments(message.function, message.args, message.kwargs):
        raise GarbageError(f"the job {job_id!r} has arguments that nothing of ours has")
    return message


def are_arguments(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function of ours can be called so: an id, and a number that the database can hold.

    A message that was not written by Carillon is dropped here, before anything of it is looked up or counted.
    """
    if kwargs or len(args) != 2:  # noqa: PLR2004 - an id and a number
        return False
    subject_id, number = args
    is_id = isinstance(subject_id, str) and _UUID.fullmatch(subject_id) is not None
    return is_id and type(number) is int and 0 <= number <= _LARGEST[function]
