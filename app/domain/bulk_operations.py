"""Bulk operations: what is done to many schedules, which of them are skipped, and how it is undone."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain import schedule_lifecycle
from app.domain.access import Scope
from app.domain.backfills import BackfillTerms
from app.domain.errors import FieldError, InvalidError
from app.domain.labels import MOST_LABELS
from app.domain.limits import Caps
from app.domain.planning import stopped, with_anchor, with_first_slot, without_tick
from app.domain.schedules import EDITABLE, TRANSITIONS, IfRunning, Reason, ScheduledJob, Status


class BulkAction(StrEnum):
    """What an operation does to each schedule."""

    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"
    REVIVE = "revive"
    DELETE = "delete"
    LABEL = "label"
    SET = "set"
    MOVE = "move"
    # Runs past slots of one schedule.
    BACKFILL = "backfill"
    # Restores what another operation has changed.
    UNDO = "undo"

    @property
    def needs(self) -> Scope:
        """Return the scope that it needs."""
        return Scope.OPERATE if self in _OPERATE else Scope.WRITE


_OPERATE = {BulkAction.PAUSE, BulkAction.RESUME, BulkAction.RUN, BulkAction.REVIVE, BulkAction.BACKFILL}


class OperationStatus(StrEnum):
    """The states of an operation."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Return whether it changes nothing any more."""
        return self in {OperationStatus.DONE, OperationStatus.CANCELLED, OperationStatus.FAILED}


# Why a schedule is skipped; beside these there is ``status_`` and the status that does not allow the action.
NOT_FOUND = "not_found"
UNCHANGED = "unchanged"
RUNNING = "running"
INVALID_SPEC = "invalid_spec"
CHANGED_SINCE = "changed_since"

_FROM = {BulkAction.PAUSE: Status.ACTIVE, BulkAction.RESUME: Status.PAUSED, BulkAction.REVIVE: Status.DEAD}


class RowState(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether an action would change a schedule."""

    status: str
    status_reason: str
    if_running: str
    has_active_run: bool
    # Whether it has the values already that the action would give it.
    is_same: bool


def skip_reason(action: BulkAction, state: RowState) -> str:
    """Return why an action would leave a schedule alone, or an empty text."""
    required = _FROM.get(action)
    if required is not None and state.status != required:
        return f"status_{state.status}"
    if action is BulkAction.RESUME and state.status_reason == Reason.INVALID_SPEC:
        return INVALID_SPEC
    if action is BulkAction.RUN and state.has_active_run and state.if_running in {IfRunning.SKIP, IfRunning.CANCEL}:
        return RUNNING
    return UNCHANGED if state.is_same else ""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What an action needs besides the schedules; each action uses its own field."""

    labels_added: dict[str, str] = {}
    labels_removed: tuple[str, ...] = ()
    # Fields and their new values, as JSON.
    fields: dict[str, Any] = {}
    workflow_id: int | None = None
    # When a pause ends by itself.
    until: datetime | None = None
    backfill: BackfillTerms | None = None


def changes_of(action: BulkAction, terms: Terms, job: ScheduledJob) -> dict[str, Any]:
    """Return the fields that an edit gives a schedule; those of ``set`` are still JSON."""
    if action is BulkAction.LABEL:
        return {"labels": relabelled(job.labels, terms.labels_added, terms.labels_removed)}
    if action is BulkAction.MOVE:
        return {"workflow_id": terms.workflow_id}
    return dict(terms.fields)


def relabelled(labels: Mapping[str, str], added: Mapping[str, str], removed: Sequence[str]) -> dict[str, str]:
    """Return labels without some and with others."""
    kept = {name: value for name, value in labels.items() if name not in removed}
    after = {**kept, **added}
    if len(after) > MOST_LABELS:
        raise InvalidError(FieldError("labels", f"The schedule would have more than {MOST_LABELS} labels."))
    return after


def with_new_status(
    action: BulkAction, job: ScheduledJob, active_runs: int, now: datetime, until: datetime | None = None
) -> ScheduledJob:
    """Return a schedule after ``pause``, ``resume`` or ``revive``; ``until`` ends a pause."""
    if action is BulkAction.PAUSE:
        return schedule_lifecycle.paused_until(job, until, now)
    change = schedule_lifecycle.resumed if action is BulkAction.RESUME else schedule_lifecycle.revived
    return change(job, active_runs, now)


class Former(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation has changed of a schedule, as it was before."""

    status: Status
    status_reason: Reason
    current_retry: int = 0
    dead_at: datetime | None = None
    paused_until: datetime | None = None
    # The changed fields, as JSON.
    values: dict[str, Any] = {}


def former_of(before: ScheduledJob, after: ScheduledJob) -> Former:
    """Return what a change has changed."""
    changed = {name: getattr(before, name) for name in EDITABLE if getattr(before, name) != getattr(after, name)}
    return Former(
        status=before.status,
        status_reason=before.status_reason,
        current_retry=before.current_retry,
        dead_at=before.dead_at,
        paused_until=before.paused_until,
        values=msgspec.to_builtins(changed),
    )


def restored(
    job: ScheduledJob, former: Former, values: dict[str, Any], active_runs: int, now: datetime, caps: Caps
) -> ScheduledJob:
    """Return a schedule with its former values and its former status, as far as its state allows."""
    edited = schedule_lifecycle.edited(job, values, active_runs, now, caps) if values else job
    if edited.status is former.status or former.status not in TRANSITIONS[edited.status]:
        return edited
    if former.status is Status.ACTIVE:
        change = schedule_lifecycle.resumed if edited.status is Status.PAUSED else schedule_lifecycle.revived
        return change(edited, active_runs, now) if edited.status in {Status.PAUSED, Status.DEAD} else edited
    resting = stopped(edited, former.status, former.status_reason)
    return replace(
        resting, dead_at=former.dead_at, current_retry=former.current_retry, paused_until=former.paused_until
    )


def undeleted(job: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return a deleted schedule as it is stored again: an active one goes on with its next slot."""
    still = replace(without_tick(job), updated_at=now)
    if job.status is not Status.ACTIVE:
        return still
    return with_first_slot(still if job.is_one_shot else with_anchor(still, now), 0, now)
