"""What is due next: the coming fires of one schedule or of all, as a list or as a calendar."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from uuid import UUID

import msgspec

from app import clock
from app.domain.access import Actor
from app.domain.errors import FieldError, InvalidError
from app.domain.executions import count_repeats
from app.domain.icalendar_feed import FeedEvent, feed_text
from app.domain.schedule_input import require_years
from app.domain.schedules import ScheduledJob, Status
from app.domain.trigger_event import rfc3339
from app.domain.upcoming import ComingFire, merged_fires
from app.persistence import executions, forecasts, schedule_lists, schedules, skips
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part, known_totals
from app.persistence.schedule_filters import NO_FILTERS, Filters
from app.persistence.schedule_lists import Listing, Sort
from app.services.inputs import Span
from app.services.schedules import owned_schedule
from app.services.views import UpcomingItem, UpcomingList

# Without `to`, this far ahead is searched.
HORIZON = timedelta(days=366)
# For a beginning that lies ahead, the next ticks of schedules do not tell which are first: so many are looked at.
MOST_SCHEDULES = 5_000
# Overdue ticks come first, and their schedules may have their next fires late.
MOST_OVERDUE = 500
# Of the processor's time, for one request. What is found by then is shown.
SEARCH_SECONDS = 1.0
# A calendar has at most this many events.
MOST_EVENTS = 500


class _Found(msgspec.Struct, frozen=True):
    """Fires in their order, and whether all of the span are among them."""

    fires: list[ComingFire]
    is_complete: bool


class _Candidates(msgspec.Struct, frozen=True):
    """The schedules among whose fires the first ones are, and whether there are no further ones."""

    jobs: list[ScheduledJob]
    workflow_names: dict[UUID, str]
    active_runs: dict[UUID, int]
    is_complete: bool


class UpcomingService:
    """Use cases that look ahead."""

    def __init__(self, database: Database) -> None:
        """Read from this database."""
        self._database = database
        self._totals = database.history.watch(known_totals())
        # One thread: each takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="upcoming")

    async def list(self, actor: Actor, span: Span, limit: int) -> UpcomingList:
        """Return the coming fires of all schedules that the actor may see, in the order of their due times."""
        return await self._answer(actor, None, span, limit)

    async def of_schedule(self, actor: Actor, job_id: UUID, span: Span, limit: int) -> UpcomingList:
        """Return the coming fires of one schedule."""
        return await self._answer(actor, job_id, span, limit)

    async def feed(self, actor: Actor, job_id: UUID | None, span: Span) -> str:
        """Return the coming fires of one schedule, or of all, as iCalendar text."""
        found, candidates = await self._search(actor, job_id, span, MOST_EVENTS)
        name = "Carillon" if job_id is None else candidates.jobs[0].name if candidates.jobs else "Carillon"
        events = [_event(coming, candidates.workflow_names.get(coming.job.id, "")) for coming in found.fires]
        return feed_text(name, events, clock.now())

    async def _answer(self, actor: Actor, job_id: UUID | None, span: Span, limit: int) -> UpcomingList:
        found, candidates = await self._search(actor, job_id, span, limit)
        names = candidates.workflow_names
        return UpcomingList([_item(coming, names.get(coming.job.id, "")) for coming in found.fires], found.is_complete)

    async def _search(self, actor: Actor, job_id: UUID | None, span: Span, limit: int) -> tuple[_Found, _Candidates]:
        async with self._database.reading() as connection:
            now = await database_now(connection)
            since, until = bounds(span, now, HORIZON)
            if job_id is None:
                most = limit + MOST_OVERDUE if since <= now else MOST_SCHEDULES
                candidates = await self._candidates(connection, actor, until, most)
            else:
                candidates = await _single(connection, await owned_schedule(connection, actor, job_id))
            skipped = await skips.slots_of(connection, candidates.jobs)
        search = partial(_first_fires, candidates, skipped, since, until, limit)
        # In a thread, as it may take long and must not block the event loop.
        return await asyncio.get_running_loop().run_in_executor(self._searches, search), candidates

    async def _candidates(self, connection: Connection, actor: Actor, until: datetime, most: int) -> _Candidates:
        """Return the schedules whose next ticks come first, as many as can have the first fires."""
        part = Part(most, counts=False)
        listing = Listing(actor.reach(), Filters(status=Status.ACTIVE), part, Sort.NEXT_RUN)
        page = await schedule_lists.page(connection, listing, self._totals)
        rows = [row for row in page.items if row.place is not None and row.place < until]
        paused = await forecasts.returning(connection, actor.reach(), NO_FILTERS, until)
        jobs = await _read_jobs(connection, [*(row.id for row in rows), *paused])
        around = await schedules.surroundings(connection, paused) if paused else {}
        names = {row.id: row.workflow_name for row in rows} | {job_id: shown[0] for job_id, shown in around.items()}
        return _Candidates(jobs, names, await _active_runs(connection, jobs), len(rows) < most)


async def _single(connection: Connection, job: ScheduledJob) -> _Candidates:
    around = await schedules.surroundings(connection, [job.id])
    names = {job_id: shown[0] for job_id, shown in around.items()}
    return _Candidates([job], names, await _active_runs(connection, [job]), is_complete=True)


async def _read_jobs(connection: Connection, ids: Sequence[UUID]) -> list[ScheduledJob]:
    return [job for _, job in await schedules.many(connection, ids, whole=False)]


async def _active_runs(connection: Connection, jobs: Sequence[ScheduledJob]) -> dict[UUID, int]:
    """Return how many active runs may count as repeats, for the schedules that end after some repeats."""
    limited = [job.id for job in jobs if job.is_limited]
    if not limited:
        return {}
    active, _ = await executions.active_and_now(connection, limited)
    return {job_id: count_repeats(runs) for job_id, runs in active.items()}


def _first_fires(
    candidates: _Candidates, skipped: Mapping[UUID, frozenset[datetime]], since: datetime, until: datetime, limit: int
) -> _Found:
    """Return the first fires; slots that somebody asked to leave out are none."""
    end = clock.thread_seconds() + SEARCH_SECONDS

    def is_enough() -> bool:
        return clock.thread_seconds() > end

    fires = merged_fires(candidates.jobs, candidates.active_runs, since, until, is_enough, skipped)
    found = list(islice(fires, limit + 1))
    # With as many fires as were asked for, it does not matter whether further schedules would have some.
    is_complete = len(found) <= limit and candidates.is_complete and not is_enough()
    return _Found(found[:limit], is_complete)


def bounds(span: Span, now: datetime, horizon: timedelta) -> tuple[datetime, datetime]:
    """Return the beginning and the end that a request asks for; refuse an end that is not after the beginning."""
    since = now if span.since is None else span.since
    require_years({"from": span.since, "to": span.until})
    until = since + horizon if span.until is None else span.until
    if until <= since:
        raise InvalidError(FieldError("to", "The end must not be before the beginning, `from`, or equal to it."))
    return since, until


def _item(coming: ComingFire, workflow_name: str) -> UpcomingItem:
    job = coming.job
    return UpcomingItem(
        at=coming.fire.at,
        slot=coming.fire.slot,
        schedule_id=job.id,
        schedule_name=job.name,
        workflow_id=job.workflow_id,
        workflow_name=workflow_name,
        timezone=job.timezone,
    )


def _event(coming: ComingFire, workflow_name: str) -> FeedEvent:
    job, fire = coming.job, coming.fire
    slot = "" if fire.slot == fire.at else f"\nSlot: {rfc3339(fire.slot)}"
    description = f"Workflow: {workflow_name}\nSchedule: {job.id}{slot}"
    return FeedEvent(f"{job.id}-{int(fire.slot.timestamp() * 1000)}@carillon", fire.at, job.name, description)
