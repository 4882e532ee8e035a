"""A step of schedules and of their runs, written in one statement."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import Outcome
from app.domain.schedules import ScheduledJob
from app.persistence import executions, schedules
from app.persistence.execution_rows import NewExecution
from app.persistence.sql_batches import Both, run_both

_BEGIN = Both(executions.INSERT, schedules.MOVE)
_END = Both(executions.END, schedules.MOVE)


async def begin(connection: AsyncConnection, runs: Sequence[NewExecution], moved: Sequence[ScheduledJob]) -> None:
    """Runs begin, and their schedules have moved on."""
    await run_both(connection, _BEGIN, runs, moved)


async def end(
    connection: AsyncConnection, outcomes: Sequence[Outcome], moved: Sequence[ScheduledJob], now: datetime
) -> None:
    """Runs have ended, with what their nodes did; their tokens move, so that nobody ends them again."""
    await run_both(connection, _END, [executions.ended(outcome, now) for outcome in outcomes], moved)
    # What ends from outside may have been put aside: nothing is awaited any more.
    await executions.await_no_more(connection, [o.execution_id for o in outcomes if executions.is_from_outside(o)])
