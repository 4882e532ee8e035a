"""Whether what Carillon leans on is there."""

import asyncio
from typing import Literal

import msgspec
import structlog

from app.domain.errors import UnavailableError
from app.observability.outages import Outage
from app.persistence.database import Database, why_away
from app.queue.bell import Bell, BellAwayError
from app.services.shared_results import SharedResult

Presence = Literal["ok", "away"]

NO_ANSWER = "It does not answer."
# Whoever probes does not wait much longer.
PATIENCE_SECONDS = 3.0
# A probe is answered with what was found so long ago.
FRESH_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What is there and what is away; ``mode`` says what sets schedules off now."""

    status: Literal["ok", "degraded", "unavailable"]
    postgres: Presence
    redis: Presence
    mode: Literal["bell", "sweep"]
    detail: str


def readiness_of(postgres: str, redis: str) -> Readiness:
    """From what is wrong with each, in words. Postgres is needed; without Redis due schedules are found in Postgres."""
    words = [f"Postgres: {postgres}"] if postgres else []
    if redis:
        words.append(f"Redis: {redis}")
    return Readiness(
        status="unavailable" if postgres else "degraded" if redis else "ok",
        postgres="away" if postgres else "ok",
        redis="away" if redis else "ok",
        mode="sweep" if redis else "bell",
        detail=" ".join(words),
    )


class HealthService:
    """Asks Postgres for a write and Redis for an answer, at most once a second however many probes there are."""

    def __init__(self, database: Database, bell: Bell) -> None:
        """Ask these two."""
        self._database = database
        self._bell = bell
        self._postgres_outage = Outage(log, away="database_away", back="database_back")
        self._redis_outage = Outage(log, away="redis_away", back="redis_back")
        self._shared = SharedResult(self._look, FRESH_SECONDS)

    async def readiness(self) -> Readiness:
        """Return what was found a moment ago, or look; probes at the same time share one look."""
        return await self._shared.get()

    async def _look(self) -> Readiness:
        return readiness_of(*await asyncio.gather(self._postgres(), self._redis()))

    async def _postgres(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._database.try_writing()
        except UnavailableError as error:
            self._postgres_outage.missed("readiness", why_away(error))
            return error.detail
        except TimeoutError:
            self._postgres_outage.missed("readiness", NO_ANSWER)
            return NO_ANSWER
        self._postgres_outage.found("readiness")
        return ""

    async def _redis(self) -> str:
        try:
            await self._bell.ping()
        except BellAwayError as error:
            self._redis_outage.missed("readiness", str(error))
            return error.sentence
        self._redis_outage.found("readiness")
        return ""
