"""Guards and breakers of workflows, read and changed under the lock of their workflow."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, Select, TextClause, bindparam, or_, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import Integer

from app.domain.access import Reach
from app.domain.breakers import DEFAULT_RESET_SECONDS, Breaker, BreakerState, Gate, Transition
from app.domain.permits import LimitUse
from app.persistence.pagination import Page, Part, read_all, read_of_owners, read_one, read_page
from app.persistence.restrictions import workflows_within
from app.persistence.sql_batches import fetch, insert_many, run_batch
from app.persistence.tables import IS_LIMITED, CircuitBreakerRow, CircuitBreakerTransitionRow, WorkflowRow

_TABLE = CircuitBreakerRow.__table__
_TRANSITIONS = CircuitBreakerTransitionRow.__table__
_WORKFLOWS = WorkflowRow.__table__
_IDS = bindparam("ids", type_=ARRAY(Integer()))
_EXECUTION_IDS = bindparam("ids", type_=ARRAY(PG_UUID(as_uuid=True)))
_WORKFLOWS_OF = (
    f"SELECT j.id, j.workflow_id, {IS_LIMITED} AS limited "  # noqa: S608
    "FROM scheduled_jobs AS j JOIN workflows AS w ON w.id = j.workflow_id WHERE j.id = ANY($1)"
)
_TRY_LOCK = text(
    f"SELECT w.id FROM workflows AS w WHERE w.id = ANY(:ids) AND {IS_LIMITED} "  # noqa: S608
    "ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED"
).bindparams(_IDS)
_LOCK = text(
    f"SELECT w.id FROM workflows AS w WHERE w.id = ANY(:ids) AND {IS_LIMITED} "  # noqa: S608
    "ORDER BY w.id FOR NO KEY UPDATE"
).bindparams(_IDS)
_LOCK_OF_EXECUTIONS = text(
    "SELECT w.id FROM workflows AS w WHERE w.breaker_threshold IS NOT NULL AND w.id IN "
    "(SELECT e.workflow_id FROM unnest(:ids) AS runs(id) JOIN workflow_executions AS e ON e.id = runs.id) "
    "ORDER BY w.id FOR NO KEY UPDATE OF w"
).bindparams(_EXECUTION_IDS)
# The workflows with a breaker of these executions, and whether each could be locked.
_TRY_LOCK_OF_EXECUTIONS = (
    "WITH runs AS (SELECT e.id, e.workflow_id FROM unnest($1::uuid[]) AS ids(id) "
    "JOIN workflow_executions AS e ON e.id = ids.id "
    "JOIN workflows AS w ON w.id = e.workflow_id AND w.breaker_threshold IS NOT NULL), "
    "free AS (SELECT w.id FROM workflows AS w WHERE w.id IN (SELECT workflow_id FROM runs) "
    "ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED) "
    "SELECT runs.id, runs.workflow_id, runs.workflow_id IN (SELECT id FROM free) AS locked FROM runs"
)
# A probe that was deleted with its schedule has released the breaker.
_READ = text(
    "SELECT w.id AS workflow_id, w.max_concurrent_runs, w.breaker_threshold, w.breaker_reset_seconds, "
    "b.state, b.failure_count, b.opened_at, p.id AS probe_execution_id, w.limit, w.user_profile_id, "
    "(SELECT count(*) FROM active_executions AS e WHERE e.workflow_id = w.id AND e.status = 'running') "
    "+ (SELECT count(*) FROM active_executions AS e WHERE e.workflow_id = w.id AND e.status = 'pending' "
    "AND e.deadline_at IS NOT NULL) AS running "
    "FROM workflows AS w LEFT JOIN circuit_breakers AS b ON b.workflow_id = w.id "
    "LEFT JOIN active_executions AS p ON p.id = b.probe_execution_id "
    "WHERE w.id = ANY(:ids)"
).bindparams(_IDS)
_STATE_COLUMNS = ("workflow_id", "state", "failure_count", "opened_at", "probe_execution_id")
_SAVE = insert_many(
    CircuitBreakerRow,
    _STATE_COLUMNS,
    "ON CONFLICT (workflow_id) DO UPDATE SET "
    + ", ".join(f"{name} = EXCLUDED.{name}" for name in _STATE_COLUMNS[1:])
    + ", updated_at = clock_timestamp()",
)
_INSERT_TRANSITIONS = insert_many(CircuitBreakerTransitionRow, Transition.__struct_fields__)

OPEN_GATE = Gate()


class WorkflowOf(msgspec.Struct, frozen=True):
    """The workflow of a schedule, and whether it has a guard or a breaker."""

    workflow_id: int
    limited: bool


class StoredBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow with the state of its breaker; the state is None until the breaker has counted a run."""

    # Both are the workflow's id: lists are ordered by ``id``.
    id: int
    workflow_id: int
    workflow_name: str
    user_profile_id: int
    breaker_threshold: int | None
    breaker_reset_seconds: int | None
    state: str | None
    failure_count: int | None
    opened_at: datetime | None
    probe_execution_id: UUID | None


async def workflows_of(connection: AsyncConnection, job_ids: Iterable[UUID]) -> dict[UUID, WorkflowOf]:
    """Return the workflows of those of these schedules that exist, without a lock."""
    rows = await fetch(connection, _WORKFLOWS_OF, list(job_ids))
    return {job_id: WorkflowOf(workflow_id, limited) for job_id, workflow_id, limited in rows}


async def try_lock(connection: AsyncConnection, workflow_ids: Iterable[int]) -> dict[int, Gate]:
    """Lock those of these workflows that have a gate and that no other transaction holds. Return their gates."""
    return await _locked(connection, _TRY_LOCK, sorted(set(workflow_ids)))


async def lock(connection: AsyncConnection, workflow_ids: Iterable[int]) -> dict[int, Gate]:
    """Lock those of these workflows that have a gate; wait for transactions that hold one. Return their gates."""
    return await _locked(connection, _LOCK, sorted(set(workflow_ids)))


async def lock_of_executions(connection: AsyncConnection, execution_ids: Iterable[UUID]) -> dict[int, Gate]:
    """Lock the workflows with a breaker of these executions, waiting for other transactions. Return their gates."""
    return await _locked(connection, _LOCK_OF_EXECUTIONS, list(execution_ids))


async def try_lock_of_executions(
    connection: AsyncConnection, execution_ids: Sequence[UUID]
) -> tuple[dict[int, Gate], set[UUID]]:
    """Lock the workflows with a breaker of these executions without waiting.

    Return the gates of those that are locked, and the executions whose workflow another transaction holds.
    """
    rows = await fetch(connection, _TRY_LOCK_OF_EXECUTIONS, list(execution_ids))
    locked = {workflow_id for _, workflow_id, is_locked in rows if is_locked}
    # Read in a statement that begins after the locks are held.
    return await read(connection, locked) if locked else {}, {run_id for run_id, _, is_locked in rows if not is_locked}


async def _locked(connection: AsyncConnection, statement: TextClause, ids: list[Any]) -> dict[int, Gate]:
    if not ids:
        return {}
    locked = list((await connection.execute(statement, {"ids": ids})).scalars())
    # Read in a statement that begins after the locks are held.
    return await read(connection, locked) if locked else {}


async def read(connection: AsyncConnection, workflow_ids: Iterable[int]) -> dict[int, Gate]:
    """Return the current gates of workflows, without a lock."""
    rows = await connection.execute(_READ, {"ids": list(workflow_ids)})
    return {row.workflow_id: _to_gate(row) for row in rows}


def _to_gate(row: Row[Any]) -> Gate:
    breaker = None if row.breaker_threshold is None else to_breaker(row)
    limit = None if row.limit is None else LimitUse(row.user_profile_id, row.limit)
    return Gate(breaker=breaker, max_running=row.max_concurrent_runs, running=row.running, limit=limit)


def to_breaker(row: Row[Any] | StoredBreaker) -> Breaker:
    """Return the breaker of a workflow; one without a stored state is closed."""
    return Breaker(
        workflow_id=row.workflow_id,
        threshold=row.breaker_threshold or 1,
        reset_seconds=row.breaker_reset_seconds or DEFAULT_RESET_SECONDS,
        state=BreakerState(row.state or BreakerState.CLOSED),
        failure_count=row.failure_count or 0,
        opened_at=row.opened_at,
        probe_execution_id=row.probe_execution_id,
    )


async def save(connection: AsyncConnection, before: Mapping[int, Gate], after: Mapping[int, Gate]) -> None:
    """Write the breakers that have changed, with their transitions."""
    changed = [
        gate.breaker for key, gate in after.items() if gate.breaker is not None and gate.breaker != before[key].breaker
    ]
    await save_breakers(connection, changed)


async def save_breakers(connection: AsyncConnection, changed: Sequence[Breaker]) -> None:
    """Write breakers, each with its transitions that are not stored yet."""
    await run_batch(connection, _SAVE, changed)
    await run_batch(connection, _INSERT_TRANSITIONS, [change for breaker in changed for change in breaker.transitions])


async def page(connection: AsyncConnection, reach: Reach, part: Part) -> Page[StoredBreaker]:
    """Return a page of the breakers of the workflows within reach, in the order of the workflows' ids."""

    async def read(owner: int | None, part: Part) -> Page[StoredBreaker]:
        query: Select[Any] = _with_workflow().where(
            or_(_WORKFLOWS.c.breaker_threshold.is_not(None), _TABLE.c.workflow_id.is_not(None))
        )
        if owner is not None:
            query = query.where(_WORKFLOWS.c.user_profile_id == owner)
        query = query.where(workflows_within(reach))
        return await read_page(connection, query, StoredBreaker, (_WORKFLOWS.c.id,), part, ascending=True)

    return await read_of_owners(reach.owners, part, read, ascending=True)


async def of_workflow(connection: AsyncConnection, workflow_id: int) -> StoredBreaker | None:
    """Return the breaker of a workflow, or None if there is no such workflow."""
    return await read_one(connection, _with_workflow().where(_WORKFLOWS.c.id == workflow_id), StoredBreaker)


async def transitions(connection: AsyncConnection, workflow_id: int, limit: int) -> list[Transition]:
    """Return the latest changes of a breaker's state, newest first."""
    query = select(_TRANSITIONS).where(_TRANSITIONS.c.workflow_id == workflow_id)
    return await read_all(connection, query.order_by(_TRANSITIONS.c.id.desc()).limit(limit), Transition)


def _with_workflow() -> Select[Any]:
    return select(
        _WORKFLOWS.c.id,
        _WORKFLOWS.c.id.label("workflow_id"),
        _WORKFLOWS.c.name.label("workflow_name"),
        _WORKFLOWS.c.user_profile_id,
        _WORKFLOWS.c.breaker_threshold,
        _WORKFLOWS.c.breaker_reset_seconds,
        _TABLE.c.state,
        _TABLE.c.failure_count,
        _TABLE.c.opened_at,
        _TABLE.c.probe_execution_id,
    ).outerjoin_from(_WORKFLOWS, _TABLE, _TABLE.c.workflow_id == _WORKFLOWS.c.id)
