"""``/api/v1/teams``: teams and their members."""

from typing import Annotated

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from app.api.requests import Acting, Cursor, Id, Limit, OptionalBody, listed
from app.services.inputs import INT_MAX, MemberChanges, MemberInput, TeamChanges, TeamInput
from app.services.removal import Fate
from app.services.teams import TeamService
from app.services.views import MemberList, MemberView, TeamList, TeamView

Teams = NamedDependency[TeamService]


class TeamController(Controller):
    """Teams: owners of objects that several users share. Owners of a team decide who belongs to it."""

    path = "/teams"
    tags = ("teams",)

    @get("/", summary="List the teams that you belong to; as an admin, all teams.")
    async def list_all(self, actor: Acting, team_service: Teams, limit: Limit = 500, cursor: Cursor = None) -> TeamList:
        return await team_service.list(actor, listed(limit, cursor, counts=False))

    @post("/", opt={"errors": (409,)}, summary="Create a team. You are its first owner.")
    async def create(self, actor: Acting, team_service: Teams, data: JSONBody[TeamInput]) -> TeamView:
        return await team_service.create(actor, data)

    @get("/{team_id:int}", summary="Return a team.")
    async def read(self, actor: Acting, team_service: Teams, team_id: Id) -> TeamView:
        return await team_service.get(actor, team_id)

    @patch("/{team_id:int}", opt={"errors": (403, 409)}, summary="Rename a team.")
    async def change(
        self, actor: Acting, team_service: Teams, team_id: Id, data: OptionalBody[TeamChanges]
    ) -> TeamView:
        return await team_service.change(actor, team_id, data)

    @delete(
        "/{team_id:int}",
        opt={"errors": (403, 409)},
        summary="Delete a team. `schedules` says what becomes of what the team has.",
    )
    async def remove(
        self,
        actor: Acting,
        team_service: Teams,
        team_id: Id,
        schedules: Annotated[Fate | None, QueryParameter()] = None,
        to: Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)] = None,
    ) -> None:
        await team_service.delete(actor, team_id, schedules, to)

    @get("/{team_id:int}/members", summary="List the members of a team.")
    async def members(
        self, actor: Acting, team_service: Teams, team_id: Id, limit: Limit = 500, cursor: Cursor = None
    ) -> MemberList:
        return await team_service.members(actor, team_id, listed(limit, cursor, counts=False))

    @post("/{team_id:int}/members", opt={"errors": (403, 409)}, summary="Add a user to a team.")
    async def add_member(
        self, actor: Acting, team_service: Teams, team_id: Id, data: JSONBody[MemberInput]
    ) -> MemberView:
        return await team_service.add_member(actor, team_id, data)

    @patch("/{team_id:int}/members/{user_id:int}", opt={"errors": (403, 409)}, summary="Change the role of a member.")
    async def change_member(
        self, actor: Acting, team_service: Teams, team_id: Id, user_id: Id, data: OptionalBody[MemberChanges]
    ) -> MemberView:
        return await team_service.change_member(actor, team_id, user_id, data)

    @delete(
        "/{team_id:int}/members/{user_id:int}",
        opt={"errors": (403, 409)},
        summary="Remove a member from a team. Members may leave by themselves.",
    )
    async def remove_member(self, actor: Acting, team_service: Teams, team_id: Id, user_id: Id) -> None:
        await team_service.remove_member(actor, team_id, user_id)
