"""``/api/v1/forecast``: the load to come, and how to spread it."""

from litestar import Controller, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from app.api.requests import KEEPS_TO_RESTRICTIONS, LEASABLE, SCOPE, Acting, OptionalBody
from app.domain.access import Scope
from app.services.forecasts import ForecastService
from app.services.inputs import ForecastInput, SpreadInput
from app.services.spread import SpreadService
from app.services.views import ForecastView, SpreadView


class ForecastController(Controller):
    """Forecasts of load."""

    path = "/forecast"
    tags = ("forecast",)
    opt = KEEPS_TO_RESTRICTIONS

    @post(
        "/",
        status_code=200,
        opt={"errors": (404,), SCOPE: Scope.READ, LEASABLE: True},
        summary="Say how much of what you see will fire when, also with drafts and changes. Nothing is stored.",
    )
    async def forecast(
        self,
        actor: Acting,
        forecast_service: NamedDependency[ForecastService],
        data: OptionalBody[ForecastInput],
    ) -> ForecastView:
        return await forecast_service.forecast(actor, data)

    @post(
        "/spread",
        status_code=200,
        opt={SCOPE: Scope.READ, LEASABLE: True},
        summary="Propose changes that lower the peak of the next day, within bounds. Nothing is stored.",
    )
    async def spread(
        self, actor: Acting, spread_service: NamedDependency[SpreadService], data: JSONBody[SpreadInput]
    ) -> SpreadView:
        return await spread_service.propose(actor, data)
