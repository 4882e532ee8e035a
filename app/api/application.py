"""The Litestar application: its routes, dependencies, guards and middleware."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.metadata import version
from typing import Any, Self

import msgspec
from litestar import Litestar, Response, Router
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig

from app.api.accounts import SecretController, SigningKeyController, TokenController, UserController
from app.api.agent_leases import AgentLeaseController
from app.api.audit import AuditController
from app.api.calendars import CalendarController
from app.api.cursors import mark_cursor
from app.api.declarations import ApplyController, ExportController
from app.api.etags import add_etag
from app.api.executions import CallbackController, ExecutionController
from app.api.figures import FigureController, LiveController, OverviewController, WorkerController
from app.api.forecasts import ForecastController
from app.api.idempotency import Replay, on_replay
from app.api.interventions import InterventionController
from app.api.json_answers import JsonAnswer
from app.api.limits import LimitController
from app.api.mcp import AgentController, ProtectedResourceController, agent_server
from app.api.notifications import NotificationController, WebhookController
from app.api.openapi import DESCRIPTION, NEEDS_TOKEN, DocumentPlugin, PagePlugin, operation_id, schema_router
from app.api.operations import BulkController, OperationController
from app.api.problems import HANDLERS
from app.api.rate_limits import RateLimits
from app.api.requests import (
    ACTOR,
    Acting,
    JsonRequest,
    TrustedProxies,
    check_request,
    counting_middleware,
    current_actor,
    finish_answer,
    origin_middleware,
    tracing_middleware,
)
from app.api.schedules import ScheduleController, ScheduleQueryController, SlotController
from app.api.search import SearchController
from app.api.sessions import LoginController, SessionController, SingleSignOnController
from app.api.system import (
    ActionController,
    CronController,
    EntityTypeController,
    HealthController,
    MetricsController,
    SettingsController,
)
from app.api.teams import TeamController
from app.api.upcoming import TimezoneController, UpcomingController
from app.api.well_known import WellKnownController
from app.api.workflows import BreakerController, WorkflowController
from app.mcp.tools import ToolServices
from app.observability.tracing import Tracer
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
from app.services.limits import LimitService
from app.services.live import LiveService
from app.services.notifications import NotificationService
from app.services.oidc_keys import IssuerService
from app.services.overview import OverviewService
from app.services.plugins import PluginService
from app.services.schedule_queries import ScheduleQueryService
from app.services.schedules import ScheduleService
from app.services.search import SearchService
from app.services.secrets import SecretService, SigningKeyService
from app.services.sessions import SessionService
from app.services.single_sign_on import SingleSignOn
from app.services.skips import SkipService
from app.services.slots import SlotService
from app.services.spread import SpreadService
from app.services.system import CronService, GaugeService, HealthService, SwitchService
from app.services.teams import TeamService
from app.services.upcoming import UpcomingService
from app.services.users import UserService
from app.services.webhooks import WebhookService
from app.services.workflows import BreakerService, WorkflowService

BODY_MAX_BYTES = 256 * 1024


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The services that the API uses."""

    authenticator: Authenticator
    audit: AuditService
    idempotency: IdempotencyService
    users: UserService
    teams: TeamService
    leases: AgentLeaseService
    sessions: SessionService
    single_sign_on: SingleSignOn
    actions: ActionService
    entity_types: EntityTypeService
    workflows: WorkflowService
    schedules: ScheduleService
    manual_runs: ManualRunService
    schedule_queries: ScheduleQueryService
    slots: SlotService
    skips: SkipService
    backfills: BackfillService
    upcoming: UpcomingService
    edit_plans: EditPlanService
    forecasts: ForecastService
    spread: SpreadService
    bulk: BulkService
    declarations: DeclarationService
    exports: ExportService
    breakers: BreakerService
    search: SearchService
    cron: CronService
    limits: LimitService
    notifications: NotificationService
    signing_keys: SigningKeyService
    plugins: PluginService
    webhooks: WebhookService
    secrets: SecretService
    calendars: CalendarService
    switches: SwitchService
    executions: ExecutionService
    callbacks: CallbackService
    health: HealthService
    figures: GaugeService
    rate_limits: RateLimits
    proxies: TrustedProxies
    issuer: IssuerService
    overview: OverviewService
    live: LiveService
    # Where browsers reach the API, if the settings say so.
    public_origin: str | None = None
    # The identity providers whose tokens are accepted.
    login_issuers: tuple[str, ...] = ()


class MetricsAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Whether ``/metrics`` is on the main port, and the token that it requires."""

    on_main_port: bool = True
    token: str = ""


Lifespan = Callable[[], AbstractAsyncContextManager[None]]


class _Bound(msgspec.Struct):
    """What an application is bound to: values by the names of parameters, and what its middleware and lifespan use."""

    provided: dict[str, Any] = msgspec.field(default_factory=dict)
    proxies: TrustedProxies = msgspec.field(default_factory=TrustedProxies)
    tracer: Tracer | None = None
    lifespan: Lifespan = nullcontext


class _OwnRouter(Router):
    """A router of one application, which registers it without a copy of every handler."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the router itself."""
        return self


def create_application(
    services: Services,
    lifespan: Lifespan,
    tracer: Tracer | None = None,
    metrics: MetricsAccess | None = None,
    pages: Sequence[Router] = (),
) -> Litestar:
    """Return the application; ``lifespan`` opens and closes the resources of the services.

    ``pages`` are routes beside those of the API, such as the console's.
    """
    metrics = metrics or MetricsAccess()
    return bind(_routed(services, metrics, pages), services, lifespan, tracer, metrics)


def bind(
    app: Litestar, services: Services, lifespan: Lifespan, tracer: Tracer | None, metrics: MetricsAccess
) -> Litestar:
    """Let an application use these services from its next start on, and return it.

    To build the routes takes a third of a second. A process that serves with one set of services after another builds
    them once.
    """
    bound: _Bound = app.state.bound
    bound.provided.update(_for_actors(services) | _for_all(services))
    bound.proxies, bound.tracer, bound.lifespan = services.proxies, tracer, lifespan
    app.state.rate_limits = services.rate_limits
    app.state.metrics_token = metrics.token
    app.state.cron = services.cron
    app.state.proxies = services.proxies
    app.state.authenticator = services.authenticator
    app.state.audit = services.audit
    app.state.idempotency = services.idempotency
    app.state.public_origin = services.public_origin
    app.state.login_issuers = services.login_issuers
    return app


def _routed(services: Services, metrics: MetricsAccess, pages: Sequence[Router]) -> Litestar:
    """Return an application with all routes for services of these names; it is bound to none yet."""
    bound = _Bound()
    v1 = _OwnRouter(
        "/api/v1",
        route_handlers=[
            UserController,
            TeamController,
            TokenController,
            AgentLeaseController,
            LoginController,
            SingleSignOnController,
            SessionController,
            ActionController,
            EntityTypeController,
            WorkflowController,
            ScheduleController,
            ScheduleQueryController,
            SlotController,
            InterventionController,
            UpcomingController,
            TimezoneController,
            ForecastController,
            BulkController,
            OperationController,
            ApplyController,
            ExportController,
            ExecutionController,
            CallbackController,
            BreakerController,
            SearchController,
            LimitController,
            NotificationController,
            WebhookController,
            SecretController,
            CalendarController,
            SettingsController,
            SigningKeyController,
            AuditController,
            OverviewController,
            FigureController,
            WorkerController,
            LiveController,
        ],
        before_request=check_request,
        after_request=_finish_view,
        security=NEEDS_TOKEN,
    )
    app = Litestar(
        [
            v1,
            CronController,
            HealthController,
            WellKnownController,
            AgentController,
            ProtectedResourceController,
            *pages,
            *([MetricsController] if metrics.on_main_port else []),
        ],
        dependencies={
            ACTOR: _provided(current_actor),
            **{name: _provided(_after_actor(bound, name)) for name in _for_actors(services)},
            **{name: _provided(_independent(bound, name)) for name in _for_all(services)},
        },
        exception_handlers={**HANDLERS, Replay: on_replay},
        request_class=JsonRequest,
        response_class=JsonAnswer,
        request_max_body_size=BODY_MAX_BYTES,
        openapi_config=OpenAPIConfig(
            title="Carillon",
            version=version("carillon"),
            description=DESCRIPTION,
            render_plugins=[PagePlugin(), DocumentPlugin()],
            openapi_router=schema_router(),
            operation_id_creator=operation_id,
        ),
        middleware=[
            origin_middleware(lambda: bound.proxies),
            tracing_middleware(lambda: bound.tracer),
            counting_middleware,
        ],
        before_send=[finish_answer],
        lifespan=[_lifespan(bound)],
        debug=False,
        # Litestar would configure the root logger and write to stderr in its own format.
        logging_config=None,
    )
    app.state.bound = bound
    return app


async def _finish_view(response: Response[Any]) -> Response[Any]:
    """Add what clients need to ask again: the mark of a list to its cursor, the tag of an object."""
    mark_cursor(response)
    return await add_etag(response)


def _for_actors(services: Services) -> dict[str, Any]:
    """Return the services that act on behalf of a user, by the names of their parameters."""
    return {
        "user_service": services.users,
        "team_service": services.teams,
        "lease_service": services.leases,
        "agent_server": agent_server(_tool_services(services)),
        "action_service": services.actions,
        "entity_type_service": services.entity_types,
        "workflow_service": services.workflows,
        "schedule_service": services.schedules,
        "manual_run_service": services.manual_runs,
        "schedule_queries": services.schedule_queries,
        "slot_service": services.slots,
        "skip_service": services.skips,
        "backfill_service": services.backfills,
        "upcoming_service": services.upcoming,
        "edit_plan_service": services.edit_plans,
        "forecast_service": services.forecasts,
        "spread_service": services.spread,
        "bulk_service": services.bulk,
        "declaration_service": services.declarations,
        "export_service": services.exports,
        "breaker_service": services.breakers,
        "search_service": services.search,
        "limit_service": services.limits,
        "notification_service": services.notifications,
        "signing_key_service": services.signing_keys,
        "webhook_service": services.webhooks,
        "secret_service": services.secrets,
        "calendar_service": services.calendars,
        "switch_service": services.switches,
        "execution_service": services.executions,
        "audit_service": services.audit,
        "overview_service": services.overview,
        "live_service": services.live,
    }


def _tool_services(services: Services) -> ToolServices:
    return ToolServices(
        queries=services.schedule_queries,
        slots=services.slots,
        executions=services.executions,
        plans=services.edit_plans,
        forecasts=services.forecasts,
        workflows=services.workflows,
        actions=services.actions,
        leases=services.leases,
        schedules=services.schedules,
        manual_runs=services.manual_runs,
    )


def _for_all(services: Services) -> dict[str, Any]:
    """Return the services that need no user, by the names of their parameters."""
    return {
        "cron_service": services.cron,
        "session_service": services.sessions,
        "single_sign_on": services.single_sign_on,
        "callback_service": services.callbacks,
        "health_service": services.health,
        "figure_service": services.figures,
        "issuer_service": services.issuer,
    }


def _after_actor(bound: _Bound, name: str) -> Callable[..., Any]:
    """Return a provider that depends on the actor.

    Litestar resolves dependencies that do not depend on each other in a task group, which costs a task for each.
    """
    provided = bound.provided

    def provide(actor: Acting) -> Any:  # noqa: ARG001 - to be resolved first
        return provided[name]

    return provide


def _provided(provider: Callable[..., Any]) -> Provide:
    return Provide(provider, sync_to_thread=False)


def _independent(bound: _Bound, name: str) -> Callable[[], Any]:
    provided = bound.provided

    def provide() -> Any:
        return provided[name]

    return provide


def _lifespan(bound: _Bound) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        async with bound.lifespan():
            yield

    return lifespan
