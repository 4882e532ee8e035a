"""Backfills: what is known of past slots, and which of them were run by which operation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.backfills import FIRED, QUEUED, Era, PastSlot, Records, Span, eras
from app.domain.revisions import REMEMBERED
from app.domain.run_ids import execution_id
from app.domain.schedules import ScheduledJob
from app.persistence import schedules
from app.persistence.calendars import with_calendars
from app.persistence.ledger import Stretch
from app.persistence.sql_batches import fetch

# Ticks that are overdue for longer than a second are live work that waits; those overdue for much longer are stuck.
_LIVE_WAITS = (
    "SELECT EXISTS (SELECT FROM due_ticks WHERE next_run_at < clock_timestamp() - interval '1 second' "
    "AND next_run_at > clock_timestamp() - interval '1 minute') AS waits"
)
# The versions that were in force between two moments; changes that do not concern slots are left out.
_VERSIONS = (
    "SELECT v.at, v.snapshot FROM (SELECT r.at, r.id, r.snapshot, lag(r.snapshot - 'last_error') "
    "OVER (ORDER BY r.at, r.id) IS DISTINCT FROM r.snapshot - 'last_error' AS is_new FROM schedule_revisions AS r "
    "WHERE r.scheduled_job_id = $1 AND r.at <= $3 AND r.at >= coalesce((SELECT max(b.at) FROM schedule_revisions AS b "
    "WHERE b.scheduled_job_id = $1 AND b.at <= $2), '-infinity')) AS v WHERE v.is_new ORDER BY v.at, v.id"
)
_RUNS = (
    "SELECT e.scheduled_for, e.started_at IS NOT NULL AS has_begun, e.unrun_outcome, e.error "
    "FROM unnest($1::uuid[]) AS ids(id) JOIN workflow_executions AS e ON e.id = ids.id"
)
_SPANS = (
    "SELECT first_slot, last_slot, outcome, reason FROM ledger_entries WHERE scheduled_job_id = $1 "
    "AND last_slot >= $2 AND first_slot <= $3 ORDER BY first_slot"
)
_BACKFILLED = (
    "SELECT b.slot FROM backfilled_slots AS b LEFT JOIN workflow_executions AS e ON e.id = b.execution_id "
    "WHERE b.scheduled_job_id = $1 AND b.slot >= $2 AND b.slot <= $3 AND e.unrun_outcome IS NULL"
)
_ADD = (
    "INSERT INTO backfilled_slots (scheduled_job_id, slot, operation_id, execution_id, former_outcome, former_reason) "
    "SELECT $1, r.slot, $2, r.run, r.outcome, r.reason "
    "FROM unnest($3::timestamptz[], $4::uuid[], $5::text[], $6::text[]) AS r(slot, run, outcome, reason)"
)
_OPEN = (
    "SELECT b.slot, b.execution_id, e.status, e.error, e.retry_attempt, e.started_at IS NOT NULL AS has_begun "
    "FROM backfilled_slots AS b LEFT JOIN workflow_executions AS e ON e.id = b.execution_id "
    "WHERE b.operation_id = $1 AND NOT b.is_counted"
)
_COUNT = "UPDATE backfilled_slots SET is_counted = true WHERE operation_id = $1 AND execution_id = ANY($2::uuid[])"
_REPLACE = (
    "UPDATE backfilled_slots SET execution_id = $3 WHERE operation_id = $1 AND execution_id = $2 AND NOT is_counted"
)
_RUN_SECONDS = (
    "SELECT avg(extract(epoch FROM r.finished_at - r.started_at))::float AS seconds FROM (SELECT e.started_at, "
    "e.finished_at FROM workflow_executions AS e WHERE e.scheduled_job_id = $1 AND e.status = 'success' "
    "ORDER BY e.scheduled_job_id DESC, e.id DESC LIMIT 20) AS r"
)
_SHOWN = (
    "SELECT b.scheduled_job_id, b.slot, b.former_outcome, b.former_reason, e.id, e.status, e.error, e.started_at, "
    "e.finished_at, e.deadline_at, e.retry_attempt FROM unnest($1::uuid[]) AS ids(id) CROSS JOIN LATERAL (SELECT * "
    "FROM backfilled_slots AS b WHERE b.scheduled_job_id = ids.id AND b.former_outcome <> 'fired' "
    "AND ($2::timestamptz IS NULL OR b.slot >= $2) AND ($3::timestamptz IS NULL OR b.slot <= $3) "
    "AND ($4::timestamptz IS NULL OR b.slot < $4) ORDER BY b.slot DESC LIMIT $5) AS b "
    "JOIN workflow_executions AS e ON e.id = b.execution_id WHERE e.started_at IS NOT NULL ORDER BY b.slot DESC, b.at"
)
_DELETE_OLD = (
    "DELETE FROM backfilled_slots WHERE ctid IN (SELECT b.ctid FROM backfilled_slots AS b WHERE b.at < $1 LIMIT $2)"
)
MOST_DELETED = 10_000


class OpenRun(msgspec.Struct, frozen=True):
    """A run of a backfill that has not been counted yet; without a status it was deleted."""

    slot: datetime
    execution_id: UUID
    status: str | None
    error: str | None
    retry_attempt: int | None
    has_begun: bool


class BackfilledSlot(msgspec.Struct, frozen=True):
    """A slot that a backfill has run: what became of it before, and the run."""

    scheduled_job_id: UUID
    slot: datetime
    former_outcome: str
    former_reason: str
    id: UUID
    status: str
    error: str
    started_at: datetime | None
    finished_at: datetime | None
    deadline_at: datetime | None
    retry_attempt: int


async def live_work_waits(connection: AsyncConnection) -> bool:
    """Return whether due ticks wait for workers: backfills start nothing meanwhile."""
    (row,) = await fetch(connection, _LIVE_WAITS)
    return bool(row["waits"])


async def eras_of(connection: AsyncConnection, job: ScheduledJob, first: datetime, last: datetime) -> list[Era]:
    """Return how the slots of a schedule were counted between two moments."""
    rows = await fetch(connection, _VERSIONS, job.id, first, last)
    jobs = await with_calendars(connection, [_as_it_was(job, row["snapshot"]) for row in rows])
    versions = [(row["at"], then) for row, then in zip(rows, jobs, strict=True)]
    return eras(job.created_at, versions or [(job.created_at, job)])


def _as_it_was(job: ScheduledJob, snapshot: Any) -> ScheduledJob:
    stored = msgspec.json.decode(snapshot) if isinstance(snapshot, str) else snapshot
    try:
        return schedules.with_stored_values(job, {name: stored[name] for name in REMEMBERED if name in stored})
    except msgspec.ValidationError:
        # A snapshot that cannot be read: the schedule as it is now is the best that is known.
        return job


async def records(connection: AsyncConnection, job_id: UUID, slots: Sequence[datetime]) -> Records:
    """Return what is stored about past slots."""
    if not slots:
        return Records(runs={}, backfilled=(), spans=())
    first, last = min(slots), max(slots)
    rows = await fetch(connection, _RUNS, [execution_id(job_id, slot, 0) for slot in slots])
    runs = {row["scheduled_for"]: _outcome(row) for row in rows}
    spans = [Span(*row) for row in await fetch(connection, _SPANS, job_id, first, last)]
    backfilled = {row["slot"] for row in await fetch(connection, _BACKFILLED, job_id, first, last)}
    return Records(runs=runs, backfilled=backfilled, spans=spans)


def _outcome(row: Any) -> tuple[str, str]:
    if row["has_begun"]:
        return FIRED, ""
    return (row["unrun_outcome"], row["error"]) if row["unrun_outcome"] else (QUEUED, "")


async def add(
    connection: AsyncConnection, job_id: UUID, operation_id: UUID, runs: Sequence[tuple[PastSlot, UUID]]
) -> None:
    """Note which runs an operation has started for which slots. No slot can be noted twice."""
    slots, ids = [past.slot for past, _ in runs], [run_id for _, run_id in runs]
    outcomes, reasons = [past.outcome for past, _ in runs], [past.reason for past, _ in runs]
    await fetch(connection, _ADD, job_id, operation_id, slots, ids, outcomes, reasons)


async def open_runs(connection: AsyncConnection, operation_id: UUID) -> list[OpenRun]:
    """Return the runs of an operation that are under way, or have ended since it was last looked at."""
    return [OpenRun(*row) for row in await fetch(connection, _OPEN, operation_id)]


async def count(connection: AsyncConnection, operation_id: UUID, run_ids: Sequence[UUID]) -> None:
    """Note that runs have been counted."""
    if run_ids:
        await fetch(connection, _COUNT, operation_id, list(run_ids))


async def replace_run(connection: AsyncConnection, operation_id: UUID, lost: UUID, again: UUID) -> None:
    """Note that a run whose worker died was started again as another one."""
    await fetch(connection, _REPLACE, operation_id, lost, again)


async def run_seconds(connection: AsyncConnection, job_id: UUID) -> float | None:
    """Return how long the latest runs of a schedule took on average; None before the first."""
    (row,) = await fetch(connection, _RUN_SECONDS, job_id)
    seconds: float | None = row["seconds"]
    return seconds


async def shown(
    connection: AsyncConnection, job_ids: Sequence[UUID], stretch: Stretch, limit: int
) -> dict[UUID, list[BackfilledSlot]]:
    """Return the newest slots of each schedule that had not fired and that a backfill has run, newest first."""
    found: dict[UUID, list[BackfilledSlot]] = {}
    for row in await fetch(connection, _SHOWN, list(job_ids), stretch.since, stretch.until, stretch.before, limit):
        found.setdefault(row[0], []).append(BackfilledSlot(*row))
    return found


async def delete_old(connection: AsyncConnection, before: datetime) -> None:
    """Forget some slots that were run before a moment."""
    await fetch(connection, _DELETE_OLD, before, MOST_DELETED)
