"""Parked runs, which wait in Postgres without a worker, and the callbacks that they wait for."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import ACTIVE, ExecutionStatus, NodeResult, PendingRun
from app.persistence import permits
from app.persistence.database import database_now
from app.persistence.sql_batches import fetch

# Parking.

_LOCK_RUN = text("SELECT status, token FROM workflow_executions WHERE id = :id FOR UPDATE")
_DEADLINE = "coalesce(deadline_at, started_at + make_interval(secs => timeout_seconds))"
# A run keeps the graph that it began with, even if the workflow is edited meanwhile, and the times by the database's
# clock at which its sleeping nodes wake up.
_KEEP = (
    "results = CAST(:results AS jsonb), "
    "graph = coalesce(graph, CAST(:graph AS jsonb)) || jsonb_build_object('asleep', CAST(:asleep AS jsonb)), "
    f"deadline_at = {_DEADLINE}, worker_id = NULL"
)
_AWAIT = text(f"UPDATE workflow_executions SET awaiting = true, {_KEEP} WHERE id = :id")  # noqa: S608 - made of constants
_SLEEP = text(
    f"UPDATE workflow_executions SET status = 'pending', token = token + 1, {_KEEP}, "  # noqa: S608 - made of constants
    f"due_at = least(CAST(:wakes_at AS timestamptz), {_DEADLINE}) WHERE id = :id RETURNING token, due_at"
)
# A run that was parked before and is running now has a worker, and does not count.
_COUNTS = (
    "SELECT e.user_profile_id, count(*) FROM active_executions AS a JOIN workflow_executions AS e ON e.id = a.id "
    "WHERE a.deadline_at IS NOT NULL AND a.worker_id IS NULL GROUP BY 1"
)


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be parked: the results of its nodes, which of them sleep for how long, and the graph that it runs.

    Nodes that wait for a limit have no result. ``is_limited`` says whether a node of the graph names a limit.
    """

    execution_id: UUID
    token: int
    results: Sequence[NodeResult]
    # Seconds by node.
    asleep: Mapping[str, float]
    graph: dict[str, Any]
    waiting: frozenset[str] = frozenset()
    is_limited: bool = False


class Answered(msgspec.Struct, frozen=True):
    """A callback came before the run was parked: it goes on with these results."""

    results: list[NodeResult]


async def park(connection: AsyncConnection, run: Parked) -> Answered | PendingRun | None:
    """Park a run, unless a callback has come meanwhile or another worker or a request has taken the run.

    Return the run with the time at which it wakes up if that is known, else None: a callback or a permit wakes it.
    """
    calls = await permits.lock_calls(connection, run.execution_id, run.token) if run.is_limited else {}
    row = (await connection.execute(_LOCK_RUN, {"id": run.execution_id})).one_or_none()
    if row is None or row.token != run.token or row.status != ExecutionStatus.RUNNING:
        return None
    awaited = [result for result in run.results if result.node_id not in run.asleep]
    answered = await with_callbacks(connection, run.execution_id, awaited)
    if answered != awaited:
        asleep = [result for result in run.results if result.node_id in run.asleep]
        return Answered([*answered, *asleep])
    if not run.asleep and not run.waiting:
        await connection.execute(_AWAIT, _values(run, run.results, {}))
        return None
    if calls:
        open_calls = {result.node_id for result in run.results if result.status is ExecutionStatus.RUNNING}
        await permits.park_calls(connection, run.execution_id, open_calls | run.waiting, run.token)
    granted = [calls[node_id] for node_id in run.waiting if node_id in calls]
    return await _sleep(connection, run, [starts_at for starts_at in granted if starts_at is not None])


async def parked_counts(connection: AsyncConnection) -> dict[int, int]:
    """Return how many runs each owner has parked; owners with none are left out."""
    return dict(await fetch(connection, _COUNTS))


async def _sleep(connection: AsyncConnection, run: Parked, granted: Sequence[datetime]) -> PendingRun | None:
    """Store each sleeping node as a success that finishes when the node wakes up.

    ``granted`` are the times at which calls that waited may be made. A run that only waits wakes up at its deadline.
    """
    now = await database_now(connection)
    wakes = {node_id: now + timedelta(seconds=seconds) for node_id, seconds in run.asleep.items()}
    results = [
        replace(result, status=ExecutionStatus.SUCCESS, finished_at=wakes[result.node_id])
        if result.node_id in wakes
        else result
        for result in run.results
    ]
    times = [*wakes.values(), *granted]
    values = {**_values(run, results, wakes), "wakes_at": min(times, default=None)}
    row = (await connection.execute(_SLEEP, values)).one()
    # Not rung for at its deadline: a message of the same id would be in the way if the one of its permit were lost.
    return PendingRun(run.execution_id, row.token, row.due_at) if times else None


def _values(run: Parked, results: Sequence[NodeResult], wakes: Mapping[str, datetime]) -> dict[str, Any]:
    return {
        "id": run.execution_id,
        "results": msgspec.json.encode(results).decode(),
        "graph": msgspec.json.encode(run.graph).decode(),
        "asleep": msgspec.json.encode(wakes).decode(),
    }


# Callbacks.

# A node that is run again gets a new callback; the old one is not accepted any more.
_SUPERSEDE = text(
    "UPDATE callbacks SET state = 'superseded' WHERE execution_id = :execution_id AND node_id = :node_id "
    "AND state = 'open'"
)
_OPEN = text(
    "INSERT INTO callbacks (execution_id, node_id, token_hash, state, error, secrets) "
    "VALUES (:execution_id, :node_id, :token_hash, 'open', '', CAST(:secrets AS jsonb))"
)
_FIND = text("SELECT id, state, secrets FROM callbacks WHERE execution_id = :execution_id AND token_hash = :token_hash")
_COMPLETE = text(
    "UPDATE callbacks SET state = 'completed', succeeded = :succeeded, output = CAST(:output AS jsonb), "
    "error = :error, completed_at = clock_timestamp() WHERE id = :id"
)
_HEARTBEAT = text("UPDATE callbacks SET heartbeat_at = clock_timestamp() WHERE id = :id")
_COMPLETED = text(
    "SELECT node_id, succeeded, output, error, completed_at FROM callbacks "
    "WHERE execution_id = :execution_id AND state = 'completed' ORDER BY id"
)
# A run that sleeps in one node and awaits a callback in another is woken by the callback, too.
# The permits of its calls are locked first: see the order of locks in ``app.persistence.permits``.
_LOCK_CALLBACK = text(
    "WITH calls AS MATERIALIZED (SELECT 1 FROM limit_permits WHERE execution_id = :id AND node_id <> '' FOR UPDATE) "
    "SELECT status, awaiting OR (status = 'pending' AND deadline_at IS NOT NULL) AS is_parked "
    "FROM workflow_executions WHERE id = :id AND (SELECT count(*) FROM calls) >= 0 FOR UPDATE"
)
# The permits of other calls that await callbacks or wait for limits stay.
_UNPARK = text(
    "WITH run AS (UPDATE workflow_executions SET status = 'pending', awaiting = false, token = token + 1, "
    "due_at = clock_timestamp() WHERE id = :id RETURNING id, token, due_at), "
    "kept AS (UPDATE limit_permits AS p SET token = run.token FROM run "
    "WHERE p.execution_id = run.id AND p.node_id <> '' AND p.token = run.token - 1) SELECT token, due_at FROM run"
)
_PURGE = text(
    "DELETE FROM callbacks WHERE id IN (SELECT c.id FROM callbacks AS c "
    "LEFT JOIN workflow_executions AS e ON e.id = c.execution_id "
    "WHERE c.created_at < :before AND (e.id IS NULL OR e.finished_at IS NOT NULL) "
    "AND (CAST(:owner AS integer) IS NULL OR e.user_profile_id = :owner) ORDER BY c.id LIMIT :limit)"
)


class Completion(msgspec.Struct, frozen=True):
    """The result that a target reported by its callback."""

    succeeded: bool
    output: Any = None
    error: str = ""


class ShownSecret(msgspec.Struct, frozen=True):
    """A secret that the execution used: its name, and a proof of its value, by which it is recognised later."""

    name: str
    # None for a secret of the environment.
    owner_id: int | None
    proof: str


class Callback(msgspec.Struct, frozen=True):
    """A callback whose execution is locked."""

    id: int
    is_open: bool
    is_awaited: bool
    shown: tuple[ShownSecret, ...] = ()


async def open_callback(
    connection: AsyncConnection, execution_id: UUID, node_id: str, token_hash: bytes, shown: Sequence[ShownSecret] = ()
) -> None:
    """Store a callback before its token is sent, with the secrets that must be hidden in the result it brings."""
    await connection.execute(_SUPERSEDE, {"execution_id": execution_id, "node_id": node_id})
    values = {
        "execution_id": execution_id,
        "node_id": node_id,
        "token_hash": token_hash,
        "secrets": msgspec.json.encode(shown).decode() if shown else None,
    }
    await connection.execute(_OPEN, values)


async def close_callbacks(connection: AsyncConnection, execution_id: UUID, node_id: str) -> None:
    """Close the callback of a node whose target has answered at once."""
    await connection.execute(_SUPERSEDE, {"execution_id": execution_id, "node_id": node_id})


async def find_callback(connection: AsyncConnection, execution_id: UUID, token_hash: bytes) -> Callback | None:
    """Lock an execution and return the callback of a token, or None if this execution has no such token."""
    run = (await connection.execute(_LOCK_CALLBACK, {"id": execution_id})).one_or_none()
    values = {"execution_id": execution_id, "token_hash": token_hash}
    row = (await connection.execute(_FIND, values)).one_or_none()
    if run is None or row is None:
        return None
    return Callback(
        row.id,
        is_open=row.state == "open" and run.status in ACTIVE,
        is_awaited=run.is_parked,
        shown=msgspec.convert(row.secrets or (), tuple[ShownSecret, ...]),
    )


async def complete_callback(
    connection: AsyncConnection, execution_id: UUID, callback: Callback, completion: Completion
) -> PendingRun | None:
    """Store the result of a callback. Return the execution if it was parked and may go on now."""
    await connection.execute(
        _COMPLETE,
        {
            "id": callback.id,
            "succeeded": completion.succeeded,
            "output": msgspec.json.encode(completion.output).decode(),
            "error": completion.error,
        },
    )
    if not callback.is_awaited:
        return None
    row = (await connection.execute(_UNPARK, {"id": execution_id})).one()
    return PendingRun(execution_id, row.token, row.due_at)


async def record_heartbeat(connection: AsyncConnection, callback: Callback) -> None:
    """Store that the target is still working."""
    await connection.execute(_HEARTBEAT, {"id": callback.id})


async def with_callbacks(
    connection: AsyncConnection, execution_id: UUID, results: Iterable[NodeResult]
) -> list[NodeResult]:
    """Return the results, with those of callbacks that have come in place of the running ones."""
    callbacks = {row.node_id: row for row in await connection.execute(_COMPLETED, {"execution_id": execution_id})}
    return [
        _answered(result, callbacks[result.node_id])
        if result.status is ExecutionStatus.RUNNING and result.node_id in callbacks
        else result
        for result in results
    ]


async def purge_callbacks(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete callbacks from before a moment whose executions have ended. Return how many."""
    values = {"before": before, "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_PURGE, values)).rowcount


def _answered(result: NodeResult, row: Row[Any]) -> NodeResult:
    status = ExecutionStatus.SUCCESS if row.succeeded else ExecutionStatus.FAILED
    return replace(result, status=status, output=row.output, error=row.error, finished_at=row.completed_at)
