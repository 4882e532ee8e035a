"""Views of calendars."""

import msgspec

from app.services.inputs import Instant
from app.services.listing import Encoded


class CalendarView(msgspec.Struct, kw_only=True):
    """A calendar."""

    name: str
    owner: int
    team_id: int | None
    public: bool
    timezone: str
    dates: list[str]
    ics: str | None
    holidays: str | None
    created_at: Instant
    updated_at: Instant


class CalendarList(msgspec.Struct):
    """A page of the list of calendars."""

    items: list[Encoded[CalendarView]]
    next_cursor: str | None
