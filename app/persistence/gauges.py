"""The values of the gauges: due ticks, workers, schedules and breakers by state."""

from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence.sql_batches import fetch

# Counting stops here: a larger backlog need not be known exactly.
MOST_COUNTED = 100_000

# The chart's autoscaler counts the same (files/due-ticks.sql). ``now()`` is constant in a statement, so that an index
# can be used; no query looks at the history.
_TICKS_AND_WORKERS = (
    "SELECT (SELECT count(*) FROM (SELECT FROM due_ticks WHERE next_run_at <= now() "  # noqa: S608 - a number of ours
    f"LIMIT {MOST_COUNTED}) AS ticks) "
    "+ (SELECT count(*) FROM (SELECT FROM active_executions WHERE status = 'pending' AND NOT queued "
    f"AND due_at <= now() LIMIT {MOST_COUNTED}) AS runs) AS due, "
    "coalesce((SELECT extract(epoch FROM clock_timestamp() - min(next_run_at)) FROM due_ticks), 0)::float AS oldest, "
    "(SELECT count(*) FROM workers WHERE lease_expires_at > clock_timestamp()) AS workers, "
    "(SELECT count(*) FROM due_ticks) AS planned"
)
_NOT_ACTIVE = "SELECT status, count(*) FROM scheduled_jobs WHERE status <> 'active' GROUP BY status"
_BREAKERS = "SELECT state, count(*) FROM circuit_breakers GROUP BY state"


class Gauges(msgspec.Struct, frozen=True):
    """Due ticks and runs, the age of the oldest tick, workers with a valid lease, schedules and breakers by state."""

    due: int
    oldest_seconds: float
    workers: int
    schedules: dict[str, int]
    breakers: dict[str, int]


async def read(connection: AsyncConnection) -> Gauges:
    """Return the current values. An active schedule counts while it has a pending tick."""
    row: Any = (await fetch(connection, _TICKS_AND_WORKERS))[0]
    not_active = dict(await fetch(connection, _NOT_ACTIVE))
    breakers = dict(await fetch(connection, _BREAKERS))
    return Gauges(
        row["due"], max(0.0, row["oldest"]), row["workers"], {"active": row["planned"], **not_active}, breakers
    )
