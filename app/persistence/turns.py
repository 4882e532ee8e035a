"""Whose turn it is, once schedules have changed: what waits in vain is cancelled, and the next in line may start."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import ActiveRun, PendingRun
from app.domain.ledger_part import LedgerOutcome
from app.domain.overlap import in_vain, next_in_turn
from app.domain.schedules import ScheduledJob
from app.persistence import executions


async def take(
    connection: AsyncConnection,
    jobs: Iterable[ScheduledJob],
    active: Mapping[UUID, tuple[ActiveRun, ...]],
    now: datetime,
) -> dict[UUID, PendingRun]:
    """Carry this out for locked schedules; the executions that may start now, by schedule."""
    vain: dict[UUID, str] = {}
    turns: dict[UUID, UUID] = {}
    for job in jobs:
        waiting_in_vain = in_vain(job, active.get(job.id, ()))
        vain.update(dict.fromkeys(waiting_in_vain, f"The schedule is {job.status}: this run was still waiting."))
        left = tuple(run for run in active.get(job.id, ()) if run.execution_id not in waiting_in_vain)
        turn = next_in_turn(job, left)
        if turn is not None:
            turns[turn] = job.id
    await executions.cancel(connection, vain, now, LedgerOutcome.MISSED)
    released = await executions.release(connection, list(turns), now)
    return {turns[run.execution_id]: run for run in released}
