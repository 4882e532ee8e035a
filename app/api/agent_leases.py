"""``/api/v1/leases``: what agents may make, and until when."""

from litestar import Controller, get, patch, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from app.api.etags import IF_MATCH
from app.api.requests import NO_STORE, Acting, Cursor, Id, Limit, OptionalBody, listed
from app.services.agent_leases import AgentLeaseService
from app.services.inputs import AdoptInput, ApproveInput, LeaseChanges, LeaseInput, NoteInput
from app.services.views.leases import FreshLeaseView, LeaseList, LeaseView

Leases = NamedDependency[AgentLeaseService]


class AgentLeaseController(Controller):
    """Leases: this agent, for this purpose, may make so much, until then."""

    path = "/leases"
    tags = ("leases",)

    @get("/", summary="List your leases, newest first; as an admin, all leases.")
    async def list_all(
        self, actor: Acting, lease_service: Leases, limit: Limit = 50, cursor: Cursor = None
    ) -> LeaseList:
        return await lease_service.list(actor, listed(limit, cursor, counts=False))

    @post(
        "/",
        opt={"errors": (403, 404, 409)},
        response_headers=NO_STORE,
        summary="Grant a lease to an agent. The agent's token is shown only in this response.",
    )
    async def create(self, actor: Acting, lease_service: Leases, data: JSONBody[LeaseInput]) -> FreshLeaseView:
        return await lease_service.grant(actor, data)

    @get("/{lease_id:int}", summary="Return a lease, what of it is used, and its schedules.")
    async def read(self, actor: Acting, lease_service: Leases, lease_id: Id) -> LeaseView:
        return await lease_service.get(actor, lease_id)

    @patch(
        "/{lease_id:int}",
        opt={"errors": (400,)},
        summary="Change the terms of a lease. Another end also holds for its schedules.",
    )
    async def change(
        self, actor: Acting, lease_service: Leases, lease_id: Id, data: OptionalBody[LeaseChanges]
    ) -> LeaseView:
        return await lease_service.change(actor, lease_id, data)

    @post(
        "/{lease_id:int}/revoke",
        status_code=200,
        opt={"errors": (400,), IF_MATCH: True},
        summary="End a lease now: its token is refused, its schedules are paused, and what they run is cancelled.",
    )
    async def revoke(
        self, actor: Acting, lease_service: Leases, lease_id: Id, data: OptionalBody[NoteInput]
    ) -> LeaseView:
        return await lease_service.revoke(actor, lease_id, data)

    @post(
        "/{lease_id:int}/approve",
        status_code=200,
        opt={"errors": (400,), IF_MATCH: True},
        summary="Approve the schedules of a lease that await review. Those that were paused for it begin.",
    )
    async def approve(
        self, actor: Acting, lease_service: Leases, lease_id: Id, data: OptionalBody[ApproveInput]
    ) -> LeaseView:
        return await lease_service.approve(actor, lease_id, data)

    @post(
        "/{lease_id:int}/adopt",
        status_code=200,
        opt={IF_MATCH: True},
        summary="Take schedules out of their lease: they are yours, without its bounds. By default all of them.",
    )
    async def adopt(
        self, actor: Acting, lease_service: Leases, lease_id: Id, data: OptionalBody[AdoptInput]
    ) -> LeaseView:
        return await lease_service.adopt(actor, lease_id, data)
