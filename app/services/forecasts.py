"""Forecasts of load: how much of what the actor sees will fire when, also with drafts and changes laid over it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor
from app.domain.errors import FieldError, InvalidError, NotFoundError
from app.domain.executions import count_repeats
from app.domain.forecasts import (
    Buckets,
    GroupBy,
    Load,
    closed_spans,
    expected_pattern,
    fire_pattern,
    peak_of,
    quiet_spans,
)
from app.domain.limits import Caps
from app.domain.schedule_lifecycle import created, edited, require_calendars
from app.domain.schedules import ScheduledJob
from app.domain.upcoming import NO_SKIPS
from app.persistence import calendars, executions, forecasts, restrictions, schedules, skips, users, workflows
from app.persistence.database import Connection, Database, database_now
from app.persistence.forecasts import MOST_JITTERED, MOST_SKIPPING, Group, Wanted
from app.services.bulk_operations import filters_of
from app.services.inputs import BulkFilter, ForecastChange, ForecastInput, ScheduleInput, Span, given
from app.services.schedules import sound_draft, stored_values
from app.services.upcoming import bounds
from app.services.views import BucketView, ClosedView, ForecastGroupView, ForecastView, PeakView, QuietView

HORIZON = timedelta(days=1)
LONGEST = timedelta(days=31)
MOST_BUCKETS = 2016
# So many groups are told apart, those with the most fires.
MOST_GROUPS = 100

T = TypeVar("T")


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that are counted together: one that stands for all of them, and how many there are."""

    key: Any
    job: ScheduledJob
    active_runs: int
    count: int = 1
    # What one fire of all of them takes.
    busy_seconds: float = 0.0
    # Whether the jitter of each is another, so that only their average is known.
    is_average: bool = False
    # The slots that do not fire, of a schedule that is counted alone.
    skipped: frozenset[datetime] = NO_SKIPS

    def pattern(self, buckets: Buckets) -> Mapping[int, float]:
        """Return the fires of one of them by bucket."""
        if self.is_average:
            return expected_pattern(self.job, self.active_runs, buckets)
        return fire_pattern(self.job, self.active_runs, buckets, self.skipped)


class Fleet(msgspec.Struct, frozen=True):
    """Everything that a forecast counts, and whether some of it is an estimate."""

    members: list[Member]
    # Schedules with their groups, for a forecast by schedule.
    ids: dict[UUID, Member]
    is_estimate: bool


class ForecastService:
    """Use cases about the load to come."""

    def __init__(self, database: Database, caps: Caps) -> None:
        """Refuse changes that an edit would be refused for."""
        self._database = database
        self._caps = caps
        # One thread: each takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="forecasts")

    async def forecast(self, actor: Actor, request: ForecastInput) -> ForecastView:
        """Return the fires and busy seconds by bucket, their peak and the quiet spans."""
        by = None if request.by is None else GroupBy(request.by)
        async with self._database.transaction("forecast") as connection:
            now = await database_now(connection)
            buckets = buckets_of(request, now)
            changed = await self._changed(connection, actor, request.changes, now)
            fleet = await read_fleet(connection, actor, buckets, by=by, filters=request.filter, changed=changed)
            view = await self._searched(partial(_view, fleet, buckets, by))
            names = await _names(connection, by, [group.key for group in view.groups])
        for group in view.groups:
            group.name = names.get(group.key, group.name)
        return view

    async def _changed(
        self, connection: Connection, actor: Actor, changes: Sequence[ForecastChange], now: datetime
    ) -> dict[UUID, Member]:
        """Return the schedules that changes and drafts make, by their ids."""
        ids = [change.id for change in changes if change.id is not None]
        jobs = {job.id: job for _, job in await schedules.many(connection, ids)}
        within = await restrictions.admitted_schedules(connection, actor.restriction, ids)
        active, _ = await executions.active_and_now(connection, ids)
        changed: dict[UUID, Member] = {}
        for index, change in enumerate(changes):
            try:
                if change.draft is not None:
                    job = await self._created(connection, actor, change.draft, now)
                else:
                    job = _seen(actor, jobs.get(change.id or UUID(int=0)), within)
                    values, runs = stored_values(given(change.set)), count_repeats(active.get(job.id, ()))
                    ready = (await calendars.prepared(connection, {job.id: job}, {job.id: values}))[job.id]
                    job = edited(ready, values, runs, now, self._caps)
            except InvalidError as error:
                part = "set" if change.draft is None else "draft"
                place = f"changes[{index}].{part}"
                raise InvalidError(*(FieldError(f"{place}.{one.field}", one.message) for one in error.errors)) from None
            changed[job.id] = Member(key=None, job=job, active_runs=count_repeats(active.get(job.id, ())))
        return changed

    async def _created(self, connection: Connection, actor: Actor, draft: ScheduleInput, now: datetime) -> ScheduledJob:
        """Return a new schedule as it would be if it were created now."""
        (job,) = await calendars.bound(connection, [sound_draft(draft, actor, self._caps)])
        require_calendars(job)
        return created(job, now)

    async def _searched(self, search: Callable[[], T]) -> T:
        """Run a computation in a thread, as it may take long and must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._searches, search)


def _seen(actor: Actor, job: ScheduledJob | None, within: Iterable[UUID]) -> ScheduledJob:
    if job is None or not actor.may_use(job.user_profile_id, is_within=job.id in set(within)):
        raise NotFoundError("There is no such schedule.")
    return job


def buckets_of(request: ForecastInput, now: datetime) -> Buckets:
    """Return the buckets that a request asks for; without a beginning, the first one is that of now."""
    length = timedelta(seconds=request.bucket_seconds)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    span = Span(since=request.since or now - (now - epoch) % length, until=request.until)
    since, until = bounds(span, now, HORIZON)
    if until - since > LONGEST:
        raise InvalidError(FieldError("to", f"A forecast covers at most {LONGEST.days} days."))
    buckets = Buckets(since, until, length)
    if buckets.count > MOST_BUCKETS:
        raise InvalidError(FieldError("bucket_seconds", f"At most {MOST_BUCKETS} buckets are returned."))
    return buckets


async def read_fleet(  # noqa: PLR0913 - what is counted, and how
    connection: Connection,
    actor: Actor,
    buckets: Buckets,
    *,
    by: GroupBy | None = None,
    filters: BulkFilter | None = None,
    changed: Mapping[UUID, Member] | None = None,
    most_ids: int = 1,
) -> Fleet:
    """Read what the actor sees in groups of equal patterns, with changed schedules in place of the stored ones."""
    reach, changed = actor.reach(), changed or {}
    durations = await forecasts.durations(connection, reach)
    skipping = await forecasts.skipping(connection, reach, filters_of(filters), buckets.until)
    alone = [job_id for job_id in skipping[:MOST_SKIPPING] if job_id not in changed]
    wanted = Wanted(
        reach=reach,
        filters=filters_of(filters),
        buckets=buckets,
        by=by,
        without=[*changed, *alone],
        most_ids=MOST_GROUPS if by is GroupBy.SCHEDULE else most_ids,
        durations=durations,
    )
    groups = await forecasts.groups(connection, wanted)
    is_coarse = groups is None
    if groups is None:
        groups = await forecasts.groups(connection, wanted, coarse=True) or []
    is_average = sum(group.count for group in groups if group.jitter_seconds) > MOST_JITTERED
    members, ids = await _members(connection, groups, is_average=is_average)
    paused = await forecasts.returning(connection, reach, wanted.filters, buckets.until)
    alone += [job_id for job_id in paused if job_id not in changed]
    single = [*await _one_by_one(connection, alone), *changed.values()]
    skipped = await skips.slots_of(connection, [member.job for member in single])
    hosts = await _hosts(connection, by, single)
    for member in single:
        seconds, left_out = durations.get(member.job.workflow_id, 0.0), skipped.get(member.job.id, NO_SKIPS)
        counted = replace(member, key=_key(member.job, by, hosts), busy_seconds=seconds, skipped=left_out)
        members.append(counted)
        ids[member.job.id] = counted
    return Fleet(members, ids, is_coarse or is_average or len(skipping) > MOST_SKIPPING)


async def _one_by_one(connection: Connection, ids: Sequence[UUID]) -> list[Member]:
    """Return schedules that are counted alone: with slots to leave out, or with a pause that ends by itself."""
    jobs = await schedules.many(connection, ids, whole=False) if ids else []
    active = (await executions.active_and_now(connection, ids))[0] if ids else {}
    return [Member(key=None, job=job, active_runs=count_repeats(active.get(job.id, ()))) for _, job in jobs]


async def _members(
    connection: Connection, groups: Sequence[Group], *, is_average: bool
) -> tuple[list[Member], dict[UUID, Member]]:
    exact = [] if is_average else [group for group in groups if group.jitter_seconds]
    needed = {group.ids[0] for group in groups} | {job_id for group in exact for job_id in group.ids}
    jobs = {job.id: job for _, job in await schedules.many(connection, list(needed), whole=False)}
    limited = [job.id for job in jobs.values() if job.is_limited]
    active = (await executions.active_and_now(connection, limited))[0] if limited else {}
    members: list[Member] = []
    ids: dict[UUID, Member] = {}
    for group in groups:
        one_by_one = group.jitter_seconds > 0 and not is_average
        for job_id in group.ids if one_by_one else group.ids[:1]:
            if job_id in jobs:
                member = Member(
                    key=group.key,
                    # A retry holds back one schedule, not all that are counted with it.
                    job=jobs[job_id] if one_by_one else replace(jobs[job_id], next_attempt=0),
                    active_runs=count_repeats(active.get(job_id, ())),
                    count=1 if one_by_one else group.count,
                    busy_seconds=group.busy_seconds / group.count if one_by_one else group.busy_seconds,
                    is_average=group.jitter_seconds > 0 and is_average,
                )
                members.append(member)
                ids |= dict.fromkeys([job_id] if one_by_one else group.ids, member)
    return members, ids


async def _hosts(connection: Connection, by: GroupBy | None, members: Iterable[Member]) -> dict[int, str]:
    if by is not GroupBy.HOST:
        return {}
    names = await workflows.names(connection, {member.job.workflow_id for member in members})
    return {number: hosts for number, (_, hosts) in names.items()}


def _key(job: ScheduledJob, by: GroupBy | None, hosts: Mapping[int, str]) -> Any:
    if by is GroupBy.HOST:
        return hosts.get(job.workflow_id, "")
    return {GroupBy.WORKFLOW: job.workflow_id, GroupBy.OWNER: job.user_profile_id}.get(by) if by else None


def load_of(fleet: Fleet, buckets: Buckets) -> Load:
    """Return the load of a whole fleet."""
    total = Load(buckets)
    for member in fleet.members:
        total.add(member.pattern(buckets), member.count, member.busy_seconds)
    return total


def _view(fleet: Fleet, buckets: Buckets, by: GroupBy | None) -> ForecastView:
    total, loads = Load(buckets), dict[Any, Load]()
    for member in fleet.members:
        pattern = member.pattern(buckets)
        total.add(pattern, member.count, member.busy_seconds)
        for key in _keys(member.key, by):
            loads.setdefault(key, Load(buckets)).add(pattern, member.count, member.busy_seconds)
    if by is GroupBy.SCHEDULE:
        loads = _loads_of_schedules(fleet, buckets)
    fires, peak = total.fires, peak_of(buckets, total.fires)
    return ForecastView(
        buckets=[
            BucketView(buckets.at(index), fires[index], seconds) for index, seconds in enumerate(total.busy_seconds)
        ],
        groups=_group_views(loads),
        peak=PeakView(peak.at, peak.fires),
        quiet=[QuietView(*span) for span in quiet_spans(buckets, fires)],
        closed=[
            ClosedView(span.since, span.until, span.calendar, span.entry)
            for span in closed_spans((member.job for member in fleet.members), buckets.since, buckets.until)
        ],
        is_estimate=fleet.is_estimate,
    )


def _keys(key: Any, by: GroupBy | None) -> list[Any]:
    """Return the groups that a member belongs to: a workflow may call several hosts, or none."""
    if by is None or by is GroupBy.SCHEDULE:
        return []
    return (key or "").split() or [None] if by is GroupBy.HOST else [key]


def _loads_of_schedules(fleet: Fleet, buckets: Buckets) -> dict[Any, Load]:
    """Return the loads of the schedules that fire most often."""
    patterns = {id(member): member.pattern(buckets) for member in fleet.members}
    fires = {member: sum(pattern.values()) for member, pattern in patterns.items()}
    often = sorted(fleet.ids, key=lambda job_id: (-fires[id(fleet.ids[job_id])], job_id))
    loads = {}
    for job_id in often[:MOST_GROUPS]:
        member = fleet.ids[job_id]
        loads[job_id] = Load(buckets)
        loads[job_id].add(patterns[id(member)], 1, member.busy_seconds / member.count)
    return loads


def _group_views(loads: Mapping[Any, Load]) -> list[ForecastGroupView]:
    views = []
    for key, load in loads.items():
        fires = load.fires
        views.append(
            ForecastGroupView(
                key=str(key) if isinstance(key, UUID) else key,
                name=key if isinstance(key, str) else "",
                fires=sum(fires),
                busy_seconds=round(sum(load.busy_seconds), 3),
                buckets=fires,
            )
        )
    shown = [view for view in views if view.fires]
    return sorted(shown, key=lambda view: (-view.fires, str(view.key)))[:MOST_GROUPS]


async def _names(connection: Connection, by: GroupBy | None, keys: Sequence[Any]) -> Mapping[Any, str]:
    """Return the names of what a forecast is told apart by."""
    match by:
        case GroupBy.WORKFLOW:
            return {number: name for number, (name, _) in (await workflows.names(connection, set(keys))).items()}
        case GroupBy.OWNER:
            return await users.names(connection, set(keys))
        case GroupBy.SCHEDULE:
            subjects = await schedules.subjects(connection, [UUID(key) for key in keys])
            return {subject.id or "": subject.name for subject in subjects}
        case _:
            return {}
