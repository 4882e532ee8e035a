"""The row cache: schedules, workflows and users as they were last read, each with the version of its row."""

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
from app.cache import BoundedCache
from app.domain.access import Actor, lesser_rights
from app.domain.schedules import ScheduledJob
from app.domain.workflows import Workflow
from app.persistence.sql_batches import fetch
from app.persistence.users import as_actor

MOST_KEPT = 1000
# Of graphs, as JSON; as values they take several times as much.
MOST_GRAPH_BYTES = 16 * 1024 * 1024

_encode = msgspec.json.Encoder().encode

_READ = (
    "SELECT asked.user_id, asked.flow_id, u.xmin, u.username, u.role, u.kind, w.id, w.xmin, "
    "w.xmin IS NOT DISTINCT FROM asked.version AS is_known, "
    "CASE WHEN w.xmin IS DISTINCT FROM asked.version THEN jsonb_build_object('id', w.id, 'name', w.name, "
    "'user_profile_id', w.user_profile_id, 'active', w.active, 'nodes', w.nodes, 'edges', w.edges) END AS body, "
    "o.id, o.xmin, o.username, o.role, o.kind "
    "FROM unnest($1::int[], $2::int[], $3::xid[]) AS asked(user_id, flow_id, version) "
    "LEFT JOIN user_profiles AS u ON u.id = asked.user_id LEFT JOIN workflows AS w ON w.id = asked.flow_id "
    "LEFT JOIN user_profiles AS o ON o.id = w.user_profile_id"
)

# The user and the workflow of an execution; one of an entity has no workflow.
Ids = tuple[int, int | None]
# The actor whose rights the run has, and what it runs.
Subject = tuple[Actor | None, Workflow | None]


class RowVersions(msgspec.Struct, frozen=True):
    """The versions of the rows that a claim saw: the workflow, the schedule's owner and, if another, the workflow's."""

    flow_version: int
    user_version: int
    flow_owner_version: int | None = None


class SubjectCache:
    """Reads users and workflows. A workflow travels again only when it was changed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._flows: BoundedCache[int, tuple[int, Workflow, int]] = BoundedCache(MOST_KEPT, MOST_GRAPH_BYTES)
        self._users: BoundedCache[int, tuple[int, Actor]] = BoundedCache(MOST_KEPT, MOST_KEPT)

    def clear(self) -> None:
        """Forget everything: the versions of rows mean something else now."""
        self._flows.clear()
        self._users.clear()

    def recall(self, ids: Ids, sight: RowVersions) -> Subject | None:
        """Both, if they are known in the versions that were seen."""
        user_id, flow_id = ids
        user, flow = self._users.get(user_id), None if flow_id is None else self._flows.get(flow_id)
        if user is None or flow is None or user[0] != sight.user_version or flow[0] != sight.flow_version:
            return None
        if flow[1].user_profile_id == user_id:
            return user[1], flow[1]
        owner = self._users.get(flow[1].user_profile_id)
        if owner is None or owner[0] != sight.flow_owner_version:
            return None
        return lesser_rights(user[1], owner[1]), flow[1]

    async def read(self, connection: AsyncConnection, wanted: Sequence[Ids]) -> list[Subject]:
        """Each at the place where it was asked for, as they are now; None for what is gone."""
        asked = list(dict.fromkeys(wanted))
        known = [None if flow_id is None else self._flows.get(flow_id) for _, flow_id in asked]
        versions = [None if one is None else one[0] for one in known]
        # Another flow of the same answer may push a known one out of the cache.
        flows = {one[1].id: one for one in known if one is not None}
        rows = await fetch(
            connection, _READ, [user_id for user_id, _ in asked], [flow_id for _, flow_id in asked], versions
        )
        found = {(row[0], row[1]): self._subject(row, flows) for row in rows}
        return [found[ids] for ids in wanted]

    def _subject(self, row: Sequence[Any], known: Mapping[int, tuple[int, Workflow, int]]) -> Subject:
        user, flow = self._user(row[0], *row[2:6]), self._flow(known, *row[6:10])
        if user is None or flow is None:
            return user, flow
        owner = self._user(*row[10:])
        return (lesser_rights(user, owner) if owner else None), flow

    def _user(self, user_id: int, version: int, username: str | None, role: str, kind: str) -> Actor | None:
        """Remember a user that was read; None if there is none."""
        if username is None:
            return None
        actor = as_actor(user_id, username, role, kind)
        self._users.keep(user_id, (version, actor), 1)
        return actor

    def _flow(
        self,
        known: Mapping[int, tuple[int, Workflow, int]],
        flow_id: int | None,
        version: int,
        is_known: bool,  # noqa: FBT001 - a column
        body: Any,
    ) -> Workflow | None:
        """Remember a workflow that was read; None if there is none."""
        if flow_id is None:
            return None
        if is_known:
            _, flow, weight = known[flow_id]
        else:
            flow, weight = msgspec.convert(body, Workflow), len(_encode(body))
        self._flows.keep(flow_id, (version, flow, weight), weight)
        return flow


MOST_REMEMBERED = 20_000
# Of payloads, as JSON, and of the long texts; as values they take several times as much.
MOST_BYTES = 16 * 1024 * 1024
# The database's clock is asked again after so long.
HEARD_SECONDS = 1.0


class ScheduleCache:
    """Schedules as they were last written here, each with the version of its row, and what the database's clock shows.

    The oldest are forgotten.
    """

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._jobs: BoundedCache[UUID, tuple[int, ScheduledJob, int]] = BoundedCache(MOST_REMEMBERED, MOST_BYTES)
        self._heard: tuple[datetime, float] | None = None
        # How often all of it was forgotten: a version from before says nothing any more.
        self.epoch = 0

    def recall(self, job_id: UUID) -> tuple[int, ScheduledJob] | None:
        """The schedule in the version that is remembered."""
        found = self._jobs.get(job_id)
        return None if found is None else found[:2]

    def keep(self, job: ScheduledJob, version: int) -> None:
        """Remember a schedule in this version."""
        payload_bytes = self._payload_bytes(job)
        weight = payload_bytes + len(job.description) + len(job.last_error)
        self._jobs.keep(job.id, (version, job, payload_bytes), weight)

    def clear(self) -> None:
        """Forget everything: the versions of rows mean something else now."""
        self._jobs.clear()
        self._heard = None
        self.epoch += 1

    def _payload_bytes(self, job: ScheduledJob) -> int:
        """The size of the payload; a tick leaves it as it is, so that it is measured once."""
        if not job.trigger_payload:
            return 0
        known = self._jobs.get(job.id)
        if known is not None and known[1].trigger_payload is job.trigger_payload:
            return known[2]
        return len(_encode(job.trigger_payload))

    def hear(self, moment: datetime) -> None:
        """The database has just shown this time."""
        self._heard = (moment, clock.monotonic())

    def now(self) -> datetime | None:
        """What the database's clock shows at least; None if that was not heard for long."""
        if self._heard is None:
            return None
        moment, at = self._heard
        passed = clock.monotonic() - at
        return moment + timedelta(seconds=passed) if passed < HEARD_SECONDS else None


log = structlog.get_logger(__name__)

# A promotion begins a new timeline, another cluster has another identifier, and a data folder that was put back from a
# copy has a server that was started since. Each question is there for roles, and managed servers, that may not ask
# the one before.
_TIMELINE = "CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
_STARTED = "pg_postmaster_start_time()"
_QUESTIONS = (
    f"SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), {_TIMELINE}, {_STARTED})",  # noqa: S608
    f"SELECT concat_ws('/', {_TIMELINE}, {_STARTED})",
    f"SELECT concat_ws('/', {_STARTED})",
)
_MAY_NOT_ASK = (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError)


class Clearable(Protocol):
    """Something that is kept by the versions of rows."""

    def clear(self) -> None:
        """Forget all of it."""


C = TypeVar("C", bound=Clearable)


class ServerIdentity:
    """Notices that another server, or another timeline of it, answers, and has all caches dropped."""

    def __init__(self) -> None:
        """Nobody has answered yet."""
        self._known: str | None = None
        self._caches: WeakSet[Clearable] = WeakSet()
        # Which of the questions this role may ask.
        self._first_question = 0

    def watch(self, cache: C) -> C:
        """Have this cache dropped whenever the history changes."""
        self._caches.add(cache)
        return cache

    async def check(self, driver: Any) -> None:
        """Compare the server behind a connection with the one that answered before."""
        found = await self._ask(driver)
        if self._known is not None and found != self._known:
            log.warning("server_history_changed", before=self._known, after=found)
            for cache in self._caches:
                cache.clear()
        self._known = found

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
