"""``/api/v1/workflows`` and ``/api/v1/breakers``."""

from typing import Any

from litestar import Controller, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody

from app.api.filters import KeyInPath, key_of, new_key_of
from app.api.requests import (
    KEEPS_TO_RESTRICTIONS,
    RESTRICTABLE,
    SCOPE,
    Acting,
    AnyRequest,
    Cursor,
    Id,
    Limit,
    Offset,
    OptionalBody,
    TeamFilter,
    listed,
)
from app.domain.access import Scope
from app.services.inputs import WorkflowChanges, WorkflowInput
from app.services.views import BreakerDetail, BreakerList, HistoryList, ValidationView, WorkflowPage, WorkflowView
from app.services.workflows import BreakerService, WorkflowService

Workflows = NamedDependency[WorkflowService]


class WorkflowController(Controller):
    """Workflows: what a schedule runs."""

    path = "/workflows"
    tags = ("workflows",)
    opt = KEEPS_TO_RESTRICTIONS

    @post(
        "/",
        opt={"errors": (404, 409), RESTRICTABLE: False},
        summary="Create a workflow, of a team if `team_id` names one.",
    )
    async def create(self, actor: Acting, workflow_service: Workflows, data: JSONBody[WorkflowInput]) -> WorkflowView:
        return await workflow_service.create(actor, data)

    @post(
        "/validate",
        status_code=200,
        opt={RESTRICTABLE: False, SCOPE: Scope.READ},
        summary="Say whether a workflow could be created (its body is that of a POST), and what is wrong with it.",
    )
    async def validate(
        self, actor: Acting, workflow_service: Workflows, data: OptionalBody[dict[str, Any]]
    ) -> ValidationView:
        return await workflow_service.validate(actor, data)

    @get("/by-key/{key:path}", summary="Return the workflow with this key, of a team if `team_id` names one.")
    async def read_by_key(
        self,
        request: AnyRequest,
        actor: Acting,
        workflow_service: Workflows,
        key: KeyInPath,
        team_id: TeamFilter = None,
    ) -> WorkflowView:
        workflow_id = await workflow_service.id_of_key(actor, key_of(key, request), team_id)
        return await workflow_service.get(actor, workflow_id)

    @put(
        "/by-key/{key:path}",
        opt={"errors": (404, 409), "other_statuses": (201,), RESTRICTABLE: False},
        summary="Create the workflow with this key (201), or change it where it differs (200).",
    )
    async def put_by_key(
        self,
        request: AnyRequest,
        actor: Acting,
        workflow_service: Workflows,
        key: KeyInPath,
        data: JSONBody[WorkflowInput],
    ) -> Response[WorkflowView]:
        view, is_new = await workflow_service.put(actor, new_key_of(key, request), data)
        return Response(view, status_code=201 if is_new else 200)

    @delete("/by-key/{key:path}", summary="Delete the workflow with this key and its schedules.")
    async def remove_by_key(
        self,
        request: AnyRequest,
        actor: Acting,
        workflow_service: Workflows,
        key: KeyInPath,
        team_id: TeamFilter = None,
    ) -> None:
        await workflow_service.delete(actor, await workflow_service.id_of_key(actor, key_of(key, request), team_id))

    @get("/", summary="List workflows, newest first.")
    async def list_all(
        self,
        actor: Acting,
        workflow_service: Workflows,
        team_id: TeamFilter = None,
        limit: Limit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
    ) -> WorkflowPage:
        return await workflow_service.list(actor, listed(limit, cursor, offset), team_id)

    @get("/{workflow_id:int}", summary="Return one workflow.")
    async def read(self, actor: Acting, workflow_service: Workflows, workflow_id: Id) -> WorkflowView:
        return await workflow_service.get(actor, workflow_id)

    @patch(
        "/{workflow_id:int}",
        opt={"errors": (409,)},
        summary="Change some fields of a workflow.",
    )
    async def change(
        self,
        actor: Acting,
        workflow_service: Workflows,
        workflow_id: Id,
        data: OptionalBody[WorkflowChanges],
    ) -> WorkflowView:
        return await workflow_service.change(actor, workflow_id, data)

    @get(
        "/{workflow_id:int}/history",
        summary="List every change of a workflow, newest first: who, when, and the values before and after.",
    )
    async def history(
        self, actor: Acting, workflow_service: Workflows, workflow_id: Id, limit: Limit = 100, cursor: Cursor = None
    ) -> HistoryList:
        return await workflow_service.history(actor, workflow_id, limit, cursor)

    @delete("/{workflow_id:int}", summary="Delete a workflow and its schedules.")
    async def remove(self, actor: Acting, workflow_service: Workflows, workflow_id: Id) -> None:
        await workflow_service.delete(actor, workflow_id)


Breakers = NamedDependency[BreakerService]


class BreakerController(Controller):
    """The circuit breakers of workflows."""

    path = "/breakers"
    tags = ("breakers",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", summary="List the circuit breakers of all workflows that have one.")
    async def list_all(
        self,
        actor: Acting,
        breaker_service: Breakers,
        team_id: TeamFilter = None,
        limit: Limit = 500,
        cursor: Cursor = None,
    ) -> BreakerList:
        return await breaker_service.list(actor, listed(limit, cursor, counts=False), team_id)

    @get("/{workflow_id:int}", summary="Return the breaker of a workflow with its latest transitions.")
    async def read(self, actor: Acting, breaker_service: Breakers, workflow_id: Id, limit: Limit = 20) -> BreakerDetail:
        return await breaker_service.get(actor, workflow_id, limit)

    @post("/{workflow_id:int}/reset", status_code=200, opt={SCOPE: Scope.OPERATE}, summary="Close a breaker by hand.")
    async def reset(
        self, actor: Acting, breaker_service: Breakers, workflow_id: Id, limit: Limit = 20
    ) -> BreakerDetail:
        return await breaker_service.reset(actor, workflow_id, limit)
