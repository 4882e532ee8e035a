"""Callbacks: what a target was promised it may say later, and what it said."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.executions import ACTIVE, ExecutionStatus, NodeResult, PendingRun

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
_LOCK = text(
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


async def open_one(
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


async def close_open(connection: AsyncConnection, execution_id: UUID, node_id: str) -> None:
    """The target has answered at once: there is nothing left to be said."""
    await connection.execute(_SUPERSEDE, {"execution_id": execution_id, "node_id": node_id})


async def find(connection: AsyncConnection, execution_id: UUID, token_hash: bytes) -> Callback | None:
    """The callback of a token, with its execution locked; None if the token was never given out for it."""
    held = (await connection.execute(_LOCK, {"id": execution_id})).one_or_none()
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


async def complete(
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


async def heartbeat(connection: AsyncConnection, callback: Callback) -> None:
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


async def purge(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete the callbacks of executions that ended long ago; how many."""
    values = {"before": before, "owner": actor.owner_filter, "limit": limit}
    return (await connection.execute(_PURGE, values)).rowcount


def _answered(result: NodeResult, said: Row[Any]) -> NodeResult:
    status = ExecutionStatus.SUCCESS if said.succeeded else ExecutionStatus.FAILED
    return replace(result, status=status, output=said.output, error=said.error, finished_at=said.completed_at)
