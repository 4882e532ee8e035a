"""The history of workflows: who changed what, when."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from sqlalchemy import Row, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import FieldError, InvalidError
from app.domain.revisions import WorkflowRevision
from app.persistence.tables import WorkflowRevisionRow

# A page ends here, if not earlier: the changes of one revision may hold all nodes twice.
PAGE_BYTES = 1_048_576

# So many changes of a workflow are kept whole. Of older ones the fields are named, without their values: otherwise
# whoever edits a large workflow again and again would fill the disk.
KEPT_WHOLE = 50
NOT_KEPT = "The values of this change are no longer kept."

_TABLE = WorkflowRevisionRow.__table__
# What a bigint can be.
_Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


_FORGET = text(
    "UPDATE workflow_revisions AS r SET changes = names.only, changes_bytes = length(CAST(names.only AS text)), "
    "note = :note FROM (SELECT id, changes FROM workflow_revisions WHERE workflow_id = :workflow_id "
    "ORDER BY id DESC OFFSET :kept LIMIT 1) AS old CROSS JOIN LATERAL "
    "(SELECT jsonb_object_agg(key, '{}'::jsonb) AS only FROM jsonb_object_keys(old.changes) AS key) AS names "
    "WHERE r.id = old.id AND names.only IS NOT NULL"
)


class HistoryPage(msgspec.Struct, frozen=True):
    """Some revisions, newest first, and where the next page begins, if there is one."""

    items: Sequence[Row[Any]]
    next_cursor: str | None


async def add(connection: AsyncConnection, revision: WorkflowRevision) -> None:
    """Write a change down, and drop the values of the one that has become too old."""
    await connection.execute(insert(WorkflowRevisionRow).values(msgspec.structs.asdict(revision)))
    values = {"workflow_id": revision.workflow_id, "kept": KEPT_WHOLE, "note": NOT_KEPT}
    await connection.execute(_FORGET, values)


async def page(connection: AsyncConnection, workflow_id: int, limit: int, cursor: str | None) -> HistoryPage:
    """Return the newest revisions of a workflow, or those that follow where a cursor stands."""
    sizes = select(_TABLE.c.id, _TABLE.c.changes_bytes).where(_TABLE.c.workflow_id == workflow_id)
    if cursor is not None:
        sizes = sizes.where(_TABLE.c.id < _position(cursor))
    found = list(await connection.execute(sizes.order_by(_TABLE.c.id.desc()).limit(limit + 1)))
    kept = _fitting(found[:limit])
    rows = await connection.execute(select(_TABLE).where(_TABLE.c.id.in_(kept)).order_by(_TABLE.c.id.desc()))
    return HistoryPage(list(rows), _cursor(kept[-1]) if len(kept) < len(found) else None)


def _cursor(revision_id: int) -> str:
    return urlsafe_b64encode(msgspec.json.encode(revision_id)).decode().rstrip("=")


def _position(cursor: str) -> int:
    try:
        return msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=_Id)
    except (ValueError, msgspec.DecodeError):
        words = "The cursor does not belong to this list. Start again without it."
        raise InvalidError(FieldError("cursor", words)) from None


def _fitting(found: Sequence[Any]) -> list[int]:
    """The ids of those that fit into a page; the first one always does."""
    kept: list[int] = []
    total = 0
    for row in found:
        total += row.changes_bytes
        if kept and total > PAGE_BYTES:
            break
        kept.append(row.id)
    return kept
