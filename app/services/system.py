"""Services for operators: health, gauges, actions and entity types, settings and the cron ping."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec
import structlog

from app import clock
from app.domain.access import Actor, require_admin
from app.domain.audit import AuditAction, ObjectType, Subject, differences
from app.domain.breakers import BreakerState
from app.domain.errors import UnauthenticatedError, UnavailableError
from app.domain.schedules import Status
from app.engine.cron_ping import CronPing, CronPingResult
from app.engine.leases import LockBusyError
from app.engine.queue_port import Queue, QueueUnavailableError, eviction_sentence
from app.observability.logs import LogThrottle, Outage
from app.observability.metrics import (
    BREAKERS,
    CONNECTIONS,
    CONNECTIONS_LIMIT,
    DUE,
    OLDEST,
    POSTGRES_UP,
    REDIS_UP,
    SCHEDULES,
    WORKERS,
)
from app.persistence import audit, gauges, leases, sitemap_pings
from app.persistence.database import Connection, Database, unreachable_reason
from app.services.inputs import SettingsChanges, given, require_url
from app.services.preconditions import require_match, tag_of
from app.services.views import (
    SettingsView,
)

Presence = Literal["ok", "away"]

NO_ANSWER = "It does not answer."
# Probes do not wait much longer than this for an answer.
PATIENCE_SECONDS = 3.0
# A result is used for this long, however many probes there are.
FRESH_SECONDS = 1.0
# How often Redis is asked for its eviction policy.
POLICY_SECONDS = 60.0

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Which stores can be reached. ``mode`` is ``bell`` if Redis wakes the workers, ``sweep`` if they poll Postgres."""

    status: Literal["ok", "degraded", "unavailable"]
    postgres: Presence
    redis: Presence
    mode: Literal["bell", "sweep"]
    detail: str


def readiness_of(postgres: str, redis: str, redis_warning: str = "") -> Readiness:
    """Return the readiness from the problem of each store, blank if there is none.

    Without Postgres nothing works. Without Redis the workers find due schedules in Postgres. A warning about Redis is
    shown and changes nothing else.
    """
    problems = [f"Postgres: {postgres}"] if postgres else []
    if redis or redis_warning:
        problems.append(f"Redis: {redis or redis_warning}")
    return Readiness(
        status="unavailable" if postgres else "degraded" if redis else "ok",
        postgres="away" if postgres else "ok",
        redis="away" if redis else "ok",
        mode="sweep" if redis else "bell",
        detail=" ".join(problems),
    )


class SharedResult(Generic[T]):
    """The result of a check, used for some seconds. Concurrent callers wait for the same check."""

    def __init__(self, check: Callable[[], Awaitable[T]], fresh_seconds: float) -> None:
        """Call ``check`` when there is no fresh result."""
        self._check = check
        self._fresh_seconds = fresh_seconds
        self._result: tuple[float, T] | None = None
        self._running: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the fresh result, or wait for the running check. A caller that is cancelled does not cancel it."""
        if self._result is not None and clock.monotonic() - self._result[0] < self._fresh_seconds:
            return self._result[1]
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(self._running)

    async def _run(self) -> T:
        try:
            result = await self._check()
        finally:
            self._running = None
        self._result = (clock.monotonic(), result)
        return result


class HealthService:
    """Tries a write in Postgres and a ping in Redis, at most once a second however many probes there are."""

    def __init__(self, database: Database, bell: Queue) -> None:
        """Ask these two."""
        self._database = database
        self._bell = bell
        self._postgres_outage = Outage(log, away="database_unreachable", back="database_recovered")
        self._redis_outage = Outage(log, away="redis_unreachable", back="redis_recovered")
        self._redis_warning = ""
        self._policy_asked_at: float | None = None
        self._shared = SharedResult(self._look, FRESH_SECONDS)

    async def readiness(self) -> Readiness:
        """Return the readiness of this moment, or of a second ago."""
        return await self._shared.get()

    async def _look(self) -> Readiness:
        postgres, redis = await asyncio.gather(self._postgres(), self._redis())
        return readiness_of(postgres, redis, self._redis_warning)

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
        except QueueUnavailableError as error:
            self._redis_outage.report("readiness", str(error))
            self._policy_asked_at = None
            return error.sentence
        self._redis_outage.clear("readiness")
        await self._ask_for_policy()
        return ""

    async def _ask_for_policy(self) -> None:
        """Ask now and then whether Redis evicts keys; log it when that is new."""
        now = clock.monotonic()
        if self._policy_asked_at is not None and now - self._policy_asked_at < POLICY_SECONDS:
            return
        self._policy_asked_at = now
        policy = await self._bell.evicts_by()
        warning = eviction_sentence(policy)
        if warning and warning != self._redis_warning:
            log.warning("redis_evicts", policy=policy)
        self._redis_warning = warning


NOT_CONFIGURED = "No token for cron pings is configured on the server. Set CRON_RUN_TOKEN or AUTH_BEARER_TOKEN there."
# A ping that comes every minute must not fill the log.
REFUSED_LOG_SECONDS = 86_400.0


class CronService:
    """Authorises cron pings and carries them out."""

    def __init__(self, pinger: CronPing, token: str) -> None:
        """Accept this token; with a blank one every ping is refused."""
        self._pinger = pinger
        self._token = token
        self._throttle = LogThrottle(REFUSED_LOG_SECONDS)

    def authenticate(self, token: str | None) -> None:
        """Raise ``UnauthenticatedError`` unless this is the token of pings."""
        if not self._token:
            if self._throttle.should_log("cron_ping_refused"):
                log.warning("cron_ping_refused", error=NOT_CONFIGURED)
            raise UnauthenticatedError(NOT_CONFIGURED)
        if not hmac.compare_digest((token or "").encode(), self._token.encode()):
            raise UnauthenticatedError

    async def run(self, token: str | None) -> CronPingResult:
        """Fire all schedules that are due now. A failure is logged with the trace id of the ping."""
        self.authenticate(token)
        try:
            return await self._pinger.ping()
        except LockBusyError:
            raise
        except UnavailableError as error:
            log.error("cron_ping_failed", error=unreachable_reason(error))  # noqa: TRY400 - an outage, not a defect
            raise
        except Exception as error:
            log.exception("cron_ping_failed", error=type(error).__name__)
            raise


# Gauges are read from Postgres at most this often, however many scrapes there are.
GAUGES_FRESH_SECONDS = 5.0


class GaugeService:
    """Sets the gauges when the metrics are read."""

    def __init__(self, database: Database, health: HealthService) -> None:
        """Read from this database; ``health`` says whether the stores can be reached."""
        self._database = database
        self._health = health
        self._read_at = -GAUGES_FRESH_SECONDS

    async def refresh(self) -> None:
        """Read the gauges, unless they are fresh; what cannot be read is not exported."""
        for state, number in self._database.pool.counts.items():
            CONNECTIONS.labels(state).set(number)
        CONNECTIONS_LIMIT.set(self._database.pool.limit)
        readiness = await self._health.readiness()
        POSTGRES_UP.set(readiness.postgres == "ok")
        REDIS_UP.set(readiness.redis == "ok")
        if clock.monotonic() - self._read_at >= GAUGES_FRESH_SECONDS:
            await self._read()

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._database.reading() as connection:
                figures = await gauges.read(connection)
        except (UnavailableError, TimeoutError):
            _export_nothing()
            return
        self._read_at = clock.monotonic()
        _export(figures)


def _export_nothing() -> None:
    """Remove what is read from Postgres: values that stand still would hide an outage, or report one for ever."""
    for gauge in (DUE, OLDEST, WORKERS):
        gauge.unset()
    SCHEDULES.clear()
    BREAKERS.clear()


def _export(figures: gauges.Gauges) -> None:
    DUE.set(figures.due)
    OLDEST.set(figures.oldest_seconds)
    WORKERS.set(figures.workers)
    for status in Status:
        SCHEDULES.labels(status).set(figures.schedules.get(status, 0))
    for state in BreakerState:
        BREAKERS.labels(state).set(figures.breakers.get(state, 0))


class SwitchService:
    """Use cases about the settings that hold for all processes and can be changed at run time."""

    def __init__(
        self, database: Database, *, enabled_by_environment: bool, default_sitemap_urls: Sequence[str] = ()
    ) -> None:
        """Keep off what the environment switches off, and use its URLs where none are stored."""
        self._database = database
        self._enabled_by_environment = enabled_by_environment
        self._default_sitemap_urls = list(default_sitemap_urls)

    async def get(self, actor: Actor) -> SettingsView:
        """Return the settings."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            return await self._view(connection)

    async def change(self, actor: Actor, changes: SettingsChanges) -> SettingsView:
        """Change the given settings; workers follow from their next tick on."""
        require_admin(actor)
        values = given(changes)
        for index, url in enumerate(values.get("sitemap_urls") or ()):
            require_url(url, f"sitemap_urls[{index}]")
        async with self._database.transaction() as connection:
            await leases.lock_switches(connection)
            before = await self._view(connection)
            require_match(lambda: tag_of(before))
            await self._store(connection, values)
            after = await self._view(connection)
            changed = differences(msgspec.structs.asdict(before), msgspec.structs.asdict(after))
            if changed:
                await _record(connection, actor, changed)
        if changed:
            # The names only: URLs may hold keys.
            log.info("settings_changed", settings=list(changed), by=actor.username)
        return after

    async def _store(self, connection: Connection, values: dict[str, Any]) -> None:
        if "schedules_enabled" in values:
            await leases.turn_switch(connection, leases.SCHEDULES_SWITCH, on=values["schedules_enabled"])
        if "ping_sitemap_on_run" in values:
            await sitemap_pings.turn(connection, on=values["ping_sitemap_on_run"])
        if "sitemap_urls" in values:
            await sitemap_pings.set_urls(connection, values["sitemap_urls"], self._default_sitemap_urls)

    async def _view(self, connection: Connection) -> SettingsView:
        is_on = await leases.schedules_enabled(connection)
        pings = await sitemap_pings.read_settings(connection)
        return SettingsView(
            schedules_enabled=is_on and self._enabled_by_environment,
            ping_sitemap_on_run=pings.is_on,
            sitemap_urls=self._default_sitemap_urls if pings.urls is None else pings.urls,
        )


async def _record(connection: Connection, actor: Actor, changes: dict[str, Any]) -> None:
    """Add an event that names the changed settings. It leaves out the values of URLs, which may hold keys."""
    shown = {name: change for name, change in changes.items() if isinstance(change["to"], bool)}
    subject = Subject(ObjectType.SETTINGS, None)
    details = {"settings": sorted(changes)}
    await audit.record(connection, actor, AuditAction.SETTINGS_CHANGED, subject, changes=shown, details=details)
