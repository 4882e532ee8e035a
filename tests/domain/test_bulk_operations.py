"""Which schedules an operation leaves alone, and what an undo restores."""

from datetime import UTC, datetime

import pytest

from app.domain.bulk_operations import (
    BulkAction,
    RowState,
    former_of,
    relabelled,
    restored,
    skip_reason,
    with_new_status,
)
from app.domain.errors import InvalidError
from app.domain.limits import DEFAULT_CAPS
from app.domain.schedules import Status
from tests.support.domain_builders import schedule

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def state(status: str = "active", **values: object) -> RowState:
    """Return the state of a schedule."""
    usual: dict[str, object] = {
        "status_reason": "",
        "if_running": "skip",
        "has_active_run": False,
        "is_same": False,
    }
    return RowState(status=status, **{**usual, **values})  # type: ignore[arg-type]  # the values of a test


@pytest.mark.parametrize(
    ("action", "found", "expected"),
    [
        (BulkAction.PAUSE, state(), ""),
        (BulkAction.PAUSE, state("done"), "status_done"),
        (BulkAction.RESUME, state("paused"), ""),
        (BulkAction.RESUME, state("paused", status_reason="invalid_spec"), "invalid_spec"),
        (BulkAction.RESUME, state(), "status_active"),
        (BulkAction.REVIVE, state("dead"), ""),
        (BulkAction.REVIVE, state("paused"), "status_paused"),
        (BulkAction.RUN, state(has_active_run=True), "running"),
        (BulkAction.RUN, state(has_active_run=True, if_running="allow"), ""),
        (BulkAction.RUN, state("paused"), ""),
        (BulkAction.DELETE, state("dead"), ""),
        (BulkAction.LABEL, state(is_same=True), "unchanged"),
        (BulkAction.SET, state("done"), ""),
    ],
)
def test_the_state_says_what_is_skipped(action: BulkAction, found: RowState, expected: str) -> None:
    """By the status for verbs, by equal values for edits."""
    assert expected == skip_reason(action, found)


def test_labels_are_added_and_removed() -> None:
    """What is added wins, and there are 32 at most."""
    assert {"a": "2", "c": "3"} == relabelled({"a": "1", "b": "1"}, {"a": "2", "c": "3"}, ["a", "b"])
    with pytest.raises(InvalidError):
        relabelled({f"l{number}": "" for number in range(32)}, {"more": ""}, [])


def test_an_undo_restores_the_status_and_plans_anew() -> None:
    """Of a pause, and of what resumed a paused one."""
    active = schedule()
    paused = with_new_status(BulkAction.PAUSE, active, 0, NOW)
    back = restored(paused, former_of(active, paused), {}, 0, NOW, DEFAULT_CAPS)
    assert (Status.ACTIVE, True) == (back.status, back.next_run_at is not None)
    resumed = with_new_status(BulkAction.RESUME, paused, 0, NOW)
    again = restored(resumed, former_of(paused, resumed), {}, 0, NOW, DEFAULT_CAPS)
    assert (paused.status, paused.status_reason, None) == (again.status, again.status_reason, again.next_run_at)


def test_an_undo_leaves_a_status_that_cannot_be_changed() -> None:
    """A schedule that is done does not become dead."""
    job = schedule(status=Status.DONE)
    former = former_of(schedule(status=Status.DEAD, dead_at=NOW), job)
    assert job == restored(job, former, {}, 0, NOW, DEFAULT_CAPS)
