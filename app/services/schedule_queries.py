"""What a schedule did, does and will do: runs, ledger, history, explanations, previews."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import MAXYEAR, MINYEAR, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import Row

from app import clock
from app.domain.access import Actor
from app.domain.descriptions import describe
from app.domain.errors import FieldError, InvalidError
from app.domain.executions import ExecutionStatus
from app.domain.explain import Explanation, Facts, LastChange, SlotRecord, explain, nearest_slot
from app.domain.lifecycle import CADENCE_FIELDS
from app.domain.planning import with_start_anchor, without_tick
from app.domain.revisions import REMEMBERED
from app.domain.schedules import ScheduledJob, Status
from app.domain.spec_preview import next_runs, spec_warnings
from app.persistence import breakers, execution_queries, executions, ledger, revisions
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Connection, Database, database_now
from app.persistence.ledger import Stretch
from app.persistence.pagination import Part
from app.services.inputs import Moment, PreviewInput, Span
from app.services.listing import read_shown, show_all
from app.services.schedules import draft, owned_schedule, require_years, spec_values
from app.services.views import (
    CheckView,
    ExplanationView,
    HistoryList,
    LedgerItem,
    LedgerList,
    PreviewRun,
    PreviewView,
    RunList,
    RunView,
    execution_fields,
    history_item,
    ledger_item,
)

# Of the processor's time; what a preview has found by then has to do.
PREVIEW_SECONDS = 0.1
SEARCHES_AT_ONCE = 2
CUT = "Only the first {count} runs are shown: the next ones are too far away, or take too long to find."

T = TypeVar("T")


class ScheduleQueryService:
    """Questions about schedules; nothing is changed."""

    def __init__(self, database: Database) -> None:
        """Read from here."""
        self._database = database
        # Few, as each takes its turns of the processor from the loop.
        self._searches = ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="search")

    async def runs(self, actor: Actor, job_id: UUID, part: Part) -> RunList:
        """The audit: the latest runs."""
        async with self._database.reading() as connection:
            await owned_schedule(connection, actor, job_id)
            found = await read_shown(partial(execution_queries.runs, connection, job_id), _run_view, part)
        return RunList(found.items, found.next_cursor)

    async def ledger(self, actor: Actor, job_id: UUID, span: Span, part: Part) -> LedgerList:
        """The account of the latest slots, fired or not."""
        _require_in_calendar(span)
        stretch = Stretch(span.since, span.until, ledger.before(part.cursor))
        async with self._database.reading() as connection:
            await owned_schedule(connection, actor, job_id)
            others = await ledger.of_job(connection, job_id, stretch, part.limit)
            fired = await ledger.fired(connection, job_id, stretch, part.limit)
        items = sorted([*map(ledger_item, others), *map(_fired_item, fired)], key=_slot, reverse=True)
        more = ledger.cursor_at(items[part.limit - 1].slot) if len(items) >= part.limit else None
        return LedgerList(*show_all(items[: part.limit], _ledger_cursor, more))

    async def history(self, actor: Actor, job_id: UUID, part: Part) -> HistoryList:
        """Every change and pause, newest first."""
        async with self._database.reading() as connection:
            await owned_schedule(connection, actor, job_id)
            found = await read_shown(partial(revisions.of_schedule, connection, job_id), history_item, part)
        return HistoryList(found.items, found.next_cursor)

    async def explain(self, actor: Actor, job_id: UUID, wanted: Moment) -> ExplanationView:
        """Why it did, or did not, run then; for a time to come, what would happen as far as known."""
        require_years({"at": wanted.at})
        async with self._database.reading() as connection:
            job = await owned_schedule(connection, actor, job_id)
            now = await database_now(connection)
            return _explanation_view(await self._explained(connection, job, wanted.at or now, now))

    async def _explained(
        self, connection: Connection, job: ScheduledJob, moment: datetime, now: datetime
    ) -> Explanation:
        """Gather what is known around the slot that is meant, and explain it."""
        then, _ = await _as_it_was(connection, job, moment)
        expected = await self._searched(partial(nearest_slot, then, moment))
        around = [*await ledger.near(connection, job.id, moment), expected]
        slot = min((one for one in around if one is not None), key=lambda one: abs(one - moment), default=None)
        then, since = await _as_it_was(connection, job, min(slot or moment, now))
        active, _ = await executions.active_and_now(connection, [job.id])
        facts = Facts(
            job=job,
            then=then,
            since=since,
            recorded=await _recorded(connection, then, slot) if slot is not None else None,
            active=active.get(job.id, ()),
            gate=(await breakers.read(connection, [job.workflow_id])).get(job.workflow_id, OPEN_GATE),
            now=now,
        )
        return await self._searched(partial(explain, facts, slot))

    async def preview(self, actor: Actor, wanted: PreviewInput) -> PreviewView:
        """A spec in plain words, its traps and its next runs; nothing is stored."""
        values = spec_values(wanted)
        count, job_id, timeout = values.pop("count"), values.pop("id"), values.pop("timeout_seconds")
        job = draft({"name": "preview", "workflow_id": 0, **values}, actor)
        now = clock.now()
        if job_id is None:
            # Whose jitter it would be is not known yet.
            job = replace(with_start_anchor(job, now), jitter_seconds=0)
        else:
            async with self._database.transaction() as connection:
                job = _as_change_of(await owned_schedule(connection, actor, job_id), values, now)
        look = partial(_preview, job, values["jitter_seconds"], timeout, count, now)
        return await self._searched(look)

    async def _searched(self, search: Callable[[], T]) -> T:
        """The result of a search for slots. It may take a while: it never holds up the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._searches, search)


def _preview(job: ScheduledJob, jitter_seconds: int, timeout: int, count: int, now: datetime) -> PreviewView:
    """A schedule that is not stored, as far as it can be foreseen in the time that there is."""
    end = clock.thread_seconds() + PREVIEW_SECONDS
    bounds: dict[str, Any] = {"start_at": job.start_at, "end_at": job.end_at}
    warnings = spec_warnings(job.spec, anchor=job.anchor_at, timeout_seconds=timeout, now=now, **bounds)
    found = next_runs(job, count, now, lambda: clock.thread_seconds() > end)
    if found.cut:
        warnings.append(CUT.format(count=len(found.runs)))
    return PreviewView(
        describe(job.spec, jitter_seconds=jitter_seconds, **bounds),
        warnings,
        [PreviewRun(run.at, run.note) for run in found.runs],
    )


async def _as_it_was(
    connection: Connection, job: ScheduledJob, moment: datetime
) -> tuple[ScheduledJob, LastChange | None]:
    """The schedule at a moment, and the change that had made it so; as it is now, where the history does not reach."""
    row = await revisions.in_force(connection, job.id, moment)
    if row is None:
        return job, None
    remembered = {name: value for name, value in row.snapshot.items() if name in REMEMBERED}
    then = msgspec.convert(msgspec.to_builtins(job) | remembered, ScheduledJob)
    return then, LastChange(row.at, row.author, row.note)


async def _recorded(connection: Connection, then: ScheduledJob, slot: datetime) -> SlotRecord | None:
    fired, entry = await ledger.at_slot(connection, then.id, slot)
    if fired is not None:
        return SlotRecord(
            outcome=_outcome(fired),
            reason="" if fired.started_at else fired.error.rstrip("."),
            execution_id=fired.id,
            status=ExecutionStatus(fired.status),
            started_at=fired.started_at,
        )
    # A range covers what was expected within it, and nothing else.
    if entry is None or not (slot in {entry.first_slot, entry.last_slot} or then.spec.hours.allows(slot)):
        return None
    return SlotRecord(outcome=entry.outcome, reason=entry.reason, execution_id=entry.execution_id)


def _as_change_of(job: ScheduledJob, values: dict[str, Any], now: datetime) -> ScheduledJob:
    """An existing schedule with another spec; with its own it keeps its phase and what is planned."""
    changed = replace(job, **values)
    same = all(getattr(changed, name) == getattr(job, name) for name in CADENCE_FIELDS)
    if same and job.status is Status.ACTIVE and job.next_run_at is not None:
        return changed
    return with_start_anchor(without_tick(changed), now)


def _outcome(row: Row[Any]) -> str:
    """A slot has fired once its execution has started; one that ended before has the outcome that was written then."""
    return "fired" if row.started_at is not None else row.unrun_outcome or "queued"


def _run_view(row: Row[Any]) -> RunView:
    return RunView(**execution_fields(row), payload=row.payload)


def _slot(item: LedgerItem) -> datetime:
    return item.slot


def _ledger_cursor(item: LedgerItem) -> str:
    return ledger.cursor_at(item.slot)


def _fired_item(row: Row[Any]) -> LedgerItem:
    reason = "" if row.started_at else row.error
    return LedgerItem(slot=row.scheduled_for, outcome=_outcome(row), reason=reason, execution_id=row.id)


def _explanation_view(found: Explanation) -> ExplanationView:
    return ExplanationView(
        slot=found.slot,
        outcome=found.outcome,
        sentence=found.sentence,
        execution_id=found.execution_id,
        checks=[CheckView(one.check, one.passed, one.detail) for one in found.checks],
    )


def _require_in_calendar(span: Span) -> None:
    """In its first and last year the calendar may have no such moment in UTC."""
    errors = [
        FieldError(field, "At the edge of the calendar only UTC is known.")
        for field, moment in (("from", span.since), ("to", span.until))
        if moment is not None and moment.year in {MINYEAR, MAXYEAR} and moment.utcoffset()
    ]
    if errors:
        raise InvalidError(*errors)
