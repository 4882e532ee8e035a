"""The histories of deleted schedules, deleted a part at a time.

The statement that deletes a schedule notes it in ``deleted_histories``; from then on nobody sees its history.
"""

import msgspec
from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.ext.asyncio import AsyncConnection

# So many rows in one transaction: far below the statement timeout, however slow the disk is.
MOST_ROWS = 5000
MOST_HISTORIES = 100

# One that another worker is at is left to it.
_TAKE = text("SELECT scheduled_job_id FROM deleted_histories ORDER BY deleted_at LIMIT :limit FOR UPDATE SKIP LOCKED")
_DELETES = (
    text(
        "DELETE FROM workflow_executions WHERE id IN "
        "(SELECT id FROM workflow_executions WHERE scheduled_job_id = :job_id ORDER BY id DESC LIMIT :limit)"
    ),
    text(
        "DELETE FROM ledger_entries WHERE scheduled_job_id = :job_id AND first_slot IN "
        "(SELECT first_slot FROM ledger_entries WHERE scheduled_job_id = :job_id LIMIT :limit)"
    ),
    text(
        "DELETE FROM schedule_revisions WHERE id IN "
        "(SELECT id FROM schedule_revisions WHERE scheduled_job_id = :job_id LIMIT :limit)"
    ),
)
_FORGET = text("DELETE FROM deleted_histories WHERE scheduled_job_id = ANY(:ids)").bindparams(
    bindparam("ids", type_=ARRAY(PG_UUID(as_uuid=True)))
)


class Deleted(msgspec.Struct, frozen=True):
    """How many rows were deleted, how many histories are gone for good, and whether there may be more to delete."""

    rows: int
    histories: int
    more: bool


async def work_off(connection: AsyncConnection) -> Deleted:
    """Delete a part of what is left of the oldest of these histories."""
    rows, gone = 0, []
    noted = (await connection.execute(_TAKE, {"limit": MOST_HISTORIES})).scalars().all()
    for job_id in noted:
        for statement in _DELETES:
            values = {"job_id": job_id, "limit": MOST_ROWS - rows}
            rows += (await connection.execute(statement, values)).rowcount
            if rows >= MOST_ROWS:
                break
        else:
            gone.append(job_id)
            continue
        break
    if gone:
        await connection.execute(_FORGET, {"ids": gone})
    return Deleted(rows, len(gone), more=bool(noted))
