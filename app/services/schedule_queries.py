"""Questions about schedules: lists, single schedules, runs, ledger, history, explanations, previews. No Redis."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import MAXYEAR, MINYEAR, datetime
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app import clock
from app.cache import ExpiringCache
from app.domain.access import Actor, Reach, require_owner
from app.domain.descriptions import describe
from app.domain.errors import FieldError, InvalidError, UnavailableError
from app.domain.explain import (
    BackfillRun,
    Explanation,
    Facts,
    LastChange,
    SlotRecord,
    explain,
    nearest_slot,
    next_unrestricted_slot,
)
from app.domain.permits import WAITING_FOR_LIMIT
from app.domain.planning import with_start_anchor, without_tick
from app.domain.revisions import REMEMBERED, differences
from app.domain.schedule_input import require_years
from app.domain.schedule_lifecycle import CADENCE_FIELDS, require_calendars, returned
from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.skips import Skip
from app.domain.spec_preview import next_runs, spec_warnings
from app.micro_batcher import MicroBatcher
from app.persistence import (
    backfills,
    breakers,
    calendars,
    execution_queries,
    executions,
    ledger,
    revisions,
    schedule_lists,
    schedules,
    skips,
)
from app.persistence.backfills import BackfilledSlot
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Connection, Database, database_now
from app.persistence.execution_queries import StoredRun
from app.persistence.ledger import FiredSlot, Stretch
from app.persistence.pagination import Page, Part, known_totals
from app.persistence.schedule_filters import NO_FILTERS, Filters
from app.persistence.schedule_lists import ListedRow, Listing, Sort
from app.persistence.schedules import ScheduleVersion
from app.services.admission import schedule_is_within
from app.services.inputs import Moment, PreviewInput, Span
from app.services.listing import FIRST_ROWS, Encoded, encode, encode_page, read_encoded, read_views
from app.services.preconditions import tag_of_edit
from app.services.schedule_views import CachedView, ViewCache
from app.services.schedules import draft, owned_schedule, spec_values
from app.services.views import (
    CheckView,
    ExplanationView,
    HistoryList,
    LedgerItem,
    LedgerList,
    ListedSchedule,
    PreviewRun,
    PreviewView,
    RunList,
    RunView,
    SchedulePage,
    ScheduleThenView,
    ScheduleView,
    Surroundings,
    execution_fields,
    history_item,
    ledger_item,
)

# Of the processor's time. A preview shows what it has found by then.
PREVIEW_SECONDS = 0.1
SEARCHES_AT_ONCE = 2
CUT = "Only the first {count} runs are shown: the next ones are too far away, or take too long to find."

# The fields that a list of schedules can be asked for.
NAMES = ScheduleView.__struct_fields__
# It may be large: a list has it only if the request names it.
PAYLOAD = "trigger_payload"

# For how long a page is kept that takes long to find, and how many of them.
KEPT_SECONDS = 5.0
MOST_KEPT = 1000
# Batchers of owners that are listing nothing are dropped beyond this number.
MOST_BATCHERS = 1000

T = TypeVar("T")


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ListRequest(msgspec.Struct, frozen=True):
    """Which schedules a list shall have, and which of their fields; None is all fields but the payload."""

    listing: Listing
    fields: frozenset[str] | None

    @property
    def needs_transaction(self) -> bool:
        """Return whether the list is read in a transaction, which alone has settings of its own."""
        return self.listing.needs_plan_of_its_own


def given_fields(text: str | None) -> frozenset[str] | None:
    """Return the fields that a list with commas names, and ``id``; None, for all but the payload, if there is none."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise InvalidError(FieldError("fields", f"A schedule has no field '{unknown[0][:100]}'."))
    return frozenset(("id", *names))


def select_fields(view: Encoded[Any], fields: frozenset[str] | None) -> Encoded[ListedSchedule]:
    """Return an encoded schedule with these fields only."""
    if fields is None:
        return view
    selected = {name: value for name, value in _decode(view).items() if name in fields}
    return cast("Encoded[ListedSchedule]", encode(selected))


class ShownSchedule(msgspec.Struct, frozen=True):
    """A schedule as it is shown, its entity tag, and whether nothing has changed in it since it was edited."""

    view: Encoded[ScheduleView]
    tag: str
    is_stable: bool


class ScheduleQueryService:
    """Use cases that read schedules and change nothing."""

    def __init__(self, database: Database) -> None:
        """Read from this database."""
        self._database = database
        self._whole_views = database.history.watch(ViewCache(whole=True))
        self._listed_views = database.history.watch(ViewCache(whole=False))
        self._totals = database.history.watch(known_totals())
        self._kept_pages: ExpiringCache[Listing, Page[ListedRow]] = ExpiringCache(MOST_KEPT)
        self._reads = MicroBatcher("read", self._read, shared=(UnavailableError,))
        # One for each set of owners: the slow lists of one do not delay the others.
        self._lists: dict[Reach, MicroBatcher[ListRequest, SchedulePage]] = {}
        # Few: every thread takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="search")

    async def list(
        self,
        actor: Actor,
        part: Part,
        filters: Filters = NO_FILTERS,
        sort: Sort = Sort.NEWEST,
        *,
        fields: frozenset[str] | None = None,
    ) -> SchedulePage:
        """Return a page of the schedules that the actor may see; payloads only if ``fields`` has them."""
        reach = actor.reach(filters.team_id)
        return await self._lists_of(reach).ask(ListRequest(Listing(reach, filters, part, sort), fields))

    def _lists_of(self, reach: Reach) -> MicroBatcher[ListRequest, SchedulePage]:
        if reach not in self._lists:
            if len(self._lists) >= MOST_BATCHERS:
                self._lists = {key: batcher for key, batcher in self._lists.items() if not batcher.is_idle}
            self._lists[reach] = MicroBatcher("list", self._list, shared=(UnavailableError,))
        return self._lists[reach]

    async def _list(self, requests: Sequence[ListRequest]) -> Sequence[SchedulePage]:
        """Answer equal requests of one moment with the same page."""
        pages: dict[ListRequest, SchedulePage] = {}
        for needs_transaction in (False, True):
            wanted = [one for one in dict.fromkeys(requests) if one.needs_transaction is needs_transaction]
            if wanted:
                open_one = self._database.transaction if needs_transaction else self._database.reading
                async with open_one("list") as connection:
                    for request in wanted:
                        pages[request] = await self._page(connection, request)
        return [pages[request] for request in requests]

    async def _page(self, connection: Connection, request: ListRequest) -> SchedulePage:
        fields, part = request.fields, request.listing.part
        whole = fields is not None and PAYLOAD in fields
        views: dict[UUID, Encoded[Any]] = {}
        cache = self._whole_views if whole else self._listed_views
        now = clock.now()

        async def read(part: Part) -> Page[ListedRow]:
            page = await self._rows(connection, replace(request.listing, part=part))
            cached = await cache.read(connection, [(row.id, row.version) for row in page.items])
            rows = [row for row in page.items if row.id in cached]
            for row in rows:
                views[row.id] = cached[row.id].whole(Surroundings(row.workflow_name, row.namespace), now)
            return replace(page, items=rows)

        # Without payloads schedules are small: one query is enough.
        first_rows = FIRST_ROWS if whole else part.limit
        page = await read_encoded(read, lambda row: select_fields(views[row.id], fields), part, first_rows)
        return SchedulePage(page.items, page.total, page.total_is_estimate, page.next_cursor)

    async def _rows(self, connection: Connection, listing: Listing) -> Page[ListedRow]:
        """Return a page of rows. Long lists that no index is in the order of may be some seconds old."""
        kept = self._kept_pages.fresh(listing, clock.monotonic())
        if kept is not None:
            return kept
        page = await schedule_lists.page(connection, listing, self._totals)
        if page.total_is_estimate and listing.is_slow_if_long:
            self._kept_pages.keep(listing, page, clock.monotonic() + KEPT_SECONDS)
        return page

    async def get(self, actor: Actor, job_id: UUID) -> ShownSchedule:
        """Return a schedule, encoded."""
        version, view = await self._reads.ask(job_id)
        owner = None if version is None else version.user_profile_id
        require_owner(actor, owner, "schedule", is_within=await self._is_within(actor, job_id))
        if view is None or version is None:
            raise AssertionError("a schedule that does not exist passed the check of its owner")
        now = clock.now()
        is_stable = version.is_unmoved and view.facts.at(now) is view.facts.usual
        whole = view.whole(Surroundings(version.workflow_name, version.namespace), now)
        tag = tag_of_edit(view.tag, version.edited_xid, version.namespace)
        return ShownSchedule(whole, tag, is_stable)

    async def _is_within(self, actor: Actor, job_id: UUID) -> bool:
        if actor.restriction is None:
            return True
        async with self._database.reading() as connection:
            return await schedule_is_within(connection, actor, job_id)

    async def _read(self, job_ids: Sequence[UUID]) -> Sequence[tuple[ScheduleVersion | None, CachedView | None]]:
        """Return the version and the view of each schedule, or None; read together for all requests of one moment."""
        async with self._database.reading() as connection:
            rows = await schedules.versions(connection, list(dict.fromkeys(job_ids)))
            views = await self._whole_views.read(connection, [(row.id, row.version) for row in rows])
        versions = {row.id: row for row in rows if row.id in views}
        return [(versions.get(job_id), views.get(job_id)) for job_id in job_ids]

    async def runs(self, actor: Actor, job_id: UUID, part: Part) -> RunList:
        """Return a page of a schedule's runs, newest first."""
        async with self._database.reading() as connection:
            await owned_schedule(connection, actor, job_id)
            page = await read_views(partial(execution_queries.runs, connection, job_id), _run_view, part)
        return RunList(page.items, page.next_cursor)

    async def ledger(self, actor: Actor, job_id: UUID, span: Span, part: Part) -> LedgerList:
        """Return a page of a schedule's slots, newest first: fired, or why not."""
        require_in_calendar(span)
        stretch = Stretch(span.since, span.until, ledger.before(part.cursor))
        async with self._database.reading() as connection:
            await owned_schedule(connection, actor, job_id)
            others = await ledger.of_job(connection, job_id, stretch, part.limit)
            fired = await ledger.fired(connection, job_id, stretch, part.limit)
            backfilled = (await backfills.shown(connection, [job_id], stretch, part.limit)).get(job_id, ())
        ran = {row.slot for row in backfilled}
        entries = [ledger_item(entry) for entry in others if entry.slot_count > 1 or entry.last_slot not in ran]
        others_fired = [_fired_item(row) for row in fired if row.started_at is not None or row.scheduled_for not in ran]
        items = sorted([*map(_backfilled_item, backfilled), *entries, *others_fired], key=_slot, reverse=True)
        end = _end_of_page(items, part.limit)
        more = ledger.cursor_at(items[end - 1].slot) if len(items) >= part.limit else None
        return LedgerList(*encode_page(items[:end], _ledger_cursor, more))

    async def history(self, actor: Actor, job_id: UUID, part: Part) -> HistoryList:
        """Return a page of a schedule's revisions, newest first."""
        async with self._database.reading() as connection:
            await owned_schedule(connection, actor, job_id)
            page = await read_views(partial(revisions.of_schedule, connection, job_id), history_item, part)
        return HistoryList(page.items, page.next_cursor)

    async def explain(self, actor: Actor, job_id: UUID, wanted: Moment) -> ExplanationView:
        """Explain why a schedule did, or did not, run at a time; for a future time, what is expected to happen."""
        require_years({"at": wanted.at})
        async with self._database.reading() as connection:
            job = await owned_schedule(connection, actor, job_id)
            now = await database_now(connection)
            return await self._explained(connection, job, wanted.at, now)

    async def _explained(
        self, connection: Connection, job: ScheduledJob, moment: datetime | None, now: datetime
    ) -> ExplanationView:
        """Find the slot to explain, gather what is known of it, and explain it."""
        is_after_pause = moment is not None and job.paused_until is not None and moment >= job.paused_until
        if is_after_pause:
            # As it will be once its pause has ended by itself.
            job = returned(job, 0)
        slot = await self._slot_near(connection, job, moment, now, is_future=is_after_pause)
        then, since = await _as_it_was(connection, job, min(slot or moment or now, now))
        if is_after_pause:
            then, since = job, None
        is_invalid = job.status_reason is Reason.INVALID_SPEC
        active, _ = await executions.active_and_now(connection, [job.id])
        facts = Facts(
            job=job,
            then=then,
            since=since,
            recorded=await _recorded(connection, then, slot) if slot is not None else None,
            invalid_since=await revisions.invalid_since(connection, job.id) if is_invalid else None,
            active=active.get(job.id, ()),
            skip=await _skip_of(connection, job, slot),
            backfill=await _backfill_of(connection, job.id, slot),
            gate=(await breakers.read(connection, [job.workflow_id])).get(job.workflow_id, OPEN_GATE),
            now=now,
        )
        return _explanation_view(await self._searched(partial(explain, facts, slot)), facts)

    async def _slot_near(
        self, connection: Connection, job: ScheduledJob, moment: datetime | None, now: datetime, *, is_future: bool
    ) -> datetime | None:
        """Return the slot nearest to a moment, or to now; ``is_future`` says that the history does not know it.

        Without a moment, a schedule that is not active is asked why it does not run: that is about the slot to come.
        """
        if moment is None and job.status is not Status.ACTIVE:
            coming = await self._searched(partial(next_unrestricted_slot, job, now))
            if coming is not None:
                return coming
        moment = moment or now
        then = job if is_future else (await _as_it_was(connection, job, moment))[0]
        expected = await self._searched(partial(nearest_slot, then, moment))
        around = [*await ledger.near(connection, job.id, moment), expected]
        slots = [slot for slot in around if slot is not None]
        return min(slots, key=lambda slot: abs(slot - moment), default=None)

    async def preview(self, actor: Actor, spec: PreviewInput) -> PreviewView:
        """Describe a spec, warn of what may surprise, and return its next runs; nothing is stored."""
        values = spec_values(spec)
        count, job_id, timeout = values.pop("count"), values.pop("id"), values.pop("timeout_seconds")
        job = draft({"name": "preview", "workflow_id": 0, **values}, actor)
        now = clock.now()
        if job_id is None:
            # Jitter depends on the id, which a new schedule does not have yet.
            if job.names_calendars:
                async with self._database.transaction() as connection:
                    (job,) = await calendars.bound(connection, [job])
            job = replace(with_start_anchor(job, now), jitter_seconds=0)
        else:
            async with self._database.transaction() as connection:
                there = await owned_schedule(connection, actor, job_id)
                ready = (await calendars.prepared(connection, {there.id: there}, {there.id: values}))[there.id]
                job = _as_change_of(ready, values, now)
        require_calendars(job)
        look = partial(_preview, job, values["jitter_seconds"], timeout, count, now)
        return await self._searched(look)

    async def _searched(self, search: Callable[[], T]) -> T:
        """Run a search for slots in a thread, as it may take long and must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._searches, search)


def _preview(job: ScheduledJob, jitter_seconds: int, timeout: int, count: int, now: datetime) -> PreviewView:
    """Return the preview of a schedule, with as many of its next runs as are found in time."""
    end = clock.thread_seconds() + PREVIEW_SECONDS
    bounds: dict[str, Any] = {"start_at": job.start_at, "end_at": job.end_at}
    warnings = spec_warnings(job.spec, anchor=job.anchor_at, timeout_seconds=timeout, now=now, **bounds)
    forecast = next_runs(job, count, now, lambda: clock.thread_seconds() > end)
    if forecast.cut:
        warnings.append(CUT.format(count=len(forecast.runs)))
    return PreviewView(
        describe(job.spec, jitter_seconds=jitter_seconds, **bounds),
        warnings,
        [PreviewRun(run.at, run.note) for run in forecast.runs],
    )


async def _as_it_was(
    connection: Connection, job: ScheduledJob, moment: datetime
) -> tuple[ScheduledJob, LastChange | None]:
    """Return the schedule at a moment, and the revision in force then; the current one if the history begins later."""
    row = await revisions.in_force(connection, job.id, moment)
    if row is None:
        return job, None
    remembered = {name: value for name, value in row.snapshot.items() if name in REMEMBERED}
    since = LastChange(row.at, row.author, row.note)
    try:
        then = schedules.with_stored_values(job, remembered)
    except msgspec.ValidationError:
        # A snapshot that cannot be read: the schedule as it is now is the best that is known.
        return job, since
    return (await calendars.with_calendars(connection, [then]))[0], since


async def _recorded(connection: Connection, then: ScheduledJob, slot: datetime) -> SlotRecord | None:
    fired, entry = await ledger.at_slot(connection, then.id, slot)
    if fired is not None:
        last = await ledger.last_attempt(connection, then.id, slot)
        return SlotRecord(
            outcome=_outcome(fired),
            reason="" if fired.started_at else fired.error.rstrip("."),
            limit=fired.waiting_limit,
            execution_id=fired.id,
            status=fired.status,
            started_at=fired.started_at,
            retry=None if last is None else (last.retry_attempt, last.id, last.status),
        )
    # An entry for a range stands for the expected slots in it only: others are not recorded.
    if entry is None or not (slot in {entry.first_slot, entry.last_slot} or _allows(then, slot)):
        return None
    return SlotRecord(outcome=entry.outcome, reason=entry.reason, execution_id=entry.execution_id)


async def _skip_of(connection: Connection, job: ScheduledJob, slot: datetime | None) -> Skip | None:
    found = (await skips.of(connection, [job.id])).get(job.id, ()) if job.has_skips else ()
    return next((skip for skip in found if skip.slot == slot), None)


async def _backfill_of(connection: Connection, job_id: UUID, slot: datetime | None) -> BackfillRun | None:
    if slot is None:
        return None
    rows = (await backfills.shown(connection, [job_id], Stretch(slot, slot), 1)).get(job_id, ())
    return next((BackfillRun(row.id, row.status, row.started_at) for row in rows if row.started_at), None)


def _allows(job: ScheduledJob, slot: datetime) -> bool:
    """Return whether window, weekdays and calendars allow a slot; true if they cannot be read any more."""
    return bool(job.spec.problem) or job.spec.allows(slot)


def _as_change_of(job: ScheduledJob, values: dict[str, Any], now: datetime) -> ScheduledJob:
    """Return an existing schedule with another spec. With an equal one it keeps its anchor and its pending tick."""
    changed = replace(job, **values)
    same = all(getattr(changed, name) == getattr(job, name) for name in CADENCE_FIELDS)
    if same and job.status is Status.ACTIVE and job.next_run_at is not None:
        return changed
    return with_start_anchor(without_tick(changed), now)


def _outcome(row: FiredSlot) -> str:
    """Return the outcome of a slot that has an execution.

    It has fired once the execution has started; an execution that ended before has its outcome stored.
    """
    return "fired" if row.started_at is not None else row.unrun_outcome or "queued"


def _run_view(row: StoredRun) -> RunView:
    return RunView(**execution_fields(row), payload=row.payload)


def _slot(item: LedgerItem) -> datetime:
    return item.slot


def _ledger_cursor(item: LedgerItem) -> str:
    return ledger.cursor_at(item.slot)


def _end_of_page(items: Sequence[LedgerItem], limit: int) -> int:
    """Return where a page ends: a slot that ends a range and was run by a backfill too stays on one page."""
    end = limit
    while 0 < end < len(items) and items[end].slot == items[end - 1].slot:
        end += 1
    return end


def _backfilled_item(row: BackfilledSlot) -> LedgerItem:
    reason = "a backfill ran it" + (f"; before: {row.former_reason}" if row.former_reason else "")
    return LedgerItem(
        slot=row.slot, outcome="fired", reason=reason, execution_id=row.id, former_outcome=row.former_outcome
    )


def _fired_item(row: FiredSlot) -> LedgerItem:
    reason = "" if row.started_at else row.error
    if row.waiting_limit is not None:
        reason = WAITING_FOR_LIMIT
    return LedgerItem(slot=row.scheduled_for, outcome=_outcome(row), reason=reason, execution_id=row.id)


def _explanation_view(explanation: Explanation, facts: Facts) -> ExplanationView:
    return ExplanationView(
        slot=explanation.slot,
        outcome=explanation.outcome,
        sentence=explanation.sentence,
        execution_id=explanation.execution_id,
        checks=[CheckView(check.check, check.passed, check.detail) for check in explanation.checks],
        then=None if facts.since is None else _then_view(facts.then, facts.job, facts.since),
    )


def _then_view(then: ScheduledJob, now: ScheduledJob, since: LastChange) -> ScheduleThenView:
    return ScheduleThenView(
        since=since.at,
        by=since.author,
        note=since.note,
        spec_description=describe(
            then.spec, start_at=then.start_at, end_at=then.end_at, jitter_seconds=then.jitter_seconds
        ),
        timezone=then.timezone,
        status=then.status,
        changes=differences(then, now),
    )


def require_in_calendar(span: Span) -> None:
    """Refuse offsets in the calendar's first and last year, where the same moment may not exist in UTC."""
    errors = [
        FieldError(field, "At the edge of the calendar only UTC is supported.")
        for field, moment in (("from", span.since), ("to", span.until))
        if moment is not None and moment.year in {MINYEAR, MAXYEAR} and moment.utcoffset()
    ]
    if errors:
        raise InvalidError(*errors)
