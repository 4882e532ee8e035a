"""Retention: weekly partitions are made ahead and dropped when they are old; the rest is deleted in small parts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.errors import UnavailableError
from app.domain.identities import first_id_at
from app.persistence.database import Database

WEEK = timedelta(weeks=1)
WEEKS_AHEAD = 4
MOST_DELETED = 10_000

# Making or dropping one needs the whole table for a moment; nobody else shall wait long for that.
_SOON = text("SET LOCAL lock_timeout = '1s'")
_ONE_AT_A_TIME = text("SELECT pg_try_advisory_xact_lock(7245301847)")
_EXISTING = text(
    "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = CAST(:parent AS regclass)"
)
_ACTIVE = text("SELECT EXISTS (SELECT FROM active_executions WHERE id >= :first AND id < :last)")
# What no week took.
_DELETE_RUNS = text(
    "DELETE FROM workflow_executions_rest WHERE id IN (SELECT id FROM workflow_executions_rest "
    "WHERE id < :first_kept AND finished_at IS NOT NULL ORDER BY id LIMIT :limit)"
)
_DELETE_ENTRIES = text("DELETE FROM ledger_entries_rest WHERE last_slot < :before")


class NotNowError(Exception):
    """A week could not be made or dropped: others are in the way, or we may not."""

    code = "not_now"


class Week(msgspec.Struct, frozen=True):
    """One week of one table."""

    table: str
    start: datetime

    @property
    def name(self) -> str:
        """What its partition is called."""
        year, number, _ = self.start.isocalendar()
        return f"{self.table}_{year}w{number:02}"

    @property
    def bounds(self) -> tuple[str, str]:
        """From where to where its rows go; the first belongs to it."""
        if self.table == "workflow_executions":
            return str(first_id_at(self.start)), str(first_id_at(self.start + WEEK))
        return self.start.isoformat(), (self.start + WEEK).isoformat()

    @property
    def statement(self) -> str:
        """What makes it. An execution is written twice: there is room left for the second time."""
        first, last = self.bounds
        room = " WITH (fillfactor = 70)" if self.table == "workflow_executions" else ""
        return f"CREATE TABLE {self.name} PARTITION OF {self.table} FOR VALUES FROM ('{first}') TO ('{last}'){room}"


TABLES = ("workflow_executions", "ledger_entries")


def week_of(moment: datetime) -> datetime:
    """When the week of a moment began."""
    today = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=today.weekday())


def weeks(now: datetime) -> list[Week]:
    """The weeks that there should be: this one and those that follow."""
    monday = week_of(now)
    return [Week(table, monday + number * WEEK) for table in TABLES for number in range(WEEKS_AHEAD)]


async def missing_weeks(connection: AsyncConnection, now: datetime) -> list[Week]:
    """Those that have not been made yet."""
    existing = set(await _names(connection))
    return [week for week in weeks(now) if week.name not in existing]


async def make_week(database: Database, week: Week) -> bool:
    """Make one, unless somebody else is at it; whether it was made."""
    async with _told(), database.transaction() as connection:
        if not await _alone(connection) or week.name in await _names(connection):
            return False
        await connection.execute(text(week.statement))
        return True


async def old_weeks(connection: AsyncConnection, before: datetime) -> list[Week]:
    """The weeks that ended before a moment."""
    found = []
    for name in await _names(connection):
        table, _, label = name.rpartition("_")
        if "w" in label and label[:4].isdigit():
            start = datetime.fromisocalendar(int(label[:4]), int(label[5:]), 1).replace(tzinfo=UTC)
            if start + WEEK <= before:
                found.append(Week(table, start))
    return sorted(found, key=lambda week: week.start)


async def drop_week(database: Database, week: Week) -> bool:
    """Drop one with all that is in it, unless something of it is still under way; whether it was dropped."""
    span = {"first": first_id_at(week.start), "last": first_id_at(week.start + WEEK)}
    async with _told(), database.transaction() as connection:
        if not await _alone(connection) or (await connection.execute(_ACTIVE, span)).scalar_one():
            return False
        await connection.execute(text(f"DROP TABLE IF EXISTS {week.name}"))
        return True


async def delete_rest(connection: AsyncConnection, before: datetime) -> int:
    """Delete what is old and was never in a week; how many rows."""
    runs = await connection.execute(_DELETE_RUNS, {"first_kept": first_id_at(before), "limit": MOST_DELETED})
    entries = await connection.execute(_DELETE_ENTRIES, {"before": before})
    return runs.rowcount + entries.rowcount


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    try:
        yield
    except (DBAPIError, UnavailableError) as error:
        raise NotNowError(str(error.__cause__ or error)) from error


async def _alone(connection: AsyncConnection) -> bool:
    await connection.execute(_SOON)
    return bool((await connection.execute(_ONE_AT_A_TIME)).scalar_one())


async def _names(connection: AsyncConnection) -> list[str]:
    return [
        name for table in TABLES for name in (await connection.execute(_EXISTING, {"parent": table})).scalars().all()
    ]


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


async def delete_histories(connection: AsyncConnection) -> Deleted:
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


# The first attempts of a slot that is to be tried again are still needed.
_EXECUTIONS = text(
    "DELETE FROM workflow_executions WHERE id IN (SELECT e.id FROM workflow_executions AS e "
    "LEFT JOIN scheduled_jobs AS j ON j.id = e.scheduled_job_id "
    "WHERE e.id < :first_kept AND e.finished_at < :before AND j.next_slot IS DISTINCT FROM e.scheduled_for "
    "AND (CAST(:owner AS integer) IS NULL OR e.user_profile_id = :owner) ORDER BY e.id LIMIT :limit)"
)
_ENTRIES = text(
    "DELETE FROM ledger_entries WHERE (scheduled_job_id, first_slot) IN "
    "(SELECT l.scheduled_job_id, l.first_slot FROM ledger_entries AS l "
    "JOIN scheduled_jobs AS j ON j.id = l.scheduled_job_id WHERE l.last_slot < :before "
    "AND (CAST(:owner AS integer) IS NULL OR j.user_profile_id = :owner) ORDER BY l.last_slot LIMIT :limit)"
)


async def purge_executions(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete ended executions, with what their nodes did; how many."""
    values = {"before": before, "first_kept": first_id_at(before), "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_EXECUTIONS, values)).rowcount


async def purge_ledger(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete the account of slots that did not fire; how many entries."""
    values = {"before": before, "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_ENTRIES, values)).rowcount
