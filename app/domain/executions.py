"""Executions (runs) as values: their states, what started them, and their results."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.ledger import LedgerOutcome


class ExecutionStatus(StrEnum):
    """The states of an execution: pending, running, then one of the final ones."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


ACTIVE = frozenset({ExecutionStatus.PENDING, ExecutionStatus.RUNNING})
FAILURES = frozenset({ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.LOST})
# A repeat that ends with one of these is complete, but does not count as a run or as a failure.
NEUTRAL_ENDS = frozenset({ExecutionStatus.SKIPPED, ExecutionStatus.BLOCKED})
# The token of a new execution. It moves when the execution is parked, handed back or ended.
FIRST_TOKEN = 1


class Trigger(StrEnum):
    """The origin of an execution."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    CATCH_UP = "catch_up"
    CRON = "cron"
    BACKFILL = "backfill"
    ENTITY = "entity"


# Runs beside the cadence: they change no counter, no retry and no planned tick of their schedule.
BESIDE_CADENCE = frozenset({Trigger.MANUAL, Trigger.BACKFILL})


class ActiveRun(msgspec.Struct, frozen=True, gc=False):
    """A pending or running execution, with the facts that overlap is decided by."""

    execution_id: UUID
    trigger: Trigger
    # It waits until runs of its schedule that are ahead of it have ended.
    queued: bool = False
    # It may not run at the same time as others of its schedule.
    exclusive: bool = True
    # It has never started: it waits for other runs, for its due time or for a worker.
    waiting: bool = False
    attempt: int = 0

    @property
    def counts(self) -> bool:
        """Return whether the run completes a repeat of its schedule; one beside the cadence never does."""
        return self.trigger not in BESIDE_CADENCE


def count_repeats(runs: tuple[ActiveRun, ...]) -> int:
    """Return how many of these runs count as repeats of their schedule."""
    if not runs:
        return 0
    return sum(run.counts for run in runs)


class PendingRun(msgspec.Struct, frozen=True, gc=False):
    """An execution that can be started as soon as its due time has come."""

    execution_id: UUID
    token: int
    due_at: datetime
    # The owner; None where the query does not read it.
    user_profile_id: int | None = None
    # Whether it got the permits that it waited for: its message is another one than that which found it waiting.
    is_granted: bool = False


class EntityWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of an entity: an action with its configuration."""

    name: str
    action: str
    config: dict[str, Any]
    max_retries: int


class Entity(msgspec.Struct, frozen=True):
    """A row of another table that fires by its own times, without a schedule."""

    type: str
    id: str
    work: EntityWork

    @property
    def source(self) -> str:
        """Return the name that the ids of its executions are derived from."""
        return f"entity/{self.type}/{self.id}"


class Execution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution that a worker holds: what to run, for which slot, under which fencing token.

    It belongs to a schedule and runs the workflow, or to an entity and runs that entity's action.
    """

    id: UUID
    scheduled_job_id: UUID | None
    workflow_id: int | None
    entity: Entity | None = None
    user_profile_id: int
    job_name: str
    trigger: Trigger
    trigger_node_id: str | None
    repeat_number: int
    retry_attempt: int
    scheduled_for: datetime
    fired_at: datetime
    timeout_seconds: int
    payload: dict[str, Any]
    token: int
    # If it was parked to wait for a callback: what is left of its timeout by the database's clock.
    seconds_left: float | None = None
    # If it was parked: when it was started again by the database's clock, and the graph that it started with.
    resumed_at: datetime | None = None
    graph: dict[str, Any] | None = None
    # The trace of the request that caused it. Used for tracing only.
    trace_context: str | None = None
    # The buckets of limits of which it holds permits.
    buckets: tuple[int, ...] = ()
    # Why it cannot do its work although it has started, such as a limit that does not exist; else empty.
    problem: str = ""

    @property
    def source(self) -> str:
        """Return the id of what fires it, from which its idempotency keys are derived: a schedule or an entity."""
        return str(self.scheduled_job_id) if self.entity is None else self.entity.source


class NodeResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of one node in one execution."""

    node_id: str
    type: str
    status: ExecutionStatus
    output: Any = None
    error: str = ""
    started_at: datetime
    finished_at: datetime


# In place of a fencing token: a request ends the run, whichever worker has it by then. Tokens begin at 1.
ANY_TOKEN = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of an execution, with the fencing token under which it ran."""

    execution_id: UUID
    # None for an execution of an entity.
    scheduled_job_id: UUID | None
    token: int
    status: ExecutionStatus
    error: str = ""
    node_results: tuple[NodeResult, ...] = ()
    # The outcome of its slot in the ledger if it never started.
    unrun: LedgerOutcome = LedgerOutcome.MISSED
    # Whether an action that publishes succeeded in it.
    publishes: bool = False
