"""Builds the processes from their parts: the API, the worker, and ``carillon apply``."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog
from litestar import Litestar
from msgspec.structs import replace

from app.actions.catalog import Catalog
from app.actions.http_client import HttpCaller, Signer, key_from
from app.actions.plugins import Capability, LoadedActions, PluginProblem, load_actions
from app.actions.secrets import SecretStore
from app.actions.ssrf_guard import AddressGuard
from app.api.application import MetricsAccess, Services, bind, create_application
from app.api.rate_limits import RateLimits
from app.api.requests import TrustedProxies
from app.api.system import ApiAnswers
from app.config import Settings, SettingsError, require_stores
from app.console.pages import console_router
from app.domain.executions import ACTIVE, ExecutionStatus
from app.domain.ledger import LedgerOutcome
from app.domain.limits import Caps, Quota, Quotas
from app.engine.bulk_operations import OperationRunner
from app.engine.calendar_replans import CalendarReplanner
from app.engine.call_tokens import TokenMinter
from app.engine.concurrency import Places
from app.engine.cron_ping import CronPing
from app.engine.entity_polling import Poller
from app.engine.entity_schedulers import EntityScheduler, LoadedSchedulers, load_entity_schedulers
from app.engine.housekeeping import Housekeeper
from app.engine.leases import WorkerLease
from app.engine.limit_gate import LimitGate
from app.engine.node_resources import CallbackIssuer, SecretFinder, SigningKeyCache
from app.engine.notifications import NotificationSender
from app.engine.recovery import Reconciler
from app.engine.ringing import BellHealth, Ringer
from app.engine.runner import Actions, Runner
from app.engine.sitemap import SitemapPlanner
from app.engine.ticks import TickEngine
from app.engine.worker_runtime import WorkerRuntime
from app.http1.connections import tls_context
from app.observability.metrics import CONNECTIONS, CONNECTIONS_LIMIT, ENDED, MISSED
from app.observability.serving import serving
from app.observability.tracing import Tracer, open_tracer
from app.persistence.database import Database
from app.persistence.quotas import QuotaBook
from app.persistence.sitemap_pings import SitemapScheduler
from app.queue.bell import Bell, RedisPool, open_pool
from app.queue.rate_counter import RedisCounter
from app.services.action_ports import ActionPorts, HistoryService
from app.services.admission import Admission, Limits, admission_of
from app.services.agent_leases import AgentLeaseService
from app.services.audit import AuditService
from app.services.authentication import Authenticator
from app.services.backfills import BackfillService
from app.services.bulk_operations import BulkService
from app.services.calendars import CalendarService
from app.services.catalog import ActionService, EntityTypeService
from app.services.declarations.applying import DeclarationService
from app.services.declarations.exporting import ExportService
from app.services.edit_plans import EditPlanService
from app.services.executions import CallbackService, ExecutionService, ManualRunService
from app.services.forecasts import ForecastService
from app.services.idempotency import IdempotencyService
from app.services.identities import Identities, TrustedIssuer
from app.services.identity_providers import IdentityProvider, ProviderAddress
from app.services.limits import LimitService
from app.services.live import LiveService
from app.services.notifications import NotificationService
from app.services.oidc_keys import IssuerService
from app.services.overview import OverviewService
from app.services.plugin_schedules import Collaborators
from app.services.plugins import PluginService
from app.services.removal import Remover
from app.services.schedule_queries import ScheduleQueryService
from app.services.schedules import ScheduleService
from app.services.search import SearchService
from app.services.secrets import SecretService, SigningKeyService
from app.services.sessions import SessionService
from app.services.single_sign_on import LoginClient, SingleSignOn
from app.services.skips import SkipService
from app.services.slots import SlotService
from app.services.spread import SpreadService
from app.services.system import CronService, GaugeService, HealthService, SwitchService
from app.services.teams import TeamService
from app.services.upcoming import UpcomingService
from app.services.users import UserService
from app.services.webhooks import WebhookService
from app.services.workflows import BreakerService, WorkflowService

# The delay with which the last use of tokens and sessions is stored.
STORE_USES_SECONDS = 30.0
# The same for refusals of authentication and of scopes.
STORE_REFUSALS_SECONDS = 5.0
# How long a process that stops waits for a plugin that is still starting.
PLUGIN_END_SECONDS = 2.0

# A query of a client that takes longer is cancelled: others wait for its connection.
API_READING_SECONDS = 5.0

log = structlog.get_logger(__name__)


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a worker process."""

    redis: RedisPool
    bell_health: BellHealth
    engine: TickEngine
    reconciler: Reconciler
    runtime: WorkerRuntime
    plugins: PluginService


class SharedParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the API and the workers have in common. A process has one of each: their caches and batches are shared."""

    database: Database
    ringer: Ringer
    sitemap: SitemapPlanner
    environment: SecretStore
    entities: LoadedSchedulers
    problems: tuple[PluginProblem, ...]
    admission: Admission
    schedules: ScheduleService
    schedule_queries: ScheduleQueryService
    workflows: WorkflowService
    manual_runs: ManualRunService
    plugins: PluginService
    limit_gate: LimitGate


def _shared_parts(settings: Settings, database: Database, ringer: Ringer) -> SharedParts:
    sitemap = SitemapScheduler(settings.default_sitemap_urls, enabled=settings.schedules_enabled)
    loaded, entities = _loaded(sitemap)
    environment = _environment(settings)
    limits = limits_of(settings)
    admission = admission_of(_catalog(settings, loaded, limits), environment, limits)
    schedules = ScheduleService(database, ringer, admission.limits)
    workflows = WorkflowService(database, ringer, admission)
    manual_runs = ManualRunService(database, ringer)
    return SharedParts(
        database=database,
        ringer=ringer,
        sitemap=SitemapPlanner(database, ringer, sitemap),
        environment=environment,
        entities=entities,
        problems=(*loaded.problems, *entities.problems),
        admission=admission,
        schedules=schedules,
        schedule_queries=ScheduleQueryService(database),
        workflows=workflows,
        manual_runs=manual_runs,
        limit_gate=LimitGate(database, ringer, admission.limits.quotas),
        plugins=PluginService(
            loaded,
            Collaborators(
                database=database, ringer=ringer, schedules=schedules, workflows=workflows, manual_runs=manual_runs
            ),
        ),
    )


def wire_services(
    settings: Settings, database: Database, redis: RedisPool, http: HttpCaller, tracer: Tracer | None = None
) -> Services:
    """Return the services of an API process; ``http`` makes the calls of the runs that a cron ping starts here."""
    bell = Bell(redis)
    ringer = Ringer(bell)
    health = HealthService(database, bell)
    shared = _shared_parts(settings, database, ringer)
    limits = shared.admission.limits
    issuer = _oidc_issuer(settings)
    identities = Identities(database, [*([issuer] if issuer else []), *_kubernetes_issuers(settings)])
    authenticator = Authenticator(database, settings.admin_token, identities)
    sessions = SessionService(database, authenticator)
    remover = Remover(database, ringer, limits)
    overview = OverviewService(database, bell.ping, enabled_by_environment=settings.schedules_enabled)
    return Services(
        overview=overview,
        live=LiveService(overview, authenticator),
        authenticator=authenticator,
        audit=AuditService(database),
        idempotency=IdempotencyService(database),
        users=UserService(database, remover),
        teams=TeamService(database, remover),
        leases=AgentLeaseService(database, ringer),
        sessions=sessions,
        single_sign_on=SingleSignOn(database, identities, sessions, issuer, _login_client(settings)),
        actions=ActionService(shared.admission.catalog, shared.problems),
        entity_types=EntityTypeService(database, shared.entities),
        plugins=shared.plugins,
        webhooks=WebhookService(database, ringer, shared.admission),
        secrets=SecretService(database),
        calendars=CalendarService(database, CalendarReplanner(database, ringer)),
        workflows=shared.workflows,
        schedules=shared.schedules,
        manual_runs=shared.manual_runs,
        schedule_queries=shared.schedule_queries,
        slots=SlotService(database),
        skips=SkipService(database),
        backfills=BackfillService(database),
        upcoming=UpcomingService(database),
        edit_plans=EditPlanService(database, limits.caps),
        forecasts=ForecastService(database, limits.caps),
        spread=SpreadService(database),
        bulk=BulkService(database, limits.caps),
        declarations=DeclarationService(database, ringer, shared.admission),
        exports=ExportService(database),
        breakers=BreakerService(database),
        search=SearchService(database),
        cron=CronService(_cron_ping(settings, shared, http, tracer), settings.cron_token),
        limits=LimitService(database, shared.limit_gate),
        notifications=NotificationService(database, limits),
        signing_keys=SigningKeyService(database),
        switches=SwitchService(
            database,
            enabled_by_environment=settings.schedules_enabled,
            default_sitemap_urls=settings.default_sitemap_urls,
        ),
        executions=ExecutionService(database, ringer, settings.trace_url),
        callbacks=CallbackService(database, ringer, shared.environment),
        health=health,
        figures=GaugeService(database, health),
        rate_limits=RateLimits(RedisCounter(redis), settings.rate_limit_per_minute, settings.auth_failures_per_minute),
        proxies=TrustedProxies(settings.proxy_networks),
        issuer=IssuerService(database, settings.issuer),
        public_origin=settings.public_origin,
        login_issuers=(settings.oidc_issuer,) if settings.oidc_issuer else (),
    )


# The files that Kubernetes puts into every pod, for calls to its API server.
POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The names of the API server inside of a cluster, before the cluster's own domain.
KUBERNETES_HOSTS = ("kubernetes.default", "kubernetes.default.svc")


def _oidc_issuer(settings: Settings) -> TrustedIssuer | None:
    """Return the identity provider of the settings, or None."""
    if not settings.oidc_issuer:
        return None
    address = ProviderAddress(
        issuer=settings.oidc_issuer, ca_file=settings.oidc_ca_file, token_file=settings.oidc_token_file
    )
    return TrustedIssuer(
        provider=IdentityProvider(address),
        audience=settings.oidc_audience,
        groups_claim=settings.oidc_groups_claim,
        admin_group=settings.oidc_admin_group,
        team_prefix=settings.oidc_team_prefix,
    )


def _login_client(settings: Settings) -> LoginClient:
    return LoginClient(
        client_id=settings.oidc_client_id, client_secret=settings.oidc_client_secret, scopes=settings.oidc_scopes
    )


def _kubernetes_issuers(settings: Settings) -> list[TrustedIssuer]:
    """Return the issuer of service account tokens, if there is one. Its tokens have no groups."""
    if not settings.kubernetes_issuer:
        return []
    return [TrustedIssuer(provider=IdentityProvider(kubernetes_address(settings)), audience=settings.oidc_audience)]


def kubernetes_address(settings: Settings, pod_files: Path = POD_FILES) -> ProviderAddress:
    """Return the address of the issuer of service account tokens.

    The API server itself is called with the files of the own pod. An issuer elsewhere must not get the pod's token.
    """
    host = urlsplit(settings.kubernetes_issuer).hostname or ""
    is_api_server = host in KUBERNETES_HOSTS or host.startswith(f"{KUBERNETES_HOSTS[-1]}.")
    own = {name: str(pod_files / name) for name in ("ca.crt", "token") if is_api_server and (pod_files / name).exists()}
    return ProviderAddress(
        issuer=settings.kubernetes_issuer,
        ca_file=settings.kubernetes_ca_file or own.get("ca.crt", ""),
        token_file=settings.kubernetes_token_file or own.get("token", ""),
    )


def _cron_ping(settings: Settings, shared: SharedParts, http: HttpCaller, tracer: Tracer | None) -> CronPing:
    return CronPing(
        shared.database,
        shared.ringer,
        _actions(settings, shared, http),
        _poller(settings, shared),
        settings.lease_seconds,
        concurrency=settings.worker_concurrency,
        enabled=settings.schedules_enabled,
        tracer=tracer,
        sitemap=shared.sitemap,
    )


def wire_api(settings: Settings, built: Litestar | None = None) -> Litestar:
    """Return the API of one process; one that was ``built`` before, and has stopped, is given the new services."""
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
    if built is not None:
        return bind(built, services, opened, tracer, metrics)
    return create_application(services, opened, tracer, metrics, [console_router()])


@asynccontextmanager
async def wire_worker(settings: Settings) -> AsyncIterator[WorkerParts]:
    """Return the parts of a worker; they are closed when the context ends."""
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
        # On a connection of its own: a worker whose runs use up the pool must still renew its lease.
        lease_database = Database(settings.database_url, pool_size=1, call_seconds=settings.lease_seconds)
        stack.push_async_callback(lease_database.close)
        _count_connections(database, lease_database)
        _count_from_zero()
        lease = WorkerLease(lease_database, settings.lease_seconds)
        shared = _shared_parts(settings, database, ringer)
        actions = _actions(settings, shared, http)
        runner = Runner(database, actions, lease)
        engine = TickEngine(
            database,
            ringer,
            runner,
            lease,
            places=Places(settings.worker_concurrency),
            enabled=settings.schedules_enabled,
            tracer=tracer,
            sitemap=shared.sitemap,
        )
        reconciler = Reconciler(database, bell, bell_health, ringer, engine, settings.lease_seconds)
        sender = NotificationSender(database, http)
        stack.push_async_callback(sender.close)
        runtime = WorkerRuntime(
            lease,
            reconciler,
            runner,
            engine,
            sender,
            _poller(settings, shared),
            Housekeeper(
                database,
                settings.history_days,
                settings.audit_days,
                settings.delete_after_seconds,
                quotas=shared.admission.limits.quotas,
            ),
            OperationRunner(database, ringer, shared.admission.limits.caps),
            bell_health,
            lease_seconds=settings.lease_seconds,
            reconcile_seconds=settings.reconcile_seconds,
            other_loops={
                "calendars": CalendarReplanner(database, ringer).step,
                "quotas": shared.limit_gate.read_quotas,
            },
        )
        await stack.enter_async_context(_started(shared.plugins))
        yield WorkerParts(
            redis=redis,
            bell_health=bell_health,
            engine=engine,
            reconciler=reconciler,
            runtime=runtime,
            plugins=shared.plugins,
        )


def _count_from_zero() -> None:
    """Export counters at 0 before they count: Prometheus sees no increase in a series that begins above 0."""
    for outcome in LedgerOutcome:
        MISSED.labels(outcome)
    for status in set(ExecutionStatus) - ACTIVE:
        ENDED.labels(status)


def _count_connections(*databases: Database) -> None:
    """Export the connections of a worker; they are counted when the metrics are read."""
    for state in ("in_use", "idle"):
        CONNECTIONS.labels(state).set_function(partial(_connections, databases, state))
    CONNECTIONS_LIMIT.set(sum(database.pool.limit for database in databases))


def _connections(databases: tuple[Database, ...], state: str) -> int:
    return sum(database.pool.counts[state] for database in databases)


@asynccontextmanager
async def wire_declarations(settings: Settings) -> AsyncIterator[DeclarationService]:
    """Return the service behind ``carillon apply``; it is closed when the context ends.

    It works without Redis: the workers then find new schedules in Postgres.
    """
    async with AsyncExitStack() as stack:
        database = Database(settings.database_url, pool_size=1)
        stack.push_async_callback(database.close)
        ringer = None
        if settings.redis_url:
            redis = open_pool(settings.redis_url)
            stack.push_async_callback(redis.aclose)
            ringer = Ringer(Bell(redis))
        loaded, _ = _loaded()
        limits = limits_of(settings)
        admission = admission_of(_catalog(settings, loaded, limits), _environment(settings), limits)
        yield DeclarationService(database, ringer, admission)


def _loaded(*own: EntityScheduler) -> tuple[LoadedActions, LoadedSchedulers]:
    """Return the installed actions and entity schedulers; log each plugin that cannot be used."""
    loaded, entities = load_actions(), load_entity_schedulers(own=own)
    for problem in (*loaded.problems, *entities.problems):
        log.error("plugin_failed", plugin=problem.plugin, error=problem.error)
    trusted = tuple(
        replace(
            scheduler,
            acts_for_users=scheduler.acts_for_users or loaded.declares(scheduler.plugin, Capability.ACT_FOR_USERS),
        )
        for scheduler in entities.schedulers
    )
    return loaded, replace(entities, schedulers=trusted)


def _catalog(settings: Settings, loaded: LoadedActions, limits: Limits) -> Catalog:
    return Catalog(loaded.actions, limits.caps, has_public_url=bool(settings.issuer))


def limits_of(settings: Settings) -> Limits:
    """Return the quotas and the largest values that the settings allow."""
    own_names = set(Quota) - {Quota.HISTORY_DAYS}
    quotas = Quotas(
        **{quota: getattr(settings, f"quota_{quota}") for quota in own_names}, history_days=settings.history_days
    )
    caps = Caps(
        max_retries=settings.max_retries_limit,
        timeout_seconds=settings.timeout_seconds_limit,
        payload_bytes=settings.payload_bytes_limit,
    )
    return Limits(quotas=QuotaBook(quotas), caps=caps)


def _environment(settings: Settings) -> SecretStore:
    """Return the secrets in the environment and the secrets folder of this process."""
    return SecretStore(os.environ, settings.secrets_dir)


def _poller(settings: Settings, shared: SharedParts) -> Poller:
    return Poller(
        shared.database,
        shared.ringer,
        shared.entities.schedulers,
        poll_seconds=settings.poll_seconds,
        batch_size=settings.poll_batch,
        lease_seconds=settings.poll_lease_seconds,
    )


@asynccontextmanager
async def _started(plugins: PluginService) -> AsyncIterator[None]:
    """Start the plugins in the background, so that none of them can delay its process."""
    starting = asyncio.create_task(plugins.start_all())
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait({starting}, timeout=PLUGIN_END_SECONDS)


def _actions(settings: Settings, shared: SharedParts, http: HttpCaller) -> Actions:
    database = shared.database
    ports = ActionPorts(shared.schedules, shared.schedule_queries, shared.manual_runs, HistoryService(database))
    return Actions(
        catalog=shared.admission.catalog,
        http=http,
        secrets=SecretFinder(database, shared.environment),
        callbacks=CallbackIssuer(database, settings.callback_url),
        tokens=TokenMinter(database, settings.issuer) if settings.issuer else None,
        limits=shared.limit_gate,
        ports_for=ports.ports_for,
        plugin_for=shared.plugins.schedules_of,
    )


def _http(settings: Settings, database: Database) -> HttpCaller:
    try:
        operators_key = key_from(settings.signing_secret) if settings.signing_secret else None
    except ValueError as error:
        raise SettingsError(f"CARILLON_SIGNING_SECRET cannot be used. {error}") from error
    try:
        tls = tls_context(settings.http_ca_file)
    except OSError as error:
        raise SettingsError(f"CARILLON_HTTP_CA_FILE cannot be used: {error.strerror or error}") from error
    signer = Signer(SigningKeyCache(database), operators_key)
    return HttpCaller(AddressGuard(settings.allowed_hosts), signer, tls=tls)


def _tracer(settings: Settings, service: str) -> Tracer | None:
    return open_tracer(settings.otel_endpoint, settings.otel_sample_ratio, service)


@asynccontextmanager
async def _flushed(tracer: Tracer | None) -> AsyncIterator[None]:
    """Send the remaining traces after everything else is closed."""
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
            stack.push_async_callback(services.live.close)
            await stack.enter_async_context(_storing(services.authenticator.store_uses, STORE_USES_SECONDS))
            await stack.enter_async_context(_storing(services.audit.store_refusals, STORE_REFUSALS_SECONDS))
            yield

    return opened


@asynccontextmanager
async def _storing(store: Callable[[], Awaitable[None]], seconds: float) -> AsyncIterator[None]:
    """Store from time to time what was noted in memory, and once more at the end."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await store()
            except Exception as error:
                log.exception("notes_not_stored", error=type(error).__name__)

    storing = asyncio.create_task(repeat())
    try:
        yield
    finally:
        storing.cancel()
        await asyncio.gather(storing, return_exceptions=True)
        await store()


@asynccontextmanager
async def _metrics_port(settings: Settings, services: Services) -> AsyncIterator[None]:
    """Serve metrics on a port of their own, if one is set."""
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
