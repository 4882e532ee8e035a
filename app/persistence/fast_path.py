"""Plain ticks and plain ends: a batch of them is written by one statement, and nothing is locked while we think.

What was read, or is remembered, is written only where nothing has changed since: the version of a row is the
transaction that wrote it last. Whatever is not plain, or has changed, is left to the careful way of ``claim`` and
``settle``.
"""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import FIRST_TOKEN, Execution, ExecutionStatus, Outcome, Trigger
from app.domain.schedules import ScheduledJob
from app.domain.settling import EndedRun
from app.domain.settling import settle as settle_schedule
from app.domain.ticks import Decided, Fire, NotDue, Occasion, Stale, Start, Tick, decide
from app.persistence import ledger, schedules
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Database
from app.persistence.execution_rows import begun
from app.persistence.memory import Memory
from app.persistence.plain_sql import CLAIM, EPOCH, SEE, SETTLE
from app.persistence.results import Claimed, Known, Settled
from app.persistence.row_cache import Sight
from app.persistence.sql_batches import fetch

_MICROSECOND = timedelta(microseconds=1)
# Moments that travel as microseconds are exact so far from their epoch.
_LAST_YEAR = 2200

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class Ending(msgspec.Struct, frozen=True):
    """How an execution ended; and, where its worker has claimed it, the schedule as it knows it."""

    outcome: Outcome
    execution: Execution | None = None
    known: Known | None = None


class _Firing(msgspec.Struct, frozen=True):
    """A plain tick, decided on a version of its schedule at a moment."""

    job: ScheduledJob
    version: int
    decided: Decided
    moment: datetime

    @property
    def fire(self) -> Fire:
        return self.decided.fires[0]


class _Ended(msgspec.Struct, frozen=True):
    outcome: Outcome
    known: Known
    after: ScheduledJob


async def claim(
    database: Database, ticks: Sequence[Tick], worker_id: UUID, occasion: Occasion, memory: Memory
) -> list[Claimed | Stale | NotDue | None]:
    """Claim the plain ones among these ticks, and say which need no claim; None for all others."""
    if occasion.switched_off:
        return [None] * len(ticks)
    by_job = {tick.job_id: tick for tick in ticks}
    answers: dict[UUID, Claimed | Stale | NotDue] = {}
    async with database.at_once() as connection:
        # With the connection in hand: to open one may show that what was remembered is of another server.
        firing = _remembered(by_job.values(), occasion, memory)
        if len(firing) < len(by_job):
            unsure = [tick for job_id, tick in by_job.items() if job_id not in firing]
            await _look(connection, unsure, occasion, memory, firing, answers)
        for job_id, version, *seen in await _begin(connection, firing, worker_id, occasion):
            one = firing[job_id]
            after = one.decided.job
            ledger.count(one.decided.ledger)
            answers[job_id] = Claimed(
                after,
                begun(one.job, one.fire, one.moment),
                known=Known(after, version, one.moment, memory.epoch),
                sight=Sight(*seen),
            )
    # Two messages may mean the same schedule; one of them is answered here.
    return [answers.pop(tick.job_id, None) if by_job[tick.job_id] is tick else None for tick in ticks]


async def settle(database: Database, endings: Sequence[Ending], memory: Memory) -> dict[UUID, Settled]:
    """Write the plain ones among these ends; those that were written, by the execution."""
    plain = {ended.outcome.execution_id: ended for ending in endings if (ended := _plainly_ended(ending))}
    if not plain:
        return {}
    written: dict[UUID, Settled] = {}
    async with database.at_once() as connection:
        known = [one for one in plain.values() if one.known.epoch == memory.epoch]
        for run_id, version in await _end(connection, known) if known else []:
            one = plain[run_id]
            written[run_id] = Settled(run_id, one.known.job, one.after)
            memory.keep(one.after, version)
    return written


def _remembered(ticks: Iterable[Tick], occasion: Occasion, memory: Memory) -> dict[UUID, _Firing]:
    """The ticks that fire plainly by all that is remembered; whether that is still true is seen when it is written."""
    now = memory.now()
    firing: dict[UUID, _Firing] = {}
    if now is None:
        return firing
    for tick in ticks:
        known = memory.recall(tick.job_id)
        if known is not None:
            version, job = known
            decision = decide(job, tick, (), OPEN_GATE, now, occasion)
            if isinstance(decision, Decided) and not decision.ledger and _is_plain(job, decision, occasion):
                firing[job.id] = _Firing(job, version, decision, now)
    return firing


async def _look(
    connection: AsyncConnection,
    ticks: Sequence[Tick],
    occasion: Occasion,
    memory: Memory,
    firing: dict[UUID, _Firing],
    answers: dict[UUID, Claimed | Stale | NotDue],
) -> None:
    """Read the schedules of these ticks, and decide."""
    by_job = {tick.job_id: tick for tick in ticks}
    rows = await fetch(connection, SEE, list(by_job))
    if not rows:
        return
    # One moment for all of them.
    now, *_, is_told = rows[0]
    memory.hear(now)
    for version, job in await _read(connection, rows, memory):
        tick = by_job[job.id]
        decision = decide(job, tick, (), OPEN_GATE, now, occasion)
        if not isinstance(decision, Decided):
            answers[job.id] = decision
        elif _is_plain(job, decision, occasion) and not (decision.ledger and is_told):
            firing[job.id] = _Firing(job, version, decision, now)


async def _read(connection: AsyncConnection, seen: Sequence[Any], memory: Memory) -> list[tuple[int, ScheduledJob]]:
    """The schedules in the versions that were seen, or newer."""
    known: list[tuple[int, ScheduledJob]] = []
    unknown: list[UUID] = []
    for _, job_id, version, _ in seen:
        remembered = memory.recall(job_id)
        if remembered is None or remembered[0] != version:
            unknown.append(job_id)
        else:
            known.append(remembered)
    if unknown:
        known += await schedules.many(connection, unknown)
    return known


def _is_plain(job: ScheduledJob, decided: Decided, occasion: Occasion) -> bool:
    """Whether it fires one first attempt here and now, and nothing more comes of it than an entry in the ledger."""
    if len(decided.fires) != 1 or len(decided.ledger) > 1 or decided.cancels or decided.job.status is not job.status:
        return False
    (fire,) = decided.fires
    following = decided.job.next_slot
    if fire.start is not Start.NOW or fire.attempt or fire.trigger is not occasion.trigger:
        return False
    return following is None or following.year < _LAST_YEAR


def _plainly_ended(ending: Ending) -> _Ended | None:
    """The schedule after a success that nobody has to be told of."""
    run, known, outcome = ending.execution, ending.known, ending.outcome
    if run is None or known is None or outcome.status is not ExecutionStatus.SUCCESS or outcome.token != FIRST_TOKEN:
        return None
    before = known.job
    if before.last_error or run.trigger is Trigger.MANUAL:
        return None
    ended = EndedRun(
        execution_id=run.id,
        trigger=run.trigger,
        slot=run.scheduled_for,
        attempt=run.retry_attempt,
        status=outcome.status,
    )
    # When exactly is Postgres' to say; whether it is plain does not depend on it.
    after = settle_schedule(before, ended, 0, known.at).job
    is_plain = after.status is before.status and after.generation == before.generation
    return _Ended(outcome, known, after) if is_plain else None


async def _begin(
    connection: AsyncConnection, firing: dict[UUID, _Firing], worker_id: UUID, occasion: Occasion
) -> list[Any]:
    if not firing:
        return []
    ones = list(firing.values())
    return await _written(
        fetch(
            connection,
            CLAIM,
            worker_id,
            occasion.trigger,
            list(firing),
            [one.version for one in ones],
            [one.fire.execution_id for one in ones],
            _microseconds(one.fire.slot for one in ones),
            _microseconds(one.decided.job.next_slot for one in ones),
            # Without jitter it is due with its slot.
            _short(_microseconds(one.decided.job.next_run_at if one.job.jitter_seconds else None for one in ones)),
            _short([_encode(one.decided.ledger[0]).decode() if one.decided.ledger else None for one in ones]),
            _short([one.moment for one in ones]),
        )
    )


async def _end(connection: AsyncConnection, plain: Collection[_Ended]) -> list[Any]:
    return await _written(
        fetch(
            connection,
            SETTLE,
            [one.known.job.id for one in plain],
            [one.known.version for one in plain],
            [one.outcome.execution_id for one in plain],
            [_encode(one.outcome.node_results).decode() if one.outcome.node_results else None for one in plain],
        )
    )


def _short(values: list[T]) -> list[T]:
    """What is the same in all rows travels once."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _microseconds(moments: Iterable[datetime | None]) -> list[int | None]:
    return [None if moment is None else (moment - EPOCH) // _MICROSECOND for moment in moments]


async def _written(writing: Awaitable[list[Any]]) -> list[Any]:
    """What was written; nothing where a constraint objects: the careful way finds out to which of them."""
    try:
        return await writing
    except asyncpg.IntegrityConstraintViolationError:
        return []
