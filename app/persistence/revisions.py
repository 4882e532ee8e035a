"""Revisions of schedules and workflows: who changed what, when and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.audit import Subject
from app.domain.audited_changes import schedule_event, workflow_event
from app.domain.revisions import CARILLON, Author, Revision, WorkflowRevision
from app.domain.schedules import Reason, ScheduledJob
from app.persistence import audit
from app.persistence.pagination import Page, Part, cursor_of, position_of, read_all, read_one, read_page
from app.persistence.sql_batches import insert_many, run_batch
from app.persistence.tables import ScheduleRevisionRow, WorkflowRevisionRow

# A page ends before it is larger than this: the changes of one revision may hold all nodes twice.
PAGE_BYTES = 1_048_576

# The newest changes of a workflow are kept whole. Older ones keep only the names of the fields: otherwise a client that
# edits a large workflow again and again would fill the disk.
KEPT_WHOLE = 50
NOT_KEPT = "The values of this change are no longer kept."

_OF_SCHEDULES = ScheduleRevisionRow.__table__
_INSERT = insert_many(ScheduleRevisionRow, Revision.__struct_fields__)
_OF_WORKFLOWS = WorkflowRevisionRow.__table__
# A value of a bigint column.

_DROP_OLD_VALUES = text(
    "UPDATE workflow_revisions AS r SET changes = names.only, changes_bytes = length(CAST(names.only AS text)), "
    "note = :note FROM (SELECT id, changes FROM workflow_revisions WHERE workflow_id = :workflow_id "
    "ORDER BY id DESC OFFSET :kept LIMIT 1) AS old CROSS JOIN LATERAL "
    "(SELECT jsonb_object_agg(key, '{}'::jsonb) AS only FROM jsonb_object_keys(old.changes) AS key) AS names "
    "WHERE r.id = old.id AND names.only IS NOT NULL"
)


class StoredRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A revision of a schedule or a workflow as it is stored.

    A newer release may write actions that this one does not know: they are texts here.
    """

    id: int
    at: datetime
    user_profile_id: int | None
    author: str
    action: str
    changes: dict[str, Any]
    note: str


class ScheduleSnapshot(StoredRevision, frozen=True, kw_only=True):
    """A revision of a schedule, with the schedule as it was from then on."""

    snapshot: dict[str, Any]


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of revisions, newest first, and the cursor of the next page, if there is one."""

    items: Sequence[StoredRevision]
    next_cursor: str | None


class ScheduleChange(msgspec.Struct, frozen=True):
    """A revision of a schedule, the schedule as it is then, and who made the change."""

    revision: Revision
    job: ScheduledJob
    author: Author = CARILLON


async def add_schedule_revisions(connection: AsyncConnection, changes: Sequence[ScheduleChange]) -> None:
    """Write revisions of schedules, and an event of the audit log beside each."""
    await run_batch(connection, _INSERT, [change.revision for change in changes])
    ids = audit.new_ids(len(changes))
    events = (schedule_event(one.revision, one.job, one.author, next(ids)) for one in changes)
    await audit.add(connection, [event for event in events if event is not None])


async def of_schedule(connection: AsyncConnection, job_id: UUID, part: Part) -> Page[StoredRevision]:
    """Return a page of a schedule's revisions, newest first."""
    query = select(_OF_SCHEDULES).where(_OF_SCHEDULES.c.scheduled_job_id == job_id)
    return await read_page(connection, query, StoredRevision, (_OF_SCHEDULES.c.at, _OF_SCHEDULES.c.id), part)


async def in_force(connection: AsyncConnection, job_id: UUID, moment: datetime) -> ScheduleSnapshot | None:
    """Return the revision of a schedule that was in force at a moment, or None if the history begins later."""
    query = select(_OF_SCHEDULES).where(_OF_SCHEDULES.c.scheduled_job_id == job_id, _OF_SCHEDULES.c.at <= moment)
    latest = query.order_by(_OF_SCHEDULES.c.at.desc(), _OF_SCHEDULES.c.id.desc()).limit(1)
    return await read_one(connection, latest, ScheduleSnapshot)


_INVALID_SINCE = text(
    "SELECT min(r.at) FROM schedule_revisions AS r WHERE r.scheduled_job_id = :job_id AND r.at > coalesce("
    "(SELECT max(before.at) FROM schedule_revisions AS before WHERE before.scheduled_job_id = :job_id "
    "AND before.snapshot ->> 'status_reason' IS DISTINCT FROM :reason), '-infinity')"
)


async def invalid_since(connection: AsyncConnection, job_id: UUID) -> datetime | None:
    """Return when a schedule was paused because of its spec; None if its history does not reach back that far."""
    values = {"job_id": job_id, "reason": Reason.INVALID_SPEC.value}
    since: datetime | None = (await connection.execute(_INVALID_SINCE, values)).scalar_one()
    return since


async def add_workflow_revision(
    connection: AsyncConnection, revision: WorkflowRevision, subject: Subject, author: Author
) -> None:
    """Write a revision of a workflow with its event, and drop the values of the revision that has become too old."""
    await audit.add(connection, [workflow_event(revision, subject, author, uuid4().hex)])
    await connection.execute(insert(WorkflowRevisionRow).values(msgspec.structs.asdict(revision)))
    values = {"workflow_id": revision.workflow_id, "kept": KEPT_WHOLE, "note": NOT_KEPT}
    await connection.execute(_DROP_OLD_VALUES, values)


async def page_of_workflow(
    connection: AsyncConnection, workflow_id: int, limit: int, cursor: str | None
) -> HistoryPage:
    """Return the newest revisions of a workflow, or those after a cursor."""
    sizes = select(_OF_WORKFLOWS.c.id, _OF_WORKFLOWS.c.changes_bytes).where(_OF_WORKFLOWS.c.workflow_id == workflow_id)
    if cursor is not None:
        sizes = sizes.where(_OF_WORKFLOWS.c.id < position_of((_OF_WORKFLOWS.c.id,), cursor)[0])
    rows = list(await connection.execute(sizes.order_by(_OF_WORKFLOWS.c.id.desc()).limit(limit + 1)))
    ids = _fitting(rows[:limit])
    query = select(_OF_WORKFLOWS).where(_OF_WORKFLOWS.c.id.in_(ids)).order_by(_OF_WORKFLOWS.c.id.desc())
    items = await read_all(connection, query, StoredRevision)
    return HistoryPage(items, cursor_of([ids[-1]]) if len(ids) < len(rows) else None)


def _fitting(rows: Sequence[Any]) -> list[int]:
    """Return the ids of the rows that fit into a page together; the first one always does."""
    ids: list[int] = []
    total = 0
    for row in rows:
        total += row.changes_bytes
        if ids and total > PAGE_BYTES:
            break
        ids.append(row.id)
    return ids
