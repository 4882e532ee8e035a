"""The queue as the engine sees it: the messages it sends, what it asks of a queue, and how it asks for redelivery.

``app.queue`` implements ``Queue`` with Redis and arq, and ``app.wiring`` connects the two. The engine imports nothing
from ``app.queue``: another queue is another implementation there and no change here. A queue only wakes workers up.
Postgres decides what runs, so a message may be lost, late or delivered twice without harm.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from app.domain.executions import PendingRun
from app.domain.schedules import PlannedTick, ScheduledJob

# The functions that messages name. They are part of the wire format: workers of the release before read them too.
EXECUTE = "execute_scheduled_job"
RUN = "run_execution"


class Delivered(msgspec.Struct, gc=False):
    """A message that is being handled."""

    id: str
    # Whether another message takes its place, so that it need not be finished.
    is_replaced: bool = False


# Called with a message and its arguments. It may raise `Redeliver`.
MessageHandler = Callable[..., Awaitable[None]]
# Called once when a message has been handled: with the error that its handling ended with, or with None.
OnEnd = Callable[[BaseException | None], None]
# Called like a handler, and with what to call at the end: it returns at once.
MessageStarter = Callable[[Delivered, Sequence[Any], OnEnd], None]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The largest generation and the largest token that the database can hold.
_LARGEST_NUMBER = {EXECUTE: 2**63 - 1, RUN: 2**31 - 1}

MIN_REDELIVER_SECONDS = 0.001
MAX_REDELIVER_SECONDS = 60.0


class Wake(msgspec.Struct, frozen=True, gc=False):
    """A message to be delivered at ``due``: the function to call, and its arguments.

    The id is computed from the state that the message is about. A queue holds at most one message with the same id, so
    ringing twice for the same state is one message.
    """

    id: str
    function: str
    args: tuple[Any, ...]
    due: datetime
    # The id of a message that is removed from the queue when this one is there.
    replaces: str = ""


def tick_wake(job: ScheduledJob | PlannedTick, replaces: str = "", not_before: datetime | None = None) -> Wake:
    """Return the message for a schedule's pending tick, in place of another one, due at ``not_before`` or later.

    The generation decides whether the message still counts; ``n`` and ``rc`` only help people who read the queue.
    """
    if job.next_run_at is None:
        raise AssertionError(f"schedule {job.id} has no pending tick")
    message_id = f"sched-{job.id}-n{job.current_repeat}-rc{job.current_retry}-g{job.generation}"
    due = job.next_run_at if not_before is None else max(job.next_run_at, not_before)
    return Wake(message_id, EXECUTE, (str(job.id), job.generation), due, replaces)


def execution_wake(run: PendingRun) -> Wake:
    """Return the message that starts an execution whose row exists already.

    A run that got its permits has a message of its own: the one that found it waiting may still be in progress, and a
    second message of the same id would be dropped.
    """
    message_id = f"exec-{run.execution_id}-t{run.token}{'-permitted' if run.is_granted else ''}"
    return Wake(message_id, RUN, (str(run.execution_id), run.token), run.due_at)


def is_known_function(function: str) -> bool:
    """Return whether the engine sends messages that name this function."""
    return function in _LARGEST_NUMBER


def are_arguments(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the arguments have the form that the engine sends: an id, and a number that the database can hold.

    Anyone who can write to Redis can forge a message. One with other arguments is dropped before it costs a query, and
    before its failures could count against a schedule.
    """
    if kwargs or len(args) != 2:  # noqa: PLR2004 - an id and a number
        return False
    subject_id, number = args
    is_id = isinstance(subject_id, str) and _UUID.fullmatch(subject_id) is not None
    return is_id and type(number) is int and 0 <= number <= _LARGEST_NUMBER[function]


class Redeliver(Exception):
    """Raised by a handler to have its message delivered again after a delay."""

    def __init__(self, seconds: float) -> None:
        """Ask for another delivery in ``seconds``, at most a minute: by then the state may have changed."""
        self.seconds = min(max(seconds, MIN_REDELIVER_SECONDS), MAX_REDELIVER_SECONDS)
        super().__init__(f"deliver again in {self.seconds} s")


# What can be wrong with the queue, by kind (the label of a metric), and the sentence that `/health/ready` shows.
PROBLEMS = {
    "unreachable": "It cannot be reached.",
    "timeout": "It does not answer in time, or its writes are paused.",
    "full": "It is full and refuses writes (maxmemory).",
    "read_only": "It is a replica and refuses writes.",
    "wrong_type": "A key that Carillon uses holds a value of another type.",
    "refused": "It refuses writes.",
}


def eviction_sentence(policy: str) -> str:
    """Return what is wrong with a queue that removes messages by this policy, for people; blank for no policy."""
    return f"It evicts keys when its memory is full (maxmemory-policy is {policy}): set noeviction." if policy else ""


class QueueUnavailableError(Exception):
    """The queue cannot be reached, or refuses what it is given."""

    code = "redis_unavailable"

    def __init__(self, detail: str, kind: str = "unreachable") -> None:
        """``kind`` is one of ``PROBLEMS``; ``detail`` is for the log."""
        self.kind = kind
        super().__init__(detail)

    @property
    def sentence(self) -> str:
        """What is wrong, for people."""
        return PROBLEMS[self.kind]


class Queue(Protocol):
    """What the engine needs of a queue. Every method raises ``QueueUnavailableError`` if the queue fails."""

    async def ring(self, wakes: Sequence[Wake], now: datetime) -> list[bool]:
        """Queue these messages. Return for each whether it was queued now; False means that it was there already."""
        ...

    async def call_off(self, execution_ids: Iterable[UUID]) -> None:
        """Tell all workers that these executions may have been cancelled. Each checks that in Postgres."""
        ...

    async def is_intact(self) -> bool:
        """Return whether the queue still holds what was queued since the last complete refill."""
        ...

    async def begin_refill(self) -> None:
        """Note that everything planned is about to be queued again."""
        ...

    async def finish_refill(self) -> bool:
        """Note that everything planned was queued. Return False if the queue was emptied since ``begin_refill``."""
        ...

    async def evicts_by(self) -> str:
        """Return the policy by which the queue removes messages when its memory is full; blank if it removes none."""
        ...

    async def ping(self) -> None:
        """Write as a ring does, so that a queue that answers reads and refuses writes is noticed."""
        ...
