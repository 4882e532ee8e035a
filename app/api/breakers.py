"""``/api/v1/breakers``."""

from litestar import Controller, get, post
from litestar.di import NamedDependency

from app.api.parameters import Cursor, Id, Limit, listed
from app.api.requests import Acting
from app.services.breakers import BreakerService
from app.services.views import BreakerDetail, BreakerList

Breakers = NamedDependency[BreakerService]


class BreakerController(Controller):
    """The circuit breakers of workflows."""

    path = "/breakers"
    tags = ("breakers",)

    @get("/")
    async def list_all(
        self, actor: Acting, breaker_service: Breakers, limit: Limit = 500, cursor: Cursor = None
    ) -> BreakerList:
        """List the breakers of the workflows that have one."""
        return await breaker_service.list(actor, listed(limit, cursor, counts=False))

    @get("/{workflow_id:int}")
    async def read(self, actor: Acting, breaker_service: Breakers, workflow_id: Id, limit: Limit = 20) -> BreakerDetail:
        """Read one breaker, with its latest transitions."""
        return await breaker_service.get(actor, workflow_id, limit)

    @post("/{workflow_id:int}/reset", status_code=200)
    async def reset(
        self, actor: Acting, breaker_service: Breakers, workflow_id: Id, limit: Limit = 20
    ) -> BreakerDetail:
        """Close a breaker by hand."""
        return await breaker_service.reset(actor, workflow_id, limit)
