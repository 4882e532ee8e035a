"""The circuit breaker of a workflow: opens after failures in a row, then lets exactly one run through to try."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.executions import FAILURES, ExecutionStatus
from app.domain.trigger_event import rfc3339

DEFAULT_RESET_SECONDS = 60


class BreakerState(StrEnum):
    """Closed lets runs through, open does not, half-open lets one through at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A change of state, and why."""

    workflow_id: int
    from_state: BreakerState
    to_state: BreakerState
    reason: str
    at: datetime
    execution_id: UUID | None = None


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one workflow's breaker, and the changes that are still to be written down."""

    workflow_id: int
    threshold: int
    reset_seconds: int
    state: BreakerState = BreakerState.CLOSED
    failure_count: int = 0
    opened_at: datetime | None = None
    # The run that tries whether it works again.
    probe_execution_id: UUID | None = None
    transitions: tuple[Transition, ...] = ()

    @property
    def half_opens_at(self) -> datetime | None:
        """When an open breaker lets a run through again."""
        if self.state is not BreakerState.OPEN or self.opened_at is None:
            return None
        return self.opened_at + timedelta(seconds=self.reset_seconds)

    def refusal(self, now: datetime, execution_id: UUID | None = None) -> str:
        """Why no run may start now; nothing if one may. The probe itself may, if it comes back."""
        if self.half_opens_at is not None and now < self.half_opens_at:
            return f"the breaker is open until {rfc3339(self.half_opens_at)}"
        if self.state is BreakerState.HALF_OPEN and self.probe_execution_id not in {None, execution_id}:
            return f"the breaker is half-open and execution {self.probe_execution_id} is its probe"
        return ""

    def let_through(self, execution_id: UUID, now: datetime) -> "Breaker":
        """A run starts; unless the breaker is closed, it is the probe."""
        if self.state is BreakerState.CLOSED:
            return self
        probing = replace(self, probe_execution_id=execution_id)
        if self.state is BreakerState.HALF_OPEN:
            return probing
        return probing.moved(BreakerState.HALF_OPEN, "the reset time has passed: one run may try", now, execution_id)

    def after(self, execution_id: UUID, status: ExecutionStatus, error: str, now: datetime) -> "Breaker":
        """A run has ended. While the breaker is not closed, only the probe's word counts."""
        if self.state is BreakerState.CLOSED:
            return self._closed_after(execution_id, status, error, now)
        if execution_id != self.probe_execution_id:
            return self
        if status in FAILURES:
            return self._opened(f"the probe failed: {error}", now, execution_id)
        if status is ExecutionStatus.SUCCESS:
            return self.closed("the probe succeeded", now, execution_id)
        # Cancelled or skipped: it proves nothing, and another may try.
        return replace(self, probe_execution_id=None)

    def closed(self, reason: str, now: datetime, execution_id: UUID | None = None) -> "Breaker":
        """Everything may run again."""
        reset = replace(self, failure_count=0, opened_at=None, probe_execution_id=None)
        return (
            reset if self.state is BreakerState.CLOSED else reset.moved(BreakerState.CLOSED, reason, now, execution_id)
        )

    def moved(self, state: BreakerState, reason: str, now: datetime, execution_id: UUID | None) -> "Breaker":
        """In another state, with the change noted."""
        change = Transition(
            workflow_id=self.workflow_id,
            from_state=self.state,
            to_state=state,
            reason=reason,
            at=now,
            execution_id=execution_id,
        )
        return replace(self, state=state, transitions=(*self.transitions, change))

    def _closed_after(self, execution_id: UUID, status: ExecutionStatus, error: str, now: datetime) -> "Breaker":
        if status is ExecutionStatus.CANCELLED:
            return self
        if status not in FAILURES:
            return replace(self, failure_count=0)
        counted = replace(self, failure_count=self.failure_count + 1)
        if counted.failure_count < self.threshold:
            return counted
        words = f"{counted.failure_count} consecutive failures, the last: {error}"
        return counted._opened(words, now, execution_id)  # noqa: SLF001 - of its own kind

    def _opened(self, reason: str, now: datetime, execution_id: UUID) -> "Breaker":
        return replace(self, opened_at=now, probe_execution_id=None).moved(BreakerState.OPEN, reason, now, execution_id)


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow lets through: its breaker, if it has one, and the places that its guard leaves, if it has one."""

    breaker: Breaker | None = None
    max_running: int | None = None
    running: int = 0

    @property
    def guard_refusal(self) -> str:
        """Why the guard lets nobody in; nothing if it does."""
        if self.max_running is None or self.running < self.max_running:
            return ""
        return f"{self.running} of {self.max_running} concurrent runs of the workflow were under way"

    def entered(self, execution_id: UUID, now: datetime) -> "Gate":
        """A run has started."""
        breaker = self.breaker.let_through(execution_id, now) if self.breaker else None
        return replace(self, breaker=breaker, running=self.running + 1)
