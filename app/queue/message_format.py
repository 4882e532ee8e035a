"""The format of messages in Redis: arq's jobs, encoded in msgpack, and the names of keys and channels."""

import math
from typing import Any

import msgspec
from arq.constants import default_queue_name, expires_extra_ms
from arq.jobs import DeserializationError, deserialize_job_raw, serialize_job

from app.engine.queue_port import Wake, are_arguments, is_known_function

QUEUE = default_queue_name
EPOCH_KEY = "carillon:epoch"
FILLING_KEY = "carillon:filling"
PROBE_KEY = "carillon:probe"
WAKE_CHANNEL = "carillon:wake"
CANCEL_CHANNEL = "carillon:cancel"

# The body of a message is kept this long after its due time, so that an outage of the workers does not leave a queue
# entry without its body.
BODY_EXTRA_MS: int = expires_extra_ms

# Never pickle: anyone who can write to Redis could run code in the worker.
serialize = msgspec.msgpack.Encoder().encode
deserialize = msgspec.msgpack.Decoder().decode


class Message(msgspec.Struct, frozen=True):
    """A message that a worker has claimed. The id stays bytes: a message in Redis may have any bytes as its id."""

    id: bytes
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class GarbageError(Exception):
    """An entry of the queue is not a message of Carillon."""

    code = "garbage_in_queue"


def score_of(wake: Wake) -> int:
    """Return the message's score in the queue: its due time in milliseconds, rounded up so that it is never early."""
    return math.ceil(wake.due.timestamp() * 1000)


def body_of(wake: Wake) -> bytes:
    """Return the message as a job that arq can read."""
    return serialize_job(wake.function, wake.args, {}, None, score_of(wake), serializer=serialize)


def to_message(job_id: bytes, body: bytes) -> Message:
    """Read a claimed body. Raise ``GarbageError`` if Carillon cannot have written it."""
    try:
        function, args, kwargs, _try, _enqueued = deserialize_job_raw(body, deserializer=deserialize)
        message = Message(job_id, str(function), tuple(args), dict(kwargs))
    except (DeserializationError, TypeError, ValueError) as error:
        raise GarbageError(f"The job {job_id!r} cannot be read.") from error
    if is_known_function(message.function) and not are_arguments(message.function, message.args, message.kwargs):
        raise GarbageError(f"The job {job_id!r} has arguments that Carillon does not send.")
    return message
