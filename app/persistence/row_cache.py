"""The row caches: schedules, workflows and users as they were last read, each with the version of its row.

The version is ``xmin``, the id of the transaction that wrote the row last. Postgres sets it on every write, so no code
path can forget to, and a statement that compares it needs neither a lock nor another column. An id is unique within one
server's history only: a standby that had not received the last commits gives the same ids to other transactions, and a
cache once answered with an edit that was lost that way. ``ServerIdentity`` clears the caches when the server changes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakSet

import asyncpg
import msgspec
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.cache import RowCache
from app.domain.access import Actor, lesser_rights
from app.domain.schedules import ScheduledJob
from app.domain.workflows import Workflow
from app.observability.metrics import COMMITS_LOST
from app.persistence.sql_batches import fetch
from app.persistence.users import TEAMS, as_actor

# Entries, and bytes of what may be large. Sizes are those of the JSON; in memory it takes several times as much.
MOST_SCHEDULES = 20_000
MOST_BYTES = 16 * 1024 * 1024
MOST_SUBJECTS = 1000
MOST_GRAPH_BYTES = 16 * 1024 * 1024
# For how long a reading of the database's clock is used.
CLOCK_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode
log = structlog.get_logger(__name__)

# A promoted standby has a new timeline, another cluster has another system identifier, and a server whose data folder
# was restored from a copy has a new start time. The later questions are for roles and managed servers that may not ask
# the earlier ones.
_TIMELINE = "CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
_STARTED = "pg_postmaster_start_time()"
_QUESTIONS = (
    f"SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), {_TIMELINE}, {_STARTED})",  # noqa: S608
    f"SELECT concat_ws('/', {_TIMELINE}, {_STARTED})",
    f"SELECT concat_ws('/', {_STARTED})",
)
_BEHIND = (
    "SELECT j.id FROM unnest($1::uuid[], $2::bigint[]) AS seen(id, generation) "
    "JOIN scheduled_jobs AS j ON j.id = seen.id AND j.generation < seen.generation"
)
# A log line names at most so many schedules.
MOST_NAMED = 20
_MAY_NOT_ASK = (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError)


class Clearable(Protocol):
    """A cache that is valid for one server only."""

    def clear(self) -> None:
        """Remove all entries."""


C = TypeVar("C", bound=Clearable)


class ServerIdentity:
    """Clears all row caches when another server, or another timeline of the same one, answers."""

    def __init__(self) -> None:
        """Know no server yet."""
        self._known: str | None = None
        self._caches: WeakSet[Clearable] = WeakSet()
        # The first of the questions that this role may ask.
        self._first_question = 0

    def watch(self, cache: C) -> C:
        """Clear this cache whenever the server changes; return the cache."""
        self._caches.add(cache)
        return cache

    async def check(self, driver: Any) -> None:
        """Compare the server behind a connection with the one that answered before."""
        server = await self._ask(driver)
        before, self._known = self._known, server
        if before is None or server == before:
            return
        log.warning("server_history_changed", before=before, after=server)
        seen: dict[UUID, int] = {}
        for cache in self._caches:
            if isinstance(cache, ScheduleCache):
                seen |= cache.generations()
            cache.clear()
        if seen:
            report_lost_commits(await _behind(driver, seen))

    async def _ask(self, driver: Any) -> str:
        while True:
            try:
                answer: str = await driver.fetchval(_QUESTIONS[self._first_question])
            except _MAY_NOT_ASK:
                if self._first_question + 1 == len(_QUESTIONS):
                    raise
                self._first_question += 1
            else:
                return answer


async def _behind(driver: Any, seen: Mapping[UUID, int]) -> list[UUID]:
    """Return the schedules whose generation is lower than the one that this process has seen committed."""
    rows = await driver.fetch(_BEHIND, list(seen), list(seen.values()))
    return [row[0] for row in rows]


def report_lost_commits(schedule_ids: Sequence[UUID]) -> None:
    """Count and log schedules whose rows went back in time: a failover or a restore has lost commits."""
    if schedule_ids:
        COMMITS_LOST.inc(len(schedule_ids))
        log.warning("commits_lost", count=len(schedule_ids), schedules=[str(one) for one in schedule_ids[:MOST_NAMED]])


class ScheduleCache:
    """Schedules as this process last wrote them, each with the version of its row, and the database's clock."""

    def __init__(self) -> None:
        """Start empty."""
        self._jobs: RowCache[UUID, ScheduledJob] = RowCache(MOST_SCHEDULES, MOST_BYTES)
        self._clock: tuple[datetime, float] | None = None
        # Whether anyone was notified of missed slots when the clock was read. Then ticks that miss some are not plain.
        self.reports_missed = True
        # Counts the calls of ``clear``. A version that was read before the last one means nothing any more.
        self.epoch = 0

    def recall(self, job_id: UUID) -> tuple[int, ScheduledJob] | None:
        """Return the cached version of a schedule's row and the schedule, or None."""
        return self._jobs.get(job_id)

    def keep(self, job: ScheduledJob, version: int) -> None:
        """Store a schedule in this version."""
        self._jobs.keep(job.id, version, job, self._payload_bytes(job) + _text_bytes(job))

    def generations(self) -> dict[UUID, int]:
        """Return the generation of each cached schedule."""
        return {job.id: job.generation for job in self._jobs.values()}

    def clear(self) -> None:
        """Remove all entries: the server has changed, so versions stand for other contents."""
        self._jobs.clear()
        self._clock = None
        self.epoch += 1

    def _payload_bytes(self, job: ScheduledJob) -> int:
        """Return the size of the payload. A tick leaves it unchanged, so that each payload is measured once."""
        if not job.trigger_payload:
            return 0
        entry = self._jobs.get(job.id)
        if entry is not None and entry[1].trigger_payload is job.trigger_payload:
            return self._jobs.weight_of(job.id) - _text_bytes(entry[1])
        return len(_encode(job.trigger_payload))

    def hear(self, moment: datetime, *, reports_missed: bool = True) -> None:
        """Note the time that the database's clock has just shown, and whether anyone is notified of missed slots."""
        self._clock = (moment, clock.monotonic())
        self.reports_missed = reports_missed

    def now(self) -> datetime | None:
        """Return a time that the database's clock has reached by now, or None if its last reading is too old."""
        if self._clock is None:
            return None
        moment, at = self._clock
        passed = clock.monotonic() - at
        return moment + timedelta(seconds=passed) if passed < CLOCK_SECONDS else None


def _text_bytes(job: ScheduledJob) -> int:
    return len(job.description) + len(job.last_error)


_READ = (
    f"SELECT ids.user_id, ids.flow_id, u.xmin, u.username, u.role, u.kind, {TEAMS.format('u')}, w.id, w.xmin, "  # noqa: S608
    "w.xmin IS NOT DISTINCT FROM ids.version AS is_known, "
    "CASE WHEN w.xmin IS DISTINCT FROM ids.version THEN jsonb_build_object('id', w.id, 'name', w.name, "
    "'user_profile_id', w.user_profile_id, 'active', w.active, 'nodes', w.nodes, 'edges', w.edges) END AS body, "
    f"o.id, o.xmin, o.username, o.role, o.kind, {TEAMS.format('o')} "
    "FROM unnest($1::int[], $2::int[], $3::xid[]) AS ids(user_id, flow_id, version) "
    "LEFT JOIN user_profiles AS u ON u.id = ids.user_id LEFT JOIN workflows AS w ON w.id = ids.flow_id "
    "LEFT JOIN user_profiles AS o ON o.id = w.user_profile_id"
)

# The user and the workflow of an execution; one of an entity has no workflow.
Ids = tuple[int, int | None]
# The actor whose rights the run has, and what it runs.
Subject = tuple[Actor | None, Workflow | None]


class RowVersions(msgspec.Struct, frozen=True, gc=False):
    """The versions of the rows that a claim saw: the workflow, the schedule's owner and, if another, the workflow's."""

    flow_version: int
    user_version: int
    flow_owner_version: int | None = None


class SubjectCache:
    """Reads the users and workflows of runs. A workflow's graph is fetched again only after it was changed."""

    def __init__(self) -> None:
        """Start empty."""
        self._flows: RowCache[int, Workflow] = RowCache(MOST_SUBJECTS, MOST_GRAPH_BYTES)
        self._users: RowCache[int, Actor] = RowCache(MOST_SUBJECTS)

    def clear(self) -> None:
        """Remove all entries: the server has changed, so versions stand for other contents."""
        self._flows.clear()
        self._users.clear()

    def recall(self, ids: Ids, versions: RowVersions | None) -> Subject | None:
        """Return user and workflow if both are cached in the versions that the claim saw, else None."""
        user_id, flow_id = ids
        if flow_id is None or versions is None:
            return None
        user = self._users.at_version(user_id, versions.user_version)
        flow = self._flows.at_version(flow_id, versions.flow_version)
        if user is None or flow is None:
            return None
        if flow.user_profile_id == user_id:
            return user, flow
        owner = self._users.at_version(flow.user_profile_id, versions.flow_owner_version)
        return None if owner is None else (lesser_rights(user, owner), flow)

    def latest(self, ids: Ids) -> "tuple[tuple[Actor, Workflow], RowVersions] | None":
        """Return a user and a workflow of that user as they were last read, and in which versions; None if unknown."""
        user_id, flow_id = ids
        user = self._users.get(user_id)
        flow = None if flow_id is None else self._flows.get(flow_id)
        if user is None or flow is None or flow[1].user_profile_id != user_id:
            return None
        return (user[1], flow[1]), RowVersions(flow[0], user[0])

    async def read(self, connection: AsyncConnection, ids: Sequence[Ids]) -> list[Subject]:
        """Return the current user and workflow of each pair, in the order of the pairs; None for a deleted one."""
        pairs = list(dict.fromkeys(ids))
        cached = [None if flow_id is None else self._flows.get(flow_id) for _, flow_id in pairs]
        versions = [None if entry is None else entry[0] for entry in cached]
        # Held here too: another workflow of the same answer may evict a cached one before its row is looked at.
        flows = {entry[1].id: (entry[1], self._flows.weight_of(entry[1].id)) for entry in cached if entry is not None}
        rows = await fetch(
            connection, _READ, [user_id for user_id, _ in pairs], [flow_id for _, flow_id in pairs], versions
        )
        subjects = {(row[0], row[1]): self._subject(row, flows) for row in rows}
        return [subjects[pair] for pair in ids]

    def _subject(self, row: Sequence[Any], known: Mapping[int, tuple[Workflow, int]]) -> Subject:
        user, flow = self._user(row[0], *row[2:7]), self._flow(known, *row[7:11])
        if user is None or flow is None:
            return user, flow
        owner = self._user(*row[11:])
        return (lesser_rights(user, owner) if owner else None), flow

    def _user(
        self, user_id: int, version: int, username: str | None, role: str, kind: str, teams: str | None
    ) -> Actor | None:
        """Cache a user that was read; None if there is none. A user whose teams change gets a new version."""
        if username is None:
            return None
        actor = as_actor(user_id, username, role, kind, teams)
        self._users.keep(user_id, version, actor)
        return actor

    def _flow(
        self,
        known: Mapping[int, tuple[Workflow, int]],
        flow_id: int | None,
        version: int,
        is_known: bool,  # noqa: FBT001 - a column
        body: Any,
    ) -> Workflow | None:
        """Cache a workflow that was read; None if there is none."""
        if flow_id is None:
            return None
        flow, weight = known[flow_id] if is_known else (msgspec.convert(body, Workflow), len(_encode(body)))
        self._flows.keep(flow_id, version, flow, weight)
        return flow
