"""Runs that wait in Postgres without a worker, and the callbacks that they wait for."""

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
from app.persistence.database import database_now
from app.persistence.sql_batches import fetch

# A node that is run anew has a new callback; the old one is stale.
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
# A run that sleeps beside the callback is woken by it too.
_LOCK_CALLBACK = text(
    "SELECT status, awaiting OR (status = 'pending' AND deadline_at IS NOT NULL) AS is_parked "
    "FROM workflow_executions WHERE id = :id FOR UPDATE"
)
_UNPARK = text(
    "UPDATE workflow_executions SET status = 'pending', awaiting = false, token = token + 1, "
    "due_at = clock_timestamp() WHERE id = :id RETURNING token, due_at"
)
_PURGE = text(
    "DELETE FROM callbacks WHERE id IN (SELECT c.id FROM callbacks AS c "
    "LEFT JOIN workflow_executions AS e ON e.id = c.execution_id "
    "WHERE c.created_at < :before AND (e.id IS NULL OR e.finished_at IS NOT NULL) "
    "AND (CAST(:owner AS integer) IS NULL OR e.user_profile_id = :owner) ORDER BY c.id LIMIT :limit)"
)


class Completion(msgspec.Struct, frozen=True):
    """What a target said in the end."""

    succeeded: bool
    output: Any = None
    error: str = ""


class ShownSecret(msgspec.Struct, frozen=True):
    """A secret that the execution was shown: by name, and with a proof of its value."""

    name: str
    # None, for one of the environment.
    owner_id: int | None
    proof: str


class Callback(msgspec.Struct, frozen=True):
    """A callback under the lock of its execution."""

    id: int
    is_open: bool
    is_awaited: bool
    shown: tuple[ShownSecret, ...] = ()


async def open_callback(
    connection: AsyncConnection, execution_id: UUID, node_id: str, token_hash: bytes, shown: Sequence[ShownSecret] = ()
) -> None:
    """Promise a callback, before anybody is told of it; with the secrets that have to be hidden in what it brings."""
    await connection.execute(_SUPERSEDE, {"execution_id": execution_id, "node_id": node_id})
    values = {
        "execution_id": execution_id,
        "node_id": node_id,
        "token_hash": token_hash,
        "secrets": msgspec.json.encode(shown).decode() if shown else None,
    }
    await connection.execute(_OPEN, values)


async def close_callbacks(connection: AsyncConnection, execution_id: UUID, node_id: str) -> None:
    """The target has answered at once: there is nothing left to be said."""
    await connection.execute(_SUPERSEDE, {"execution_id": execution_id, "node_id": node_id})


async def find_callback(connection: AsyncConnection, execution_id: UUID, token_hash: bytes) -> Callback | None:
    """The callback of a token, with its execution locked; None if the token was never given out for it."""
    held = (await connection.execute(_LOCK_CALLBACK, {"id": execution_id})).one_or_none()
    values = {"execution_id": execution_id, "token_hash": token_hash}
    row = (await connection.execute(_FIND, values)).one_or_none()
    if held is None or row is None:
        return None
    return Callback(
        row.id,
        is_open=row.state == "open" and held.status in ACTIVE,
        is_awaited=held.is_parked,
        shown=msgspec.convert(row.secrets or (), tuple[ShownSecret, ...]),
    )


async def complete_callback(
    connection: AsyncConnection, execution_id: UUID, callback: Callback, said: Completion
) -> PendingRun | None:
    """Write down what was said; the execution goes on, if it is waiting for this."""
    await connection.execute(
        _COMPLETE,
        {
            "id": callback.id,
            "succeeded": said.succeeded,
            "output": msgspec.json.encode(said.output).decode(),
            "error": said.error,
        },
    )
    if not callback.is_awaited:
        return None
    row = (await connection.execute(_UNPARK, {"id": execution_id})).one()
    return PendingRun(execution_id, row.token, row.due_at)


async def record_heartbeat(connection: AsyncConnection, callback: Callback) -> None:
    """Write down that the target is at it."""
    await connection.execute(_HEARTBEAT, {"id": callback.id})


async def with_callbacks(
    connection: AsyncConnection, execution_id: UUID, results: Iterable[NodeResult]
) -> list[NodeResult]:
    """The results with what has been said about those that are awaited."""
    said = {row.node_id: row for row in await connection.execute(_COMPLETED, {"execution_id": execution_id})}
    return [
        _answered(result, said[result.node_id])
        if result.status is ExecutionStatus.RUNNING and result.node_id in said
        else result
        for result in results
    ]


async def purge_callbacks(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete the callbacks of executions that ended long ago; how many."""
    values = {"before": before, "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_PURGE, values)).rowcount


def _answered(result: NodeResult, said: Row[Any]) -> NodeResult:
    status = ExecutionStatus.SUCCESS if said.succeeded else ExecutionStatus.FAILED
    return replace(result, status=status, output=said.output, error=said.error, finished_at=said.completed_at)


_LOCK_RUN = text("SELECT status, token FROM workflow_executions WHERE id = :id FOR UPDATE")
_DEADLINE = "coalesce(deadline_at, started_at + make_interval(secs => timeout_seconds))"
# A run keeps the graph that it began with, whatever becomes of the workflow meanwhile; and when its sleepers wake up,
# by the database's clock.
_KEEP = (
    "results = CAST(:results AS jsonb), "
    "graph = coalesce(graph, CAST(:graph AS jsonb)) || jsonb_build_object('asleep', CAST(:asleep AS jsonb)), "
    f"deadline_at = {_DEADLINE}, worker_id = NULL"
)
_AWAIT = text(f"UPDATE workflow_executions SET awaiting = true, {_KEEP} WHERE id = :id")  # noqa: S608 - our own words
_SLEEP = text(
    f"UPDATE workflow_executions SET status = 'pending', token = token + 1, {_KEEP}, "  # noqa: S608 - our own words
    f"due_at = least(CAST(:wakes_at AS timestamptz), {_DEADLINE}) WHERE id = :id RETURNING token, due_at"
)
# A run that was parked before and is running now holds a worker.
_COUNTS = (
    "SELECT e.user_profile_id, count(*) FROM active_executions AS a JOIN workflow_executions AS e ON e.id = a.id "
    "WHERE a.deadline_at IS NOT NULL AND a.worker_id IS NULL GROUP BY 1"
)


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A run that cannot go on now: what its nodes did, which of them sleep for how long, and the graph that it runs."""

    execution_id: UUID
    token: int
    results: Sequence[NodeResult]
    # Seconds, by node.
    asleep: Mapping[str, float]
    graph: dict[str, Any]


class Answered(msgspec.Struct, frozen=True):
    """A callback came before the run was put aside: it goes on with these results."""

    results: list[NodeResult]


async def park(connection: AsyncConnection, run: Parked) -> Answered | PendingRun | None:
    """Put a run aside; when it is to be started again, if it sleeps. Nothing happens to one that is no longer ours."""
    held = (await connection.execute(_LOCK_RUN, {"id": run.execution_id})).one_or_none()
    if held is None or held.token != run.token or held.status != ExecutionStatus.RUNNING:
        return None
    awaited = [result for result in run.results if result.node_id not in run.asleep]
    answered = await with_callbacks(connection, run.execution_id, awaited)
    if answered != awaited:
        asleep = [result for result in run.results if result.node_id in run.asleep]
        return Answered([*answered, *asleep])
    return await (_sleep(connection, run) if run.asleep else _await(connection, run))


async def parked_counts(connection: AsyncConnection) -> dict[int, int]:
    """How many runs each owner has parked; owners with none are left out."""
    return dict(await fetch(connection, _COUNTS))


async def _await(connection: AsyncConnection, run: Parked) -> None:
    await connection.execute(_AWAIT, _values(run, run.results, {}))


async def _sleep(connection: AsyncConnection, run: Parked) -> PendingRun:
    """A node that sleeps is stored as one that has succeeded, at the moment in which it will wake up."""
    now = await database_now(connection)
    wakes = {node_id: now + timedelta(seconds=seconds) for node_id, seconds in run.asleep.items()}
    results = [
        replace(result, status=ExecutionStatus.SUCCESS, finished_at=wakes[result.node_id])
        if result.node_id in wakes
        else result
        for result in run.results
    ]
    values = {**_values(run, results, wakes), "wakes_at": min(wakes.values())}
    row = (await connection.execute(_SLEEP, values)).one()
    return PendingRun(run.execution_id, row.token, row.due_at)


def _values(run: Parked, results: Sequence[NodeResult], wakes: Mapping[str, datetime]) -> dict[str, Any]:
    return {
        "id": run.execution_id,
        "results": msgspec.json.encode(results).decode(),
        "graph": msgspec.json.encode(run.graph).decode(),
        "asleep": msgspec.json.encode(wakes).decode(),
    }
