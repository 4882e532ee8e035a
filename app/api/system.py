"""``/health``, ``/metrics``, the cron ping, and ``settings``, ``actions`` and ``entity-types`` below ``/api/v1``."""

import hmac
import re
from typing import Any, Literal
from uuid import uuid4

import msgspec
import structlog
from litestar import Controller, Response, get, patch, post
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, Message, Receive, Send
from litestar.types import Scope as AsgiScope

from app.api.requests import (
    KEEPS_TO_RESTRICTIONS,
    SCOPE,
    Acting,
    AnyConnection,
    AnyRequest,
    Cursor,
    Limit,
    OptionalBody,
    bearer_token,
    check_query,
    counting_failures,
    current_trace_id,
    listed,
)
from app.domain.access import Scope
from app.domain.errors import UnauthenticatedError
from app.engine.leases import LockBusyError
from app.observability.metrics import CONTENT_TYPE, exposition
from app.observability.serving import Health
from app.services.catalog import ActionService, EntityTypeService
from app.services.inputs import SettingsChanges
from app.services.system import CronService, GaugeService, HealthService, Readiness, SwitchService
from app.services.views import ActionList, EntityTypeList, PingView, SettingsView


async def _require_metrics_token(connection: AnyConnection, _handler: BaseRouteHandler) -> None:
    """Refuse a scraper without the metrics token, if one is configured."""
    expected: str = connection.app.state.metrics_token
    async with counting_failures(connection):
        if expected and not hmac.compare_digest((bearer_token(connection) or "").encode(), expected.encode()):
            raise UnauthenticatedError


class MetricsController(Controller):
    """Metrics of this process."""

    tags = ("health",)
    guards = (_require_metrics_token, check_query)

    @get(
        "/metrics",
        media_type=CONTENT_TYPE,
        opt={"errors": (401, 429)},
        summary="Return the metrics in Prometheus's text format.",
    )
    async def metrics(self, figure_service: NamedDependency[GaugeService]) -> Response[str]:
        await figure_service.refresh()
        # As a header: to a media type of text Litestar adds the character set, which this one names already.
        return Response(exposition().decode(), headers={"Content-Type": CONTENT_TYPE})


class ApiAnswers:
    """Health and metrics of the API for its separate metrics port."""

    def __init__(self, health: HealthService, figures: GaugeService) -> None:
        """Use these services."""
        self._health = health
        self._figures = figures

    async def live(self) -> bool:
        """Return True: a process that responds is alive."""
        return True

    async def ready(self) -> Health:
        """Return the same as ``/health/ready`` of the API."""
        readiness = await self._health.readiness()
        return Health(readiness.postgres == "ok", msgspec.json.encode(readiness))

    async def metrics(self) -> bytes:
        """Return the same as ``/metrics`` of the API."""
        await self._figures.refresh()
        return exposition()


ActionsDependency = NamedDependency[ActionService]


class ActionController(Controller):
    """The actions that workflows may use."""

    path = "/actions"
    tags = ("actions",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", sync_to_thread=False, summary="List all actions with the JSON Schema of their configuration.")
    def list_all(self, actor: Acting, action_service: ActionsDependency) -> ActionList:
        return action_service.list(actor)


class EntityTypeController(Controller):
    """The kinds of entities that have times of their own."""

    path = "/entity-types"
    tags = ("entities",)

    @get("/", summary="List the kinds of entities that are polled for due runs, such as webhooks, with their plugins.")
    async def list_all(
        self,
        actor: Acting,
        entity_type_service: NamedDependency[EntityTypeService],
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> EntityTypeList:
        return await entity_type_service.list(actor, listed(limit, cursor, counts=False))


Cron = NamedDependency[CronService]
TRACE_HEADER = "x-trace-id"
# The trace id of a client goes into log lines and headers: printable ASCII without spaces, and not too long.
_TRACE = re.compile(r"[!-~]{1,128}")
_OPT: dict[str, Any] = {"errors": (401, 429, 500, 503), "other_statuses": (202,)}


def trace_middleware(app: ASGIApp) -> ASGIApp:
    """Send the trace id of a ping with its response, whatever the status, and put it into every log line."""

    async def traced(scope: AsgiScope, receive: Receive, send: Send) -> None:
        trace = _trace_id(scope)

        async def with_trace(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (TRACE_HEADER.encode(), trace.encode())]
            await send(message)

        with structlog.contextvars.bound_contextvars(trace_id=trace):
            await app(scope, receive, with_trace)

    return traced


def _trace_id(scope: AsgiScope) -> str:
    """Return the trace id that the client sent if it can be used, else that of the request's trace, or a new one."""
    sent = next((value for name, value in scope["headers"] if name == TRACE_HEADER.encode()), b"").decode("latin-1")
    return sent if _TRACE.fullmatch(sent) else current_trace_id() or uuid4().hex


async def _require_cron_token(connection: AnyConnection, _handler: BaseRouteHandler) -> None:
    """Refuse a ping without the token; a refused one counts as a failed authentication."""
    cron_service: CronService = connection.app.state.cron
    async with counting_failures(connection):
        cron_service.authenticate(bearer_token(connection))


class CronController(Controller):
    """The ping of an external cron."""

    path = "/api/cron"
    tags = ("cron",)
    guards = (_require_cron_token, check_query)
    middleware = (trace_middleware,)

    @post("/run", status_code=200, opt=_OPT, summary="Fire everything that is due now and count the outcomes.")
    async def run(self, request: AnyRequest, cron_service: Cron) -> Response[PingView]:
        return await _ping(request, cron_service)

    @get("/run", opt=_OPT, summary="Fire everything that is due now. The same as POST, for use by hand.")
    async def try_out(self, request: AnyRequest, cron_service: Cron) -> Response[PingView]:
        return await _ping(request, cron_service)


async def _ping(request: AnyRequest, cron_service: CronService) -> Response[PingView]:
    try:
        result = await cron_service.run(bearer_token(request))
    except LockBusyError:
        return Response(PingView(busy=True, message="runner lock busy"), status_code=202)
    return Response(PingView(**msgspec.structs.asdict(result)))


class Alive(msgspec.Struct):
    """The process responds."""

    status: Literal["ok"] = "ok"


class HealthController(Controller):
    """Probes for Kubernetes and load balancers."""

    tags = ("health",)
    guards = (check_query,)

    @get(
        "/health/live",
        summary="Check that the process responds. Does not depend on Postgres or Redis.",
    )
    async def live(self) -> Alive:
        return Alive()

    @get(
        "/health/ready",
        opt={"other_statuses": (503,)},
        summary="Check that requests can be served, and name what is unreachable. Redis is not required.",
    )
    async def ready(self, health_service: NamedDependency[HealthService]) -> Response[Readiness]:
        readiness = await health_service.readiness()
        return Response(readiness, status_code=200 if readiness.postgres == "ok" else 503)


Switches = NamedDependency[SwitchService]


class SettingsController(Controller):
    """Settings that an admin can change at run time."""

    path = "/settings"
    tags = ("settings",)

    @get(
        "/", opt={"errors": (403,), SCOPE: Scope.ADMIN}, summary="Return the settings that can be changed at run time."
    )
    async def read(self, actor: Acting, switch_service: Switches) -> SettingsView:
        return await switch_service.get(actor)

    @patch(
        "/",
        opt={"errors": (403,), SCOPE: Scope.ADMIN},
        summary="Change settings for all processes.",
    )
    async def change(
        self, actor: Acting, switch_service: Switches, data: OptionalBody[SettingsChanges]
    ) -> SettingsView:
        return await switch_service.change(actor, data)
