"""Entities with times of their own: their schedulers are found by entry points and polled for what is due."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from importlib.metadata import EntryPoint
from inspect import iscoroutinefunction
from re import fullmatch
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import msgspec
import structlog

from app import clock
from app.actions.plugins import CORE, PluginProblem, in_group, origin, problem
from app.domain.entities import ScheduledJobConfig, following
from app.domain.errors import UnavailableError
from app.domain.executions import PendingRun
from app.engine.ringing import Ringer
from app.observability.metrics import POLLED
from app.persistence import entity_runs, leases, users
from app.persistence.database import Connection, Database, Session, database_now, is_unreachable, session_within
from app.persistence.entity_runs import Due

GROUP = "carillon.entity_schedulers"


@runtime_checkable
class EntityScheduler(Protocol):
    """Knows a table of entities that have times of their own.

    Both methods work in the transaction in which the runs are written: what they change counts only if that does.
    """

    entity_type: str

    async def find_due_jobs(
        self, session: Session, now: datetime, until: datetime, limit: int, offset: int
    ) -> Sequence[ScheduledJobConfig]:
        """The active jobs whose next time is at or before ``until``, the earliest first."""

    async def update_execution_time(self, session: Session, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Write down the last and the next time of these jobs, and what is wrong with those that have an error."""


class LoadedScheduler(msgspec.Struct, frozen=True):
    """A scheduler, and the plugin that brings it; and whether its jobs may be others' than the plugin's own."""

    scheduler: EntityScheduler
    plugin: str
    acts_for_users: bool = False


class LoadedSchedulers(msgspec.Struct, frozen=True):
    """What was found."""

    schedulers: tuple[LoadedScheduler, ...]
    problems: tuple[PluginProblem, ...]


def load_entity_schedulers(found: Iterable[EntryPoint] | None = None) -> LoadedSchedulers:
    """All entity schedulers of all plugins, our own first; each problem is said by the plugin's name."""
    taken: dict[str, str] = {}
    schedulers: list[LoadedScheduler] = []
    problems: list[PluginProblem] = []
    for point in in_group(GROUP, found):
        try:
            loaded = point.load()
            scheduler = loaded() if isinstance(loaded, type) else loaded
            reasons = [*scheduler_shortcomings(scheduler), *_taken(scheduler, taken)]
        except Exception as error:  # noqa: BLE001 - whatever a plugin does wrong is its own
            problems.append(problem(point, error))
            continue
        problems += [PluginProblem(point.name, reason) for reason in reasons]
        if not reasons:
            taken[scheduler.entity_type] = point.name
            schedulers.append(LoadedScheduler(scheduler, origin(point), acts_for_users=origin(point) == CORE))
    return LoadedSchedulers(tuple(schedulers), tuple(problems))


def scheduler_shortcomings(scheduler: Any) -> list[str]:
    """What is wrong with an entity scheduler; nothing, if it may be polled. For authors of plugins, too."""
    return list(_shortcomings(scheduler))


def _shortcomings(scheduler: Any) -> Iterator[str]:
    entity_type = getattr(scheduler, "entity_type", None)
    if not isinstance(entity_type, str) or not fullmatch(r"[a-z][a-z0-9_.-]{0,99}", entity_type):
        yield "its entity_type is no name: lower-case letters, digits, dots, dashes"
    for name in ("find_due_jobs", "update_execution_time"):
        if not iscoroutinefunction(getattr(scheduler, name, None)):
            yield f"it has no coroutine function {name}"


def _taken(scheduler: EntityScheduler, taken: dict[str, str]) -> list[str]:
    by = taken.get(getattr(scheduler, "entity_type", ""))
    return [] if by is None else [f"the entity type '{scheduler.entity_type}' is taken by '{by}'"]


LOCK = "entity_polling"
# How often is tried to take over from whoever holds the lock.
TRY_SECONDS = 10.0
# What comes due between two polls is written down by the first of them, with something to spare.
LOOK_AHEAD = 1.25
AGAIN_SECONDS = 5.0
# A walk over what is due may step over something that has moved: it is repeated until it writes nothing.
MOST_WALKS = 5
# A scheduler whose jobs are always due again shall not keep the others from being asked.
MOST_BATCHES = 1000

log = structlog.get_logger(__name__)


class Polled(msgspec.Struct):
    """What one poll found: runs that were written down, and jobs that could not be."""

    queued: int = 0
    errors: int = 0
    # Whether every scheduler could be asked to the end.
    whole: bool = True


_Seen = set[tuple[str, datetime | None]]


class _LockLostError(Exception):
    """Someone else polls now."""

    code = "lock_lost"


class Poller:
    """Polls as long as it holds the lock; without it, tries to get it."""

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
        """Nothing is held yet."""
        self._database = database
        self._ringer = ringer
        self._schedulers = schedulers
        self._poll_seconds = poll_seconds
        self._batch_size = batch_size
        self._lease_seconds = lease_seconds
        self._owner = uuid4()
        self._next_poll = 0.0

    async def step(self) -> float:
        """Take or renew the lock, and poll if it is time; the pause until the next step."""
        if not self._schedulers:
            return self._poll_seconds
        if not await self._take():
            return min(self._poll_seconds, TRY_SECONDS)
        if clock.monotonic() >= self._next_poll:
            began = clock.monotonic()
            # If it fails half way, it is tried again soon.
            self._next_poll = began + min(self._poll_seconds, AGAIN_SECONDS)
            done = await self.poll(timedelta(seconds=self._poll_seconds * LOOK_AHEAD))
            if done.whole:
                self._next_poll = began + self._poll_seconds
        # Renewed well before it runs out: every 30 of 70 seconds.
        return max(0.0, min(self._lease_seconds * 3 / 7, self._next_poll - clock.monotonic()))

    async def poll_now(self) -> Polled:
        """One poll of what is due in this moment, unless someone else is at it."""
        if not self._schedulers or not await self._take():
            return Polled()
        try:
            return await self.poll(timedelta(0))
        finally:
            await self.release()

    async def poll(self, ahead: timedelta) -> Polled:
        """Ask every scheduler for what is due until then. One that fails does not stop the others."""
        done = Polled()
        for loaded in self._schedulers:
            try:
                await self._poll_one(loaded, ahead, done)
            except _LockLostError:
                log.warning("lock_lost", lock=LOCK)
                done.whole = False
                break
            except UnavailableError:
                raise
            except Exception:
                done.errors += 1
                done.whole = False
                log.exception("poll_failed", entity_type=loaded.scheduler.entity_type)
        POLLED.labels("queued").inc(done.queued)
        POLLED.labels("error").inc(done.errors)
        if done.queued or done.errors:
            log.info("entities_polled", queued=done.queued, errors=done.errors)
        return done

    async def release(self) -> None:
        """Let others poll."""
        async with self._database.transaction() as connection:
            await leases.release_lock(connection, LOCK, self._owner)

    async def _take(self) -> bool:
        async with self._database.transaction() as connection:
            return await leases.take_lock(connection, LOCK, self._owner, self._lease_seconds)

    async def _poll_one(self, loaded: LoadedScheduler, ahead: timedelta, done: Polled) -> None:
        """Walk over what is due until nothing more is found that has not been seen."""
        seen: _Seen = set()
        for _ in range(MOST_WALKS):
            known = len(seen)
            await self._walk(loaded, ahead, done, seen)
            if len(seen) == known:
                return

    async def _walk(self, loaded: LoadedScheduler, ahead: timedelta, done: Polled, seen: _Seen) -> None:
        """Batch after batch: what has been written down is no longer due, what could not be is stepped over."""
        offset = 0
        for _ in range(MOST_BATCHES):
            async with self._database.transaction() as connection:
                # In the transaction itself: nobody can take over before it ends.
                if not await leases.use_lock(connection, LOCK, self._owner, self._lease_seconds):
                    raise _LockLostError
                batch = _Batch(connection, loaded, await database_now(connection))
                await batch.write(ahead, self._batch_size, offset, seen)
            await self._ringer.executions(batch.pending)
            done.queued += len(batch.pending)
            done.errors += batch.errors
            if not batch.found:
                return
            offset += batch.left


class _Batch:
    """Some jobs of one scheduler. Those that are left behind are still due, and have to be stepped over."""

    def __init__(self, connection: Connection, loaded: LoadedScheduler, now: datetime) -> None:
        self._connection = connection
        self._loaded = loaded
        self._scheduler = loaded.scheduler
        self._now = now
        self._plugin_user: int | None = None
        self.found = 0
        self.left = 0
        self.errors = 0
        self.pending: list[PendingRun] = []

    async def write(self, ahead: timedelta, limit: int, offset: int, seen: _Seen) -> None:
        """Find what is due and has not been seen before, and write it down: together, or else each alone."""
        async with session_within(self._connection) as session:
            until = self._now + ahead
            found = await self._scheduler.find_due_jobs(session, self._now, until, limit, offset)
            await session.commit()
        jobs = [job for job in found if (job.id, job.next_execution_time) not in seen and self._is_due(job, until)]
        seen.update((job.id, job.next_execution_time) for job in found)
        self.found, self.left = len(found), len(found) - len(jobs)
        if self._loaded.plugin != CORE and jobs:
            self._plugin_user = (await users.plugin(self._connection, self._loaded.plugin)).user_id
        await self._together(jobs)

    async def _together(self, jobs: Sequence[ScheduledJobConfig]) -> None:
        try:
            await self._write_down(jobs)
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
            # One bad job among them: each is tried alone, and the bad one named.
            for job in jobs:
                await self._together([job])

    async def _write_down(self, jobs: Sequence[ScheduledJobConfig]) -> None:
        """The next times and the pending runs, or neither."""
        if not jobs:
            return
        planned = [following(job, self._now) for job in jobs]
        due = [self._due(before) for before, after in zip(jobs, planned, strict=True) if not after.error]
        async with session_within(self._connection) as session:
            await self._scheduler.update_execution_time(session, planned)
            pending = await entity_runs.add(await session.connection(), due)
            await session.commit()
        self.pending += pending
        for job in planned:
            if job.error:
                self.errors += 1
                log.error("entity_job_failed", entity_type=job.entity_type, entity=job.entity_id, error=job.error)

    def _is_due(self, job: ScheduledJobConfig, until: datetime) -> bool:
        time = job.next_execution_time
        return job.active and time is not None and time <= until and job.entity_type == self._scheduler.entity_type

    def _due(self, job: ScheduledJobConfig) -> Due:
        """What names no user is the plugin's; what names another needs a plugin that has said that it does so."""
        user = job.user_profile_id if job.user_profile_id is not None else self._plugin_user
        if job.next_execution_time is None or user is None:
            raise ValueError("A job needs a time and a user.")
        if user != self._plugin_user and not self._loaded.acts_for_users:
            raise ValueError(f"The plugin '{self._loaded.plugin}' has not declared the capability act_for_users.")
        return Due(job, job.next_execution_time, user)
