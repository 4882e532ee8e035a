"""``/api/v1/calendars``."""

from typing import Annotated

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter

from app.api.accounts import Owner
from app.api.requests import LEASABLE, SCOPE, Acting, Cursor, Limit, OptionalBody, TeamFilter
from app.domain.access import Scope
from app.domain.icalendar import MAX_BYTES
from app.persistence.pagination import Part
from app.services.calendars import CalendarService, Named
from app.services.inputs import CALENDAR_NAME_PATTERN, CalendarChanges, CalendarInput, CalendarPlanInput
from app.services.views import CalendarList, CalendarPlanView, CalendarView

Calendars = NamedDependency[CalendarService]
CalendarName = Annotated[str, PathParameter(schema_extra={"pattern": CALENDAR_NAME_PATTERN})]


class CalendarController(Controller):
    """Named dates and times, by which schedules leave slots out or keep only some."""

    path = "/calendars"
    tags = ("calendars",)
    # An iCalendar file of the largest size, with its line breaks escaped.
    request_max_body_size = 2 * MAX_BYTES

    @post(
        "/",
        opt={"errors": (403, 404, 409)},
        summary="Create a calendar: dates, an iCalendar file, public holidays. Admins can make it public.",
    )
    async def create(self, actor: Acting, calendar_service: Calendars, data: JSONBody[CalendarInput]) -> CalendarView:
        return await calendar_service.create(actor, data)

    @get("/", summary="List your calendars, those of your teams and public ones, newest first.")
    async def list_all(
        self,
        actor: Acting,
        calendar_service: Calendars,
        team_id: TeamFilter = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> CalendarList:
        return await calendar_service.list(actor, Part(limit, cursor=cursor, counts=False), team_id)

    @get(
        "/{calendar_name:str}",
        opt={"errors": (409,)},
        summary="Return a calendar: your own, else one of your teams, else a public one.",
    )
    async def read(
        self,
        actor: Acting,
        calendar_service: Calendars,
        calendar_name: CalendarName,
        owner: Owner = None,
        team_id: TeamFilter = None,
    ) -> CalendarView:
        return await calendar_service.get(actor, Named(calendar_name, owner, team_id))

    @patch(
        "/{calendar_name:str}",
        opt={"errors": (403, 409)},
        summary="Change some fields of a calendar. Schedules that use it are planned again at once.",
    )
    async def change(
        self,
        actor: Acting,
        calendar_service: Calendars,
        calendar_name: CalendarName,
        data: OptionalBody[CalendarChanges],
        owner: Owner = None,
        team_id: TeamFilter = None,
    ) -> CalendarView:
        return await calendar_service.change(actor, Named(calendar_name, owner, team_id), data)

    @post(
        "/{calendar_name:str}/plan",
        status_code=200,
        opt={"errors": (403, 404, 409), SCOPE: Scope.READ, LEASABLE: True},
        summary="Say what a change of a calendar would do to the schedules that use it. Nothing is stored.",
    )
    async def plan(
        self,
        actor: Acting,
        calendar_service: Calendars,
        calendar_name: CalendarName,
        data: OptionalBody[CalendarPlanInput],
        owner: Owner = None,
        team_id: TeamFilter = None,
    ) -> CalendarPlanView:
        return await calendar_service.plan(actor, Named(calendar_name, owner, team_id), data)

    @delete(
        "/{calendar_name:str}",
        opt={"errors": (403, 409)},
        summary="Delete a calendar that no schedule uses.",
    )
    async def remove(
        self,
        actor: Acting,
        calendar_service: Calendars,
        calendar_name: CalendarName,
        owner: Owner = None,
        team_id: TeamFilter = None,
    ) -> None:
        await calendar_service.delete(actor, Named(calendar_name, owner, team_id))
