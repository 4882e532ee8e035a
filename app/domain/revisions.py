"""The history of schedules and workflows: who changed what, when and why."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.access import Actor
from app.domain.audit import ENGINE, Origin
from app.domain.declarations import same
from app.domain.schedules import EDITABLE, ScheduledJob, Status


class Action(StrEnum):
    """The kinds of changes of a schedule or a workflow."""

    CREATED = "created"
    CHANGED = "changed"
    PAUSED = "paused"
    RESUMED = "resumed"
    REVIVED = "revived"
    FINISHED = "finished"
    DIED = "died"


class Author(msgspec.Struct, frozen=True):
    """The user or service that made a change, and where the change comes from."""

    user_id: int | None
    name: str
    # None if Carillon itself made the change.
    actor: Actor | None = None
    origin: Origin = ENGINE
    # The name of the user for whom it was done, if not by the actor for itself.
    on_behalf_of: str | None = None


# The author of changes that no user made: a limit was reached, retries were used up, a spec became invalid.
CARILLON = Author(None, "carillon")

# Fields that do not decide whether or when a slot was expected. Snapshots leave them out to stay small.
_NOT_REMEMBERED = frozenset(
    {
        *("name", "description", "trigger_node_id", "trigger_payload"),
        *("max_retries", "backoff_base_seconds", "timeout_seconds", "key", "labels"),
        "delete_after_seconds",
    }
)
# The fields of a snapshot, by which ``explain`` says later whether a slot was expected then. A new field is remembered
# unless it is excluded above: one that was forgotten could not be explained afterwards.
REMEMBERED = (
    *(name for name in EDITABLE if name not in _NOT_REMEMBERED),
    *("status", "status_reason", "anchor_at", "last_error", "paused_until", "calendar_versions"),
)
# What can happen to workflows, and the fields that people can change.
WORKFLOW_ACTIONS = (Action.CREATED, Action.CHANGED)
WORKFLOW_FIELDS = (
    *("name", "nodes", "edges", "active", "max_concurrent_runs", "breaker_threshold", "breaker_reset_seconds"),
    *("key", "labels", "limit"),
)
_BY_STATUS = {Status.PAUSED: Action.PAUSED, Status.DONE: Action.FINISHED, Status.DEAD: Action.DIED}


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a schedule, with a snapshot of the fields that ``explain`` needs."""

    scheduled_job_id: UUID
    at: datetime
    user_profile_id: int | None
    author: str
    action: Action
    changes: dict[str, Any]
    note: str
    snapshot: dict[str, Any]


class WorkflowRevision(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a workflow."""

    workflow_id: int
    at: datetime
    user_profile_id: int | None
    author: str
    action: Action
    changes: dict[str, Any]
    # The size of the changes as JSON, so that pages can be bounded without reading them.
    changes_bytes: int
    note: str


def workflow_revision(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], author: Author, note: str = ""
) -> WorkflowRevision | None:
    """Return the change from one row of a workflow to the next, or from none; None if nothing has changed."""
    changes = {} if before is None else _workflow_changes(before, after)
    if before is not None and not changes:
        return None
    return WorkflowRevision(
        workflow_id=after["id"],
        at=after["updated_at"],
        user_profile_id=author.user_id,
        author=author.name,
        action=Action.CREATED if before is None else Action.CHANGED,
        changes=changes,
        changes_bytes=len(msgspec.json.encode(changes)),
        note=note,
    )


def _workflow_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = (name for name in WORKFLOW_FIELDS if not same(before[name], after[name]))
    return {name: {"from": before[name], "to": after[name]} for name in changed}


def revision(
    before: ScheduledJob | None, after: ScheduledJob, action: Action, author: Author, now: datetime, note: str = ""
) -> Revision:
    """Return the revision for a change from ``before`` to ``after``, or for a creation if ``before`` is None."""
    return Revision(
        scheduled_job_id=after.id,
        at=now,
        user_profile_id=author.user_id,
        author=author.name,
        action=action,
        changes={} if before is None else differences(before, after),
        note=note,
        snapshot=msgspec.to_builtins({name: getattr(after, name) for name in REMEMBERED}),
    )


def action_of(before: ScheduledJob, after: ScheduledJob) -> Action:
    """Return what happened to a schedule, by its status before and after."""
    if before.status is after.status:
        return Action.CHANGED
    if after.status is Status.ACTIVE:
        return Action.REVIVED if before.status is Status.DEAD else Action.RESUMED
    return _BY_STATUS[after.status]


def automatic_revision(before: ScheduledJob, after: ScheduledJob, now: datetime) -> Revision | None:
    """Return the revision for a change of status by a tick or the end of a run, or None if the status is the same."""
    if before.status is after.status:
        return None
    action = _BY_STATUS.get(after.status, Action.RESUMED)
    note = after.last_error if after.status in {Status.PAUSED, Status.DEAD} else ""
    return revision(before, after, action, CARILLON, now, note)


def differences(before: ScheduledJob, after: ScheduledJob) -> dict[str, Any]:
    """Return the fields that people can change, and the status, as they were and as they are."""
    names = (*EDITABLE, "status", "status_reason", "paused_until")
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    return msgspec.to_builtins(  # type: ignore[no-any-return]  # a dict goes in
        {name: {"from": getattr(before, name), "to": getattr(after, name)} for name in changed}
    )
