"""The history of workflows: who changed what, when."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from sqlalchemy import Row, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import FieldError, InvalidError
from app.domain.revisions import WorkflowRevision
from app.persistence.tables import WorkflowRevisionRow

# A page ends here, if not earlier: the changes of one revision may hold all nodes twice.
PAGE_BYTES = 1_048_576

_TABLE = WorkflowRevisionRow.__table__
# What a bigint can be.
_Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class HistoryPage(msgspec.Struct, frozen=True):
    """Some revisions, newest first, and where the next page begins, if there is one."""

    items: Sequence[Row[Any]]
    next_cursor: str | None


async def add(connection: AsyncConnection, revision: WorkflowRevision) -> None:
    """Write a change down."""
    await connection.execute(insert(WorkflowRevisionRow).values(msgspec.structs.asdict(revision)))


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
