"""Executions and the results of their nodes: created, started, handed back and ended."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, bindparam, func, select, text, tuple_
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import (
    ActiveRun,
    Execution,
    ExecutionStatus,
    Outcome,
    PendingRun,
    Trigger,
)
from app.domain.identities import execution_id
from app.domain.ledger import LedgerOutcome
from app.domain.overlap import next_queued, stopped_by_status
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

_NEW = (
    *("id", "user_profile_id", "scheduled_job_id", "workflow_id", "trigger", "status", "exclusive", "repeat_number"),
    *("retry_attempt", "scheduled_for", "payload", "timeout_seconds", "token", "worker_id", "error", "created_at"),
    *("started_at", "queued", "due_at"),
)
INSERT = insert_many(WorkflowExecutionRow, _NEW)
_INSERT_ASKED_FOR = insert_many(WorkflowExecutionRow, (*_NEW, "trace_context"))
_END = ("status", "error", "token", "worker_id", "queued", "awaiting")
# A node that sleeps is stored as a success that is still to come; in a run that ends before, it was cut short.
_CUT_SHORT = (
    "CASE WHEN {0}.graph -> 'asleep' IS NULL THEN {0}.results ELSE (SELECT jsonb_agg(CASE WHEN "
    "CAST({0}.graph -> 'asleep' ->> (node.one ->> 'node_id') AS timestamptz) > clock_timestamp() THEN node.one || "
    "jsonb_build_object('status', 'cancelled', 'finished_at', clock_timestamp()) ELSE node.one END ORDER BY node.at) "
    "FROM jsonb_array_elements({0}.results) WITH ORDINALITY AS node(one, at)) END"
)
# Whether an execution that ended is the only one of its slot, and ended before it began.
ENDS_A_SLOT = (
    "{0}.unrun_outcome IS NOT NULL AND {0}.retry_attempt = 0 AND {0}.trigger <> 'manual' "
    "AND {0}.scheduled_job_id IS NOT NULL"
)
# What ends without having begun says what becomes of its slot.
_END_TOO = (
    ", unrun_outcome = CASE WHEN t.started_at IS NULL THEN r.unrun_outcome END"
    f", results = coalesce(r.results, {_CUT_SHORT.format('t')}), graph = NULL"
)
END = update_many(WorkflowExecutionRow, (*_END, "finished_at"), _END_TOO, also=("unrun_outcome", "results"))
_CANCEL = text(
    "UPDATE workflow_executions AS e SET status = 'cancelled', error = c.error, finished_at = :now, "  # noqa: S608
    f"token = e.token + 1, worker_id = NULL, queued = false, awaiting = false, results = {_CUT_SHORT.format('e')}, "
    "graph = NULL, unrun_outcome = CASE WHEN e.started_at IS NULL THEN :unrun END "
    "FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS c(id uuid, error text) "
    f"WHERE e.id = c.id AND e.{IS_ACTIVE_EXECUTION} RETURNING {ENDS_A_SLOT.format('e')}"
)
_RELEASE = text(
    "UPDATE workflow_executions SET queued = false, due_at = :now WHERE id = ANY(:ids) AND queued RETURNING id, token"
).bindparams(bindparam("ids", type_=ARRAY(PG_UUID(as_uuid=True))))
_RETRY = text(
    "INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, entity_type, entity_id, "
    "work, trigger, status, exclusive, repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, "
    "error, due_at) SELECT r.id, e.user_profile_id, e.scheduled_job_id, e.workflow_id, e.entity_type, e.entity_id, "
    "e.work, e.trigger, 'pending', e.exclusive, e.repeat_number, e.retry_attempt + 1, e.scheduled_for, e.payload, "
    "e.timeout_seconds, 1, '', r.due_at "
    "FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, ended uuid, due_at timestamptz) "
    "JOIN workflow_executions AS e ON e.id = r.ended"
)
_AWAITED_IN_VAIN = text(
    "UPDATE workflow_executions AS e SET results = (SELECT jsonb_agg(CASE WHEN r.one ->> 'status' = 'running' "
    """THEN r.one || '{"status": "cancelled"}' ELSE r.one END ORDER BY r.number) """
    "FROM jsonb_array_elements(e.results) WITH ORDINALITY AS r(one, number)) "
    """WHERE e.id = ANY(:ids) AND e.results @> '[{"status": "running"}]'"""
).bindparams(bindparam("ids", type_=ARRAY(PG_UUID(as_uuid=True))))
# The moment comes with the runs, in a statement that begins after the locks are held.
_ACTIVE_RUNS = (
    "e.id, e.scheduled_job_id, e.trigger, e.queued, e.exclusive, e.started_at IS NULL AS waiting, e.retry_attempt "
    "FROM (SELECT 1) AS one LEFT JOIN active_executions AS e ON e.scheduled_job_id = ANY($1) ORDER BY e.id"
)
_ACTIVE_AND_NOW = f"SELECT clock_timestamp() AS now, {_ACTIVE_RUNS}"
_SITUATION = f"SELECT clock_timestamp(), {SCHEDULES_ENABLED}, {LEASE_HOLDS.format(worker='$2')}, {_ACTIVE_RUNS}"
_LOCK = (
    f"SELECT {', '.join(f'e.{name}' for name in LOCKED_COLUMNS)} FROM unnest($1::uuid[]) AS wanted(id) "  # noqa: S608
    "JOIN workflow_executions AS e ON e.id = wanted.id ORDER BY e.id FOR UPDATE OF e"
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
_WAITING = text(
    "SELECT e.scheduled_job_id, e.workflow_id, e.entity_type, e.entity_id, e.trigger, e.retry_attempt, e.due_at, "
    "e.started_at IS NOT NULL AS handed_back, e.deadline_at IS NOT NULL AS was_parked "
    "FROM workflow_executions AS e WHERE e.id = :id AND e.token = :token AND e.status = 'pending' AND NOT e.queued"
)
_HELD_TOKENS = (
    "SELECT a.id, a.token FROM unnest($1::uuid[]) AS asked(id) JOIN active_executions AS a ON a.id = asked.id "
    "WHERE a.worker_id = $2 AND a.status = 'running'"
)
_HAND_BACK = text(
    "UPDATE workflow_executions AS e SET status = 'pending', worker_id = NULL, token = e.token + 1 "
    "FROM jsonb_to_recordset(CAST(:held AS jsonb)) AS h(id uuid, token int) "
    "WHERE e.id = h.id AND e.token = h.token AND e.status = 'running' RETURNING e.id, e.token, e.due_at"
)
_LOST = text(
    "SELECT e.id, e.scheduled_job_id, e.token, coalesce(w.name, 'unknown') AS worker FROM active_executions AS e "
    "LEFT JOIN workers AS w ON w.id = e.worker_id "
    "WHERE e.status = 'running' AND NOT e.awaiting "
    "AND (w.id IS NULL OR w.lease_expires_at < clock_timestamp()) LIMIT :limit"
)
_LOST_EARLIER = (
    "SELECT e.id FROM unnest($1::uuid[]) AS asked(id) JOIN workflow_executions AS e ON e.id = asked.id "
    "WHERE e.status = 'lost'"
)
# Attempts at one slot that are looked at, the newest ones: there may be a thousand.
MOST_LOOKED_BACK = 100
_OVERDUE = text(
    "SELECT e.id, e.scheduled_job_id, e.token, e.timeout_seconds FROM active_executions AS e "
    "WHERE e.awaiting AND e.deadline_at < clock_timestamp() LIMIT :limit"
)


class Situation(msgspec.Struct, frozen=True):
    """The active runs of schedules, the moment, whether schedules are on, and whether a worker's lease holds."""

    active: dict[UUID, tuple[ActiveRun, ...]]
    now: datetime
    enabled: bool
    lease_holds: bool


async def add(connection: AsyncConnection, executions: Sequence[NewExecution]) -> None:
    """Write new executions that somebody asked for."""
    await run_batch(connection, _INSERT_ASKED_FOR, executions)


async def active_and_now(
    connection: AsyncConnection, job_ids: Iterable[UUID]
) -> tuple[dict[UUID, tuple[ActiveRun, ...]], datetime]:
    """The pending and running executions of schedules that are locked, and the database's time after the locks."""
    rows = await fetch(connection, _ACTIVE_AND_NOW, list(job_ids))
    return _active(row[1:] for row in rows), rows[0]["now"]


async def situation(connection: AsyncConnection, job_ids: Iterable[UUID], worker_id: UUID) -> Situation:
    """What a worker that claims has to know of schedules that are locked."""
    rows = await fetch(connection, _SITUATION, list(job_ids), worker_id)
    moment, enabled, leased = rows[0][:3]
    return Situation(_active(row[3:] for row in rows), moment, enabled=enabled, lease_holds=leased)


async def lock(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, LockedExecution]:
    """Lock executions in the order of their ids; their schedules are locked before."""
    return {record["id"]: to_locked(record) for record in await fetch(connection, _LOCK, list(ids))}


def ended(outcome: Outcome, now: datetime) -> dict[str, Any]:
    """What the end of an execution writes; the token moves, so that nobody ends it again."""
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


def is_from_outside(outcome: Outcome) -> bool:
    """Whether somebody else than the run itself says how it ended."""
    return not outcome.node_results and outcome.status is not ExecutionStatus.SUCCESS


async def await_no_more(connection: AsyncConnection, ids: Sequence[UUID]) -> None:
    """What nodes of ended executions were waiting for will not come any more."""
    if ids:
        await connection.execute(_AWAITED_IN_VAIN, {"ids": list(ids)})


async def cancel(connection: AsyncConnection, reasons: Mapping[UUID, str], now: datetime, unrun: LedgerOutcome) -> None:
    """End executions that are under way, whoever holds them; their tokens move, so that nobody else ends them.

    ``unrun`` is what the slots of those that never began are accounted as.
    """
    if reasons:
        rows = [{"id": execution_id, "error": reason} for execution_id, reason in reasons.items()]
        values = {"rows": msgspec.json.encode(rows).decode(), "now": now, "unrun": unrun.value}
        ends_a_slot = (await connection.execute(_CANCEL, values)).scalars()
        ledger.count_unrun(connection, [unrun for is_slot in ends_a_slot if is_slot])


async def release(connection: AsyncConnection, ids: Sequence[UUID], now: datetime) -> list[PendingRun]:
    """Let queued executions start: it is their turn."""
    if not ids:
        return []
    rows = await connection.execute(_RELEASE, {"ids": list(ids), "now": now})
    return [PendingRun(row.id, row.token, now) for row in rows]


async def add_retries(connection: AsyncConnection, retries: Mapping[UUID, PendingRun]) -> None:
    """Write the next attempts of executions that have ended, by the id of the ended one."""
    if retries:
        rows = [{"id": run.execution_id, "ended": ended, "due_at": run.due_at} for ended, run in retries.items()]
        await connection.execute(_RETRY, {"rows": msgspec.json.encode(rows).decode()})


async def waiting(connection: AsyncConnection, execution_id: UUID, token: int) -> PendingExecution | None:
    """A pending execution whose turn has come; None if it has been started, or is gone."""
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
    )


async def start(
    connection: AsyncConnection, execution_id: UUID, token: int, worker_id: UUID, now: datetime
) -> Execution | None:
    """Take a pending execution to run it; None if someone else has, or it is gone."""
    values = {"id": execution_id, "token": token, "worker_id": worker_id, "now": now}
    row = (await connection.execute(_START, values)).one_or_none()
    return to_execution(row) if row else None


async def begun_by_claim(connection: AsyncConnection, job: ScheduledJob, worker_id: UUID) -> Execution | None:
    """The latest execution that began with its claim by this worker, not one that was started later."""
    running = select(_ACTIVE.c.id).where(
        _ACTIVE.c.worker_id == worker_id,
        _ACTIVE.c.scheduled_job_id == job.id,
        _ACTIVE.c.status == ExecutionStatus.RUNNING,
        _ACTIVE.c.trigger != Trigger.MANUAL,
    )
    query = select(_TABLE).where(_TABLE.c.id.in_(running), _TABLE.c.started_at == _TABLE.c.created_at)
    row = (await connection.execute(query.order_by(_TABLE.c.id.desc()).limit(1))).one_or_none()
    if row is None:
        return None
    carried = {name: getattr(row, name) for name in CARRIED} | {"trigger": Trigger(row.trigger)}
    return Execution(job_name=job.name, trigger_node_id=job.trigger_node_id, fired_at=row.started_at, **carried)


async def hand_back(connection: AsyncConnection, held: Mapping[UUID, int]) -> list[PendingRun]:
    """Make running executions pending again for other workers; those that were still ours, with their new tokens."""
    rows = [{"id": execution_id, "token": token} for execution_id, token in held.items()]
    returned = await connection.execute(_HAND_BACK, {"held": msgspec.json.encode(rows).decode()})
    return [PendingRun(row.id, row.token, row.due_at) for row in returned]


async def lost(connection: AsyncConnection, limit: int) -> list[Outcome]:
    """The executions whose worker's lease has run out, as outcomes to settle."""
    return [
        Outcome(
            execution_id=row.id,
            scheduled_job_id=row.scheduled_job_id,
            token=row.token,
            status=ExecutionStatus.LOST,
            error=f"The worker {row.worker} stopped renewing its lease while it ran this.",
        )
        for row in await connection.execute(_LOST, {"limit": limit})
    ]


async def times_lost(connection: AsyncConnection, runs: Sequence[LockedExecution]) -> dict[UUID, int]:
    """How many earlier runs of the same slots lost their workers, by the run; those with none are left out."""
    if not runs:
        return {}
    attempts = {
        execution_id(run.source, run.scheduled_for, attempt): run.id
        for run in runs
        for attempt in range(max(0, run.retry_attempt - MOST_LOOKED_BACK), run.retry_attempt)
    }
    counts: dict[UUID, int] = {}
    for row in await fetch(connection, _LOST_EARLIER, list(attempts)):
        run_id = attempts[row["id"]]
        counts[run_id] = counts.get(run_id, 0) + 1
    return counts


async def overdue(connection: AsyncConnection, limit: int) -> list[Outcome]:
    """The executions for which no callback came in time, as outcomes to settle."""
    return [
        Outcome(
            execution_id=row.id,
            scheduled_job_id=row.scheduled_job_id,
            token=row.token,
            status=ExecutionStatus.TIMED_OUT,
            error=f"No callback came within timeout_seconds ({row.timeout_seconds} s).",
        )
        for row in await connection.execute(_OVERDUE, {"limit": limit})
    ]


def _pending(ahead: timedelta) -> Select[Any]:
    due = _ACTIVE.c.due_at <= func.clock_timestamp() + ahead
    return select(_ACTIVE.c.id, _ACTIVE.c.token, _ACTIVE.c.due_at).where(
        _ACTIVE.c.status == ExecutionStatus.PENDING, ~_ACTIVE.c.queued, due
    )


async def pending_of_owners(connection: AsyncConnection, limit: int, but: Sequence[int] = ()) -> list[PendingRun]:
    """Executions that may be started now, with their owners: the longest due of each, then the second of each.

    Those of some owners are left out.
    """
    owner = _TABLE.c.user_profile_id
    turn = func.row_number().over(partition_by=owner, order_by=(_ACTIVE.c.due_at, _ACTIVE.c.id)).label("turn")
    runs = _pending(timedelta(0)).add_columns(owner, turn).join(_TABLE, _TABLE.c.id == _ACTIVE.c.id)
    due = runs.where(owner.not_in(list(but))).subquery()
    query = select(due).order_by(due.c.turn, due.c.due_at, due.c.id).limit(limit)
    return [PendingRun(*row[:-1]) for row in await connection.execute(query)]


async def pending(
    connection: AsyncConnection, limit: int, ahead: timedelta = timedelta(0), after: PendingRun | None = None
) -> list[PendingRun]:
    """A page of the executions that may be started now, or so much later, the longest due first."""
    query = _pending(ahead)
    if after is not None:
        query = query.where(tuple_(_ACTIVE.c.due_at, _ACTIVE.c.id) > (after.due_at, after.execution_id))
    rows = await connection.execute(query.order_by(_ACTIVE.c.due_at, _ACTIVE.c.id).limit(limit))
    return [PendingRun(row.id, row.token, row.due_at) for row in rows]


async def still_held(connection: AsyncConnection, worker_id: UUID) -> dict[UUID, int]:
    """What a worker still holds, with the tokens: all else that it runs has been taken from it."""
    query = select(_ACTIVE.c.id, _ACTIVE.c.token)
    rows = await connection.execute(query.where(_ACTIVE.c.worker_id == worker_id, _ACTIVE.c.status == "running"))
    return {row.id: row.token for row in rows}


async def held_tokens(connection: AsyncConnection, worker_id: UUID, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Those of these executions that a worker still holds, with their tokens."""
    rows = await fetch(connection, _HELD_TOKENS, list(ids), worker_id)
    return {row["id"]: row["token"] for row in rows}


async def active_tokens(connection: AsyncConnection, job_id: UUID) -> list[tuple[UUID, int]]:
    """The pending and running executions of a schedule, with their tokens."""
    query = select(_ACTIVE.c.id, _ACTIVE.c.token).where(_ACTIVE.c.scheduled_job_id == job_id)
    rows = await connection.execute(query)
    return [(row.id, row.token) for row in rows]


async def active_ids(connection: AsyncConnection, job_ids: Iterable[UUID]) -> list[UUID]:
    """The executions of these schedules that are pending or running."""
    query = select(_ACTIVE.c.id).where(_ACTIVE.c.scheduled_job_id.in_(list(job_ids)))
    return list((await connection.execute(query)).scalars())


async def first_attempts(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, FirstAttempt]:
    """What the first attempts were started with."""
    if not ids:
        return {}
    query = select(_TABLE.c.id, _TABLE.c.trigger, _TABLE.c.payload, _TABLE.c.timeout_seconds)
    rows = await connection.execute(query.where(_TABLE.c.id.in_(ids)))
    return {row.id: FirstAttempt(Trigger(row.trigger), row.payload, row.timeout_seconds) for row in rows}


def _active(rows: Iterable[Any]) -> dict[UUID, tuple[ActiveRun, ...]]:
    active: dict[UUID, tuple[ActiveRun, ...]] = {}
    for run_id, job_id, trigger, queued, exclusive, waiting, attempt in rows:
        if run_id is not None:
            run = ActiveRun(run_id, known_trigger(trigger), queued, exclusive, waiting, attempt)
            active[job_id] = (*active.get(job_id, ()), run)
    return active


_BEGIN_RUNS = PairedStatement(INSERT, schedules.MOVE)
_END_RUNS = PairedStatement(END, schedules.MOVE)


async def begin_runs(connection: AsyncConnection, runs: Sequence[NewExecution], moved: Sequence[ScheduledJob]) -> None:
    """Runs begin, and their schedules have moved on."""
    await run_pair(connection, _BEGIN_RUNS, runs, moved)


async def end_runs(
    connection: AsyncConnection, outcomes: Sequence[Outcome], moved: Sequence[ScheduledJob], now: datetime
) -> None:
    """Runs have ended, with what their nodes did; their tokens move, so that nobody ends them again."""
    await run_pair(connection, _END_RUNS, [ended(outcome, now) for outcome in outcomes], moved)
    # What ends from outside may have been put aside: nothing is awaited any more.
    await await_no_more(connection, [o.execution_id for o in outcomes if is_from_outside(o)])


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
    released = await release(connection, list(schedule_of), now)
    return {schedule_of[run.execution_id]: run for run in released}
