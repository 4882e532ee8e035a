"""Puts the parts together: the one place that knows what stands behind each name."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec
import structlog
from litestar import Litestar
from msgspec.structs import replace

from app.actions.catalog import Catalog
from app.actions.http_client import HttpCaller, Signer, key_from
from app.actions.plugins import Capability, LoadedActions, load_actions
from app.actions.secrets import SecretStore
from app.actions.ssrf_guard import AddressGuard
from app.api.application import MetricsAccess, Services, create_application
from app.api.rate_limits import RateLimits
from app.api.requests import TrustedProxies
from app.api.system import ApiAnswers
from app.config import Settings, SettingsError, require_stores
from app.domain.limits import Caps, Quota, Quotas
from app.engine.cron_ping import CronPing
from app.engine.entities import LoadedSchedulers, Poller, load_entity_schedulers
from app.engine.housekeeping import Housekeeper
from app.engine.leases import WorkerLease
from app.engine.notifications import NotificationSender
from app.engine.places import Places
from app.engine.recovery import Reconciler
from app.engine.ringing import BellHealth, Ringer
from app.engine.run_resources import CallbackIssuer, SecretFinder, SigningKeyCache
from app.engine.runner import Actions, Runner
from app.engine.ticks import TickEngine
from app.engine.worker_runtime import WorkerRuntime
from app.observability.metrics import CONNECTIONS
from app.observability.serving import serving
from app.observability.tracing import Tracer, open_tracer
from app.persistence.database import Database
from app.queue.bell import Bell, RedisPool, open_pool
from app.queue.counters import RedisCounter
from app.services.action_ports import ActionPorts, HistoryService
from app.services.admission import Limits, SecretChecks
from app.services.declarations.applying import DeclarationService
from app.services.executions import CallbackService, ExecutionService, ManualRunService
from app.services.notifications import NotificationService
from app.services.plugins import PluginService
from app.services.schedule_queries import ScheduleQueryService
from app.services.schedules import ScheduleService
from app.services.secrets import SecretService, SigningKeyService
from app.services.system import ActionService, CronService, GaugeService, HealthService, SwitchService
from app.services.users import UserService
from app.services.webhooks import WebhookService
from app.services.workflows import BreakerService, WorkflowService

# How long a plugin that is still starting may hold up the end of its process.
PLUGIN_END_SECONDS = 2.0

# A question of a client that Postgres cannot answer in this time is given up: others wait for the connection.
API_READING_SECONDS = 5.0

log = structlog.get_logger(__name__)


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is made of."""

    redis: RedisPool
    bell_health: BellHealth
    engine: TickEngine
    reconciler: Reconciler
    life: WorkerRuntime
    plugins: PluginService


def wire_services(
    settings: Settings, database: Database, redis: RedisPool, http: HttpCaller, tracer: Tracer | None = None
) -> Services:
    """The use cases on these stores, with a client for what is run in this process."""
    bell = Bell(redis)
    ringer = Ringer(bell)
    loaded, entities = _loaded()
    catalog = Catalog(loaded.actions)
    limits = limits_of(settings)
    environment = _environment(settings)
    secret_checks = SecretChecks(catalog, environment)
    plugins = _plugins(database, ringer, loaded, catalog, secret_checks, limits)
    return Services(
        users=UserService(database, settings.admin_token),
        actions=ActionService(catalog, (*loaded.problems, *entities.problems)),
        plugins=plugins,
        webhooks=WebhookService(database, catalog, ringer, secret_checks, limits),
        secrets=SecretService(database),
        workflows=WorkflowService(database, catalog, ringer, secret_checks, limits),
        schedules=ScheduleService(database, ringer, limits),
        manual_runs=ManualRunService(database, ringer),
        insight=ScheduleQueryService(database),
        breakers=BreakerService(database),
        cron=CronService(
            CronPing(
                database,
                ringer,
                _actions(settings, database, ringer, http, catalog, plugins),
                _poller(settings, database, ringer, entities),
                settings.lease_seconds,
                concurrency=settings.worker_concurrency,
                parked_quota=limits.quotas.parked_runs,
                enabled=settings.schedules_enabled,
                tracer=tracer,
            ),
            settings.cron_token,
        ),
        notifications=NotificationService(database, limits),
        signing_keys=SigningKeyService(database),
        switches=SwitchService(database, enabled_by_environment=settings.schedules_enabled),
        executions=ExecutionService(database, ringer),
        callbacks=CallbackService(database, ringer, environment),
        health=HealthService(database, bell),
        figures=GaugeService(database),
        rate_limits=RateLimits(RedisCounter(redis), settings.rate_limit_per_minute, settings.auth_failures_per_minute),
        proxies=TrustedProxies(settings.proxy_networks),
    )


def wire_api(settings: Settings) -> Litestar:
    """The API of one process."""
    require_stores(settings)
    database = Database(
        settings.database_url, pool_size=settings.database_pool_size, reading_seconds=API_READING_SECONDS
    )
    redis = open_pool(settings.redis_url)
    http = _http(settings, database)
    tracer = _tracer(settings, "carillon-api")
    services = wire_services(settings, database, redis, http, tracer)
    opened = _opened_for_the_api(settings, database, redis, http, services, tracer)
    metrics = MetricsAccess(on_main_port=not settings.api_metrics_port, token=settings.metrics_token)
    return create_application(services, opened, tracer, metrics)


@asynccontextmanager
async def wire_worker(settings: Settings) -> AsyncIterator[WorkerParts]:
    """The parts of a worker, open for as long as the context lasts."""
    require_stores(settings)
    async with AsyncExitStack() as stack:
        tracer = _tracer(settings, "carillon-worker")
        await stack.enter_async_context(_flushed(tracer))
        database = Database(settings.database_url, pool_size=settings.database_pool_size)
        redis = open_pool(settings.redis_url)
        await stack.enter_async_context(_closing(database, redis)())
        http = await stack.enter_async_context(_http(settings, database))
        bell = Bell(redis)
        bell_health = BellHealth(bell)
        ringer = Ringer(bell, bell_health)
        # On a connection of its own: runs that wait for one must not cost the lease.
        lease_database = Database(settings.database_url, pool_size=1, call_seconds=settings.lease_seconds)
        stack.push_async_callback(lease_database.close)
        _count_connections(database, lease_database)
        lease = WorkerLease(lease_database, settings.lease_seconds)
        loaded, entities = _loaded()
        catalog = Catalog(loaded.actions)
        limits = limits_of(settings)
        secret_checks = SecretChecks(catalog, _environment(settings))
        plugins = _plugins(database, ringer, loaded, catalog, secret_checks, limits)
        actions = _actions(settings, database, ringer, http, catalog, plugins)
        runner = Runner(database, actions, lease, limits.quotas.parked_runs)
        engine = TickEngine(
            database,
            ringer,
            runner,
            lease,
            places=Places(settings.worker_concurrency),
            enabled=settings.schedules_enabled,
            tracer=tracer,
        )
        reconciler = Reconciler(database, bell, bell_health, ringer, engine, settings.lease_seconds)
        postman = NotificationSender(database, http)
        stack.push_async_callback(postman.close)
        life = WorkerRuntime(
            lease,
            reconciler,
            runner,
            engine,
            postman,
            _poller(settings, database, ringer, entities),
            Housekeeper(database, settings.history_days),
            bell_health,
            lease_seconds=settings.lease_seconds,
            reconcile_seconds=settings.reconcile_seconds,
        )
        await stack.enter_async_context(_started(plugins))
        yield WorkerParts(
            redis=redis, bell_health=bell_health, engine=engine, reconciler=reconciler, life=life, plugins=plugins
        )


def _count_connections(*databases: Database) -> None:
    """Those of a worker are counted when they are asked for."""
    for state in ("in_use", "idle"):
        CONNECTIONS.labels(state).set_function(partial(_connections, databases, state))


def _connections(databases: tuple[Database, ...], state: str) -> int:
    return sum(database.pool.counts[state] for database in databases)


@asynccontextmanager
async def wire_declarations(settings: Settings) -> AsyncIterator[DeclarationService]:
    """Applying files, for as long as the context lasts. Without Redis, the workers find by themselves what is new."""
    async with AsyncExitStack() as stack:
        database = Database(settings.database_url, pool_size=1)
        stack.push_async_callback(database.close)
        ringer = None
        if settings.redis_url:
            redis = open_pool(settings.redis_url)
            stack.push_async_callback(redis.aclose)
            ringer = Ringer(Bell(redis))
        loaded, _ = _loaded()
        catalog = Catalog(loaded.actions)
        secret_checks = SecretChecks(catalog, _environment(settings))
        yield DeclarationService(database, catalog, ringer, secret_checks, limits_of(settings))


def _loaded() -> tuple[LoadedActions, LoadedSchedulers]:
    """What is installed; what could not be used is said by name."""
    loaded, entities = load_actions(), load_entity_schedulers()
    for problem in (*loaded.problems, *entities.problems):
        log.error("plugin_failed", plugin=problem.plugin, error=problem.error)
    trusted = tuple(
        replace(one, acts_for_users=one.acts_for_users or loaded.declares(one.plugin, Capability.ACT_FOR_USERS))
        for one in entities.schedulers
    )
    return loaded, replace(entities, schedulers=trusted)


def limits_of(settings: Settings) -> Limits:
    """Return the quotas and the largest values that the settings allow."""
    quotas = Quotas(**{quota: getattr(settings, f"quota_{quota}") for quota in Quota})
    caps = Caps(
        max_retries=settings.max_retries_limit,
        timeout_seconds=settings.timeout_seconds_limit,
        payload_bytes=settings.payload_bytes_limit,
    )
    return Limits(quotas=quotas, caps=caps)


def _environment(settings: Settings) -> SecretStore:
    """The secrets that this process was given."""
    return SecretStore(os.environ, settings.secrets_dir)


def _plugins(
    database: Database,
    ringer: Ringer,
    loaded: LoadedActions,
    catalog: Catalog,
    secret_checks: SecretChecks,
    limits: Limits,
) -> PluginService:
    schedules = ScheduleService(database, ringer, limits)
    workflows = WorkflowService(database, catalog, ringer, secret_checks, limits)
    return PluginService(database, ringer, loaded, schedules, workflows)


def _poller(settings: Settings, database: Database, ringer: Ringer, entities: LoadedSchedulers) -> Poller:
    return Poller(
        database,
        ringer,
        entities.schedulers,
        poll_seconds=settings.poll_seconds,
        batch_size=settings.poll_batch,
        lease_seconds=settings.poll_lease_seconds,
    )


@asynccontextmanager
async def _started(plugins: PluginService) -> AsyncIterator[None]:
    """Plugins start beside everything else: none of them can hold a process up."""
    starting = asyncio.create_task(plugins.start_all())
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait({starting}, timeout=PLUGIN_END_SECONDS)


def _actions(
    settings: Settings,
    database: Database,
    ringer: Ringer,
    http: HttpCaller,
    catalog: Catalog,
    plugins: PluginService,
) -> Actions:
    schedules = ScheduleService(database, ringer, limits_of(settings))
    ports = ActionPorts(schedules, ManualRunService(database, ringer), HistoryService(database))
    return Actions(
        catalog=catalog,
        http=http,
        secrets=SecretFinder(database, _environment(settings)),
        callbacks=CallbackIssuer(database, settings.callback_url),
        ports_for=ports.ports_for,
        plugin_for=plugins.schedules_of,
    )


def _http(settings: Settings, database: Database) -> HttpCaller:
    try:
        operators_key = key_from(settings.signing_secret) if settings.signing_secret else None
    except ValueError as error:
        raise SettingsError(f"CARILLON_SIGNING_SECRET cannot be used. {error}") from error
    return HttpCaller(AddressGuard(settings.allowed_hosts), Signer(SigningKeyCache(database).keys_of, operators_key))


def _tracer(settings: Settings, service: str) -> Tracer | None:
    return open_tracer(settings.otel_endpoint, settings.otel_sample_ratio, service)


@asynccontextmanager
async def _flushed(tracer: Tracer | None) -> AsyncIterator[None]:
    """What is left of the traces goes out after everything else."""
    try:
        yield
    finally:
        if tracer is not None:
            await tracer.close()


def _opened_for_the_api(
    settings: Settings,
    database: Database,
    redis: RedisPool,
    http: HttpCaller,
    services: Services,
    tracer: Tracer | None,
) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in (_flushed(tracer), _closing(database, redis)(), http, _started(services.plugins)):
                await stack.enter_async_context(part)
            await stack.enter_async_context(_metrics_port(settings, services))
            yield

    return opened


@asynccontextmanager
async def _metrics_port(settings: Settings, services: Services) -> AsyncIterator[None]:
    """Answer Prometheus on a port of its own, where one is set."""
    if not settings.api_metrics_port:
        yield
        return
    answers = ApiAnswers(services.health, services.figures)
    async with serving((settings.host, settings.api_metrics_port), answers, settings.metrics_token):
        yield


def _closing(database: Database, redis: RedisPool) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await redis.aclose()
            await database.close()

    return opened
