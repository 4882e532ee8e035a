"""``/api/v1/executions``: runs, and the callbacks of targets that report their result later."""

from typing import Annotated
from uuid import UUID

from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from app.api.etags import IF_MATCH
from app.api.requests import (
    KEEPS_TO_RESTRICTIONS,
    LEASABLE,
    SCOPE,
    Acting,
    AnyRequest,
    Cursor,
    Limit,
    Offset,
    OptionalBody,
    TeamFilter,
    TextFilter,
    WorkflowFilter,
    check_query,
    count_callback,
    counting_failures,
    listed,
    require_bearer_token,
    required_token,
)
from app.domain.access import Scope
from app.domain.executions import ExecutionStatus
from app.services.executions import CallbackService, ExecutionService, ManualRunService
from app.services.inputs import CompletionInput, RunInput
from app.services.views import AcceptedView, ExecutionDetail, ExecutionPage, ExecutionView

Executions = NamedDependency[ExecutionService]


class ExecutionController(Controller):
    """Executions: the runs of workflows."""

    path = "/executions"
    tags = ("executions",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", summary="List executions, newest first. Pass `next_cursor` as `cursor` to get the next page.")
    async def list_all(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        execution_service: Executions,
        scheduled_job_id: Annotated[UUID | None, QueryParameter()] = None,
        workflow_id: WorkflowFilter = None,
        entity_type: TextFilter = None,
        entity_id: TextFilter = None,
        status: Annotated[ExecutionStatus | None, QueryParameter()] = None,
        active: Annotated[bool | None, QueryParameter()] = None,
        team_id: TeamFilter = None,
        limit: Limit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
    ) -> ExecutionPage:
        filters = {
            "scheduled_job_id": scheduled_job_id,
            "workflow_id": workflow_id,
            "entity_type": entity_type,
            "entity_id": entity_id,
            "status": status,
            "active": active,
        }
        return await execution_service.list(actor, filters, listed(limit, cursor, offset), team_id)

    @get("/{execution_id:uuid}", summary="Return one execution with the result of each node.")
    async def read(self, actor: Acting, execution_service: Executions, execution_id: FromPath[UUID]) -> ExecutionDetail:
        return await execution_service.get(actor, execution_id)

    @post(
        "/{execution_id:uuid}/cancel",
        status_code=200,
        opt={"errors": (400,), SCOPE: Scope.OPERATE, LEASABLE: True},
        summary="Cancel an execution that is pending or running.",
    )
    async def cancel(
        self, actor: Acting, execution_service: Executions, execution_id: FromPath[UUID]
    ) -> ExecutionDetail:
        return await execution_service.cancel(actor, execution_id)

    @post(
        "/{execution_id:uuid}/again",
        status_code=202,
        opt={"errors": (400, 409), SCOPE: Scope.OPERATE, IF_MATCH: True, LEASABLE: True},
        summary="Run the schedule of an execution now, with the payload that the execution had.",
    )
    async def again(
        self,
        actor: Acting,
        manual_run_service: NamedDependency[ManualRunService],
        execution_id: FromPath[UUID],
        data: OptionalBody[RunInput],
    ) -> ExecutionView:
        return await manual_run_service.again(actor, execution_id, data)


Callbacks = NamedDependency[CallbackService]


class CallbackController(Controller):
    """Callbacks to executions that wait for a target's result."""

    path = "/executions"
    tags = ("callbacks",)
    # The services check whether the token is valid, in the transaction in which it is used.
    guards = (require_bearer_token, check_query)

    @post(
        "/{execution_id:uuid}/complete",
        status_code=200,
        opt={"errors": (409,)},
        summary="Report the result of work that was started earlier. The nodes that follow run now.",
    )
    async def complete(
        self,
        request: AnyRequest,
        callback_service: Callbacks,
        execution_id: FromPath[UUID],
        data: JSONBody[CompletionInput],
    ) -> AcceptedView:
        async with counting_failures(request):
            return await callback_service.complete(execution_id, required_token(request), data)

    @post(
        "/{execution_id:uuid}/heartbeat",
        status_code=200,
        opt={"errors": (409,)},
        summary="Report that the work is still in progress. Its deadline does not move.",
    )
    async def heartbeat(
        self, request: AnyRequest, callback_service: Callbacks, execution_id: FromPath[UUID]
    ) -> AcceptedView:
        async with counting_failures(request):
            token = required_token(request)
            accepted = await callback_service.heartbeat(execution_id, token)
        await count_callback(request, token)
        return accepted
