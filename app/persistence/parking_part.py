"""Runs that wait are put aside in Postgres: no worker holds them, and no place is taken by them.

A run that waits for a callback stays ``running`` with ``awaiting``. One that sleeps is ``pending`` again with a due
time, under a new token, so that it is found and started as any pending run is, by a worker of the release before too.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import ExecutionStatus, NodeResult, PendingRun
from app.persistence import parking
from app.persistence.database import database_now
from app.persistence.sql_batches import fetch

_LOCK = text("SELECT status, token FROM workflow_executions WHERE id = :id FOR UPDATE")
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
    held = (await connection.execute(_LOCK, {"id": run.execution_id})).one_or_none()
    if held is None or held.token != run.token or held.status != ExecutionStatus.RUNNING:
        return None
    awaited = [result for result in run.results if result.node_id not in run.asleep]
    answered = await parking.with_callbacks(connection, run.execution_id, awaited)
    if answered != awaited:
        asleep = [result for result in run.results if result.node_id in run.asleep]
        return Answered([*answered, *asleep])
    return await (_sleep(connection, run) if run.asleep else _await(connection, run))


async def counts(connection: AsyncConnection) -> dict[int, int]:
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
