"""Executions as rows, and the results of claiming, starting and settling them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row

from app.domain.executions import (
    FIRST_TOKEN,
    Entity,
    EntityWork,
    Execution,
    ExecutionStatus,
    Outcome,
    PendingRun,
    Trigger,
)
from app.domain.overlap import runs_alone
from app.domain.permits import LimitUse
from app.domain.schedules import ScheduledJob
from app.domain.ticks import Fire, LeftToNewer, NotDue, Stale, Start
from app.persistence.row_cache import RowVersions

# The columns that a worker needs, under the names of the fields of ``Execution``.
CARRIED = (
    *("id", "user_profile_id", "scheduled_job_id", "workflow_id", "trigger", "repeat_number", "retry_attempt"),
    *("scheduled_for", "timeout_seconds", "payload", "token"),
)

# The columns that the start of an execution returns. They are listed, not ``*``: a column that a migration adds would
# break prepared statements.
STARTED = ", ".join(
    f"e.{name}" for name in (*CARRIED, "started_at", "entity_type", "entity_id", "work", "graph", "trace_context")
)
LOCKED_COLUMNS = (
    *("id", "scheduled_job_id", "trigger", "status", "token", "scheduled_for", "retry_attempt", "workflow_id"),
    *("started_at", "entity_type", "entity_id", "work", "user_profile_id"),
)

_TRIGGERS: dict[str, Any] = {trigger.value: trigger for trigger in Trigger}
_STATUSES: dict[str, Any] = {status.value: status for status in ExecutionStatus}


class LockedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """A locked execution, with the columns that ending it needs."""

    id: UUID
    scheduled_job_id: UUID | None
    trigger: Trigger
    status: ExecutionStatus
    token: int
    scheduled_for: datetime
    retry_attempt: int
    workflow_id: int | None
    has_begun: bool
    entity: Entity | None
    user_profile_id: int

    @property
    def unknown_value(self) -> str:
        """The trigger if this release does not know it, as ``field=value``; else empty."""
        return "" if type(self.trigger) is Trigger else f"trigger={self.trigger}"

    @property
    def source(self) -> str:
        """The schedule or the entity that fires it, as its id is computed from."""
        return str(self.scheduled_job_id) if self.entity is None else self.entity.source


class FirstAttempt(msgspec.Struct, frozen=True):
    """The values that later attempts at a slot take over from the first."""

    trigger: Trigger
    payload: dict[str, Any]
    timeout_seconds: int


class PendingExecution(msgspec.Struct, frozen=True):
    """An execution that waits to be started."""

    scheduled_job_id: UUID | None
    workflow_id: int | None
    entity_type: str | None
    entity_id: str | None
    trigger: Trigger
    retry_attempt: int
    due_at: datetime
    handed_back: bool
    was_parked: bool
    scheduled_for: datetime
    # The limit that the workflow names.
    workflow_limit: LimitUse | None


class NewExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution that is to be written."""

    id: UUID
    user_profile_id: int
    scheduled_job_id: UUID
    workflow_id: int
    trigger: Trigger
    status: ExecutionStatus
    exclusive: bool
    repeat_number: int
    retry_attempt: int
    scheduled_for: datetime
    payload: dict[str, Any]
    timeout_seconds: int
    created_at: datetime
    due_at: datetime
    queued: bool = False
    token: int = FIRST_TOKEN
    worker_id: UUID | None = None
    error: str = ""
    started_at: datetime | None = None
    trace_context: str | None = None


class ClaimedVersion(msgspec.Struct, frozen=True, gc=False):
    """A schedule as its claim wrote it, the version of its row, and the database's time of the claim."""

    job: ScheduledJob
    version: int
    at: datetime
    # The epoch of the worker's cache: after a failover, versions of the old server mean nothing.
    epoch: int = 0


class Busy(msgspec.Struct, frozen=True):
    """Another transaction holds the row of the schedule or of its workflow; the message has to be redelivered."""


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The tick is handled: the schedule as it now is, what to run here, what may start elsewhere, what was stopped."""

    job: ScheduledJob
    execution: Execution | None = None
    pending: tuple[PendingRun, ...] = ()
    cancelled: tuple[UUID, ...] = ()
    # The schedule with the version of its row; None where other transactions may have changed it since.
    version: ClaimedVersion | None = None
    # The versions of workflow and users that the claim saw: what is cached in them need not be read again.
    row_versions: RowVersions | None = None
    # The executions that were written and wait for others of the schedule.
    queued: tuple[UUID, ...] = ()
    # The buckets of limits that executions have entered, and wait for.
    buckets: tuple[int, ...] = ()
    # How many slots got an outcome without a run.
    not_fired: int = 0
    # Whether it was claimed by the fast path: it fires one run here and now, and changes nothing beside it.
    is_plain: bool = False


class RunAhead(msgspec.Struct, frozen=True, gc=False):
    """A run that was run before its slot was claimed, its outcome, and the rows of workflow and user it ran by."""

    execution: Execution
    outcome: Outcome
    row_versions: RowVersions


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The tick is handled and its run has ended, both in one statement: the claim, which leaves nothing to run."""

    claimed: Claimed
    outcome: Outcome
    settled: "Settled"
    fired_at: datetime
    slot: datetime


# Runs what a tick fires before it is claimed; None if that has to wait until it is.
RunAheadOf = Callable[[ScheduledJob, Fire, datetime], RunAhead | None]

ClaimResult = Stale | NotDue | LeftToNewer | Busy | Claimed | Completed


class RunResult(msgspec.Struct, frozen=True, gc=False):
    """How a run ended; with the run and the version of its schedule if this worker claimed it."""

    outcome: Outcome
    execution: Execution | None = None
    version: ClaimedVersion | None = None


class Superseded(msgspec.Struct, frozen=True):
    """The token had moved, or the execution was gone: another worker or a request ended it."""


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The execution has ended; the schedule as it was before and as it is now, and what may start."""

    execution_id: UUID
    before: ScheduledJob
    job: ScheduledJob
    pending: tuple[PendingRun, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether nothing is to be done after it: the pending tick is the same, and no run may start."""
        return not self.pending and self.job.generation == self.before.generation


class EntityRunSettled(msgspec.Struct, frozen=True):
    """The execution of an entity has ended; its next attempt, if there is one."""

    execution_id: UUID
    entity_type: str
    pending: tuple[PendingRun, ...] = ()


class RowLocked(msgspec.Struct, frozen=True):
    """Another transaction holds a row that this one needs; it has to be settled alone, so that no other waits."""


SettleResult = Superseded | LeftToNewer | Settled | EntityRunSettled


def new_execution(
    job: ScheduledJob, fire: Fire, now: datetime, worker_id: UUID, first: FirstAttempt | None = None
) -> NewExecution:
    """Return the execution that a tick fires; a retry takes over the values of its first attempt."""
    starts = fire.start is Start.NOW
    return NewExecution(
        id=fire.execution_id,
        user_profile_id=job.user_profile_id,
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=first.trigger if first else fire.trigger,
        status=ExecutionStatus.RUNNING if starts else ExecutionStatus.PENDING,
        exclusive=runs_alone(job.if_running),
        queued=fire.start is Start.QUEUED,
        repeat_number=fire.repeat_number,
        retry_attempt=fire.attempt,
        scheduled_for=fire.slot,
        payload=first.payload if first else job.trigger_payload,
        timeout_seconds=first.timeout_seconds if first else job.timeout_seconds,
        created_at=now,
        due_at=now,
        worker_id=worker_id if starts else None,
        started_at=now if starts else None,
    )


def to_run(job: ScheduledJob, new: NewExecution) -> Execution:
    """Return a new execution as the run that a worker holds."""
    return Execution(
        id=new.id,
        user_profile_id=new.user_profile_id,
        scheduled_job_id=new.scheduled_job_id,
        workflow_id=new.workflow_id,
        trigger=new.trigger,
        repeat_number=new.repeat_number,
        retry_attempt=new.retry_attempt,
        scheduled_for=new.scheduled_for,
        timeout_seconds=new.timeout_seconds,
        payload=new.payload,
        token=new.token,
        job_name=job.name,
        trigger_node_id=job.trigger_node_id,
        fired_at=new.started_at or new.created_at,
    )


def first_run(job: ScheduledJob, fire: Fire, now: datetime) -> Execution:
    """Return the run of a first attempt that starts now, as ``to_run`` does of a new execution."""
    return Execution(
        id=fire.execution_id,
        user_profile_id=job.user_profile_id,
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=fire.trigger,
        repeat_number=fire.repeat_number,
        retry_attempt=0,
        scheduled_for=fire.slot,
        timeout_seconds=job.timeout_seconds,
        payload=job.trigger_payload,
        token=FIRST_TOKEN,
        job_name=job.name,
        trigger_node_id=job.trigger_node_id,
        fired_at=now,
    )


def known_trigger(value: str) -> Trigger:
    """Return a stored trigger. A value of a newer release stays text: see ``LockedExecution.unknown_value``."""
    trigger: Trigger = _TRIGGERS.get(value, value)
    return trigger


def to_locked(record: Any) -> LockedExecution:
    """Return the driver's record of a locked row as a struct."""
    run_id, job_id, trigger, status, token, slot, attempt, workflow_id, started, *entity_columns, user_id = record
    entity_type, entity_id, work = entity_columns
    entity = None if entity_type is None else Entity(entity_type, entity_id, msgspec.convert(work, EntityWork))
    return LockedExecution(
        id=run_id,
        scheduled_job_id=job_id,
        trigger=known_trigger(trigger),
        status=_STATUSES.get(status, status),
        token=token,
        scheduled_for=slot,
        retry_attempt=attempt,
        workflow_id=workflow_id,
        has_begun=started is not None,
        entity=entity,
        user_profile_id=user_id,
    )


def entity_of(row: Row[Any]) -> Entity | None:
    """Return the entity that fires this execution, or None if a schedule does."""
    if row.entity_type is None:
        return None
    return Entity(row.entity_type, row.entity_id, msgspec.convert(row.work, EntityWork))


def to_execution(row: Row[Any]) -> Execution:
    """Return a started row as the run that a worker holds."""
    carried = {name: getattr(row, name) for name in CARRIED}
    carried["trigger"] = Trigger(row.trigger)
    return Execution(
        job_name=row.job_name,
        trigger_node_id=row.trigger_node_id,
        fired_at=row.started_at,
        seconds_left=row.seconds_left,
        resumed_at=row.resumed_at,
        graph=row.graph,
        entity=entity_of(row),
        trace_context=row.trace_context,
        **carried,
    )
