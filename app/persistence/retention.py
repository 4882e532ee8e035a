"""Retention: weekly partitions are created ahead and dropped when they are old; the rest is deleted in small parts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import UnavailableError
from app.domain.run_ids import first_id_at
from app.persistence.database import Database

HISTORY = ("workflow_executions", "ledger_entries")
AUDIT = ("audit_events",)
TABLES = (*HISTORY, *AUDIT)
# Their partitions are bounded by ids that begin with the time.
_BY_ID = ("workflow_executions", "audit_events")
WEEK = timedelta(weeks=1)
WEEKS_AHEAD = 4
MOST_DELETED = 10_000
# Rows in one transaction: far below the statement timeout, even on a slow disk.
MOST_ROWS = 5000
MOST_HISTORIES = 100

# Creating or dropping a partition locks the whole table for a moment, and everything that comes after a waiting lock
# waits too: so it gives up after a second.
_SHORT_LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '1s'")
_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(7245301847)")
_OWNS = text("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = CAST('workflow_executions' AS regclass)")
_EXISTING = text(
    "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = CAST(:parent AS regclass)"
)
_ACTIVE = text("SELECT EXISTS (SELECT FROM active_executions WHERE id >= :first AND id < :last)")
# Rows for which there was no partition go to the default partitions.
_DELETE_RUNS = text(
    "DELETE FROM workflow_executions_rest WHERE id IN (SELECT id FROM workflow_executions_rest "
    "WHERE id < :first_kept AND finished_at IS NOT NULL ORDER BY id LIMIT :limit)"
)
_DELETE_EVENTS = text(
    "DELETE FROM audit_events_rest WHERE id IN "
    "(SELECT id FROM audit_events_rest WHERE id < :first_kept ORDER BY id LIMIT :limit)"
)
_DELETE_ENTRIES = text("DELETE FROM ledger_entries_rest WHERE last_slot < :before")
# What a plugin asked for and insists on is created again if it is gone: its record says nothing then.
_DELETE_RECORDS = text(
    "DELETE FROM plugin_schedules AS p WHERE p.mode = 'enforce' "
    "AND NOT EXISTS (SELECT FROM scheduled_jobs AS j WHERE j.id = p.scheduled_job_id)"
)
# The oldest rows are looked at, not all: a breaker that opens and closes all the time has many.
_DELETE_TRANSITIONS = text(
    "DELETE FROM circuit_breaker_transitions WHERE id IN (SELECT id FROM (SELECT id, at "
    "FROM circuit_breaker_transitions ORDER BY id LIMIT :limit) AS oldest WHERE oldest.at < :before)"
)


class PartitionError(Exception):
    """A partition could not be created or dropped: the table is in use, or the role may not."""

    code = "not_now"


class Week(msgspec.Struct, frozen=True):
    """The partition of a table for one week."""

    table: str
    start: datetime

    @property
    def name(self) -> str:
        """The name of the partition."""
        year, number, _ = self.start.isocalendar()
        return f"{self.table}_{year}w{number:02}"

    @property
    def bounds(self) -> tuple[str, str]:
        """The bounds of the partition key; the first is inside, the second is not."""
        if self.table in _BY_ID:
            return str(first_id_at(self.start)), str(first_id_at(self.start + WEEK))
        return self.start.isoformat(), (self.start + WEEK).isoformat()

    @property
    def statement(self) -> str:
        """The SQL that creates it.

        An execution is written twice, the second time with its results: its pages keep room for that version, which is
        about twice as long. In another page it would have to be written to every index again.
        """
        first, last = self.bounds
        room = " WITH (fillfactor = 35)" if self.table == "workflow_executions" else ""
        return f"CREATE TABLE {self.name} PARTITION OF {self.table} FOR VALUES FROM ('{first}') TO ('{last}'){room}"


def week_of(moment: datetime) -> datetime:
    """Return the Monday, 00:00 UTC, of a moment's week."""
    today = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=today.weekday())


def weeks(now: datetime) -> list[Week]:
    """Return the partitions that should exist: for this week and those that follow."""
    monday = week_of(now)
    return [Week(table, monday + number * WEEK) for table in TABLES for number in range(WEEKS_AHEAD)]


async def owns_partitions(connection: AsyncConnection) -> bool:
    """Return whether this role may create and drop partitions, which only the owner of the tables may."""
    return bool((await connection.execute(_OWNS)).scalar_one())


async def missing_weeks(connection: AsyncConnection, now: datetime) -> list[Week]:
    """Return the partitions that should exist and do not."""
    existing = set(await _names(connection))
    return [week for week in weeks(now) if week.name not in existing]


async def make_week(database: Database, week: Week) -> bool:
    """Create a partition, unless another process is doing so. Return whether it was created."""
    async with _partition_errors(), database.transaction() as connection:
        if not await _is_alone(connection) or week.name in await _names(connection):
            return False
        await connection.execute(text(week.statement))
        return True


async def old_weeks(connection: AsyncConnection, before: datetime, tables: Sequence[str] = HISTORY) -> list[Week]:
    """Return the partitions of these tables whose week ended before a moment, oldest first."""
    old = []
    for name in await _names(connection, tables):
        table, _, label = name.rpartition("_")
        if "w" in label and label[:4].isdigit():
            start = datetime.fromisocalendar(int(label[:4]), int(label[5:]), 1).replace(tzinfo=UTC)
            if start + WEEK <= before:
                old.append(Week(table, start))
    return sorted(old, key=lambda week: week.start)


async def drop_week(database: Database, week: Week) -> bool:
    """Drop a partition with its rows, unless one of them is an active execution. Return whether it was dropped."""
    span = {"first": first_id_at(week.start), "last": first_id_at(week.start + WEEK)}
    async with _partition_errors(), database.transaction() as connection:
        if not await _is_alone(connection):
            return False
        if week.table != "audit_events" and (await connection.execute(_ACTIVE, span)).scalar_one():
            return False
        await connection.execute(text(f"DROP TABLE IF EXISTS {week.name}"))
        return True


async def delete_unpartitioned(connection: AsyncConnection, before: datetime) -> int:
    """Delete old rows of the default partitions and old transitions of breakers, up to a bound. Return how many."""
    runs = await connection.execute(_DELETE_RUNS, {"first_kept": first_id_at(before), "limit": MOST_DELETED})
    entries = await connection.execute(_DELETE_ENTRIES, {"before": before})
    transitions = await connection.execute(_DELETE_TRANSITIONS, {"before": before, "limit": MOST_DELETED})
    return runs.rowcount + entries.rowcount + transitions.rowcount


async def delete_unpartitioned_events(connection: AsyncConnection, before: datetime) -> None:
    """Delete old rows of the audit log for which there was no partition, up to a bound."""
    await connection.execute(_DELETE_EVENTS, {"first_kept": first_id_at(before), "limit": MOST_DELETED})


async def delete_spent_records(connection: AsyncConnection) -> None:
    """Delete records of plugins' schedules that are gone and that say nothing any more."""
    await connection.execute(_DELETE_RECORDS)


@asynccontextmanager
async def _partition_errors() -> AsyncIterator[None]:
    try:
        yield
    except (DBAPIError, UnavailableError) as error:
        raise PartitionError(str(error.__cause__ or error)) from error


async def _is_alone(connection: AsyncConnection) -> bool:
    await connection.execute(_SHORT_LOCK_TIMEOUT)
    return bool((await connection.execute(_TRY_LOCK)).scalar_one())


async def _names(connection: AsyncConnection, tables: Sequence[str] = TABLES) -> list[str]:
    return [
        name for table in tables for name in (await connection.execute(_EXISTING, {"parent": table})).scalars().all()
    ]


# The history of deleted schedules. History has no foreign keys: a cascade would delete millions of rows in one
# transaction, longer than a request may take, and the check of each new row locks the schedule's row once more, which
# was a fifth of a claim. A trigger notes the deleted schedule instead, and its rows are deleted in small parts.

# A history that another worker has locked is left to it.
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
        "DELETE FROM backfilled_slots WHERE scheduled_job_id = :job_id AND (slot, operation_id) IN "
        "(SELECT slot, operation_id FROM backfilled_slots WHERE scheduled_job_id = :job_id LIMIT :limit)"
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
    """How many rows were deleted, how many histories are now empty, and whether there may be more to delete."""

    rows: int
    histories: int
    more: bool


async def delete_histories(connection: AsyncConnection) -> Deleted:
    """Delete some rows of deleted schedules, those that were deleted first."""
    rows, emptied = 0, []
    job_ids = (await connection.execute(_TAKE, {"limit": MOST_HISTORIES})).scalars().all()
    for job_id in job_ids:
        for statement in _DELETES:
            values = {"job_id": job_id, "limit": MOST_ROWS - rows}
            rows += (await connection.execute(statement, values)).rowcount
            if rows >= MOST_ROWS:
                break
        else:
            emptied.append(job_id)
            continue
        break
    if emptied:
        await connection.execute(_FORGET, {"ids": emptied})
    return Deleted(rows, len(emptied), more=bool(job_ids))


# Purged on request, and of owners who may keep less history than all others.

# The earlier attempts at a slot that is to be tried again are still needed.
_PURGE_EXECUTIONS = (
    "DELETE FROM workflow_executions WHERE id IN (SELECT e.id FROM workflow_executions AS e "
    "LEFT JOIN scheduled_jobs AS j ON j.id = e.scheduled_job_id WHERE {owned} "
    "AND e.id < :first_kept AND e.finished_at < :before AND j.next_slot IS DISTINCT FROM e.scheduled_for "
    "ORDER BY e.id LIMIT :limit)"
)
_PURGE_ALL_EXECUTIONS = text(_PURGE_EXECUTIONS.format(owned="true"))
_PURGE_OWN_EXECUTIONS = text(_PURGE_EXECUTIONS.format(owned="e.user_profile_id = :owner"))
_PURGE_ALL_ENTRIES = text(
    "DELETE FROM ledger_entries WHERE (scheduled_job_id, first_slot) IN "
    "(SELECT l.scheduled_job_id, l.first_slot FROM ledger_entries AS l "
    "JOIN scheduled_jobs AS j ON j.id = l.scheduled_job_id WHERE l.last_slot < :before "
    "ORDER BY l.last_slot LIMIT :limit)"
)
# By the owner's schedules: the entries of all others are not read.
_PURGE_OWN_ENTRIES = text(
    "DELETE FROM ledger_entries WHERE (scheduled_job_id, first_slot) IN "
    "(SELECT l.scheduled_job_id, l.first_slot FROM scheduled_jobs AS j CROSS JOIN LATERAL ("
    "SELECT l.scheduled_job_id, l.first_slot FROM ledger_entries AS l "
    "WHERE l.scheduled_job_id = j.id AND l.last_slot < :before ORDER BY l.first_slot LIMIT :limit) AS l "
    "WHERE j.user_profile_id = :owner LIMIT :limit)"
)


async def purge_executions(
    connection: AsyncConnection, before: datetime, owner_id: int | None, limit: int = MOST_ROWS
) -> int:
    """Delete executions of an owner, or of all, that ended before a moment. Return how many."""
    values = {"before": before, "first_kept": first_id_at(before), "limit": limit}
    return await _purge(connection, _PURGE_ALL_EXECUTIONS, _PURGE_OWN_EXECUTIONS, owner_id, values)


async def purge_ledger(
    connection: AsyncConnection, before: datetime, owner_id: int | None, limit: int = MOST_ROWS
) -> int:
    """Delete ledger entries of an owner, or of all, from before a moment. Return how many."""
    return await _purge(
        connection, _PURGE_ALL_ENTRIES, _PURGE_OWN_ENTRIES, owner_id, {"before": before, "limit": limit}
    )


async def _purge(
    connection: AsyncConnection, of_all: TextClause, of_owner: TextClause, owner_id: int | None, values: dict[str, Any]
) -> int:
    if owner_id is None:
        return (await connection.execute(of_all, values)).rowcount
    return (await connection.execute(of_owner, values | {"owner": owner_id})).rowcount
