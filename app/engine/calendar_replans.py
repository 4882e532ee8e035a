"""Schedules that are planned again because one of their calendars was changed, some in each transaction."""

from datetime import datetime
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from app.domain.errors import UnavailableError
from app.domain.executions import PendingRun
from app.domain.revisions import Author
from app.domain.schedule_lifecycle import with_new_calendars
from app.domain.schedules import ScheduledJob
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import calendars, schedules
from app.persistence.calendars import Replan
from app.persistence.database import Connection, Database

# More rows hold their locks and the event loop for longer.
BATCH_ROWS = 200
# How many batches a request that changes a calendar waits for; workers do the rest.
BATCHES_AT_ONCE = 10
# How often a worker looks for changes that a request has left to it.
LOOK_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Replanned(msgspec.Struct, frozen=True):
    """What has to be rung for after a batch."""

    ticks: tuple[ScheduledJob, ...] = ()
    pending: tuple[PendingRun, ...] = ()


class CalendarReplanner:
    """Plans schedules again whose calendars were changed."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring after each batch."""
        self._database = database
        self._ringer = ringer

    async def run(self) -> None:
        """Plan again what was asked for, up to a bound; the rest is left to workers."""
        for _ in range(BATCHES_AT_ONCE):
            if not await self.run_batch():
                return

    async def step(self) -> float:
        """Plan one batch. Return the seconds until the next one."""
        return 0.0 if await self.run_batch() else LOOK_SECONDS

    async def run_batch(self) -> bool:
        """Plan the next schedules of one change again. Return whether there was a change."""
        try:
            return await self._run_batch(BATCH_ROWS)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again and then logged as a whole
            # One of the rows: they are handled one by one, so that only the bad one is left as it is.
            log.warning("calendar_batch_failed", error=type(error).__name__)
        return await self._one_by_one()

    async def _one_by_one(self) -> bool:
        for _ in range(BATCH_ROWS):
            try:
                is_busy = await self._run_batch(1)
            except UnavailableError:
                raise
            except Exception as error:
                log.exception("calendar_row_failed", error=type(error).__name__)
                is_busy = await self._run_batch(1, skips=True)
            if not is_busy:
                return False
        return True

    async def _run_batch(self, limit: int, *, skips: bool = False) -> bool:
        async with self._database.transaction("calendar_replan") as connection:
            replan = await calendars.take_replan(connection)
            if replan is None:
                return False
            ids = await calendars.users_after(connection, replan.name, replan.position, limit)
            done = Replanned() if skips else await _replan(connection, replan, ids)
            await calendars.advance_replan(connection, replan, ids[-1] if len(ids) == limit else None)
        await self._ringer.ticks(done.ticks)
        await self._ringer.executions(done.pending)
        return True


async def _replan(connection: Connection, replan: Replan, ids: list[UUID]) -> Replanned:
    """Bind these schedules to the calendars that their names stand for now, and plan those again that changes."""
    locked = list((await schedules.lock(connection, ids)).values())
    bound = {job.id: job for job in await calendars.bound(connection, locked)}
    changed = {job.id: job for job in locked if bound[job.id].calendar_versions != job.calendar_versions}
    if not changed:
        return Replanned()
    ready = {job_id: bound[job_id] for job_id in changed}

    def change(job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
        after = with_new_calendars(job, active_runs, now)
        return replace(after) if after is job else after

    author = Author(replan.user_profile_id, replan.author)
    note = f"The calendar '{replan.name}' was changed."
    done = await schedule_changes.change_many(connection, changed, change, author, note, ready=ready)
    return Replanned(tuple(after for _, after in done.changed.values()), done.pending)
