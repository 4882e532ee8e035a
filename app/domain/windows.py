"""When a slot is wanted at all: hours of the day and days of the week, by the clock on the wall."""

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from functools import lru_cache

import msgspec

from app.domain.local_time import DAY, Piece, Zone, zone

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WINDOW = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})")
_DAY_MINUTES = 24 * 60
# A window opens once a week at least; a change of the clocks may take a few of them away.
_SEARCHED_DAYS = 60


class Window(msgspec.Struct, frozen=True):
    """Hours of the day in minutes after midnight: the start is in, the end is out, and it may span midnight."""

    start: int
    end: int

    def spans(self) -> tuple[tuple[int, int], ...]:
        """The same as stretches that lie within one day."""
        if self.start < self.end:
            return ((self.start, self.end),)
        return tuple(span for span in ((0, self.end), (self.start, _DAY_MINUTES)) if span[0] < span[1])

    def __str__(self) -> str:
        """As it is stored and shown."""
        return f"{self.start // 60:02}:{self.start % 60:02}-{self.end // 60:02}:{self.end % 60:02}"


def window(text: str) -> Window:
    """The hours that ``08:00-18:00`` names; ``ValueError`` if it names none."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise ValueError("Expected a window such as '08:00-18:00'.")
    hour, minute, to_hour, to_minute = map(int, found.groups())
    start, end = hour * 60 + minute, to_hour * 60 + to_minute
    if max(minute, to_minute) > 59 or start >= _DAY_MINUTES or end > _DAY_MINUTES:  # noqa: PLR2004 - a clock has 60
        raise ValueError("The hours go from 00:00 to 24:00.")
    if start == end:
        raise ValueError("The window is empty: it starts when it ends.")
    return Window(start, end or _DAY_MINUTES)


def weekdays(given: Iterable[int | str]) -> tuple[str, ...]:
    """Days by their names, in the order of the week; ``ValueError`` if one is none."""
    numbers = {_weekday(one) for one in given}
    return tuple(name for number, name in enumerate(WEEKDAYS) if number in numbers)


def _weekday(given: int | str) -> int:
    """Monday is 0, as Python has it; given numbers count as cron does, Sunday being 0 and 7."""
    text = str(given).strip().lower()
    if text.isdecimal() and text.isascii() and int(text) <= len(WEEKDAYS):
        return (int(text) - 1) % len(WEEKDAYS)
    for number, name in enumerate(WEEKDAYS):
        if text in {name, name[:3]}:
            return number
    raise ValueError("Expected a weekday: its name, or 0 to 7 (Sunday is 0 and 7).")


class Hours:
    """The moments that are allowed: within the window, and not on the excluded days."""

    def __init__(self, place: Zone, allowed: Window | None, excluded: tuple[str, ...]) -> None:
        """Without a window and without excluded days, always."""
        self.place = place
        self._window = allowed
        self._excluded = frozenset(_weekday(name) for name in excluded)
        self.always = allowed is None and not excluded

    def in_window(self, moment: datetime) -> bool:
        """Whether the time of the day is allowed."""
        if self._window is None:
            return True
        wall = self.place.local(moment)
        minutes = wall.hour * 60 + wall.minute
        return any(start <= minutes < end for start, end in self._window.spans())

    def on_weekday(self, moment: datetime) -> bool:
        """Whether the day of the week is allowed."""
        return self.allows_day(self.place.local(moment))

    def allows_day(self, day: date) -> bool:
        """The same of a local day."""
        return day.weekday() not in self._excluded

    def allow(self, moment: datetime) -> bool:
        """Whether both are."""
        return self.always or (self.on_weekday(moment) and self.in_window(moment))

    def allow_minute(self, minute: int) -> bool:
        """Whether a minute of a plain day lies in the window."""
        return self._window is None or any(start <= minute < end for start, end in self._window.spans())

    def opening(self, moment: datetime) -> datetime | None:
        """The first allowed moment from this one on, or None if there is none within reach."""
        if self.allow(moment):
            return moment
        day = self.place.local(moment).date() - DAY
        for _ in range(_SEARCHED_DAYS):
            # Where the clocks were set back over midnight, days are interleaved.
            near = (*self._spans(day), *self._spans(day + DAY), *self._spans(day + 2 * DAY))
            later = [start for start, _ in near if start > moment]
            if later:
                return min(later)
            day += DAY
        return None

    def closing(self, moment: datetime) -> datetime | None:
        """The end, excluded, of the last allowed stretch that ended at or before this moment."""
        day = self.place.local(moment).date() + DAY
        for _ in range(_SEARCHED_DAYS):
            near = (*self._spans(day), *self._spans(day - DAY), *self._spans(day - 2 * DAY))
            earlier = [end for _, end in near if end <= moment]
            if earlier:
                return max(earlier)
            day -= DAY
        return None

    def stretches(self, first: datetime, last: datetime) -> Iterable[tuple[datetime, datetime]]:
        """All allowed stretches from one moment to another; their ends are excluded."""
        day, final = self.place.local(first).date() - DAY, self.place.local(last).date() + DAY
        while day <= final:
            for start, end in self._spans(day):
                if start <= last and end > first:
                    yield max(start, first), end
            day += DAY

    def _spans(self, day: date) -> tuple[tuple[datetime, datetime], ...]:
        return _spans(self, day)

    def spans_on(self, day: date) -> tuple[tuple[datetime, datetime], ...]:
        """The allowed stretches of a local day."""
        if not self.allows_day(day):
            return ()
        windows = ((0, _DAY_MINUTES),) if self._window is None else self._window.spans()
        cut = (_cut(piece, day, start, end) for piece in self._pieces(day) for start, end in windows)
        return tuple(span for span in cut if span[0] < span[1])

    def _pieces(self, day: date) -> list[Piece]:
        if self.place.is_uneven(day):
            return self.place.pieces(day)
        start = self.place.midnight(day)
        return [Piece(start, start + DAY, self.place.offset(start))]


# One bound for the days of all of them.
@lru_cache(maxsize=8192)
def _spans(allowed: Hours, day: date) -> tuple[tuple[datetime, datetime], ...]:
    return allowed.spans_on(day)


@lru_cache(maxsize=4096)
def hours(timezone: str, only_between: str | None, not_on: tuple[str, ...]) -> Hours:
    """The allowed moments of a spec; ``ValueError`` if it names what does not exist."""
    return Hours(zone(timezone), window(only_between) if only_between else None, not_on)


def _cut(piece: Piece, day: date, start: int, end: int) -> tuple[datetime, datetime]:
    """The part of a piece in which the wall shows from minute ``start`` to minute ``end``."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=piece.start.tzinfo) - piece.offset
    return (
        max(piece.start, midnight + timedelta(minutes=start)),
        min(piece.end, midnight + timedelta(minutes=end)),
    )
