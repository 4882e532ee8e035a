"""Switches that are turned at run time, for all processes at once."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

# As an expression, to be read along with other things. Without a row it is on.
SCHEDULES_ENABLED = "coalesce((SELECT s.is_on FROM switches AS s WHERE s.name = 'schedules_enabled'), true)"
_READ = text(f"SELECT {SCHEDULES_ENABLED}")
_TURN = text(
    "INSERT INTO switches (name, is_on) VALUES ('schedules_enabled', :is_on) "
    "ON CONFLICT (name) DO UPDATE SET is_on = EXCLUDED.is_on, changed_at = clock_timestamp()"
)


async def schedules_enabled(connection: AsyncConnection) -> bool:
    """Whether schedules are on, as far as the switch says."""
    return bool((await connection.execute(_READ)).scalar_one())


async def turn_schedules(connection: AsyncConnection, *, on: bool) -> None:
    """Turn them on or off."""
    await connection.execute(_TURN, {"is_on": on})
