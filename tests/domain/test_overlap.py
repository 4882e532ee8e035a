"""Overlap: every policy, beside every kind of active run, for every kind of arriving run."""

from uuid import UUID

import pytest

from app.domain.executions import ActiveRun, Trigger
from app.domain.ledger import LedgerOutcome
from app.domain.overlap import Arrival, Begin, Overlap, Queue, Refuse, overlap, runs_alone
from app.domain.schedules import IfRunning

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
RUNNING = ActiveRun(A, Trigger.SCHEDULE)
QUEUED = ActiveRun(B, Trigger.SCHEDULE, queued=True, waiting=True)
MANUAL = ActiveRun(C, Trigger.MANUAL)
CAUGHT_UP = ActiveRun(A, Trigger.CATCH_UP)


def skipped(execution_id: UUID, *, only_manual: bool = False) -> Refuse:
    """A run that does not happen because another one is active."""
    reason = "an earlier execution was still active"
    return Refuse(LedgerOutcome.SKIPPED_OVERLAP, reason, execution_id, only_manual)


FULL = Refuse(LedgerOutcome.SKIPPED_QUEUE_FULL, "1 runs were queued already, and max_queued is 1", A)
SKIP, QUEUE, CANCEL, ALLOW = IfRunning.SKIP, IfRunning.QUEUE, IfRunning.CANCEL, IfRunning.ALLOW
SLOT, RETRY, BY_HAND = Arrival.SLOT, Arrival.RETRY, Arrival.MANUAL

# What arrives, beside which active runs, and what the four policies make of it.
TABLE: list[tuple[Arrival, tuple[ActiveRun, ...], dict[IfRunning, Overlap]]] = [
    (SLOT, (), {SKIP: Begin(), QUEUE: Begin(), CANCEL: Begin(), ALLOW: Begin()}),
    (SLOT, (RUNNING,), {SKIP: skipped(A), QUEUE: Queue(), CANCEL: Begin((A,)), ALLOW: Begin()}),
    (SLOT, (RUNNING, QUEUED), {SKIP: skipped(A), QUEUE: FULL, CANCEL: Begin((A, B)), ALLOW: Begin()}),
    (SLOT, (MANUAL,), {SKIP: skipped(C, only_manual=True), QUEUE: Queue(), CANCEL: Begin((C,)), ALLOW: Begin()}),
    (SLOT, (CAUGHT_UP, MANUAL), {SKIP: skipped(A), QUEUE: Queue(), CANCEL: Queue((C,)), ALLOW: Begin()}),
    (RETRY, (), {SKIP: Begin(), QUEUE: Begin(), CANCEL: Begin(), ALLOW: Begin()}),
    # Queued runs are later slots: a retry goes before them.
    (RETRY, (QUEUED,), {SKIP: Begin(), QUEUE: Begin(), CANCEL: Begin(), ALLOW: Begin()}),
    (RETRY, (RUNNING, QUEUED), {SKIP: skipped(A), QUEUE: skipped(A), CANCEL: Begin((A,)), ALLOW: Begin()}),
    (
        RETRY,
        (MANUAL,),
        {
            SKIP: skipped(C, only_manual=True),
            QUEUE: skipped(C, only_manual=True),
            CANCEL: Begin((C,)),
            ALLOW: Begin(),
        },
    ),
    (BY_HAND, (), {SKIP: Begin(), QUEUE: Begin(), CANCEL: Begin(), ALLOW: Begin()}),
    (BY_HAND, (RUNNING,), {SKIP: skipped(A), QUEUE: Queue(), CANCEL: Begin((A,)), ALLOW: Begin()}),
    (BY_HAND, (RUNNING, QUEUED), {SKIP: skipped(A), QUEUE: FULL, CANCEL: Begin((A, B)), ALLOW: Begin()}),
    (BY_HAND, (CAUGHT_UP,), {SKIP: skipped(A), QUEUE: Queue(), CANCEL: Begin((A,)), ALLOW: Begin()}),
]


@pytest.mark.parametrize(("arrival", "active", "expected"), TABLE)
def test_every_policy_decides(
    arrival: Arrival, active: tuple[ActiveRun, ...], expected: dict[IfRunning, Overlap]
) -> None:
    """A policy that the table does not name makes this fail."""
    assert expected == {policy: overlap(policy, arrival, active, max_queued=1) for policy in IfRunning}


def test_only_allow_lets_runs_run_beside_each_other() -> None:
    """All other policies keep one run at a time."""
    assert {SKIP: True, QUEUE: True, CANCEL: True, ALLOW: False} == {policy: runs_alone(policy) for policy in IfRunning}
