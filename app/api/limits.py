"""``/api/v1/limits``."""

from typing import Annotated

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter

from app.api.requests import Acting, Cursor, Limit, OptionalBody, TeamFilter, listed
from app.services.inputs import LimitChanges, LimitInput, require_limit_name
from app.services.limits import LimitService
from app.services.views import LimitList, LimitView

Limits = NamedDependency[LimitService]
LimitPath = Annotated[str, PathParameter(schema_extra={"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"})]


class LimitController(Controller):
    """Named limits of runs and calls."""

    path = "/limits"
    tags = ("limits",)

    @post(
        "/",
        opt={"errors": (404, 409)},
        summary="Create a limit, which schedules and workflows can name.",
    )
    async def create(self, actor: Acting, limit_service: Limits, data: JSONBody[LimitInput]) -> LimitView:
        return await limit_service.create(actor, data)

    @get("/", summary="List your limits, those of your teams and the public ones, newest first.")
    async def list_all(
        self,
        actor: Acting,
        limit_service: Limits,
        team_id: TeamFilter = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> LimitList:
        return await limit_service.list(actor, listed(limit, cursor, counts=False), team_id)

    @get("/{limit_name:str}", summary="Return the limit of this name: yours, else a team's, else a public one.")
    async def read(
        self, actor: Acting, limit_service: Limits, limit_name: LimitPath, team_id: TeamFilter = None
    ) -> LimitView:
        return await limit_service.get(actor, require_limit_name(limit_name), team_id)

    @patch(
        "/{limit_name:str}",
        opt={"errors": (404,)},
        summary="Change the bounds of a limit. They hold at once, also for runs that wait.",
    )
    async def change(
        self,
        actor: Acting,
        limit_service: Limits,
        limit_name: LimitPath,
        data: OptionalBody[LimitChanges],
        team_id: TeamFilter = None,
    ) -> LimitView:
        return await limit_service.change(actor, require_limit_name(limit_name), data, team_id)

    @delete(
        "/{limit_name:str}",
        opt={"errors": (404, 409)},
        summary="Delete a limit. One that a schedule or a workflow names is kept.",
    )
    async def remove(
        self, actor: Acting, limit_service: Limits, limit_name: LimitPath, team_id: TeamFilter = None
    ) -> None:
        await limit_service.delete(actor, require_limit_name(limit_name), team_id)
