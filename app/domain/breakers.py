"""Breaker and guard of a workflow.

The breaker opens after failures in a row, and after a while lets exactly one run through as a probe. The guard bounds
how many runs the workflow has at once.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.executions import FAILURES, ExecutionStatus
from app.domain.permits import LimitUse
from app.domain.trigger_event import rfc3339

DEFAULT_RESET_SECONDS = 60


class BreakerState(StrEnum):
    """The states of a breaker: closed lets all runs start, open none, half-open one at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a breaker's state, and its reason."""

    workflow_id: int
    from_state: BreakerState
    to_state: BreakerState
    reason: str
    at: datetime
    execution_id: UUID | None = None


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker of one workflow; ``transitions`` are the changes of its state that are not stored yet."""

    workflow_id: int
    threshold: int
    reset_seconds: int
    state: BreakerState = BreakerState.CLOSED
    failure_count: int = 0
    opened_at: datetime | None = None
    # The run that tries whether the workflow succeeds again.
    probe_execution_id: UUID | None = None
    transitions: tuple[Transition, ...] = ()

    @property
    def half_opens_at(self) -> datetime | None:
        """Return when an open breaker lets a probe start, or None if it is not open."""
        if self.state is not BreakerState.OPEN or self.opened_at is None:
            return None
        return self.opened_at + timedelta(seconds=self.reset_seconds)

    def refusal(self, now: datetime, execution_id: UUID | None = None) -> str:
        """Return why no run may start now, or an empty string. The probe itself may start again after a hand-back."""
        if self.half_opens_at is not None and now < self.half_opens_at:
            return f"the breaker is open until {rfc3339(self.half_opens_at)}"
        if self.state is BreakerState.HALF_OPEN and self.probe_execution_id not in {None, execution_id}:
            return f"the breaker is half-open and execution {self.probe_execution_id} is its probe"
        return ""

    def let_through(self, execution_id: UUID, now: datetime) -> "Breaker":
        """Return the breaker after a run has started; unless the breaker is closed, this run is the probe."""
        if self.state is BreakerState.CLOSED:
            return self
        probing = replace(self, probe_execution_id=execution_id)
        if self.state is BreakerState.HALF_OPEN:
            return probing
        return probing.with_state(
            BreakerState.HALF_OPEN, "the reset time has passed: one run may try", now, execution_id
        )

    def after(self, execution_id: UUID, status: ExecutionStatus, error: str, now: datetime) -> "Breaker":
        """Return the breaker after a run has ended. While it is not closed, only the probe's result counts.

        Runs that started before it opened may still end: their results say nothing about now.
        """
        if self.state is BreakerState.CLOSED:
            return self._closed_after(execution_id, status, error, now)
        if execution_id != self.probe_execution_id:
            return self
        if status in FAILURES:
            return self._opened(f"the probe failed: {error}", now, execution_id)
        if status is ExecutionStatus.SUCCESS:
            return self.closed("the probe succeeded", now, execution_id)
        # Cancelled or skipped: the probe has no result, and the next run becomes the probe.
        return replace(self, probe_execution_id=None)

    def closed(self, reason: str, now: datetime, execution_id: UUID | None = None) -> "Breaker":
        """Return the breaker as closed, with its failures forgotten."""
        reset = replace(self, failure_count=0, opened_at=None, probe_execution_id=None)
        return (
            reset
            if self.state is BreakerState.CLOSED
            else reset.with_state(BreakerState.CLOSED, reason, now, execution_id)
        )

    def with_state(self, state: BreakerState, reason: str, now: datetime, execution_id: UUID | None) -> "Breaker":
        """Return the breaker in another state, with the transition added."""
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
        reason = f"{counted.failure_count} consecutive failures, the last: {error}"
        return counted._opened(reason, now, execution_id)  # noqa: SLF001 - of its own kind

    def _opened(self, reason: str, now: datetime, execution_id: UUID) -> "Breaker":
        return replace(self, opened_at=now, probe_execution_id=None).with_state(
            BreakerState.OPEN, reason, now, execution_id
        )


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker, the guard and the limit of a workflow, each if it has one, as one value that a claim asks."""

    breaker: Breaker | None = None
    max_running: int | None = None
    running: int = 0
    # The named limit of which its runs need a permit, too.
    limit: LimitUse | None = None

    @property
    def guard_refusal(self) -> str:
        """Return why the guard lets no run start, or an empty string."""
        if self.max_running is None or self.running < self.max_running:
            return ""
        return f"{self.running} of {self.max_running} concurrent runs of the workflow were under way"

    def entered(self, execution_id: UUID, now: datetime) -> "Gate":
        """Return the gate after a run has started."""
        breaker = self.breaker.let_through(execution_id, now) if self.breaker else None
        return replace(self, breaker=breaker, running=self.running + 1)
