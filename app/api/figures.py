"""``overview``, ``stats``, ``workers`` and ``live`` below ``/api/v1``: the state of the whole, figures over time."""

from typing import Annotated, Any

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from litestar.response import Stream

from app.api.cookies import session_secret
from app.api.requests import (
    KEEPS_TO_RESTRICTIONS,
    SCOPE,
    STREAM,
    Acting,
    AnyRequest,
    Cursor,
    Limit,
    Since,
    Until,
    WorkflowFilter,
    bearer_token,
    listed,
)
from app.domain.access import Scope
from app.services.inputs import Span
from app.services.live import Credential, LiveService
from app.services.overview import FigureRequest, OverviewService
from app.services.validation import checked
from app.services.views.figures import LatenessFigures, OutcomeFigures, OverviewView, PulseView, WorkerList

Overview = NamedDependency[OverviewService]
Step = Annotated[int, QueryParameter(ge=60, le=604_800, schema_extra={"multipleOf": 60})]
EVENT_STREAM = "text/event-stream"
# nginx would hold the messages back until its buffer is full.
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class OverviewController(Controller):
    """The state of the whole."""

    path = "/overview"
    tags = ("overview",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", summary="Count the schedules that you see by status and health, and list what needs attention.")
    async def read(self, actor: Acting, overview_service: Overview) -> OverviewView:
        return await overview_service.overview(actor)


class FigureController(Controller):
    """Figures over time."""

    path = "/stats"
    tags = ("stats",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/outcomes/", summary="Count what became of the slots that you see, by steps of time.")
    async def outcomes(
        self,
        actor: Acting,
        overview_service: Overview,
        since: Since = None,
        until: Until = None,
        step: Step = 60,
        workflow_id: WorkflowFilter = None,
    ) -> OutcomeFigures:
        return await overview_service.outcomes(actor, _request(since, until, step, workflow_id))

    @get(
        "/lateness/", summary="Return how late runs that you see started, by steps of time. Jittered ones are left out."
    )
    async def lateness(
        self,
        actor: Acting,
        overview_service: Overview,
        since: Since = None,
        until: Until = None,
        step: Step = 60,
        workflow_id: WorkflowFilter = None,
    ) -> LatenessFigures:
        return await overview_service.lateness(actor, _request(since, until, step, workflow_id))


def _request(since: str | None, until: str | None, step: int, workflow_id: int | None) -> FigureRequest:
    span = checked({"from": since, "to": until}, Span)
    return FigureRequest(since=span.since, until=span.until, step_seconds=step, workflow_id=workflow_id)


class WorkerController(Controller):
    """The worker processes."""

    path = "/workers"
    tags = ("workers",)

    @get(
        "/", opt={"errors": (403,), SCOPE: Scope.ADMIN}, summary="List the workers with their leases and running runs."
    )
    async def list_all(
        self, actor: Acting, overview_service: Overview, limit: Limit = 100, cursor: Cursor = None
    ) -> WorkerList:
        return await overview_service.workers(actor, listed(limit, cursor, counts=False))


class LiveController(Controller):
    """What changes from second to second."""

    path = "/live"
    tags = ("live",)
    opt = KEEPS_TO_RESTRICTIONS

    @get(
        "/",
        media_type=EVENT_STREAM,
        summary="Stream server-sent events: a `pulse` each second, until the token or session ends.",
    )
    async def watch(
        self, request: AnyRequest, actor: Acting, live_service: NamedDependency[LiveService]
    ) -> Response[PulseView]:
        token = bearer_token(request)
        credential = Credential(token) if token is not None else Credential(secret=session_secret(request))
        request.scope["state"][STREAM] = True
        stream: Response[Any] = Stream(
            live_service.watch(actor, credential), media_type=EVENT_STREAM, headers=STREAM_HEADERS
        )
        return stream
