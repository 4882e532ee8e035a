"""Executions and the results of their nodes: created, started, ended, and released to start."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import bindparam, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import (
    BESIDE_CADENCE,
    ActiveRun,
    Execution,
    ExecutionStatus,
    Outcome,
    PendingRun,
    Trigger,
)
from app.domain.ledger import LedgerOutcome
from app.domain.overlap import next_queued, stopped_by_status
from app.domain.permits import LimitUse
from app.domain.schedules import ScheduledJob
from app.persistence import ledger, schedules
from app.persistence.execution_rows import (
    CARRIED,
    LOCKED_COLUMNS,
    STARTED,
    FirstAttempt,
    LockedExecution,
    NewExecution,
    PendingExecution,
    known_trigger,
    to_execution,
    to_locked,
)
from app.persistence.leases import LEASE_HOLDS, SCHEDULES_ENABLED
from app.persistence.sql_batches import PairedStatement, fetch, insert_many, run_batch, run_pair, update_many
from app.persistence.tables import IS_ACTIVE_EXECUTION, ActiveExecutionRow, WorkflowExecutionRow

_TABLE = WorkflowExecutionRow.__table__
_ACTIVE = ActiveExecutionRow.__table__
_IDS = bindparam("ids", type_=ARRAY(PG_UUID(as_uuid=True)))

# Created.

_NEW = (
    *("id", "user_profile_id", "scheduled_job_id", "workflow_id", "trigger", "status", "exclusive", "repeat_number"),
    *("retry_attempt", "scheduled_for", "payload", "timeout_seconds", "token", "worker_id", "error", "created_at"),
    *("started_at", "queued", "due_at"),
)
_BEGIN_RUNS = PairedStatement(insert_many(WorkflowExecutionRow, _NEW), schedules.MOVE)
_INSERT_REQUESTED = insert_many(WorkflowExecutionRow, (*_NEW, "trace_context"))
_INSERT_RETRIES = text(
    "INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, entity_type, entity_id, "
    "work, trigger, status, exclusive, repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, "
    "error, due_at) SELECT r.id, e.user_profile_id, e.scheduled_job_id, e.workflow_id, e.entity_type, e.entity_id, "
    "e.work, e.trigger, 'pending', e.exclusive, e.repeat_number, e.retry_attempt + 1, e.scheduled_for, e.payload, "
    "e.timeout_seconds, 1, '', r.due_at "
    "FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, ended uuid, due_at timestamptz) "
    "JOIN workflow_executions AS e ON e.id = r.ended"
)


async def begin_runs(connection: AsyncConnection, runs: Sequence[NewExecution], moved: Sequence[ScheduledJob]) -> None:
    """Write the executions that ticks fire, and their schedules, which have moved on to their next slots."""
    await run_pair(connection, _BEGIN_RUNS, runs, moved)


async def add(connection: AsyncConnection, executions: Sequence[NewExecution]) -> None:
    """Write executions that a request asked for."""
    await run_batch(connection, _INSERT_REQUESTED, executions)


async def add_retries(connection: AsyncConnection, retries: Mapping[UUID, PendingRun]) -> None:
    """Write the next attempts of executions that have ended, by the id of the ended one."""
    if retries:
        rows = [{"id": run.execution_id, "ended": ended, "due_at": run.due_at} for ended, run in retries.items()]
        await connection.execute(_INSERT_RETRIES, {"rows": msgspec.json.encode(rows).decode()})


# Read while schedules are locked.

# The database's time comes with the runs, in a statement that begins after the locks are held: a moment that was read
# while waiting for a lock could lie before the end of a run that this statement sees as ended.
_ACTIVE_RUNS = (
    "e.id, e.scheduled_job_id, e.trigger, e.queued, e.exclusive, e.started_at IS NULL AS waiting, e.retry_attempt "
    "FROM (SELECT 1) AS always LEFT JOIN active_executions AS e ON e.scheduled_job_id = ANY($1) ORDER BY e.id"
)
_ACTIVE_AND_NOW = f"SELECT clock_timestamp() AS now, {_ACTIVE_RUNS}"
_SITUATION = f"SELECT clock_timestamp(), {SCHEDULES_ENABLED}, {LEASE_HOLDS.format(worker='$2')}, {_ACTIVE_RUNS}"


class Situation(msgspec.Struct, frozen=True):
    """The active runs of schedules, the database's time, whether schedules are on and the worker's lease is valid."""

    active: dict[UUID, tuple[ActiveRun, ...]]
    now: datetime
    enabled: bool
    lease_holds: bool


async def situation(connection: AsyncConnection, job_ids: Iterable[UUID], worker_id: UUID) -> Situation:
    """Return what a worker that claims must know about schedules that it has locked."""
    rows = await fetch(connection, _SITUATION, list(job_ids), worker_id)
    now, enabled, lease_holds = rows[0][:3]
    return Situation(_active(row[3:] for row in rows), now, enabled=enabled, lease_holds=lease_holds)


async def active_and_now(
    connection: AsyncConnection, job_ids: Iterable[UUID]
) -> tuple[dict[UUID, tuple[ActiveRun, ...]], datetime]:
    """Return the pending and running executions of locked schedules, and the database's time after the locks."""
    rows = await fetch(connection, _ACTIVE_AND_NOW, list(job_ids))
    return _active(row[1:] for row in rows), rows[0]["now"]


def _active(rows: Iterable[Any]) -> dict[UUID, tuple[ActiveRun, ...]]:
    active: dict[UUID, tuple[ActiveRun, ...]] = {}
    for run_id, job_id, trigger, queued, exclusive, waiting, attempt in rows:
        if run_id is not None:
            run = ActiveRun(run_id, known_trigger(trigger), queued, exclusive, waiting, attempt)
            active[job_id] = (*active.get(job_id, ()), run)
    return active


async def active_ids(connection: AsyncConnection, job_ids: Iterable[UUID]) -> list[UUID]:
    """Return the ids of the pending and running executions of these schedules."""
    return [execution_id for execution_id, _ in await active_of(connection, job_ids)]


async def active_of(connection: AsyncConnection, job_ids: Iterable[UUID]) -> list[tuple[UUID, UUID]]:
    """Return the ids of the pending and running executions of these schedules, each with that of its schedule."""
    query = select(_ACTIVE.c.id, _ACTIVE.c.scheduled_job_id).where(_ACTIVE.c.scheduled_job_id.in_(list(job_ids)))
    return [(row.id, row.scheduled_job_id) for row in await connection.execute(query)]


async def first_attempts(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, FirstAttempt]:
    """Return what these first attempts were started with, which their retries take over."""
    if not ids:
        return {}
    query = select(_TABLE.c.id, _TABLE.c.trigger, _TABLE.c.payload, _TABLE.c.timeout_seconds)
    rows = await connection.execute(query.where(_TABLE.c.id.in_(ids)))
    return {row.id: FirstAttempt(known_trigger(row.trigger), row.payload, row.timeout_seconds) for row in rows}


async def begun_by_claim(connection: AsyncConnection, job: ScheduledJob, worker_id: UUID) -> Execution | None:
    """Return the latest execution that this worker began with a claim, not one that it started later; or None."""
    running = select(_ACTIVE.c.id).where(
        _ACTIVE.c.worker_id == worker_id,
        _ACTIVE.c.scheduled_job_id == job.id,
        _ACTIVE.c.status == ExecutionStatus.RUNNING,
        _ACTIVE.c.trigger.not_in(BESIDE_CADENCE),
    )
    query = select(_TABLE).where(_TABLE.c.id.in_(running), _TABLE.c.started_at == _TABLE.c.created_at)
    row = (await connection.execute(query.order_by(_TABLE.c.id.desc()).limit(1))).one_or_none()
    if row is None:
        return None
    carried = {name: getattr(row, name) for name in CARRIED} | {"trigger": Trigger(row.trigger)}
    return Execution(job_name=job.name, trigger_node_id=job.trigger_node_id, fired_at=row.started_at, **carried)


# Started.

_WAITING = text(
    "SELECT e.scheduled_job_id, e.workflow_id, e.entity_type, e.entity_id, e.trigger, e.retry_attempt, e.due_at, "
    "e.started_at IS NOT NULL AS handed_back, e.deadline_at IS NOT NULL AS was_parked, e.scheduled_for, "
    "w.limit AS workflow_limit, w.user_profile_id AS workflow_owner "
    "FROM workflow_executions AS e LEFT JOIN workflows AS w ON w.id = e.workflow_id "
    "WHERE e.id = :id AND e.token = :token AND e.status = 'pending' AND NOT e.queued"
)
_START = text(
    "UPDATE workflow_executions AS e SET status = 'running', worker_id = :worker_id, "  # noqa: S608
    "started_at = CASE WHEN e.deadline_at IS NULL THEN :now ELSE e.started_at END "
    "FROM scheduled_jobs AS j WHERE e.id = :id AND e.token = :token AND e.status = 'pending' AND NOT e.queued "
    "AND j.id = e.scheduled_job_id "
    f"RETURNING {STARTED}, j.name AS job_name, j.trigger_node_id, "
    "CAST(extract(epoch FROM e.deadline_at - clock_timestamp()) AS float) AS seconds_left, "
    "clock_timestamp() AS resumed_at"
)


async def waiting(connection: AsyncConnection, execution_id: UUID, token: int) -> PendingExecution | None:
    """Return a pending execution that may be started; None if it was started, ended or deleted, or is still queued."""
    row = (await connection.execute(_WAITING, {"id": execution_id, "token": token})).one_or_none()
    if row is None:
        return None
    return PendingExecution(
        row.scheduled_job_id,
        row.workflow_id,
        row.entity_type,
        row.entity_id,
        known_trigger(row.trigger),
        row.retry_attempt,
        row.due_at,
        row.handed_back,
        row.was_parked,
        row.scheduled_for,
        None if row.workflow_limit is None else LimitUse(row.workflow_owner, row.workflow_limit),
    )


async def start(
    connection: AsyncConnection, execution_id: UUID, token: int, worker_id: UUID, now: datetime
) -> Execution | None:
    """Mark a pending execution as running on this worker and return it; None if another worker has, or it is gone."""
    values = {"id": execution_id, "token": token, "worker_id": worker_id, "now": now}
    row = (await connection.execute(_START, values)).one_or_none()
    return to_execution(row) if row else None


# Ended.

_LOCK = (
    f"SELECT {', '.join(f'e.{name}' for name in LOCKED_COLUMNS)} FROM unnest($1::uuid[]) AS ids(id) "  # noqa: S608
    "JOIN workflow_executions AS e ON e.id = ids.id ORDER BY e.id FOR UPDATE OF e"
)
# A sleeping node is stored as a success that finishes in the future. If the run ends before that, the node was
# cancelled now.
_WITHOUT_SLEEPERS = (
    "CASE WHEN {0}.graph -> 'asleep' IS NULL THEN {0}.results ELSE (SELECT coalesce(jsonb_agg(CASE WHEN "
    "CAST({0}.graph -> 'asleep' ->> (node.result ->> 'node_id') AS timestamptz) > clock_timestamp() "
    "THEN node.result || jsonb_build_object('status', 'cancelled', 'finished_at', clock_timestamp()) "
    "ELSE node.result END ORDER BY node.at), '[]'::jsonb) "
    "FROM jsonb_array_elements({0}.results) WITH ORDINALITY AS node(result, at)) END"
)
# Whether an execution that ended is the only one of its slot, and ended before it began: then its slot did not fire.
ENDS_A_SLOT = (
    "{0}.unrun_outcome IS NOT NULL AND {0}.retry_attempt = 0 AND {0}.trigger NOT IN ('manual', 'backfill') "
    "AND {0}.scheduled_job_id IS NOT NULL"
)
_END = update_many(
    WorkflowExecutionRow,
    ("status", "error", "token", "worker_id", "queued", "awaiting", "finished_at"),
    # An execution that ends before it began says what its slot is accounted as.
    ", unrun_outcome = CASE WHEN t.started_at IS NULL THEN r.unrun_outcome END"
    f", results = coalesce(r.results, {_WITHOUT_SLEEPERS.format('t')}), graph = NULL",
    also=("unrun_outcome", "results"),
)
_END_RUNS = PairedStatement(_END, schedules.MOVE)
_CANCEL_OPEN_NODES = text(
    "UPDATE workflow_executions AS e SET results = (SELECT jsonb_agg(CASE WHEN r.result ->> 'status' = 'running' "
    """THEN r.result || '{"status": "cancelled"}' ELSE r.result END ORDER BY r.number) """
    "FROM jsonb_array_elements(e.results) WITH ORDINALITY AS r(result, number)) "
    """WHERE e.id = ANY(:ids) AND e.results @> '[{"status": "running"}]'"""
).bindparams(_IDS)
_CANCEL = text(
    "UPDATE workflow_executions AS e SET status = 'cancelled', error = c.error, finished_at = :now, "  # noqa: S608
    "token = e.token + 1, worker_id = NULL, queued = false, awaiting = false, "
    f"results = {_WITHOUT_SLEEPERS.format('e')}, "
    "graph = NULL, unrun_outcome = CASE WHEN e.started_at IS NULL THEN :unrun END "
    "FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS c(id uuid, error text) "
    f"WHERE e.id = c.id AND e.{IS_ACTIVE_EXECUTION} RETURNING {ENDS_A_SLOT.format('e')}"
)


async def lock(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, LockedExecution]:
    """Lock executions in the order of their ids. Their schedules must be locked before: see the lock order in claim."""
    return {record["id"]: to_locked(record) for record in await fetch(connection, _LOCK, list(ids))}


async def end_runs(
    connection: AsyncConnection, outcomes: Sequence[Outcome], moved: Sequence[ScheduledJob], now: datetime
) -> None:
    """Write how locked executions ended, and their schedules. The tokens move, so that no run is ended twice."""
    await run_pair(connection, _END_RUNS, [_ended(outcome, now) for outcome in outcomes], moved)
    await _cancel_open_nodes(connection, [o.execution_id for o in outcomes if _lacks_results(o)])


def _ended(outcome: Outcome, now: datetime) -> dict[str, Any]:
    """Return the values that the end of an execution writes."""
    return {
        "id": outcome.execution_id,
        "status": outcome.status,
        "error": outcome.error,
        "finished_at": now,
        "token": outcome.token + 1,
        "queued": False,
        "awaiting": False,
        "unrun_outcome": outcome.unrun,
        "results": outcome.node_results or None,
    }


def _lacks_results(outcome: Outcome) -> bool:
    """Return whether the stored results stay, as they do when recovery or a request ends the run, not its worker."""
    return not outcome.node_results and outcome.status is not ExecutionStatus.SUCCESS


async def _cancel_open_nodes(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """Mark nodes of ended executions as cancelled that are stored as running: the callback is not awaited any more."""
    if ids:
        await connection.execute(_CANCEL_OPEN_NODES, {"ids": list(ids)})


async def cancel(connection: AsyncConnection, reasons: Mapping[UUID, str], now: datetime, unrun: LedgerOutcome) -> None:
    """End active executions, each with its reason. The tokens move, so that their workers cannot settle them.

    The slots of executions that had not begun are accounted as ``unrun``.
    """
    if reasons:
        rows = [{"id": execution_id, "error": reason} for execution_id, reason in reasons.items()]
        values = {"rows": msgspec.json.encode(rows).decode(), "now": now, "unrun": unrun.value}
        ends_a_slot = (await connection.execute(_CANCEL, values)).scalars()
        ledger.count_unrun(connection, [unrun for is_slot in ends_a_slot if is_slot])


# Released from the queue of their schedule.

_RELEASE = text(
    "UPDATE workflow_executions SET queued = false, due_at = :now WHERE id = ANY(:ids) AND queued RETURNING id, token"
).bindparams(_IDS)


async def release_next(
    connection: AsyncConnection,
    jobs: Iterable[ScheduledJob],
    active: Mapping[UUID, tuple[ActiveRun, ...]],
    now: datetime,
) -> dict[UUID, PendingRun]:
    """Cancel what waits in locked schedules that are not active any more, and release the next queued run of each.

    Return the executions that may start now, by schedule.
    """
    cancelled: dict[UUID, str] = {}
    schedule_of: dict[UUID, UUID] = {}
    for job in jobs:
        runs = active.get(job.id, ())
        stopped = stopped_by_status(job, runs)
        cancelled.update(dict.fromkeys(stopped, f"The schedule is {job.status}: this run was still waiting."))
        next_run = next_queued(job, tuple(run for run in runs if run.execution_id not in stopped))
        if next_run is not None:
            schedule_of[next_run] = job.id
    await cancel(connection, cancelled, now, LedgerOutcome.MISSED)
    released = await _release(connection, list(schedule_of), now)
    return {schedule_of[run.execution_id]: run for run in released}


async def _release(connection: AsyncConnection, ids: Sequence[UUID], now: datetime) -> list[PendingRun]:
    if not ids:
        return []
    rows = await connection.execute(_RELEASE, {"ids": list(ids), "now": now})
    return [PendingRun(row.id, row.token, now) for row in rows]
