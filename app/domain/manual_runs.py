"""A run that somebody asks for: beside the cadence and the counters, but not beside ``if_running``."""

from uuid import UUID

import msgspec

from app.domain.errors import ConflictError
from app.domain.executions import ActiveRun
from app.domain.schedules import IfRunning


class ManualStart(msgspec.Struct, frozen=True):
    """How it begins: at once or in its turn, and what has to go before."""

    queued: bool = False
    cancels: tuple[UUID, ...] = ()


def manual_start(policy: IfRunning, active: tuple[ActiveRun, ...], max_queued: int) -> ManualStart:
    """What the policy makes of a manual run while these are under way."""
    if not active or policy is IfRunning.ALLOW:
        return ManualStart()
    if policy is IfRunning.CANCEL:
        return ManualStart(cancels=tuple(run.execution_id for run in active))
    if policy is IfRunning.SKIP:
        raise ConflictError("An execution of this schedule is under way, and its if_running is 'skip'.")
    if sum(run.queued for run in active) >= max_queued:
        raise ConflictError(f"As many runs are queued as max_queued allows ({max_queued}).")
    return ManualStart(queued=True)
