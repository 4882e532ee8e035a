"""Entities: plugins have tables with times of their own, and are polled for the jobs in them that are due."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from uuid import uuid4

import msgspec
import structlog

from app import clock
from app.actions.plugins import CORE
from app.domain.entity_jobs import Planned, ScheduledJobConfig, is_due, planned, planned_anew, stopped
from app.domain.errors import UnavailableError
from app.domain.executions import PendingRun
from app.engine.entity_schedulers import LoadedScheduler, StoppedJobs
from app.engine.ringing import Ringer
from app.observability.metrics import POLLED
from app.persistence import entity_runs, leases, users
from app.persistence.database import Connection, Database, database_now, is_unreachable, session_within
from app.persistence.entity_runs import Due

LOCK = "entity_polling"
# How often a process without the lock tries to take it.
TRY_SECONDS = 10.0
# A poll writes runs that come due before the next poll, with a margin: a factor of the time between two polls.
LOOK_AHEAD = 1.25
# After a poll that failed.
AGAIN_SECONDS = 5.0
# A job that moves between pages can be missed, so the pages are read again until they hold nothing new.
MOST_WALKS = 5
# So that a scheduler whose jobs are due again at once does not keep the others from being polled.
MOST_BATCHES = 1000

log = structlog.get_logger(__name__)


class Polled(msgspec.Struct):
    """The result of a poll: how many runs were written, and how many jobs failed."""

    queued: int = 0
    errors: int = 0
    # Whether every scheduler was polled to its end.
    complete: bool = True


# The jobs that a poll has read, by id and time: as texts, because a plugin's values may not be hashable.
_Seen = set[str]


class _LockLostError(Exception):
    """Another process has taken the lock."""

    code = "lock_lost"


class Poller:
    """Polls while it holds the lock in Postgres: of all processes one polls at a time."""

    def __init__(
        self,
        database: Database,
        ringer: Ringer,
        schedulers: Sequence[LoadedScheduler],
        *,
        poll_seconds: float,
        batch_size: int,
        lease_seconds: float,
    ) -> None:
        """Prepare polling; the lock is taken by ``step`` or ``poll_now``."""
        self._database = database
        self._ringer = ringer
        self._schedulers = schedulers
        self._poll_seconds = poll_seconds
        self._batch_size = batch_size
        self._lease_seconds = lease_seconds
        self._owner = uuid4()
        self._next_poll = 0.0

    async def step(self) -> float:
        """Take or renew the lock, and poll if it is time. Return the seconds until the next step."""
        if not self._schedulers:
            return self._poll_seconds
        if not await self._take():
            return min(self._poll_seconds, TRY_SECONDS)
        if clock.monotonic() >= self._next_poll:
            began = clock.monotonic()
            # If the poll fails, the next one comes soon.
            self._next_poll = began + min(self._poll_seconds, AGAIN_SECONDS)
            done = await self.poll(timedelta(seconds=self._poll_seconds * LOOK_AHEAD))
            if done.complete:
                self._next_poll = began + self._poll_seconds
        # The lock is renewed well before it expires: with the default lease every 30 of 70 seconds.
        return max(0.0, min(self._lease_seconds * 3 / 7, self._next_poll - clock.monotonic()))

    async def poll_now(self) -> Polled:
        """Poll what is due now, unless another process holds the lock."""
        if not self._schedulers or not await self._take():
            return Polled()
        try:
            return await self.poll(timedelta(0))
        finally:
            await self.release()

    async def poll(self, ahead: timedelta) -> Polled:
        """Poll every scheduler for what is due within ``ahead``. One that fails does not stop the others."""
        done = Polled()
        for loaded in self._schedulers:
            try:
                await self._poll_one(loaded, ahead, done)
            except _LockLostError:
                log.warning("lock_lost", lock=LOCK)
                done.complete = False
                break
            except UnavailableError:
                raise
            except Exception:
                done.errors += 1
                done.complete = False
                log.exception("poll_failed", entity_type=loaded.scheduler.entity_type)
        POLLED.labels("queued").inc(done.queued)
        POLLED.labels("error").inc(done.errors)
        if done.queued or done.errors:
            log.info("entities_polled", queued=done.queued, errors=done.errors)
        return done

    async def release(self) -> None:
        """Release the lock, so that another process can poll."""
        async with self._database.transaction() as connection:
            await leases.release_lock(connection, LOCK, self._owner)

    async def _take(self) -> bool:
        async with self._database.transaction() as connection:
            return await leases.take_lock(connection, LOCK, self._owner, self._lease_seconds)

    async def _poll_one(self, loaded: LoadedScheduler, ahead: timedelta, done: Polled) -> None:
        """Read the due jobs again until a walk over all pages finds nothing new. Then plan stopped jobs anew."""
        seen: _Seen = set()
        for _ in range(MOST_WALKS):
            known = len(seen)
            await self._walk(loaded, ahead, done, seen)
            if len(seen) == known:
                break
        if isinstance(loaded.scheduler, StoppedJobs) and await self._replan(loaded, loaded.scheduler):
            # Their next times may lie before the next poll.
            await self._walk(loaded, ahead, done, seen)

    async def _replan(self, loaded: LoadedScheduler, scheduler: StoppedJobs) -> int:
        """Plan stopped jobs anew, page by page. Return how many have a next time again; the offset skips the others."""
        offset = replanned = 0
        for _ in range(MOST_BATCHES):
            async with self._locked() as connection:
                batch = _Batch(connection, loaded, await database_now(connection))
                await batch.replan(scheduler, self._batch_size, offset)
            if not batch.page_size:
                break
            offset += batch.left
            replanned += batch.page_size - batch.left
        return replanned

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[Connection]:
        """Open a transaction in which no other process can take the lock before the commit."""
        async with self._database.transaction() as connection:
            if not await leases.use_lock(connection, LOCK, self._owner, self._lease_seconds):
                raise _LockLostError
            yield connection

    async def _walk(self, loaded: LoadedScheduler, ahead: timedelta, done: Polled, seen: _Seen) -> None:
        """Write batch after batch. A job that was written is no longer due; the offset skips those that failed."""
        offset = 0
        for _ in range(MOST_BATCHES):
            async with self._locked() as connection:
                batch = _Batch(connection, loaded, await database_now(connection))
                await batch.write(ahead, self._batch_size, offset, seen)
            await self._ringer.executions(batch.pending)
            done.queued += len(batch.pending)
            done.errors += batch.errors
            if not batch.page_size:
                return
            offset += batch.left


class _Batch:
    """A page of due jobs of one scheduler. Jobs that could not be written stay due and are counted in ``left``."""

    def __init__(self, connection: Connection, loaded: LoadedScheduler, now: datetime) -> None:
        self._connection = connection
        self._loaded = loaded
        self._scheduler = loaded.scheduler
        self._now = now
        self._plugin_user: int | None = None
        self.page_size = 0
        self.left = 0
        self.errors = 0
        self.pending: list[PendingRun] = []

    async def write(self, ahead: timedelta, limit: int, offset: int, seen: _Seen) -> None:
        """Read a page of due jobs and write those that are new: all together, or one by one if that fails."""
        async with session_within(self._connection) as session:
            until = self._now + ahead
            page = await self._scheduler.find_due_jobs(session, self._now, until, limit, offset)
            await session.commit()
        jobs = [job for job in page if self._is_job(job) and _key(job) not in seen and is_due(job, until)]
        seen.update(map(_key, page))
        self.page_size, self.left = len(page), len(page) - len(jobs)
        if self._loaded.plugin != CORE and jobs:
            self._plugin_user = (await users.plugin(self._connection, self._loaded.plugin)).user_id
        await self._write_together(jobs)

    async def replan(self, scheduler: StoppedJobs, limit: int, offset: int) -> None:
        """Read a page of stopped jobs and store the next times of those that have one again."""
        async with session_within(self._connection) as session:
            page = await scheduler.find_stopped_jobs(session, limit, offset)
            anew = (planned_anew(job, self._now) for job in page if self._is_job(job))
            jobs = [job for job in anew if job is not None]
            if jobs:
                await self._scheduler.update_execution_time(session, jobs)
            await session.commit()
        self.page_size, self.left = len(page), len(page) - len(jobs)
        for job in jobs:
            log.info("entity_job_replanned", entity_type=job.entity_type, entity=job.entity_id)

    async def _write_together(self, jobs: Sequence[ScheduledJobConfig]) -> None:
        try:
            await self._write_jobs(jobs)
        except Exception as error:
            if is_unreachable(error):
                raise
            if len(jobs) == 1:
                self.errors += 1
                self.left += 1
                log.exception(
                    "entity_job_failed", entity_type=jobs[0].entity_type, entity=jobs[0].entity_id, error=str(error)
                )
                return
            # One of them is bad. Tried one by one, only the bad one fails, and the log names it.
            for job in jobs:
                await self._write_together([job])

    async def _write_jobs(self, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Store the next times and add the pending runs, both in one transaction."""
        if not jobs:
            return
        after = [self._planned(job) for job in jobs]
        due = [self._due(before) for before, one in zip(jobs, after, strict=True) if one.runs]
        async with session_within(self._connection) as session:
            await self._scheduler.update_execution_time(session, [one.job for one in after])
            pending = await entity_runs.add(await session.connection(), due) if due else []
            await session.commit()
        self.pending += pending
        for one in after:
            if one.job.error:
                self._log_error(one.job.entity_type, one.job.entity_id, one.job.error)

    def _planned(self, job: ScheduledJobConfig) -> Planned:
        expected = self._scheduler.entity_type
        if job.entity_type != expected:
            return Planned(stopped(job, f"Its entity_type is not '{expected}'."), runs=False)
        return planned(job, self._now)

    def _is_job(self, job: object) -> bool:
        """Return whether a scheduler has returned a job; anything else has no entity that could store its error."""
        if isinstance(job, ScheduledJobConfig):
            return True
        self._log_error(self._scheduler.entity_type, "", f"Expected a ScheduledJobConfig, got {type(job).__name__}.")
        return False

    def _log_error(self, entity_type: object, entity_id: object, error: str) -> None:
        self.errors += 1
        log.error("entity_job_failed", entity_type=entity_type, entity=entity_id, error=error)

    def _due(self, job: ScheduledJobConfig) -> Due:
        """Return the run of a job. A job without a user runs as the plugin.

        One with another user needs the capability ``act_for_users``.
        """
        user = job.user_profile_id if job.user_profile_id is not None else self._plugin_user
        if job.next_execution_time is None or user is None:
            raise ValueError("A job needs a time and a user.")
        if user != self._plugin_user and not self._loaded.acts_for_users:
            raise ValueError(f"The plugin '{self._loaded.plugin}' has not declared the capability act_for_users.")
        return Due(job, job.next_execution_time, user)


def _key(job: ScheduledJobConfig) -> str:
    return f"{getattr(job, 'id', None)!r} {getattr(job, 'next_execution_time', None)!r}"
