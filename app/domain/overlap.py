"""Overlap (``if_running``): what a run does that arrives while others of its schedule are active, and which is next.

The only place that knows what the policies mean: the tick, the retry, the manual run, the queue and ``explain`` all
ask here. A new policy does not type-check until every ``match`` below has a case for it.
"""

from enum import StrEnum
from typing import assert_never
from uuid import UUID

import msgspec

from app.domain.executions import ActiveRun, Trigger, count_repeats
from app.domain.ledger import LedgerOutcome
from app.domain.schedule_lifecycle import CADENCE_FIELDS
from app.domain.schedules import IfRunning, ScheduledJob, Status


class Arrival(StrEnum):
    """What kind of run arrives."""

    # The first attempt at a due slot.
    SLOT = "slot"
    # A later attempt at a slot.
    RETRY = "retry"
    # A run that a person, an action or a plugin asked for.
    MANUAL = "manual"


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The run starts now; these executions are cancelled first."""

    cancels: tuple[UUID, ...] = ()


class Queue(msgspec.Struct, frozen=True):
    """The run waits behind the active ones; these executions are cancelled first."""

    cancels: tuple[UUID, ...] = ()


class Refuse(msgspec.Struct, frozen=True):
    """The run does not happen: the outcome of its slot, the reason, and the execution that was active."""

    outcome: LedgerOutcome
    reason: str
    execution_id: UUID
    # Manual runs say nothing about a slot: a retry waits until they have ended instead of being given up.
    only_manual: bool = False


Overlap = Begin | Queue | Refuse


def overlap(policy: IfRunning, arrival: Arrival, active: tuple[ActiveRun, ...], max_queued: int) -> Overlap:
    """Decide what an arriving run does beside the active runs of its schedule."""
    # A retry goes before the queued runs, which are later slots.
    others = tuple(run for run in _in_the_way(active) if not (run.queued and arrival is Arrival.RETRY))
    if not others:
        return Begin()
    match policy:
        case IfRunning.ALLOW:
            return Begin()
        case IfRunning.CANCEL:
            return _cancel(arrival, others)
        case IfRunning.SKIP:
            return _skip(others)
        case IfRunning.QUEUE:
            return _skip(others) if arrival is Arrival.RETRY else _queue(others, max_queued)
        case _:
            assert_never(policy)


def _in_the_way(active: tuple[ActiveRun, ...]) -> tuple[ActiveRun, ...]:
    """Return the runs that count for an arriving one. Those of backfills are in nobody's way."""
    if not active:
        return active
    return tuple(run for run in active if run.trigger is not Trigger.BACKFILL)


def runs_alone(policy: IfRunning) -> bool:
    """Return whether a run of this policy may not run beside others of its schedule."""
    match policy:
        case IfRunning.ALLOW:
            return False
        case IfRunning.SKIP | IfRunning.QUEUE | IfRunning.CANCEL:
            return True
        case _:
            assert_never(policy)


def _cancel(arrival: Arrival, others: tuple[ActiveRun, ...]) -> Begin | Queue:
    """Cancel the others. A slot does not cancel slots that are being caught up: it goes behind them."""
    spared = tuple(run for run in others if arrival is Arrival.SLOT and run.trigger is Trigger.CATCH_UP)
    cancels = tuple(run.execution_id for run in others if run not in spared)
    return Queue(cancels) if spared else Begin(cancels)


def _skip(others: tuple[ActiveRun, ...]) -> Refuse:
    reason = "an earlier execution was still active"
    return Refuse(LedgerOutcome.SKIPPED_OVERLAP, reason, others[0].execution_id, only_manual=not count_repeats(others))


def _queue(others: tuple[ActiveRun, ...], max_queued: int) -> Queue | Refuse:
    queued = sum(run.queued for run in others)
    if queued < max_queued:
        return Queue()
    reason = f"{queued} runs were queued already, and max_queued is {max_queued}"
    return Refuse(LedgerOutcome.SKIPPED_QUEUE_FULL, reason, others[0].execution_id)


def must_wait(active: tuple[ActiveRun, ...], *, alone: bool) -> bool:
    """Return whether a run waits for one of these: one that runs alone for all, another one for caught-up slots."""
    return any(alone or run.trigger is Trigger.CATCH_UP for run in _in_the_way(active))


def next_queued(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> UUID | None:
    """Return the queued run that may start now: the first, if nothing else is active and no retry is pending."""
    first = next((run for run in active if run.queued), None)
    if first is None or must_wait(tuple(run for run in active if not run.queued), alone=first.exclusive):
        return None
    if first.counts and (job.status is not Status.ACTIVE or job.next_attempt):
        return None
    return first.execution_id


def stopped_by_status(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> tuple[UUID, ...]:
    """Return the runs that have not begun and are cancelled because the schedule is no longer active.

    A manual run is not among them: it may run while its schedule is paused.
    """
    if job.status is Status.ACTIVE or type(job.status) is not Status:
        # An unknown status is one of a newer release, whose workers decide.
        return ()
    return tuple(run.execution_id for run in active if run.counts and run.waiting)


def dropped_retries(before: ScheduledJob, after: ScheduledJob, active: tuple[ActiveRun, ...]) -> tuple[UUID, ...]:
    """Return the retries that wait as executions of their own and that a changed cadence drops."""
    if all(getattr(before, name) == getattr(after, name) for name in CADENCE_FIELDS):
        return ()
    return tuple(run.execution_id for run in active if run.counts and run.waiting and run.attempt)
