"""What a chaos run leaves behind: what was asked and answered, what arrived at the target, what is in the tables."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec


class Verb(StrEnum):
    """What a client asked for."""

    CREATE = "create"
    PATCH = "patch"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"
    RUN = "run"
    SKIP = "skip"
    BACKFILL = "backfill"


# Requests that change neither the cadence nor a value of the schedule.
BESIDE = frozenset({Verb.RUN, Verb.SKIP, Verb.BACKFILL})


class Ack(StrEnum):
    """What the client knows of its request afterwards."""

    # A 2xx: it has happened, some time between asking and the answer.
    YES = "yes"
    # A 4xx: it has not happened.
    NO = "no"
    # A 5xx, a timeout or a broken connection: it may have happened, at any time after asking, or never.
    UNKNOWN = "unknown"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client about one schedule. Clients ask about one schedule one after another, never at once."""

    schedule_id: UUID
    verb: Verb
    asked: datetime
    answered: datetime
    ack: Ack
    # The body that was sent, and the schedule as it was answered; for `run` the execution, for `skip` the slots, for
    # `backfill` the operation.
    body: dict[str, Any] = {}
    answer: dict[str, Any] | None = None


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the target received. Every schedule calls an address of its own: ``path`` names the schedule."""

    at: datetime
    path: str
    schedule_id: UUID
    execution_id: UUID
    slot: datetime
    attempt: int
    key: str


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the executions at the end."""

    id: UUID
    scheduled_job_id: UUID
    trigger: str
    status: str
    retry_attempt: int
    repeat_number: int
    scheduled_for: datetime
    started_at: datetime | None
    finished_at: datetime | None
    # How often the right to run or end it has changed hands, from 1.
    token: int
    # What its slot is accounted as if it ended without having begun.
    unrun_outcome: str | None = None


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry for a slot, or a range of neighbouring slots, that did not fire."""

    scheduled_job_id: UUID
    first_slot: datetime
    last_slot: datetime
    slot_count: int
    outcome: str


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at the end, as the API shows it."""

    id: UUID
    name: str
    status: str
    status_reason: str
    interval_seconds: float
    if_running: str
    max_retries: int
    total_repeats: int
    trigger_payload: dict[str, Any]
    current_repeat: int
    current_retry: int
    run_count: int
    error_count: int
    next_slot: datetime | None
    next_run_at: datetime | None
    created_at: datetime
    limit: str | None = None


class Crowd(msgspec.Struct, frozen=True):
    """Calls that the target had at once in one folder, when one more had arrived."""

    at: datetime
    folder: str
    calls: int


class Fault(msgspec.Struct, frozen=True):
    """Something that was broken, and for how long."""

    name: str
    began: datetime
    ended: datetime


class Evidence(msgspec.Struct, kw_only=True):
    """All of it. Times are the database's or this machine's: one machine, one clock."""

    requests: list[Request]
    arrivals: list[Arrival]
    executions: list[ExecutionRow]
    ledger: list[LedgerRow]
    schedules: list[ScheduleRow]
    faults: list[Fault]
    # How many runs or calls each limit allows at once. Calls under a limit go to a folder of its name.
    bounds: dict[str, int] = {}
    crowds: list[Crowd] = []
    began: datetime
    # When the last fault was over, and when the tables were read.
    calm: datetime
    ended: datetime
