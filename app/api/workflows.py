"""``/api/v1/workflows``."""

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency

from app.api.parameters import Cursor, Id, Limit, Offset, listed
from app.api.requests import Acting, AnyRequest, body
from app.services.inputs import WorkflowChanges, WorkflowInput
from app.services.views import HistoryList, WorkflowPage, WorkflowView
from app.services.workflows import WorkflowService

Workflows = NamedDependency[WorkflowService]


class WorkflowController(Controller):
    """Workflows: what a schedule runs."""

    path = "/workflows"
    tags = ("workflows",)

    @post("/", opt={"body": WorkflowInput, "errors": (409,)})
    async def create(self, request: AnyRequest, actor: Acting, workflow_service: Workflows) -> WorkflowView:
        """Create a workflow."""
        return await workflow_service.create(actor, await body(request, WorkflowInput))

    @get("/")
    async def list_all(
        self, actor: Acting, workflow_service: Workflows, limit: Limit = 50, offset: Offset = 0, cursor: Cursor = None
    ) -> WorkflowPage:
        """List workflows, newest first."""
        return await workflow_service.list(actor, listed(limit, cursor, offset))

    @get("/{workflow_id:int}")
    async def read(self, actor: Acting, workflow_service: Workflows, workflow_id: Id) -> WorkflowView:
        """Read one workflow."""
        return await workflow_service.get(actor, workflow_id)

    @patch("/{workflow_id:int}", opt={"body": WorkflowChanges, "body_optional": True})
    async def change(
        self, request: AnyRequest, actor: Acting, workflow_service: Workflows, workflow_id: Id
    ) -> WorkflowView:
        """Change some fields."""
        return await workflow_service.change(actor, workflow_id, await body(request, WorkflowChanges))

    @get("/{workflow_id:int}/history")
    async def history(
        self, actor: Acting, workflow_service: Workflows, workflow_id: Id, limit: Limit = 100, cursor: Cursor = None
    ) -> HistoryList:
        """List every change of a workflow, newest first: by whom, when, and what it was before and after."""
        return await workflow_service.history(actor, workflow_id, limit, cursor)

    @delete("/{workflow_id:int}")
    async def remove(self, actor: Acting, workflow_service: Workflows, workflow_id: Id) -> None:
        """Delete a workflow, and with it its schedules."""
        await workflow_service.delete(actor, workflow_id)
