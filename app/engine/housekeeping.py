"""Housekeeping: create partitions of the history in time, delete what is old in parts, derive figures by minute."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

import structlog

from app import clock
from app.domain.idempotency import KEPT
from app.domain.limits import Quotas
from app.engine import oidc_keys, schedule_changes
from app.persistence import (
    backfills,
    calendars,
    execution_queries,
    idempotency,
    limits,
    operations,
    outcome_minutes,
    retention,
    sessions,
    users,
)
from app.persistence.database import Connection, Database, database_now
from app.persistence.quotas import QuotaBook
from app.persistence.retention import MOST_ROWS, PartitionError, Week

HOUR_SECONDS = 3600.0
# Idempotency keys that are deleted in an hour at most, in one statement.
MOST_KEYS = 100_000
# Schedules that are deleted in one transaction at most.
MOST_EXPIRED = 100
# How often it looks for histories of deleted schedules, and the pause between two parts of one.
LOOK_SECONDS = 5.0
REST_SECONDS = 0.05
# Lists show tokens that have ended for this time.
KEEP_ENDED_TOKENS = timedelta(days=30)
# Permits and buckets of limits that have not been used for this time are deleted.
KEEP_UNUSED_BUCKETS = timedelta(hours=1)
# It rests so many times as long as the figures took: they must not compete with ticks where there are many.
FIGURES_REST = 30

# Deletes some of the rows from before a moment, and returns how many.
DeleteSome = Callable[[Connection, datetime], Awaitable[int]]

log = structlog.get_logger(__name__)


class Housekeeper:
    """Checks partitions, tokens, sessions and keys once an hour; derives figures and deletes histories at any time."""

    def __init__(
        self,
        database: Database,
        keep_days: int,
        audit_days: int = -1,
        delete_after_seconds: int = 0,
        quotas: QuotaBook | None = None,
    ) -> None:
        """Keep history for ``keep_days`` days, the audit log for ``audit_days``; 0 is for ever, -1 as the history.

        Schedules that do not say it themselves are deleted so many seconds after they are done; 0 is never. History of
        owners with a quota of days is deleted after these.
        """
        self._quotas = quotas or QuotaBook(Quotas(history_days=keep_days))
        self._delete_after_seconds = delete_after_seconds
        self._expired_due_at = clock.monotonic()
        self._database = database
        self._keep = timedelta(days=keep_days) if keep_days else None
        self._keep_audit = self._keep if audit_days < 0 else timedelta(days=audit_days) if audit_days else None
        self._weeks_due_at = clock.monotonic()
        self._figures_due_at = self._weeks_due_at
        self._has_rows_to_fill = True
        self._is_logged = False
        self._is_left_to_owner = False

    async def step(self) -> float:
        """Do one part of the work. Return the seconds until the next part."""
        self._log_retention()
        if clock.monotonic() >= self._weeks_due_at:
            await self.keep_weeks()
            await oidc_keys.rotate_if_due(self._database)
            self._weeks_due_at = clock.monotonic() + HOUR_SECONDS
        await self.derive_figures()
        await self.delete_expired()
        return REST_SECONDS if await self._delete_and_fill() else LOOK_SECONDS

    async def derive_figures(self) -> None:
        """Derive the figures of the latest minutes, and of earlier ones whose runs may have ended since."""
        began = clock.monotonic()
        if began < self._figures_due_at:
            return
        async with self._database.transaction() as connection:
            minutes = await outcome_minutes.due_minutes(connection, await database_now(connection))
        for minute in minutes:
            async with self._database.transaction() as connection:
                await outcome_minutes.derive(connection, minute)
        ended = clock.monotonic()
        self._figures_due_at = ended + FIGURES_REST * (ended - began)

    async def delete_expired(self) -> None:
        """Delete schedules that have been done for long enough, as many as there are."""
        began = clock.monotonic()
        if began < self._expired_due_at:
            return
        deleted, total = MOST_EXPIRED, 0
        while deleted == MOST_EXPIRED:
            async with self._database.transaction("delete_expired") as connection:
                deleted = await schedule_changes.delete_expired(connection, self._delete_after_seconds, MOST_EXPIRED)
            total += deleted
        if total:
            log.info("done_schedules_deleted", schedules=total)
        ended = clock.monotonic()
        self._expired_due_at = ended + FIGURES_REST * (ended - began)

    async def keep_weeks(self) -> None:
        """Create the partitions that are missing and drop those that are old."""
        async with self._database.transaction() as connection:
            now = await database_now(connection)
            is_owner = await retention.owns_partitions(connection)
            missing = await retention.missing_weeks(connection, now) if is_owner else []
            old = await self._old_weeks(connection, now) if is_owner else []
        if not is_owner and not self._is_left_to_owner:
            self._is_left_to_owner = True
            log.info("partitions_left_to_owner")
        for week in missing:
            await self._make(week)
        for week in old:
            await self._drop(week)
        if self._keep:
            async with self._database.transaction() as connection:
                await retention.delete_unpartitioned(connection, now - self._keep)
                await backfills.delete_old(connection, now - self._keep)
                await calendars.delete_old_contents(connection, now - self._keep)
            await self._delete_all(operations.delete_old, operations.MOST_DELETED, now - self._keep)
            await self._delete_all(outcome_minutes.delete_before, outcome_minutes.MOST_DELETED, now - self._keep)
            orphans = execution_queries.drop_unsuccessful_orphans
            await self._delete_all(orphans, execution_queries.MOST_ROWS, retention.week_of(now - self._keep))
        await self._keep_quotas(now)
        if self._keep_audit:
            async with self._database.transaction() as connection:
                await retention.delete_unpartitioned_events(connection, now - self._keep_audit)
        async with self._database.transaction() as connection:
            await retention.delete_spent_records(connection)
            await idempotency.drop_old(connection, now - KEPT, MOST_KEYS)
            await users.delete_ended_tokens(connection, now - KEEP_ENDED_TOKENS)
            await sessions.delete_ended(connection)
        await self._delete_all(limits.forget_permits, limits.MOST_FORGOTTEN, now - KEEP_UNUSED_BUCKETS)
        await self._delete_all(limits.forget_buckets, limits.MOST_FORGOTTEN, now - KEEP_UNUSED_BUCKETS)
        # Another worker may have died while it filled the table of unsuccessful executions.
        self._has_rows_to_fill = True

    async def _keep_quotas(self, now: datetime) -> None:
        """Delete the history of owners who may keep it for a shorter time."""
        async with self._database.transaction() as connection:
            quotas = await self._quotas.refreshed(connection)
        for owner_id, days in quotas.history_days().items():
            for delete in (retention.purge_executions, retention.purge_ledger):
                await self._delete_all(partial(delete, owner_id=owner_id), MOST_ROWS, now - timedelta(days=days))

    async def _old_weeks(self, connection: Connection, now: datetime) -> list[Week]:
        old = await retention.old_weeks(connection, now - self._keep) if self._keep else []
        if self._keep_audit:
            old += await retention.old_weeks(connection, now - self._keep_audit, retention.AUDIT)
        return old

    async def _delete_and_fill(self) -> bool:
        """Delete rows of deleted schedules, and fill ``unsuccessful_executions``. Return whether more is left to do."""
        async with self._database.transaction() as connection:
            deleted = await retention.delete_histories(connection)
        if deleted.histories:
            log.info("histories_deleted", schedules=deleted.histories, rows=deleted.rows)
        if self._has_rows_to_fill:
            async with self._database.transaction() as connection:
                self._has_rows_to_fill = await execution_queries.fill_unsuccessful(connection)
        return deleted.more or self._has_rows_to_fill

    async def _delete_all(self, delete: DeleteSome, most: int, before: datetime) -> None:
        """Delete all rows from before a moment, at most ``most`` in each transaction."""
        deleted = most
        while deleted == most:
            async with self._database.transaction() as connection:
                deleted = await delete(connection, before)

    def _log_retention(self) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.info("history_kept", days=self._keep.days if self._keep else "for ever")

    async def _make(self, week: Week) -> None:
        """Create a partition. If that fails now, rows go to the default partition and it is tried again."""
        try:
            if await retention.make_week(self._database, week):
                log.info("partition_created", week=week.name)
        except PartitionError as error:
            log.warning("partition_creation_failed", week=week.name, error=str(error))

    async def _drop(self, week: Week) -> None:
        try:
            if await retention.drop_week(self._database, week):
                log.info("partition_dropped", week=week.name)
        except PartitionError as error:
            log.warning("partition_drop_failed", week=week.name, error=str(error))
