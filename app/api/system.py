"""``/metrics``: for Prometheus, on the API's own port unless it has another one for them."""

import hmac

import msgspec
from litestar import Controller, get
from litestar.di import NamedDependency

from app.api.requests import AnyRequest, bearer_token, counting_failures
from app.domain.errors import UnauthenticatedError
from app.observability.metrics import CONTENT_TYPE, exposition
from app.observability.serving import Health
from app.services.figures import FigureService
from app.services.system import HealthService


class MetricsController(Controller):
    """Metrics."""

    tags = ("health",)

    @get("/metrics", media_type=CONTENT_TYPE, opt={"open": True, "errors": (401, 429)})
    async def metrics(self, request: AnyRequest, figure_service: NamedDependency[FigureService]) -> str:
        """What there is to measure, in Prometheus's text format."""
        async with counting_failures(request):
            _require_token(request)
        await figure_service.refresh()
        return exposition().decode()


def _require_token(request: AnyRequest) -> None:
    """Refuse a scraper without the token, where one is set."""
    wanted: str = request.app.state.metrics_token
    if wanted and not hmac.compare_digest((bearer_token(request) or "").encode(), wanted.encode()):
        raise UnauthenticatedError


class ApiAnswers:
    """What the API answers on a port of its own for metrics."""

    def __init__(self, health: HealthService, figures: FigureService) -> None:
        """Ask these."""
        self._health = health
        self._figures = figures

    async def live(self) -> bool:
        """A process that answers is alive."""
        return True

    async def ready(self) -> Health:
        """As ``/health/ready`` of the API."""
        found = await self._health.readiness()
        return Health(found.postgres == "ok", msgspec.json.encode(found))

    async def metrics(self) -> bytes:
        """As ``/metrics`` of the API."""
        await self._figures.refresh()
        return exposition()
