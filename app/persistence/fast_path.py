"""The fast path: plain ticks and plain successes, many in one SQL statement, without a lock while the domain decides.

A tick is plain if it fires one first attempt and nothing else has a say: no gate, no other run, no notification.
The domain decides on a schedule that was read before or is cached; the statement writes only where the row still has
that version (``xmin``, the transaction that wrote it last). All other ticks and results take the locked path of
``claim`` and ``settle``. What the statements write is what the locked path would: ``tests/persistence/
test_conformance.py`` sends the same rows through both and compares whole rows.
"""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import FIRST_TOKEN, ExecutionStatus, Outcome, Trigger
from app.domain.ledger import slots_in
from app.domain.notifications import NoticeEvent
from app.domain.overlap import runs_alone
from app.domain.schedules import IfRunning, ScheduledJob
from app.domain.settle import EndedRun, after_run
from app.domain.ticks import Decided, Fire, LeftToNewer, NotDue, Stale, Start, Tick, TickSource, decide
from app.persistence import ledger, schedules
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Database
from app.persistence.execution_rows import Claimed, ClaimedVersion, RunResult, Settled, new_execution, to_run
from app.persistence.leases import LEASE_HOLDS, SCHEDULES_ENABLED
from app.persistence.row_cache import RowVersions, ScheduleCache
from app.persistence.sql_batches import fetch
from app.persistence.tables import IS_LIMITED

# Moments are sent as integers, microseconds since this epoch: encoding datetimes costs five times as much.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MOMENT = f"timestamptz '{EPOCH.isoformat()}' + {{}} * interval '1 microsecond'"
_ALONE = ", ".join(f"'{policy}'" for policy in IfRunning if runs_alone(policy))
_OTHERS = "SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id"

# The versions of schedules that have no gate and no other run, and whether anyone is notified of missed slots.
VERSIONS = f"""
SELECT clock_timestamp(), j.id, j.xmin,
  EXISTS (SELECT FROM notifications AS n WHERE n.active AND n.events ? '{NoticeEvent.SLOTS_MISSED}')
FROM unnest($1::uuid[]) AS asked(id)
CROSS JOIN LATERAL (
  SELECT j.id, j.xmin
  FROM scheduled_jobs AS j JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED}
  WHERE j.id = asked.id AND NOT EXISTS ({_OTHERS})
  OFFSET 0
) AS j
WHERE {SCHEDULES_ENABLED}
"""  # noqa: S608

# Each row is looked up by its key in a lateral subquery: no statistics can make a plan that scans.
# Parameters: the worker, the trigger; then, for each tick, the schedule and its version, the new execution, the slot
# that fires and the one after it, when that is due if not at its slot, an entry for the ledger, the moment.
CLAIM = f"""
WITH passed AS MATERIALIZED (
  SELECT j.*, r.run_id, r.entry,
    {_MOMENT.format("r.slot")} AS slot, {_MOMENT.format("r.following")} AS following, {_MOMENT.format("r.due")} AS due,
    -- A moment that all ticks share is sent once.
    coalesce(r.moment, ($10::timestamptz[])[1]) AS moment
  FROM unnest(
    $3::uuid[], $4::xid[], $5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::timestamptz[]
  ) AS r(id, version, run_id, slot, following, due, entry, moment)
  CROSS JOIN LATERAL (
    SELECT j.id, j.user_profile_id, j.workflow_id, j.if_running, j.current_repeat, j.trigger_payload,
      j.timeout_seconds, w.xmin AS flow_version, u.xmin AS user_version,
      -- Looked up only for a workflow of somebody else: its condition is judged before the row is read.
      (SELECT o.xmin FROM user_profiles AS o
        WHERE o.id = w.user_profile_id AND w.user_profile_id <> j.user_profile_id) AS flow_owner_version
    FROM scheduled_jobs AS j
    JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED}
    JOIN user_profiles AS u ON u.id = j.user_profile_id
    WHERE j.id = r.id AND j.xmin = r.version AND j.next_run_at <= clock_timestamp() AND NOT EXISTS ({_OTHERS})
    FOR NO KEY UPDATE OF j SKIP LOCKED
  ) AS j
  WHERE {LEASE_HOLDS.format(worker="$1")} AND {SCHEDULES_ENABLED}
), moved AS (
  UPDATE scheduled_jobs AS t
  SET generation = t.generation + 1, cadence_slot = p.following, next_slot = p.following,
    next_run_at = coalesce(p.due, p.following), next_attempt = 0, last_slot = p.slot,
    last_run_at = p.moment, last_fired_at = p.moment, last_attempt_at = p.moment, last_execution_id = p.run_id,
    last_outcome = 'running', updated_at = clock_timestamp()
  FROM passed AS p WHERE t.id = p.id
), begun AS (
  INSERT INTO workflow_executions (
    id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive, repeat_number, retry_attempt,
    scheduled_for, payload, timeout_seconds, token, worker_id, error, created_at, started_at, queued, due_at
  )
  SELECT p.run_id, p.user_profile_id, p.id, p.workflow_id, $2, 'running', p.if_running IN ({_ALONE}),
    p.current_repeat, 0, p.slot, p.trigger_payload, p.timeout_seconds, {FIRST_TOKEN}, $1, '', p.moment, p.moment,
    false, p.moment
  FROM passed AS p
), entered AS (
  INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason, execution_id)
  SELECT p.id, l.first_slot, l.last_slot, l.slot_count, l.outcome, l.reason, l.execution_id
  FROM passed AS p CROSS JOIN LATERAL jsonb_to_record(p.entry::jsonb) AS l(
    first_slot timestamptz, last_slot timestamptz, slot_count bigint, outcome text, reason text, execution_id uuid
  )
  WHERE p.entry IS NOT NULL
)
SELECT id, pg_current_xact_id()::xid, flow_version, user_version, flow_owner_version FROM passed
"""  # noqa: S608

# Parameters, for each run: the schedule and its version, the execution, the results of its nodes.
# A run ends at the moment in which its end is written: everything that its nodes did lies before that.
SETTLE = f"""
WITH passed AS MATERIALIZED (
  SELECT j.id, r.run_id, r.results, clock_timestamp() AS moment
  FROM unnest($1::uuid[], $2::xid[], $3::uuid[], $4::text[]) AS r(id, version, run_id, results)
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM scheduled_jobs AS j
    JOIN workflows AS w ON w.id = j.workflow_id AND w.breaker_threshold IS NULL
    WHERE j.id = r.id AND j.xmin = r.version AND NOT EXISTS ({_OTHERS} AND a.id <> r.run_id)
    FOR NO KEY UPDATE OF j SKIP LOCKED
  ) AS j
), ended AS (
  UPDATE workflow_executions AS t
  SET status = 'success', error = '', token = t.token + 1, worker_id = NULL, queued = false, awaiting = false,
    results = coalesce(p.results::jsonb, t.results), finished_at = p.moment
  FROM passed AS p WHERE t.id = p.run_id AND t.token = {FIRST_TOKEN} AND t.status = 'running'
  RETURNING p.id, p.run_id, p.moment
)
UPDATE scheduled_jobs AS t
SET current_repeat = t.current_repeat + 1, current_retry = 0, run_count = t.run_count + 1,
  last_success_execution_id = e.run_id, last_success_at = e.moment, last_outcome = 'success',
  updated_at = clock_timestamp()
FROM ended AS e WHERE t.id = e.id
RETURNING e.run_id, pg_current_xact_id()::xid
"""  # noqa: S608

_MICROSECOND = timedelta(microseconds=1)
# Up to this year, moments sent as microseconds are exact.
_LAST_YEAR = 2200

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class _PlainTick(msgspec.Struct, frozen=True):
    """A plain tick: the version of its schedule, and what was decided on it at a moment."""

    job: ScheduledJob
    version: int
    decided: Decided
    moment: datetime

    @property
    def fire(self) -> Fire:
        return self.decided.fires[0]


class _PlainSuccess(msgspec.Struct, frozen=True):
    """A run that ended plainly: the version of its schedule since the claim, and the schedule after it."""

    outcome: Outcome
    claimed: ClaimedVersion
    after: ScheduledJob


async def claim_fast(
    database: Database, ticks: Sequence[Tick], worker_id: UUID, source: TickSource, cache: ScheduleCache
) -> list[Claimed | Stale | NotDue | LeftToNewer | None]:
    """Claim the plain ones among these ticks, and say which need no claim; None for those of the locked path."""
    if source.switched_off:
        return [None] * len(ticks)
    by_job = {tick.job_id: tick for tick in ticks}
    answers: dict[UUID, Claimed | Stale | NotDue | LeftToNewer] = {}
    async with database.autocommit("claim_fast") as connection:
        # Only now, with the connection: opening one clears the cache if another server answers.
        plain = _plain_by_cache(by_job.values(), source, cache)
        if len(plain) < len(by_job):
            uncached = [tick for job_id, tick in by_job.items() if job_id not in plain]
            await _read_and_decide(connection, uncached, source, cache, plain, answers)
        for job_id, version, *row_versions in await _write_claims(connection, plain, worker_id, source):
            tick = plain[job_id]
            after = tick.decided.job
            ledger.count(tick.decided.ledger)
            answers[job_id] = Claimed(
                after,
                to_run(tick.job, new_execution(tick.job, tick.fire, tick.moment, worker_id)),
                version=ClaimedVersion(after, version, tick.moment, cache.epoch),
                row_versions=RowVersions(*row_versions),
                not_fired=slots_in(tick.decided.ledger),
            )
    # Two messages may name the same schedule; one of them is answered here.
    return [answers.pop(tick.job_id, None) if by_job[tick.job_id] is tick else None for tick in ticks]


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
            if isinstance(decision, Decided) and not decision.ledger and _is_plain(job, decision, source):
                plain[job.id] = _PlainTick(job, version, decision, now)
    return plain


async def _read_and_decide(
    connection: AsyncConnection,
    ticks: Sequence[Tick],
    source: TickSource,
    cache: ScheduleCache,
    plain: dict[UUID, _PlainTick],
    answers: dict[UUID, Claimed | Stale | NotDue | LeftToNewer],
) -> None:
    """Read the schedules of these ticks and decide; add to ``plain`` and ``answers``."""
    by_job = {tick.job_id: tick for tick in ticks}
    rows = await fetch(connection, VERSIONS, list(by_job))
    if not rows:
        return
    # One moment for all of them.
    now, *_, is_notified = rows[0]
    cache.hear(now)
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
    if job.lease_id is not None:
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
    if before.last_error or before.last_error_at or run.trigger is Trigger.MANUAL or outcome.publishes:
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
            CLAIM,
            worker_id,
            source.trigger,
            list(plain),
            [tick.version for tick in ticks],
            [tick.fire.execution_id for tick in ticks],
            _microseconds(tick.fire.slot for tick in ticks),
            _microseconds(tick.decided.job.next_slot for tick in ticks),
            # Without jitter a tick is due at its slot.
            _short(_microseconds(tick.decided.job.next_run_at if tick.job.jitter_seconds else None for tick in ticks)),
            _short([_encode(tick.decided.ledger[0]).decode() if tick.decided.ledger else None for tick in ticks]),
            moments[:1] if moments.count(moments[0]) == len(moments) else moments,
        )
    )


async def _write_successes(connection: AsyncConnection, plain: Collection[_PlainSuccess]) -> list[Any]:
    return await _rows_unless_refused(
        fetch(
            connection,
            SETTLE,
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
