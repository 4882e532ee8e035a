"""``upcoming`` and ``timezones`` below ``/api/v1``: what is due next, as a list and as a calendar to subscribe to."""

from typing import Annotated
from uuid import UUID

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from app.api.requests import FEEDS, KEEPS_TO_RESTRICTIONS, Acting, Cursor, Feed, Limit, Since, Until, listed
from app.services.catalog import MOST_TIMEZONES, timezones
from app.services.inputs import Span
from app.services.upcoming import UpcomingService
from app.services.validation import checked
from app.services.views import TimezoneList, UpcomingList

Upcoming = NamedDependency[UpcomingService]
CALENDAR = "text/calendar"
AS_CALENDAR = "Return the coming fires as iCalendar, to a token of the kind `feed` also as `?feed=TOKEN`."


class UpcomingController(Controller):
    """What is due next."""

    path = "/"
    tags = ("upcoming",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/upcoming", summary="List the coming fires of all schedules that you see, in the order of their due times.")
    async def list_all(
        self,
        actor: Acting,
        upcoming_service: Upcoming,
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
    ) -> UpcomingList:
        return await upcoming_service.list(actor, checked({"from": since, "to": until}, Span), limit)

    @get("/schedules/{schedule_id:uuid}/upcoming", summary="List the coming fires of a schedule.")
    async def of_schedule(
        self,
        actor: Acting,
        upcoming_service: Upcoming,
        schedule_id: FromPath[UUID],
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
    ) -> UpcomingList:
        span = checked({"from": since, "to": until}, Span)
        return await upcoming_service.of_schedule(actor, schedule_id, span, limit)

    @get("/upcoming.ics", media_type=CALENDAR, opt={FEEDS: True}, summary=AS_CALENDAR)
    async def calendar(
        self,
        actor: Acting,
        upcoming_service: Upcoming,
        since: Since = None,
        until: Until = None,
        feed: Feed = None,  # noqa: ARG002 - read by the guard
    ) -> str:
        return await upcoming_service.feed(actor, None, checked({"from": since, "to": until}, Span))

    @get(
        "/schedules/{schedule_id:uuid}/upcoming.ics",
        media_type=CALENDAR,
        opt={FEEDS: True},
        summary=AS_CALENDAR.replace("fires", "fires of a schedule"),
    )
    async def calendar_of_schedule(
        self,
        actor: Acting,
        upcoming_service: Upcoming,
        schedule_id: FromPath[UUID],
        since: Since = None,
        until: Until = None,
        feed: Feed = None,  # noqa: ARG002 - read by the guard
    ) -> str:
        return await upcoming_service.feed(actor, schedule_id, checked({"from": since, "to": until}, Span))


class TimezoneController(Controller):
    """Time zones."""

    path = "/timezones"
    tags = ("timezones",)
    opt = KEEPS_TO_RESTRICTIONS

    @get("/", summary="List the time zones that schedules can have, by name, with their offsets from UTC now.")
    async def list_all(
        self,
        actor: Acting,  # noqa: ARG002 - any user may see them
        limit: Annotated[int, QueryParameter(ge=1, le=MOST_TIMEZONES)] = MOST_TIMEZONES,
        cursor: Cursor = None,
    ) -> TimezoneList:
        return await timezones(listed(limit, cursor, counts=False))
