"""Proposals to spread load: which schedules to move, or to give a jitter, so that peaks become lower."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from msgspec.structs import replace

from app.domain.access import Actor
from app.domain.forecasts import Buckets, Peak, peak_of
from app.domain.schedules import ScheduledJob
from app.domain.spread import MINUTE, Movable, Move, Option, jitter_option, shift_options, shifted_fields, spread
from app.persistence import schedules
from app.persistence.database import Database, database_now
from app.services.forecasts import Fleet, load_of, read_fleet
from app.services.inputs import SpreadInput
from app.services.views import PeakView, SpreadChangeView, SpreadView

HORIZON = timedelta(days=1)
MOST_CHANGES = 5_000
# So many schedules of each group can be moved.
MOST_OF_GROUP = 2_000


class SpreadService:
    """Proposes changes that flatten peaks."""

    def __init__(self, database: Database) -> None:
        """Read from this database."""
        self._database = database
        # One thread: each takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="spread")

    async def propose(self, actor: Actor, request: SpreadInput) -> SpreadView:
        """Return the peak of the next day without and with changes, and the changes. Nothing is stored."""
        async with self._database.transaction("forecast") as connection:
            buckets = _next_day(await database_now(connection))
            everything = await read_fleet(connection, actor, buckets, most_ids=MOST_OF_GROUP)
            movable = everything
            if request.filter is not None:
                movable = await read_fleet(connection, actor, buckets, filters=request.filter, most_ids=MOST_OF_GROUP)
            before, after, moves = await self._searched(partial(_proposed, everything, movable, buckets, request))
            ids = [move.job_id for move in moves]
            jobs = {job.id: job for _, job in await schedules.many(connection, ids, whole=False)}
        return SpreadView(
            before=PeakView(before.at, before.fires),
            after=PeakView(after.at, after.fires),
            changes=_changes(moves, jobs),
            is_estimate=everything.is_estimate,
        )

    async def _searched(self, search: "partial[tuple[Peak, Peak, list[Move]]]") -> tuple[Peak, Peak, list[Move]]:
        """Run a search in a thread, as it may take long and must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._searches, search)


def _next_day(now: datetime) -> Buckets:
    """Return the minutes of the next 24 hours, from the next whole minute on."""
    since = now.replace(second=0, microsecond=0) + MINUTE
    return Buckets(since, since + HORIZON, MINUTE)


def _proposed(
    everything: Fleet, movable: Fleet, buckets: Buckets, request: SpreadInput
) -> tuple[Peak, Peak, list[Move]]:
    load = load_of(everything, buckets).fires
    before = peak_of(buckets, load)
    most = timedelta(seconds=request.max_shift_seconds)
    groups = _movables(movable, buckets)
    if request.by_jitter:

        def options(group: Movable, job_id: UUID) -> Sequence[Option]:
            return jitter_option(replace(group.job, id=job_id), most, buckets)
    else:
        known: dict[UUID, Sequence[Option]] = {}

        def options(group: Movable, job_id: UUID) -> Sequence[Option]:
            del job_id
            if group.job.id not in known:
                known[group.job.id] = shift_options(group.job, most, buckets)
            return known[group.job.id]

    moves = spread(load, groups, options, MOST_CHANGES, alike=not request.by_jitter)
    return before, peak_of(buckets, load), moves


def _movables(fleet: Fleet, buckets: Buckets) -> list[Movable]:
    """Return the schedules that can be moved by themselves: those without a jitter, a limit, a pause or skips."""
    ids: dict[int, list[UUID]] = {}
    for job_id, member in fleet.ids.items():
        ids.setdefault(id(member), []).append(job_id)
    found = []
    for member in fleet.members:
        job = member.job
        if not (job.jitter_seconds or job.is_limited or job.is_one_shot or job.paused_until or member.skipped):
            indices = tuple(index for index, fires in member.pattern(buckets).items() for _ in range(int(fires)))
            found.append(Movable(job, tuple(sorted(ids.get(id(member), ()))), indices))
    return found


def _changes(moves: Sequence[Move], jobs: Mapping[UUID, ScheduledJob]) -> list[SpreadChangeView]:
    """Return the changes, equal ones beside each other: those can be made by one operation."""
    views = []
    for move in moves:
        job = jobs.get(move.job_id)
        fields = None if job is None else _fields(job, move.option)
        if job is not None and fields is not None:
            views.append(SpreadChangeView(id=job.id, name=job.name, set=fields))
    return sorted(views, key=lambda view: (str(view.set), view.id))


def _fields(job: ScheduledJob, option: Option) -> dict[str, object] | None:
    """Return the fields to set: the start of an interval is one of the schedule's own, not of its group."""
    return shifted_fields(job, option.seconds // 60) if "start_at" in option.fields else option.fields
