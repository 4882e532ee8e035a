"""Plain ticks and plain ends: a batch of them is written by one statement, and nothing is locked while we think.

What was read is written only where nothing has changed since: the version of a row is the transaction that wrote it
last. Whatever is not plain, or has changed, is left to the careful way of ``claim`` and ``settle``.
"""

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import Execution, ExecutionStatus, Outcome, Trigger
from app.domain.notices import NoticeEvent
from app.domain.schedules import ScheduledJob
from app.domain.settling import EndedRun
from app.domain.settling import settle as settle_schedule
from app.domain.ticks import Decided, NotDue, Occasion, Stale, Start, Tick, decide
from app.persistence import executions, ledger, schedules
from app.persistence.batches import Fenced, fetch, update_many
from app.persistence.database import Database
from app.persistence.execution_rows import NewExecution, as_execution, new_execution
from app.persistence.gates import OPEN_GATE
from app.persistence.subjects import Sight
from app.persistence.switches import SCHEDULES_ENABLED
from app.persistence.tables import IS_LIMITED, ScheduledJobRow
from app.persistence.users import as_actor
from app.persistence.workers import LEASE_HOLDS

# All that a plain tick, and the plain end of a run, change of a schedule.
FIRED = (
    *("generation", "cadence_slot", "next_slot", "next_run_at", "next_attempt", "last_slot"),
    *("last_run_at", "last_fired_at"),
)
ENDED = ("current_repeat", "current_retry", "run_count", "last_success_execution_id")
MOST_REMEMBERED = 20_000

# Only what nothing else has a say in: no gate, no other run.
_SEE = (
    "SELECT clock_timestamp(), j.id, j.xmin, w.updated_at, u.id, u.username, u.role, u.kind, "  # noqa: S608
    f"EXISTS (SELECT FROM notifications AS n WHERE n.active AND n.events ? '{NoticeEvent.SLOTS_MISSED}') AS told "
    "FROM unnest($1::uuid[]) AS wanted(id) "
    "JOIN scheduled_jobs AS j ON j.id = wanted.id "
    f"JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED} "
    f"JOIN user_profiles AS u ON u.id = j.user_profile_id WHERE {SCHEDULES_ENABLED} "
    "AND NOT EXISTS (SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id)"
)
_CLAIM = Fenced(
    "JOIN scheduled_jobs AS j ON j.id = r.a_id AND j.xmin = r.version "
    f"WHERE {LEASE_HOLDS.format(worker='$1')} FOR NO KEY UPDATE OF j SKIP LOCKED",
    1,
    {"version": "xid"},
    (
        update_many(ScheduledJobRow, FIRED, extra=", updated_at = clock_timestamp()"),
        ledger.INSERT.followed_by("WHERE r.first_slot IS NOT NULL"),
        executions.INSERT.followed_by("RETURNING scheduled_job_id, pg_current_xact_id()::xid"),
    ),
)
_SETTLE = Fenced(
    "JOIN scheduled_jobs AS j ON j.id = r.a_id AND j.xmin = r.version "
    "JOIN workflow_executions AS e ON e.id = r.b_id AND e.token = r.held_token AND e.status = 'running' "
    "WHERE NOT EXISTS (SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id AND a.id <> e.id) "
    "AND NOT EXISTS (SELECT FROM workflows AS w WHERE w.id = e.workflow_id AND w.breaker_threshold IS NOT NULL) "
    "FOR NO KEY UPDATE OF j, e SKIP LOCKED",
    0,
    {"version": "xid", "held_token": "int"},
    (
        # The end is the moment in which it is written: whatever the run did lies before it.
        update_many(
            ScheduledJobRow, ENDED, extra=", last_success_at = clock_timestamp(), updated_at = clock_timestamp()"
        ),
        executions.END_NOW.followed_by("RETURNING t.id, pg_current_xact_id()::xid"),
    ),
)


class Known(msgspec.Struct, frozen=True):
    """A schedule as its claim left it: the version of its row, and the database's time then."""

    job: ScheduledJob
    version: int
    at: datetime


class Memory:
    """Schedules as they were last written here, each with the version of its row: what is the same is not read again.

    The oldest are forgotten.
    """

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._jobs: dict[UUID, tuple[int, ScheduledJob]] = {}

    def recall(self, job_id: UUID, version: int) -> ScheduledJob | None:
        """The schedule, if this is the version that is remembered."""
        found = self._jobs.get(job_id)
        return found[1] if found is not None and found[0] == version else None

    def keep(self, job: ScheduledJob, version: int) -> None:
        """Remember a schedule in this version."""
        self._jobs.pop(job.id, None)
        while len(self._jobs) >= MOST_REMEMBERED:
            del self._jobs[next(iter(self._jobs))]
        self._jobs[job.id] = (version, job)


class Fired(msgspec.Struct, frozen=True):
    """A tick that was claimed: the schedule from now on, what is to be run, for whom, and in which version."""

    known: Known
    execution: Execution
    sight: Sight


class Ending(msgspec.Struct, frozen=True):
    """How an execution ended; and, where its worker has claimed it, the schedule as it knows it."""

    outcome: Outcome
    execution: Execution | None = None
    known: Known | None = None


class Ended(msgspec.Struct, frozen=True):
    """The plain end of a run: what is to be written, and the schedule before and after it."""

    outcome: Outcome
    known: Known
    after: ScheduledJob


class _Seen(msgspec.Struct, frozen=True):
    job: ScheduledJob
    version: int
    decided: Decided
    run: NewExecution


async def claim(
    database: Database, ticks: Sequence[Tick], worker_id: UUID, occasion: Occasion, memory: Memory
) -> dict[Tick, Fired | Stale | NotDue]:
    """Claim the plain ones among these ticks, and say which need no claim; all others are missing from the answer."""
    if occasion.switched_off:
        return {}
    by_job = {tick.job_id: tick for tick in ticks}
    answers: dict[Tick, Fired | Stale | NotDue] = {}
    plain: dict[UUID, _Seen] = {}
    async with database.at_once() as connection:
        rows = await fetch(connection, _SEE, list(by_job))
        sights = {row[1]: Sight(row[3], as_actor(*row[4:8])) for row in rows}
        for version, job in await _read(connection, rows, memory):
            # One moment for all of them.
            tick, now = by_job[job.id], rows[0][0]
            decision = decide(job, tick, (), OPEN_GATE, now, occasion)
            if not isinstance(decision, Decided):
                answers[tick] = decision
            elif _is_plain(job, decision) and not (decision.ledger and rows[0]["told"]):
                run = new_execution(job, decision.fires[0], now, worker_id)
                plain[job.id] = _Seen(job, version, decision, run)
        for job_id, version in await _begin(connection, plain, worker_id):
            seen = plain[job_id]
            known = Known(seen.decided.job, version, seen.run.created_at)
            ledger.count(seen.decided.ledger)
            answers[by_job[job_id]] = Fired(known, as_execution(seen.job, seen.run), sights[job_id])
    return answers


async def settle(database: Database, endings: Sequence[Ending], memory: Memory) -> dict[UUID, Ended]:
    """Write the plain ones among these ends; those that were written, by the execution."""
    plain = {ended.outcome.execution_id: ended for ending in endings if (ended := _plainly_ended(ending))}
    if not plain:
        return {}
    written: dict[UUID, Ended] = {}
    async with database.at_once() as connection:
        for run_id, version in await _end(connection, list(plain.values())):
            written[run_id] = plain[run_id]
            memory.keep(plain[run_id].after, version)
    return written


async def _read(connection: AsyncConnection, seen: Sequence[Any], memory: Memory) -> list[tuple[int, ScheduledJob]]:
    """The schedules in the versions that were seen, or newer."""
    known: list[tuple[int, ScheduledJob]] = []
    unknown: list[UUID] = []
    for _, job_id, version, *_ in seen:
        job = memory.recall(job_id, version)
        if job is None:
            unknown.append(job_id)
        else:
            known.append((version, job))
    if unknown:
        known += await schedules.many(connection, unknown)
    return known


def _is_plain(job: ScheduledJob, decided: Decided) -> bool:
    """Whether it fires one first attempt here and now, and nothing more comes of it than an entry in the ledger."""
    if len(decided.fires) != 1 or len(decided.ledger) > 1 or decided.cancels or decided.job.status is not job.status:
        return False
    return decided.fires[0].start is Start.NOW and not decided.fires[0].attempt


def _plainly_ended(ending: Ending) -> Ended | None:
    """The schedule after a success that nobody has to be told of."""
    run, known = ending.execution, ending.known
    if run is None or known is None or ending.outcome.status is not ExecutionStatus.SUCCESS:
        return None
    before = known.job
    if before.last_error or run.trigger is Trigger.MANUAL:
        return None
    ended = EndedRun(
        execution_id=run.id,
        trigger=run.trigger,
        slot=run.scheduled_for,
        attempt=run.retry_attempt,
        status=ending.outcome.status,
    )
    # When exactly is Postgres' to say; whether it is plain does not depend on it.
    after = settle_schedule(before, ended, 0, known.at).job
    is_plain = after.status is before.status and after.generation == before.generation
    return Ended(ending.outcome, known, after) if is_plain else None


async def _begin(connection: AsyncConnection, seen: dict[UUID, _Seen], worker_id: UUID) -> list[Any]:
    if not seen:
        return []
    ones = list(seen.values())
    entries = [ledger.row(one.job.id, *one.decided.ledger) for one in ones]
    versions = [one.version for one in ones]
    return await _written(
        _CLAIM.run(
            connection, [worker_id, versions], [one.decided.job for one in ones], entries, [one.run for one in ones]
        )
    )


async def _end(connection: AsyncConnection, plain: Sequence[Ended]) -> list[Any]:
    versions = [one.known.version for one in plain]
    tokens = [one.outcome.token for one in plain]
    over = [executions.ended(one.outcome, one.known.at) for one in plain]
    return await _written(_SETTLE.run(connection, [versions, tokens], [one.after for one in plain], over))


async def _written(writing: Awaitable[list[Any]]) -> list[Any]:
    """What was written; nothing where a constraint objects: the careful way finds out to which of them."""
    try:
        return await writing
    except IntegrityError:
        return []
