"""``/api/v1/schedules/{id}/skip`` and ``backfill``: what people do to single slots of a schedule."""

from typing import cast
from uuid import UUID

from litestar import Controller, Response, delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.etags import IF_MATCH
from app.api.requests import KEEPS_TO_RESTRICTIONS, SCOPE, Acting, OptionalBody, Since, Until
from app.domain.access import Scope
from app.services.backfills import BackfillService
from app.services.inputs import BackfillInput, SkipInput, Span
from app.services.skips import SkipService
from app.services.validation import checked
from app.services.views import BackfillDryRun, OperationView, SkippedSlots

Skips = NamedDependency[SkipService]
Backfills = NamedDependency[BackfillService]


class InterventionController(Controller):
    """Slots that are left out, and past ones that run after all."""

    path = "/schedules"
    tags = ("schedules",)
    opt = KEEPS_TO_RESTRICTIONS

    @post(
        "/{schedule_id:uuid}/skip",
        status_code=200,
        opt={"errors": (400, 409), SCOPE: Scope.OPERATE, IF_MATCH: True},
        summary="Leave out slots to come: some by their times, the next ones, or those of a span of time.",
    )
    async def skip(
        self, actor: Acting, skip_service: Skips, schedule_id: FromPath[UUID], data: OptionalBody[SkipInput]
    ) -> SkippedSlots:
        return await skip_service.skip(actor, schedule_id, data)

    @delete(
        "/{schedule_id:uuid}/skip",
        opt={SCOPE: Scope.OPERATE, IF_MATCH: True},
        summary="Let slots fire after all that were to be left out and are still to come: all, or those of a span.",
    )
    async def take_back(
        self,
        actor: Acting,
        skip_service: Skips,
        schedule_id: FromPath[UUID],
        since: Since = None,
        until: Until = None,
    ) -> None:
        await skip_service.take_back(actor, schedule_id, checked({"from": since, "to": until}, Span))

    @post(
        "/{schedule_id:uuid}/backfill",
        status_code=202,
        opt={"errors": (400, 404, 409), "other_responses": {200: BackfillDryRun}, SCOPE: Scope.OPERATE, IF_MATCH: True},
        summary="Run past slots in the background (202), or only say which and for how long (200, `dry_run`).",
    )
    async def backfill(
        self,
        actor: Acting,
        backfill_service: Backfills,
        schedule_id: FromPath[UUID],
        data: OptionalBody[BackfillInput],
    ) -> Response[OperationView]:
        if data.dry_run:
            tried = Response(await backfill_service.try_out(actor, schedule_id, data), status_code=200)
            return cast("Response[OperationView]", tried)
        return Response(await backfill_service.start(actor, schedule_id, data), status_code=202)
