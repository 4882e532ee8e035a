"""``/api/cron``: one call that fires whatever is due."""

import re
from typing import Any
from uuid import uuid4

import structlog
from litestar import Controller, Response, get, post
from litestar.di import NamedDependency

from app.api.requests import AnyRequest, bearer_token, counting_failures
from app.api.tracing import current_trace_id
from app.engine.locking import LockBusyError
from app.services.cron import CronService
from app.services.views import PingView

Cron = NamedDependency[CronService]
TRACE_HEADER = "x-trace-id"
# What is put into log lines and sent back is not whatever anybody sends.
_TRACE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_OPT: dict[str, Any] = {"open": True, "errors": (401, 429, 503), "other_statuses": (202,)}


class CronController(Controller):
    """The ping that an outside cron sends."""

    path = "/api/cron"
    tags = ("cron",)

    @post("/run", status_code=200, opt=_OPT)
    async def run(self, request: AnyRequest, cron_service: Cron) -> Response[PingView]:
        """Fire whatever is due now, and say what became of it."""
        return await _answered(request, cron_service)

    @get("/run", opt=_OPT)
    async def try_out(self, request: AnyRequest, cron_service: Cron) -> Response[PingView]:
        """The same, for trying it out by hand."""
        return await _answered(request, cron_service)


async def _answered(request: AnyRequest, cron_service: CronService) -> Response[PingView]:
    given = request.headers.get(TRACE_HEADER, "")
    trace = given if _TRACE.fullmatch(given) else current_trace_id() or uuid4().hex
    with structlog.contextvars.bound_contextvars(trace_id=trace):
        try:
            async with counting_failures(request):
                done = await cron_service.run(bearer_token(request))
        except LockBusyError:
            busy = PingView(busy=True, message="runner lock busy")
            return Response(busy, status_code=202, headers={TRACE_HEADER: trace})
    counts = {name: getattr(done, name) for name in done.__struct_fields__}
    return Response(PingView(**counts), headers={TRACE_HEADER: trace})
