"""Whether an execution that exists already may start: its turn has come, and now the workflow has a say."""

from datetime import datetime
from uuid import UUID

import msgspec

from app.domain.breakers import Gate
from app.domain.executions import Trigger


class Go(msgspec.Struct, frozen=True):
    """It may; the gate as it is then."""

    gate: Gate


class Wait(msgspec.Struct, frozen=True):
    """Not now; it shall be asked for again."""


class GiveUp(msgspec.Struct, frozen=True):
    """It shall end without having run."""

    reason: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that wants to start."""

    execution_id: UUID
    trigger: Trigger
    attempt: int
    # It has run before and was handed back.
    handed_back: bool


def may_start(run: Candidate, gate: Gate, now: datetime) -> Go | Wait | GiveUp:
    """A manual run asks nobody. An open breaker ends it; a full house makes it wait, unless it is a retry."""
    if run.trigger is Trigger.MANUAL:
        return Go(gate)
    refusal = gate.breaker.refusal(now, run.execution_id) if gate.breaker else ""
    if refusal:
        return GiveUp(refusal)
    if gate.full:
        return GiveUp(gate.full) if run.attempt and not run.handed_back else Wait()
    return Go(gate.entered(run.execution_id, now))
