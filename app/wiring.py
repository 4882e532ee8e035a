"""Puts the parts together: the one place that knows what stands behind each name."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import msgspec
from litestar import Litestar

from app.actions.addresses import AddressGuard
from app.actions.builtin import BUILTIN
from app.actions.catalog import Catalog
from app.actions.http import HttpCaller, Signer
from app.api.application import Services, create_application
from app.config import Settings, SettingsError
from app.engine.lease import WorkerLease
from app.engine.life import WorkerLife
from app.engine.recovery import Reconciler
from app.engine.ringing import Ringer
from app.engine.runner import Runner
from app.engine.ticks import TickEngine
from app.persistence.database import Database
from app.queue.bell import Bell
from app.queue.limits import RateLimits
from app.queue.pool import RedisPool, open_pool
from app.services.breakers import BreakerService
from app.services.executions import ExecutionService
from app.services.health import HealthService
from app.services.insight import InsightService
from app.services.manual_runs import ManualRunService
from app.services.schedules import ScheduleService
from app.services.users import UserService
from app.services.workflows import WorkflowService


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is made of."""

    redis: RedisPool
    engine: TickEngine
    reconciler: Reconciler
    life: WorkerLife


def require_stores(settings: Settings) -> Settings:
    """Every process but ``up`` needs to be told where Postgres and Redis are."""
    for name in ("database_url", "redis_url"):
        if not getattr(settings, name):
            raise SettingsError(f"CARILLON_{name.upper()} is not set; `carillon up` brings its own servers")
    return settings


def wire_services(settings: Settings, database: Database, redis: RedisPool) -> Services:
    """The use cases on these stores."""
    bell = Bell(redis)
    ringer = Ringer(bell)
    return Services(
        users=UserService(database, settings.admin_token),
        workflows=WorkflowService(database, Catalog(BUILTIN), ringer),
        schedules=ScheduleService(database, ringer),
        manual_runs=ManualRunService(database, ringer),
        insight=InsightService(database),
        breakers=BreakerService(database),
        executions=ExecutionService(database, ringer),
        health=HealthService(database, bell),
        rate_limits=RateLimits(redis, settings.rate_limit_per_minute),
    )


def wire_api(settings: Settings) -> Litestar:
    """The API of one process."""
    require_stores(settings)
    database = Database(settings.database_url, pool_size=settings.database_pool_size)
    redis = open_pool(settings.redis_url)
    return create_application(wire_services(settings, database, redis), _closing(database, redis))


@asynccontextmanager
async def wire_worker(settings: Settings) -> AsyncIterator[WorkerParts]:
    """The parts of a worker, open for as long as the context lasts."""
    require_stores(settings)
    async with AsyncExitStack() as stack:
        database = Database(settings.database_url, pool_size=settings.database_pool_size)
        redis = open_pool(settings.redis_url)
        await stack.enter_async_context(_closing(database, redis)())
        http = await stack.enter_async_context(_http(settings))
        bell = Bell(redis)
        ringer = Ringer(bell)
        lease = WorkerLease(database, settings.lease_seconds)
        runner = Runner(database, Catalog(BUILTIN), http, lease)
        engine = TickEngine(database, ringer, runner, lease, enabled=settings.schedules_enabled)
        reconciler = Reconciler(database, bell, ringer, engine, settings.lease_seconds)
        life = WorkerLife(
            lease,
            reconciler,
            runner,
            engine,
            lease_seconds=settings.lease_seconds,
            reconcile_seconds=settings.reconcile_seconds,
        )
        yield WorkerParts(redis=redis, engine=engine, reconciler=reconciler, life=life)


def _http(settings: Settings) -> HttpCaller:
    try:
        signer = Signer(settings.signing_secret) if settings.signing_secret else None
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return HttpCaller(AddressGuard(settings.allowed_hosts), signer)


def _closing(database: Database, redis: RedisPool) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await redis.aclose()
            await database.close()

    return opened
