"""``/api/v1/workflows`` and ``/api/v1/breakers``."""

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency

from app.api.requests import Acting, AnyRequest, Cursor, Id, Limit, Offset, body, listed
from app.services.inputs import WorkflowChanges, WorkflowInput
from app.services.views import BreakerDetail, BreakerList, HistoryList, WorkflowPage, WorkflowView
from app.services.workflows import BreakerService, WorkflowService

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
