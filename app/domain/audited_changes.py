"""The events of the audit log about schedules, workflows, webhooks and notifications.

Payloads, configurations of nodes, headers and URLs may hold secrets: an event names them and leaves their values out.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.domain.audit import AuditAction, AuditEvent, ObjectType, Subject, audit_event, differences
from app.domain.revisions import Action, Author, Revision, WorkflowRevision
from app.domain.schedules import ScheduledJob

HIDDEN = frozenset({"trigger_payload", "url", "headers", "payload"})
# A longer text is cut: an event is no copy of its object.
MOST_CHARACTERS = 1000

_SCHEDULE_ACTIONS = {
    Action.CREATED: AuditAction.SCHEDULE_CREATED,
    Action.CHANGED: AuditAction.SCHEDULE_CHANGED,
    Action.PAUSED: AuditAction.SCHEDULE_PAUSED,
    Action.RESUMED: AuditAction.SCHEDULE_RESUMED,
    Action.REVIVED: AuditAction.SCHEDULE_REVIVED,
    Action.DIED: AuditAction.SCHEDULE_DIED,
    # A schedule that is done did what it was made for: its history says so, and the audit log does not.
    Action.FINISHED: None,
}
_WORKFLOW_ACTIONS = {
    Action.CREATED: AuditAction.WORKFLOW_CREATED,
    Action.CHANGED: AuditAction.WORKFLOW_CHANGED,
}


def authored_event(  # noqa: PLR0913 - the parts of an event
    author: Author,
    action: AuditAction,
    subject: Subject,
    now: datetime,
    key: str,
    *,
    changes: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
    note: str = "",
) -> AuditEvent:
    """Return the event of a change by an author."""
    event = audit_event(
        author.actor, action, subject, author.origin, now, key, changes=changes, details=details, note=_cut(note)
    )
    actor = event.actor if author.actor is not None else author.name
    return replace(event, actor=actor, on_behalf_of=author.on_behalf_of or event.on_behalf_of)


def schedule_event(revision: Revision, job: ScheduledJob, author: Author, key: str) -> AuditEvent | None:
    """Return the event of a schedule's revision; None if the audit log does not tell of it."""
    action = _SCHEDULE_ACTIONS[revision.action]
    if action is None:
        return None
    changes = shown_changes(revision.changes)
    return authored_event(author, action, schedule_subject(job), revision.at, key, changes=changes, note=revision.note)


def schedule_subject(job: ScheduledJob) -> Subject:
    """Return a schedule as what an event is about."""
    return Subject(ObjectType.SCHEDULE, str(job.id), job.name, job.user_profile_id)


def workflow_event(revision: WorkflowRevision, subject: Subject, author: Author, key: str) -> AuditEvent:
    """Return the event of a workflow's revision."""
    changes = shown_changes(revision.changes)
    return authored_event(
        author, _WORKFLOW_ACTIONS[revision.action], subject, revision.at, key, changes=changes, note=revision.note
    )


def shown_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes without the values of fields that may hold secrets."""
    return {name: _shown(name, change) for name, change in changes.items()}


def shown_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ, without values that may be secret."""
    return shown_changes(differences(before, after))


def _shown(name: str, change: Mapping[str, Any]) -> dict[str, Any]:
    if name in HIDDEN:
        return {}
    if name == "nodes":
        return _changed_nodes(change["from"], change["to"])
    return {side: _cut(value) if isinstance(value, str) else value for side, value in change.items()}


def _changed_nodes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the ids of the nodes that were added, removed and changed."""
    old, new = ({node["id"]: node for node in nodes} for nodes in (before, after))
    return {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }


def _cut(value: str) -> str:
    return value if len(value) <= MOST_CHARACTERS else f"{value[:MOST_CHARACTERS]}..."
