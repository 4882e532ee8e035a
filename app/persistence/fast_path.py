"""The fast path: plain ticks and plain successes, many in one SQL statement, without a lock while the domain decides.

A tick is plain if it fires one first attempt and nothing else has a say: no gate, no other run, no notification.
The domain decides on a schedule that was read before or is cached; the statement writes only where the row still has
that version (``xmin``, the transaction that wrote it last). All other ticks and results take the locked path of
``claim`` and ``settle``. What the statements write is what the locked path would: ``tests/persistence/
test_conformance.py`` sends the same rows through both and compares whole rows.
"""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import BESIDE_CADENCE, FIRST_TOKEN, ExecutionStatus, Outcome
from app.domain.ledger import slots_in
from app.domain.schedules import ScheduledJob
from app.domain.settle import EndedRun, after_run
from app.domain.ticks import Decided, Fire, LeftToNewer, NotDue, Stale, Start, Tick, TickSource, decide
from app.persistence import fast_path_sql, ledger, schedules
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Database
from app.persistence.execution_rows import (
    Claimed,
    ClaimedVersion,
    Completed,
    RunAheadOf,
    RunResult,
    Settled,
    first_run,
)
from app.persistence.fast_path_sql import EPOCH
from app.persistence.row_cache import RowVersions, ScheduleCache
from app.persistence.sql_batches import fetch

_MICROSECOND = timedelta(microseconds=1)
# Up to this year, moments sent as microseconds are exact.
_LAST_YEAR = 2200

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class _PlainTick(msgspec.Struct, frozen=True, gc=False):
    """A plain tick: the version of its schedule, and what was decided on it at a moment."""

    job: ScheduledJob
    version: int
    decided: Decided
    moment: datetime

    @property
    def fire(self) -> Fire:
        return self.decided.fires[0]


class _PlainSuccess(msgspec.Struct, frozen=True, gc=False):
    """A run that ended plainly: the version of its schedule since the claim, and the schedule after it."""

    outcome: Outcome
    claimed: ClaimedVersion
    after: ScheduledJob


class _PlainEnd(msgspec.Struct, frozen=True, gc=False):
    """A plain tick whose run has ended before it is claimed: its success, and what it ran by."""

    tick: _PlainTick
    success: _PlainSuccess
    row_versions: RowVersions


FastClaim = Claimed | Completed | Stale | NotDue | LeftToNewer


async def claim_fast(
    database: Database,
    ticks: Sequence[Tick],
    worker_id: UUID,
    source: TickSource,
    cache: ScheduleCache,
    run_ahead: RunAheadOf | None = None,
) -> list[FastClaim | None]:
    """Claim the plain ones among these ticks, and say which need no claim; None for those of the locked path.

    What ``run_ahead`` runs is claimed with its end.
    """
    if source.switched_off:
        return [None] * len(ticks)
    by_job = {tick.job_id: tick for tick in ticks}
    answers: dict[UUID, FastClaim] = {}
    async with database.autocommit("claim_fast") as connection:
        # Only now, with the connection: opening one clears the cache if another server answers.
        plain = _plain_by_cache(by_job.values(), source, cache)
        if len(plain) < len(by_job):
            uncached = [tick for job_id, tick in by_job.items() if job_id not in plain]
            await _read_and_decide(connection, uncached, source, cache, plain, answers)
        if run_ahead is not None:
            await _complete(connection, plain, worker_id, source, cache, run_ahead, answers)
        for job_id, version, *row_versions in await _write_claims(connection, plain, worker_id, source):
            tick = plain[job_id]
            after = tick.decided.job
            ledger.count(tick.decided.ledger)
            answers[job_id] = Claimed(
                after,
                first_run(tick.job, tick.fire, tick.moment),
                version=ClaimedVersion(after, version, tick.moment, cache.epoch),
                row_versions=RowVersions(*row_versions),
                not_fired=slots_in(tick.decided.ledger),
                is_plain=True,
            )
    # Two messages may name the same schedule; one of them is answered here.
    return [answers.pop(tick.job_id, None) if by_job[tick.job_id] is tick else None for tick in ticks]


async def _complete(  # noqa: PLR0913 - what is claimed, and all that it is claimed by
    connection: AsyncConnection,
    plain: dict[UUID, _PlainTick],
    worker_id: UUID,
    source: TickSource,
    cache: ScheduleCache,
    run_ahead: RunAheadOf,
    answers: dict[UUID, FastClaim],
) -> None:
    """Move the ticks whose runs can be run ahead from ``plain`` to ``answers``, claimed with the ends of their runs."""
    ended: dict[UUID, _PlainEnd] = {}
    for job_id, tick in plain.items():
        end = _end_ahead(tick, cache, run_ahead)
        if end is not None:
            ended[job_id] = end
    for job_id, version in await _write_ends(connection, ended, worker_id, source) if ended else []:
        del plain[job_id]
        end = ended[job_id]
        after, outcome, entries = end.success.after, end.success.outcome, end.tick.decided.ledger
        cache.keep(after, version)
        ledger.count(entries)
        settled = Settled(outcome.execution_id, end.success.claimed.job, after)
        claimed = Claimed(after, not_fired=slots_in(entries), is_plain=True)
        answers[job_id] = Completed(claimed, outcome, settled, end.tick.moment, end.tick.fire.slot)


def _end_ahead(tick: _PlainTick, cache: ScheduleCache, run_ahead: RunAheadOf) -> _PlainEnd | None:
    """Return the plain success of a tick whose run can be run before it is claimed."""
    ahead = run_ahead(tick.job, tick.fire, tick.moment)
    if ahead is None:
        return None
    version = ClaimedVersion(tick.decided.job, tick.version, tick.moment, cache.epoch)
    success = _plain_success(RunResult(ahead.outcome, ahead.execution, version))
    return None if success is None else _PlainEnd(tick, success, ahead.row_versions)


async def settle_fast(database: Database, results: Sequence[RunResult], cache: ScheduleCache) -> dict[UUID, Settled]:
    """Write the plain successes among these results. Return those that were written, by execution."""
    plain = {success.outcome.execution_id: success for result in results if (success := _plain_success(result))}
    if not plain:
        return {}
    written: dict[UUID, Settled] = {}
    async with database.autocommit("settle_fast") as connection:
        current = [success for success in plain.values() if success.claimed.epoch == cache.epoch]
        for run_id, version in await _write_successes(connection, current) if current else []:
            success = plain[run_id]
            written[run_id] = Settled(run_id, success.claimed.job, success.after)
            cache.keep(success.after, version)
    return written


def _plain_by_cache(ticks: Iterable[Tick], source: TickSource, cache: ScheduleCache) -> dict[UUID, _PlainTick]:
    """Return the ticks that are plain by the cache. The statement finds out whether the cache is still right."""
    now = cache.now()
    plain: dict[UUID, _PlainTick] = {}
    if now is None:
        return plain
    for tick in ticks:
        cached = cache.recall(tick.job_id)
        if cached is not None:
            version, job = cached
            decision = decide(job, tick, (), OPEN_GATE, now, source)
            misses = isinstance(decision, Decided) and bool(decision.ledger) and cache.reports_missed
            if isinstance(decision, Decided) and not misses and _is_plain(job, decision, source):
                plain[job.id] = _PlainTick(job, version, decision, now)
    return plain


async def _read_and_decide(
    connection: AsyncConnection,
    ticks: Sequence[Tick],
    source: TickSource,
    cache: ScheduleCache,
    plain: dict[UUID, _PlainTick],
    answers: dict[UUID, FastClaim],
) -> None:
    """Read the schedules of these ticks and decide; add to ``plain`` and ``answers``."""
    by_job = {tick.job_id: tick for tick in ticks}
    rows = await fetch(connection, fast_path_sql.VERSIONS, list(by_job))
    if not rows:
        return
    # One moment for all of them.
    now, *_, is_notified = rows[0]
    cache.hear(now, reports_missed=is_notified)
    for version, job in await _read(connection, rows, cache):
        decision = decide(job, by_job[job.id], (), OPEN_GATE, now, source)
        if not isinstance(decision, Decided):
            answers[job.id] = decision
        elif _is_plain(job, decision, source) and not (decision.ledger and is_notified):
            plain[job.id] = _PlainTick(job, version, decision, now)


async def _read(
    connection: AsyncConnection, rows: Sequence[Any], cache: ScheduleCache
) -> list[tuple[int, ScheduledJob]]:
    """Return the schedules in the versions of these rows, or newer: from the cache, else from Postgres."""
    current: list[tuple[int, ScheduledJob]] = []
    missing: list[UUID] = []
    for _, job_id, version, _ in rows:
        cached = cache.recall(job_id)
        if cached is None or cached[0] != version:
            missing.append(job_id)
        else:
            current.append(cached)
    if missing:
        current += await schedules.many(connection, missing)
    return current


def _is_plain(job: ScheduledJob, decided: Decided, source: TickSource) -> bool:
    """Return whether a tick fires one first attempt here and now, with at most one entry in the ledger beside it."""
    if len(decided.fires) != 1 or len(decided.ledger) > 1 or decided.cancels or decided.job.status is not job.status:
        return False
    if job.has_skips or job.lease_id is not None:
        return False
    (fire,) = decided.fires
    following = decided.job.next_slot
    if fire.start is not Start.NOW or fire.attempt or fire.trigger is not source.trigger:
        return False
    return following is None or following.year < _LAST_YEAR


def _plain_success(result: RunResult) -> _PlainSuccess | None:
    """Return the schedule after a success that changes nothing but counters and times; None for other results."""
    run, claimed, outcome = result.execution, result.version, result.outcome
    if run is None or claimed is None or outcome.status is not ExecutionStatus.SUCCESS or outcome.token != FIRST_TOKEN:
        return None
    before = claimed.job
    # A release before ``last_error_at`` may have cleared the error alone.
    if before.last_error or before.last_error_at or run.trigger in BESIDE_CADENCE or outcome.publishes:
        return None
    ended = EndedRun(
        execution_id=run.id,
        trigger=run.trigger,
        slot=run.scheduled_for,
        attempt=run.retry_attempt,
        status=outcome.status,
    )
    # The statement writes the real moment of the end; whether the success is plain does not depend on it.
    after = after_run(before, ended, 0, claimed.at).job
    is_plain = after.status is before.status and after.generation == before.generation
    return _PlainSuccess(outcome, claimed, after) if is_plain else None


async def _write_claims(
    connection: AsyncConnection, plain: dict[UUID, _PlainTick], worker_id: UUID, source: TickSource
) -> list[Any]:
    if not plain:
        return []
    ticks = list(plain.values())
    moments = [tick.moment for tick in ticks]
    return await _rows_unless_refused(
        fetch(
            connection,
            fast_path_sql.CLAIM,
            worker_id,
            source.trigger,
            list(plain),
            [tick.version for tick in ticks],
            [tick.fire.execution_id for tick in ticks],
            _microseconds(tick.fire.slot for tick in ticks),
            _microseconds(tick.decided.job.next_slot for tick in ticks),
            # Without jitter a tick is due at its slot.
            _short(_microseconds(tick.decided.job.next_run_at if tick.job.jitter_seconds else None for tick in ticks)),
            _entries(ticks),
            moments[:1] if moments.count(moments[0]) == len(moments) else moments,
        )
    )


async def _write_ends(
    connection: AsyncConnection, ended: dict[UUID, _PlainEnd], worker_id: UUID, source: TickSource
) -> list[Any]:
    ends = list(ended.values())
    ticks = [end.tick for end in ends]
    return await _rows_unless_refused(
        fetch(
            connection,
            fast_path_sql.CLAIM_ENDED,
            source.trigger,
            list(ended),
            [tick.version for tick in ticks],
            [tick.fire.execution_id for tick in ticks],
            _microseconds(tick.fire.slot for tick in ticks),
            _microseconds(tick.decided.job.next_slot for tick in ticks),
            _short(_microseconds(tick.decided.job.next_run_at if tick.job.jitter_seconds else None for tick in ticks)),
            _microseconds(tick.moment for tick in ticks),
            [_encode(results).decode() if (results := end.success.outcome.node_results) else None for end in ends],
            [end.row_versions.flow_version for end in ends],
            [end.row_versions.user_version for end in ends],
            worker_id,
            _entries(ticks),
        )
    )


def _entries(ticks: Sequence[_PlainTick]) -> list[str | None]:
    return _short([_encode(tick.decided.ledger[0]).decode() if tick.decided.ledger else None for tick in ticks])


async def _write_successes(connection: AsyncConnection, plain: Collection[_PlainSuccess]) -> list[Any]:
    return await _rows_unless_refused(
        fetch(
            connection,
            fast_path_sql.SETTLE,
            [success.claimed.job.id for success in plain],
            [success.claimed.version for success in plain],
            [success.outcome.execution_id for success in plain],
            [_encode(results).decode() if (results := success.outcome.node_results) else None for success in plain],
        )
    )


def _short(values: list[T | None]) -> list[T | None]:
    """Shorten a list of nothing but None: where an array ends, the statement sees NULL.

    Not a list of equal values: two cron schedules that missed the same slots have equal entries, and one was lost.
    """
    return values[:1] if values.count(None) == len(values) else values


def _microseconds(moments: Iterable[datetime | None]) -> list[int | None]:
    return [None if moment is None else (moment - EPOCH) // _MICROSECOND for moment in moments]


async def _rows_unless_refused(statement: Awaitable[list[Any]]) -> list[Any]:
    """Return the rows that were written; none if a constraint refused one: the locked path finds out which."""
    try:
        return await statement
    except asyncpg.IntegrityConstraintViolationError:
        return []
