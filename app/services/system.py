"""The system as operators see it: health, gauges, the catalog of actions, switches and the cron ping."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec
import structlog

from app import clock
from app.actions.catalog import Action, Catalog
from app.actions.plugins import PluginProblem
from app.domain.access import Actor, require_admin
from app.domain.breakers import BreakerState
from app.domain.errors import UnauthenticatedError, UnavailableError
from app.domain.schedules import Status
from app.engine.cron_ping import CronPing, CronPingResult
from app.observability.logs import Outage
from app.observability.metrics import BREAKERS, CONNECTIONS, DUE, OLDEST, SCHEDULES, WORKERS
from app.persistence import gauges, leases
from app.persistence.database import Database, unreachable_reason
from app.queue.bell import Bell, BellUnreachableError
from app.services.inputs import SettingsChanges, given
from app.services.views import ActionList, ActionView, PluginProblemView, SettingsView

Presence = Literal["ok", "away"]

NO_ANSWER = "It does not answer."
# Whoever probes does not wait much longer.
PATIENCE_SECONDS = 3.0
# A probe is answered with what was found so long ago.
FRESH_SECONDS = 1.0

log = structlog.get_logger(__name__)

T = TypeVar("T")


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


class SharedResult(Generic[T]):
    """The result of a look-up, kept for some seconds; callers at the same time wait for the same look-up."""

    def __init__(self, look: Callable[[], Awaitable[T]], fresh_seconds: float) -> None:
        """Call ``look`` when there is no fresh result."""
        self._look = look
        self._fresh_seconds = fresh_seconds
        self._found: tuple[float, T] | None = None
        self._looking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the fresh result, or that of the look-up under way. A caller that gives up stops nobody else's."""
        if self._found is not None and clock.monotonic() - self._found[0] < self._fresh_seconds:
            return self._found[1]
        if self._looking is None:
            self._looking = asyncio.create_task(self._run())
        return await asyncio.shield(self._looking)

    async def _run(self) -> T:
        try:
            found = await self._look()
        finally:
            self._looking = None
        self._found = (clock.monotonic(), found)
        return found


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
            self._postgres_outage.report("readiness", unreachable_reason(error))
            return error.detail
        except TimeoutError:
            self._postgres_outage.report("readiness", NO_ANSWER)
            return NO_ANSWER
        self._postgres_outage.clear("readiness")
        return ""

    async def _redis(self) -> str:
        try:
            await self._bell.ping()
        except BellUnreachableError as error:
            self._redis_outage.report("readiness", str(error))
            return error.sentence
        self._redis_outage.clear("readiness")
        return ""


class ActionService:
    """Tells what workflows may use."""

    def __init__(self, catalog: Catalog, problems: Sequence[PluginProblem] = ()) -> None:
        """All actions that there are in this process, and the plugins that could not be used."""
        self._catalog = catalog
        self._problems = problems

    def list(self, actor: Actor) -> ActionList:
        """Every action by name, with the JSON Schema of its configuration; for admins, what could not be loaded too.

        Why a plugin cannot be loaded may quote paths and settings of the server.
        """
        actions = sorted(self._catalog.actions, key=lambda one: one.name)
        problems = [PluginProblemView(problem.plugin, problem.error) for problem in self._problems if actor.sees_all]
        return ActionList([_view(action) for action in actions], problems)


def _view(action: Action[Any]) -> ActionView:
    return ActionView(
        name=action.name,
        aliases=list(action.aliases),
        version=action.version,
        origin=action.origin,
        scope=action.scope,
        retry_safe=action.retry_safe,
        secret_fields=list(action.secret_fields),
        description=action.description,
        config_schema=msgspec.json.schema(action.config),
    )


class CronService:
    """Lets a ping in, and carries it out."""

    def __init__(self, pinger: CronPing, token: str) -> None:
        """Without a token nobody is let in."""
        self._pinger = pinger
        self._token = token

    async def run(self, token: str | None) -> CronPingResult:
        """Fire whatever is due now."""
        if not self._token or not hmac.compare_digest((token or "").encode(), self._token.encode()):
            raise UnauthenticatedError
        return await self._pinger.ping()


# However many ask.
GAUGES_FRESH_SECONDS = 5.0


class GaugeService:
    """Sets the gauges when they are asked for."""

    def __init__(self, database: Database) -> None:
        """Read from here."""
        self._database = database
        self._read_at = -GAUGES_FRESH_SECONDS

    async def refresh(self) -> None:
        """Read, unless that was a moment ago; without Postgres the last figures stand."""
        for state, number in self._database.pool.counts.items():
            CONNECTIONS.labels(state).set(number)
        if clock.monotonic() - self._read_at < GAUGES_FRESH_SECONDS:
            return
        try:
            async with self._database.reading() as connection:
                found = await gauges.read(connection)
        except UnavailableError:
            return
        self._read_at = clock.monotonic()
        DUE.set(found.due)
        OLDEST.set(found.oldest_seconds)
        WORKERS.set(found.workers)
        for status in Status:
            SCHEDULES.labels(status).set(found.schedules.get(status, 0))
        for state in BreakerState:
            BREAKERS.labels(state).set(found.breakers.get(state, 0))


class SwitchService:
    """Use cases about what is on and off as a whole."""

    def __init__(self, database: Database, *, enabled_by_environment: bool) -> None:
        """What the environment switches off stays off."""
        self._database = database
        self._enabled_by_environment = enabled_by_environment

    async def get(self, actor: Actor) -> SettingsView:
        """As it is now."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            is_on = await leases.schedules_enabled(connection)
        return SettingsView(schedules_enabled=is_on and self._enabled_by_environment)

    async def change(self, actor: Actor, changes: SettingsChanges) -> SettingsView:
        """Turn what is given; workers heed it from their next tick on."""
        require_admin(actor)
        wanted = given(changes)
        if "schedules_enabled" in wanted:
            async with self._database.transaction() as connection:
                await leases.turn_schedules(connection, on=wanted["schedules_enabled"])
        return await self.get(actor)
