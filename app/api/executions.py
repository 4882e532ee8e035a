"""``/api/v1/executions``."""

from typing import Annotated
from uuid import UUID

from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from app.api.parameters import Cursor, Limit, Offset, WorkflowFilter, listed
from app.api.requests import Acting
from app.domain.executions import ExecutionStatus
from app.services.executions_part import ExecutionService
from app.services.views import ExecutionDetail, ExecutionPage

Executions = NamedDependency[ExecutionService]
EntityFilter = Annotated[str | None, QueryParameter(max_length=255, pattern=r"^[^\x00]*$")]


class ExecutionController(Controller):
    """Executions: the runs of workflows."""

    path = "/executions"
    tags = ("executions",)

    @get("/")
    async def list_all(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        execution_service: Executions,
        scheduled_job_id: Annotated[UUID | None, QueryParameter()] = None,
        workflow_id: WorkflowFilter = None,
        entity_type: EntityFilter = None,
        entity_id: EntityFilter = None,
        status: Annotated[ExecutionStatus | None, QueryParameter()] = None,
        limit: Limit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
    ) -> ExecutionPage:
        """List executions, newest first; a cursor goes on where the part before ended."""
        wanted = {
            "scheduled_job_id": scheduled_job_id,
            "workflow_id": workflow_id,
            "entity_type": entity_type,
            "entity_id": entity_id,
            "status": status,
        }
        return await execution_service.list(actor, wanted, listed(limit, cursor, offset))

    @get("/{execution_id:uuid}")
    async def read(self, actor: Acting, execution_service: Executions, execution_id: FromPath[UUID]) -> ExecutionDetail:
        """Read one execution, with what each node did."""
        return await execution_service.get(actor, execution_id)

    @post("/{execution_id:uuid}/cancel", status_code=200, opt={"errors": (400,)})
    async def cancel(
        self, actor: Acting, execution_service: Executions, execution_id: FromPath[UUID]
    ) -> ExecutionDetail:
        """Cancel an execution that is pending or running."""
        return await execution_service.cancel(actor, execution_id)
