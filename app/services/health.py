"""Whether what Carillon leans on is there."""

from typing import Literal

import msgspec

from app.domain.errors import UnavailableError
from app.persistence.database import Database
from app.queue.bell import Bell, BellAwayError

Presence = Literal["ok", "away"]


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What is there and what is away; ``mode`` says what sets schedules off now."""

    status: Literal["ok", "degraded", "unavailable"]
    postgres: Presence
    redis: Presence
    mode: Literal["bell", "sweep"]
    detail: str


class HealthService:
    """Looks for itself, at every call."""

    def __init__(self, database: Database, bell: Bell) -> None:
        """Ask these two."""
        self._database = database
        self._bell = bell

    async def readiness(self) -> Readiness:
        """Postgres is needed; without Redis due schedules are found in Postgres."""
        postgres, redis = await self._postgres(), await self._redis()
        away = [name for name, state in (("Postgres", postgres), ("Redis", redis)) if state == "away"]
        status: Literal["ok", "degraded", "unavailable"] = "ok"
        if away:
            status = "unavailable" if postgres == "away" else "degraded"
        return Readiness(
            status=status,
            postgres=postgres,
            redis=redis,
            mode="bell" if redis == "ok" else "sweep",
            detail=f"{' and '.join(away)} cannot be reached." if away else "",
        )

    async def _postgres(self) -> Presence:
        try:
            await self._database.ping()
        except UnavailableError:
            return "away"
        return "ok"

    async def _redis(self) -> Presence:
        try:
            await self._bell.ping()
        except BellAwayError:
            return "away"
        return "ok"
