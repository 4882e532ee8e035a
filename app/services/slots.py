"""Slots of schedules as a strip draws them: what became of each, what is to come, and when nothing could fire."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app import clock
from app.domain.access import Actor
from app.domain.errors import FieldError, InvalidError
from app.domain.executions import FAILURES, Trigger, count_repeats
from app.domain.ledger import QUEUED, LedgerOutcome
from app.domain.schedules import ScheduledJob
from app.domain.skips import Skip
from app.domain.slot_strips import EXPECTED, OffSpan, SpanKind, Turn, expected_slots, off_spans, pause_turns
from app.persistence import backfills, executions, ledger, restrictions, schedules, skips, slots
from app.persistence.backfills import BackfilledSlot
from app.persistence.database import Connection, Database
from app.persistence.ledger import StoredEntry, Stretch
from app.persistence.pagination import Part
from app.persistence.slots import SlotRun
from app.services.inputs import Span
from app.services.schedule_queries import require_in_calendar
from app.services.schedules import owned_schedule
from app.services.views import (
    SlotItem,
    SlotList,
    SlotStrip,
    SlotStrips,
    SpanView,
    duration_ms,
    shown_status,
    waiting_reason,
)

MOST_SCHEDULES = 100
# Of the processor's time, for all schedules of a request together. What is found by then is shown.
SEARCH_SECONDS = 0.1
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class SlotService:
    """Use cases that read slots."""

    def __init__(self, database: Database) -> None:
        """Read from this database."""
        self._database = database
        # One thread: each takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="slots")

    async def of_schedule(self, actor: Actor, job_id: UUID, span: Span, part: Part, ahead: int) -> SlotList:
        """Return a page of a schedule's slots, newest first, and the spans in which it could not fire."""
        require_in_calendar(span)
        stretch = Stretch(span.since, span.until, ledger.before(part.cursor))
        async with self._database.reading() as connection:
            job = await owned_schedule(connection, actor, job_id)
            # One slot more than is asked for tells whether there is a next page.
            found = await _read(connection, [job], stretch, part.limit + 1)
            coming = {} if part.cursor else await self._coming(connection, [job], ahead)
        items = _items(found, job.id)
        is_last = len(items) <= part.limit
        items = items[: part.limit]
        shown_since = span.since if is_last or not items else _begin(items[-1])
        expected = [item for item in coming.get(job.id, ()) if _is_within(item.slot, span)]
        spans = _spans(found, job.id, shown_since, stretch.before or span.until)
        cursor = None if is_last else ledger.cursor_at(items[-1].slot)
        return SlotList([*expected, *items], spans, cursor)

    async def of_schedules(self, actor: Actor, job_ids: Sequence[UUID], last: int, ahead: int) -> SlotStrips:
        """Return the newest slots of several schedules; ids that are unknown or not the actor's are left out."""
        if len(job_ids) > MOST_SCHEDULES:
            raise InvalidError(FieldError("schedule_ids", f"At most {MOST_SCHEDULES} ids can be given."))
        async with self._database.reading() as connection:
            rows = await schedules.many(connection, job_ids, whole=False)
            within = await restrictions.admitted_schedules(connection, actor.restriction, job_ids)
            jobs = [job for _, job in rows if actor.may_use(job.user_profile_id, is_within=job.id in within)]
            found = await _read(connection, jobs, Stretch(None, None), last)
            coming = await self._coming(connection, jobs, ahead)
        return SlotStrips({str(job.id): _strip(found, coming, job, last) for job in jobs})

    async def _coming(
        self, connection: Connection, jobs: Sequence[ScheduledJob], ahead: int
    ) -> dict[UUID, list["SlotItem"]]:
        if not ahead or not jobs:
            return {}
        active, _ = await executions.active_and_now(connection, [job.id for job in jobs])
        repeats = {job_id: count_repeats(runs) for job_id, runs in active.items()}
        search = partial(_expected, jobs, repeats, ahead)
        # In a thread, as it may take long and must not block the event loop.
        coming = await asyncio.get_running_loop().run_in_executor(self._searches, search)
        for job_id, skipped in (await skips.of(connection, [job.id for job in jobs if job.has_skips])).items():
            _mark_skipped(coming.get(job_id, []), skipped)
        return coming


def _expected(jobs: Sequence[ScheduledJob], repeats: Mapping[UUID, int], ahead: int) -> dict[UUID, list[SlotItem]]:
    """Return the slots to come, newest first; each schedule gets at least one, however long that takes."""
    end = clock.thread_seconds() + SEARCH_SECONDS
    coming = {}
    for job in jobs:
        found = expected_slots(job, repeats.get(job.id, 0), ahead, lambda: clock.thread_seconds() > end)
        coming[job.id] = [SlotItem(slot=slot, outcome=EXPECTED) for slot in reversed(found)]
    return coming


def _mark_skipped(items: Sequence[SlotItem], skipped: Sequence[Skip]) -> None:
    """Say of slots to come that they are left out, and why."""
    reasons = {skip.slot: skip.reason for skip in skipped}
    for item in items:
        if item.slot in reasons:
            item.outcome, item.reason = LedgerOutcome.SKIPPED_REQUEST.value, reasons[item.slot]


class _Found(msgspec.Struct, frozen=True):
    """What is stored about the slots of some schedules."""

    runs: dict[UUID, list[SlotRun]]
    retries: dict[UUID, SlotRun]
    entries: dict[UUID, list[StoredEntry]]
    backfilled: dict[UUID, list[BackfilledSlot]]
    pauses: dict[UUID, list[Turn]]
    # When pauses that last end by themselves.
    pause_ends: dict[UUID, datetime]
    switch: list[Turn]


async def _read(connection: Connection, jobs: Sequence[ScheduledJob], stretch: Stretch, limit: int) -> _Found:
    """Read the slots of all schedules with a fixed number of queries."""
    ids = [job.id for job in jobs]
    runs = await slots.first_runs(connection, ids, stretch, limit)
    retried = [run for of_job in runs.values() for run in of_job if run.status in FAILURES]
    retries = await slots.last_attempts(connection, retried)
    entries = await slots.entries(connection, ids, stretch, limit)
    since = {job.id: stretch.since or _oldest(runs.get(job.id), entries.get(job.id)) for job in jobs}
    pauses = await slots.pauses(connection, since)
    backfilled = await backfills.shown(connection, ids, stretch, limit)
    pause_ends = {job.id: job.paused_until for job in jobs if job.paused_until is not None}
    return _Found(runs, retries, entries, backfilled, pauses, pause_ends, await slots.switch_turns(connection))


def _oldest(runs: Sequence[SlotRun] | None, entries: Sequence[StoredEntry] | None) -> datetime:
    ends = [*([runs[-1].scheduled_for] if runs else []), *([entries[-1].first_slot] if entries else [])]
    return min(ends, default=_BEGINNING)


def _strip(found: _Found, coming: Mapping[UUID, Sequence[SlotItem]], job: ScheduledJob, last: int) -> SlotStrip:
    items = _items(found, job.id)
    since = None if len(items) < last else _begin(items[last - 1])
    return SlotStrip([*coming.get(job.id, ()), *items[:last]], _spans(found, job.id, since, None))


def _begin(item: SlotItem) -> datetime:
    return item.slot if isinstance(item.first, UnsetType) else item.first


def _items(found: _Found, job_id: UUID) -> list[SlotItem]:
    """Return the slots of a schedule, newest first; what a backfill has run stands for what was before."""
    backfilled = {row.slot: _backfilled(row) for row in reversed(found.backfilled.get(job_id, ()))}
    runs = [_fired(run, found.retries.get(run.id, run)) for run in found.runs.get(job_id, ())]
    others = [_not_fired(entry) for entry in found.entries.get(job_id, ())]
    before = [item for item in (*runs, *others) if item.slot not in backfilled or item.count is not UNSET]
    return sorted([*backfilled.values(), *before], key=lambda item: item.slot, reverse=True)


def _backfilled(row: BackfilledSlot) -> SlotItem:
    return SlotItem(
        slot=row.slot,
        outcome="fired",
        status=row.status,
        reason=row.error,
        duration_ms=duration_ms(row.started_at, row.finished_at),
        attempts=row.retry_attempt + 1,
        execution_id=row.id,
        trigger=Trigger.BACKFILL,
        former_outcome=row.former_outcome,
    )


def _fired(first: SlotRun, last: SlotRun) -> SlotItem:
    """Return the slot of a run: it began with the first attempt, and the last attempt says what came of it."""
    began = first.started_at
    return SlotItem(
        slot=first.scheduled_for,
        outcome="fired" if began is not None else first.unrun_outcome or QUEUED,
        status=shown_status(last),
        reason=last.error or waiting_reason(last),
        lateness_ms=None if began is None else duration_ms(first.scheduled_for, began),
        duration_ms=duration_ms(last.started_at, last.finished_at),
        attempts=last.retry_attempt + 1 if began is not None else 0,
        execution_id=last.id,
        trigger=first.trigger,
    )


def _not_fired(entry: StoredEntry) -> SlotItem:
    item = SlotItem(slot=entry.last_slot, outcome=entry.outcome, reason=entry.reason, execution_id=entry.execution_id)
    if entry.slot_count > 1:
        item.first, item.last, item.count = entry.first_slot, entry.last_slot, entry.slot_count
    return item


def _spans(found: _Found, job_id: UUID, since: datetime | None, until: datetime | None) -> list[SpanView]:
    turns = pause_turns(found.pauses.get(job_id, ()), found.pause_ends.get(job_id))
    pauses = off_spans(SpanKind.PAUSED, turns, since, until)
    disabled = off_spans(SpanKind.DISABLED, found.switch, since, until)
    ordered = sorted([*pauses, *disabled], key=lambda span: span.first, reverse=True)
    return [_span_view(span) for span in ordered]


def _span_view(span: OffSpan) -> SpanView:
    return SpanView(kind=span.kind, first=span.first, last=span.last, by=span.by, note=span.note)


def _is_within(slot: datetime, span: Span) -> bool:
    return (span.since is None or slot >= span.since) and (span.until is None or slot <= span.until)
