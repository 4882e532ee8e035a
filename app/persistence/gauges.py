"""How things stand, for whoever watches."""

from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence.sql_batches import fetch

# Nobody needs to know more exactly how bad it is.
MOST_COUNTED = 100_000

_FIGURES = (
    "SELECT (SELECT count(*) FROM (SELECT FROM due_ticks WHERE next_run_at <= clock_timestamp() "  # noqa: S608
    f"LIMIT {MOST_COUNTED}) AS due) AS due, "
    "coalesce((SELECT extract(epoch FROM clock_timestamp() - min(next_run_at)) FROM due_ticks), 0)::float AS oldest, "
    "(SELECT count(*) FROM workers WHERE lease_expires_at > clock_timestamp()) AS workers, "
    "(SELECT count(*) FROM due_ticks) AS planned"
)
_RESTING = "SELECT status, count(*) FROM scheduled_jobs WHERE status <> 'active' GROUP BY status"
_BREAKERS = "SELECT state, count(*) FROM circuit_breakers GROUP BY state"


class Gauges(msgspec.Struct, frozen=True):
    """What is due, since when, who works, and how many schedules and breakers are in which state."""

    due: int
    oldest_seconds: float
    workers: int
    schedules: dict[str, int]
    breakers: dict[str, int]


async def read(connection: AsyncConnection) -> Gauges:
    """As things stand now. An active schedule counts while it has something planned."""
    row: Any = (await fetch(connection, _FIGURES))[0]
    resting = dict(await fetch(connection, _RESTING))
    breakers = dict(await fetch(connection, _BREAKERS))
    return Gauges(row["due"], max(0.0, row["oldest"]), row["workers"], {"active": row["planned"], **resting}, breakers)
