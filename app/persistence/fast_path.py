"""Plain ticks and plain ends: a batch of them is written by one statement, and nothing is locked while we think.

What was read, or is remembered, is written only where nothing has changed since: the version of a row is the
transaction that wrote it last. Whatever is not plain, or has changed, is left to the careful way of ``claim`` and
``settle``.
"""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import FIRST_TOKEN, Execution, ExecutionStatus, Outcome, Trigger
from app.domain.notifications import NoticeEvent
from app.domain.schedules import ScheduledJob
from app.domain.settling import EndedRun
from app.domain.settling import settle as settle_schedule
from app.domain.ticks import Decided, Fire, NotDue, Stale, Start, Tick, TickSource, decide
from app.persistence import ledger, schedules
from app.persistence.breakers import OPEN_GATE
from app.persistence.database import Database
from app.persistence.execution_rows import Claimed, ClaimedVersion, Settled, begun
from app.persistence.leases import LEASE_HOLDS, SCHEDULES_ENABLED
from app.persistence.row_cache import RowVersions, ScheduleCache
from app.persistence.sql_batches import fetch
from app.persistence.tables import IS_LIMITED

# Moments travel as microseconds since then, which costs a fifth.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MOMENT = f"timestamptz '{EPOCH.isoformat()}' + {{}} * interval '1 microsecond'"
_OTHERS = "SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id"

# Only what nothing else has a say in: no gate, no other run.
SEE = f"""
SELECT clock_timestamp(), j.id, j.xmin,
  EXISTS (SELECT FROM notifications AS n WHERE n.active AND n.events ? '{NoticeEvent.SLOTS_MISSED}')
FROM unnest($1::uuid[]) AS wanted(id)
CROSS JOIN LATERAL (
  SELECT j.id, j.xmin
  FROM scheduled_jobs AS j JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED}
  WHERE j.id = wanted.id AND NOT EXISTS ({_OTHERS})
  OFFSET 0
) AS j
WHERE {SCHEDULES_ENABLED}
"""  # noqa: S608

# Parameters: the worker, the trigger; then, for each tick, the schedule and its version, the new execution, the slot
# that fires and the one that follows, when that is due if not at its time, an entry in the ledger, the moment.
CLAIM = f"""
WITH passed AS MATERIALIZED (
  SELECT j.*, r.run_id, r.entry,
    {_MOMENT.format("r.slot")} AS slot, {_MOMENT.format("r.following")} AS following, {_MOMENT.format("r.due")} AS due,
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
    last_run_at = p.moment, last_fired_at = p.moment, updated_at = clock_timestamp()
  FROM passed AS p WHERE t.id = p.id
), begun AS (
  INSERT INTO workflow_executions (
    id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive, repeat_number, retry_attempt,
    scheduled_for, payload, timeout_seconds, token, worker_id, error, created_at, started_at, queued, due_at
  )
  SELECT p.run_id, p.user_profile_id, p.id, p.workflow_id, $2, 'running', p.if_running <> 'allow', p.current_repeat, 0,
    p.slot, p.trigger_payload, p.timeout_seconds, {FIRST_TOKEN}, $1, '', p.moment, p.moment, false, p.moment
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
# The end is the moment in which it is written: whatever the run did lies before it.
SETTLE = f"""
WITH passed AS MATERIALIZED (
  SELECT j.id, r.run_id, r.results
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
    results = coalesce(p.results::jsonb, t.results), finished_at = clock_timestamp()
  FROM passed AS p WHERE t.id = p.run_id AND t.token = {FIRST_TOKEN} AND t.status = 'running'
  RETURNING p.id, p.run_id
)
UPDATE scheduled_jobs AS t
SET current_repeat = t.current_repeat + 1, current_retry = 0, run_count = t.run_count + 1,
  last_success_execution_id = e.run_id, last_success_at = clock_timestamp(), updated_at = clock_timestamp()
FROM ended AS e WHERE t.id = e.id
RETURNING e.run_id, pg_current_xact_id()::xid
"""  # noqa: S608


_MICROSECOND = timedelta(microseconds=1)
# Moments that travel as microseconds are exact so far from their epoch.
_LAST_YEAR = 2200

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class RunResult(msgspec.Struct, frozen=True):
    """How an execution ended; and, where its worker has claimed it, the schedule as it knows it."""

    outcome: Outcome
    execution: Execution | None = None
    known: ClaimedVersion | None = None


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
    known: ClaimedVersion
    after: ScheduledJob


async def claim(
    database: Database, ticks: Sequence[Tick], worker_id: UUID, occasion: TickSource, memory: ScheduleCache
) -> list[Claimed | Stale | NotDue | None]:
    """Claim the plain ones among these ticks, and say which need no claim; None for all others."""
    if occasion.switched_off:
        return [None] * len(ticks)
    by_job = {tick.job_id: tick for tick in ticks}
    answers: dict[UUID, Claimed | Stale | NotDue] = {}
    async with database.autocommit("claim_fast") as connection:
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
                known=ClaimedVersion(after, version, one.moment, memory.epoch),
                sight=RowVersions(*seen),
            )
    # Two messages may mean the same schedule; one of them is answered here.
    return [answers.pop(tick.job_id, None) if by_job[tick.job_id] is tick else None for tick in ticks]


async def settle(database: Database, endings: Sequence[RunResult], memory: ScheduleCache) -> dict[UUID, Settled]:
    """Write the plain ones among these ends; those that were written, by the execution."""
    plain = {ended.outcome.execution_id: ended for ending in endings if (ended := _plainly_ended(ending))}
    if not plain:
        return {}
    written: dict[UUID, Settled] = {}
    async with database.autocommit("settle_fast") as connection:
        known = [one for one in plain.values() if one.known.epoch == memory.epoch]
        for run_id, version in await _end(connection, known) if known else []:
            one = plain[run_id]
            written[run_id] = Settled(run_id, one.known.job, one.after)
            memory.keep(one.after, version)
    return written


def _remembered(ticks: Iterable[Tick], occasion: TickSource, memory: ScheduleCache) -> dict[UUID, _Firing]:
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
    occasion: TickSource,
    memory: ScheduleCache,
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


async def _read(
    connection: AsyncConnection, seen: Sequence[Any], memory: ScheduleCache
) -> list[tuple[int, ScheduledJob]]:
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


def _is_plain(job: ScheduledJob, decided: Decided, occasion: TickSource) -> bool:
    """Whether it fires one first attempt here and now, and nothing more comes of it than an entry in the ledger."""
    if len(decided.fires) != 1 or len(decided.ledger) > 1 or decided.cancels or decided.job.status is not job.status:
        return False
    (fire,) = decided.fires
    following = decided.job.next_slot
    if fire.start is not Start.NOW or fire.attempt or fire.trigger is not occasion.trigger:
        return False
    return following is None or following.year < _LAST_YEAR


def _plainly_ended(ending: RunResult) -> _Ended | None:
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
    connection: AsyncConnection, firing: dict[UUID, _Firing], worker_id: UUID, occasion: TickSource
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
