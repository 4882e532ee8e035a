"""``/api/v1/schedules/bulk`` and ``/api/v1/operations``: changes of many schedules, in the background."""

from typing import cast
from uuid import UUID

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from app.api.requests import KEEPS_TO_RESTRICTIONS, SCOPE, Acting, Cursor, Limit, OptionalBody, listed
from app.domain.access import Scope
from app.services.bulk_operations import BulkService
from app.services.inputs import BulkInput, Input
from app.services.views import DryRunView, OperationList, OperationView

Bulk = NamedDependency[BulkService]


class BulkController(Controller):
    """Changes of many schedules."""

    path = "/schedules/bulk"
    tags = ("operations",)
    opt = KEEPS_TO_RESTRICTIONS

    @post(
        "/",
        status_code=202,
        opt={"errors": (404, 409), "other_responses": {200: DryRunView}, SCOPE: Scope.OPERATE},
        summary="Change many schedules in the background (202), or only say what would change (200, `dry_run`).",
    )
    async def start(self, actor: Acting, bulk_service: Bulk, data: JSONBody[BulkInput]) -> Response[OperationView]:
        if data.dry_run:
            tried = Response(await bulk_service.try_out(actor, data), status_code=200)
            return cast("Response[OperationView]", tried)
        return Response(await bulk_service.start(actor, data), status_code=202)


class OperationController(Controller):
    """Operations on many schedules: how far they are, and how they are stopped and undone."""

    path = "/operations"
    tags = ("operations",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", opt={"restrictable": False}, summary="List the operations that you have started, newest first.")
    async def list_all(
        self, actor: Acting, bulk_service: Bulk, limit: Limit = 50, cursor: Cursor = None
    ) -> OperationList:
        return await bulk_service.list(actor, listed(limit, cursor, counts=False))

    @get("/{operation_id:uuid}", summary="Return an operation, with its progress and the first rows that failed.")
    async def read(self, actor: Acting, bulk_service: Bulk, operation_id: FromPath[UUID]) -> OperationView:
        return await bulk_service.get(actor, operation_id)

    @post(
        "/{operation_id:uuid}/pause",
        status_code=200,
        opt={SCOPE: Scope.OPERATE, "errors": (400,)},
        summary="Stop an operation until it is resumed. What it has changed stays changed.",
    )
    async def pause(
        self,
        actor: Acting,
        bulk_service: Bulk,
        operation_id: FromPath[UUID],
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
    ) -> OperationView:
        return await bulk_service.pause(actor, operation_id)

    @post(
        "/{operation_id:uuid}/resume",
        status_code=200,
        opt={SCOPE: Scope.OPERATE, "errors": (400,)},
        summary="Let a paused operation go on.",
    )
    async def resume(
        self,
        actor: Acting,
        bulk_service: Bulk,
        operation_id: FromPath[UUID],
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
    ) -> OperationView:
        return await bulk_service.resume(actor, operation_id)

    @post(
        "/{operation_id:uuid}/cancel",
        status_code=200,
        opt={SCOPE: Scope.OPERATE, "errors": (400,)},
        summary="End an operation. What it has changed stays changed, and can be undone.",
    )
    async def cancel(
        self,
        actor: Acting,
        bulk_service: Bulk,
        operation_id: FromPath[UUID],
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
    ) -> OperationView:
        return await bulk_service.cancel(actor, operation_id)

    @post(
        "/{operation_id:uuid}/undo",
        status_code=202,
        opt={SCOPE: Scope.OPERATE, "errors": (400,)},
        summary="Restore what an operation has changed, by a new operation. What was changed since is left alone.",
    )
    async def undo(
        self,
        actor: Acting,
        bulk_service: Bulk,
        operation_id: FromPath[UUID],
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
    ) -> OperationView:
        return await bulk_service.undo(actor, operation_id)
