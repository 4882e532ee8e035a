"""One run of a workflow as a value, and the states it goes through."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.ledger import LedgerOutcome


class ExecutionStatus(StrEnum):
    """Pending, running, then one of the ends."""

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
# The token of an execution that nobody has put aside, handed back or ended yet.
FIRST_TOKEN = 1
# These end the repeat without a run to count.
NEUTRAL_ENDS = frozenset({ExecutionStatus.SKIPPED, ExecutionStatus.BLOCKED})


class Trigger(StrEnum):
    """What started an execution."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    CATCH_UP = "catch_up"
    CRON = "cron"
    ENTITY = "entity"


class ActiveRun(msgspec.Struct, frozen=True):
    """An execution that is pending or running, as far as overlap is concerned."""

    execution_id: UUID
    trigger: Trigger
    # It waits for its turn behind others of its schedule.
    queued: bool = False
    # It may not run beside others.
    exclusive: bool = True
    # It has not begun, be it for its turn, for its time or for a worker; one that was handed back has.
    waiting: bool = False
    attempt: int = 0

    @property
    def counts(self) -> bool:
        """Whether it will complete a repeat of its schedule; a manual run never does."""
        return self.trigger is not Trigger.MANUAL


def count_repeats(runs: tuple[ActiveRun, ...]) -> int:
    """How many of the active runs count toward the repeats of their schedule."""
    if not runs:
        return 0
    return sum(run.counts for run in runs)


class PendingRun(msgspec.Struct, frozen=True):
    """An execution that nothing but its time keeps from being started."""

    execution_id: UUID
    token: int
    due_at: datetime
    # Whose it is, where that was asked for.
    user_profile_id: int | None = None


class EntityWork(msgspec.Struct, frozen=True, kw_only=True):
    """What an entity wants done: an action with its configuration."""

    name: str
    action: str
    config: dict[str, Any]
    max_retries: int


class Entity(msgspec.Struct, frozen=True):
    """A thing with a time of its own that fires instead of a schedule."""

    type: str
    id: str
    work: EntityWork

    @property
    def source(self) -> str:
        """What its executions are named after."""
        return f"entity/{self.type}/{self.id}"


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that a worker holds: what to run, for which slot, under which fencing token.

    It is a schedule's, and runs its workflow; or an entity's, and does what that says.
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
    # What is left of its time by the database's clock, where it has been put aside to wait for a callback.
    seconds_left: float | None = None
    # When it was started again by the database's clock, and the graph that it began with, where it has been put aside.
    resumed_at: datetime | None = None
    graph: dict[str, Any] | None = None
    # The request that asked for it, for traces alone.
    trace_context: str | None = None

    @property
    def source(self) -> str:
        """What fires it."""
        return str(self.scheduled_job_id) if self.entity is None else self.entity.source


class NodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one node of a workflow did in one execution."""

    node_id: str
    type: str
    status: ExecutionStatus
    output: Any = None
    error: str = ""
    started_at: datetime
    finished_at: datetime


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an execution ended, and the token that says who may say so."""

    execution_id: UUID
    # None, where it is an entity's.
    scheduled_job_id: UUID | None
    token: int
    status: ExecutionStatus
    error: str = ""
    node_results: tuple[NodeResult, ...] = ()
    # What to account for its slot if it never began.
    unrun: LedgerOutcome = LedgerOutcome.MISSED
