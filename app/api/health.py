"""``/health``: for probes, without a token."""

from typing import Literal

import msgspec
from litestar import Controller, Response, get
from litestar.di import NamedDependency

from app.services.system import HealthService, Readiness


class Alive(msgspec.Struct):
    """The process answers."""

    status: Literal["ok"] = "ok"


class HealthController(Controller):
    """Health."""

    tags = ("health",)

    @get("/health/live", opt={"open": True})
    async def live(self) -> Alive:
        """Whether the process answers; independent of Postgres and Redis."""
        return Alive()

    @get("/health/ready", opt={"open": True, "other_statuses": (503,)})
    async def ready(self, health_service: NamedDependency[HealthService]) -> Response[Readiness]:
        """Whether requests can be served, and what is away. Without Redis they can; schedules fire from Postgres."""
        readiness = await health_service.readiness()
        return Response(readiness, status_code=200 if readiness.postgres == "ok" else 503)
