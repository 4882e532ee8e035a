"""Local time: timezones and their clock changes, and the hours and weekdays in which slots are allowed.

Most local days are plain: 24 hours from midnight to midnight, so that slots are arithmetic. On a clock-change day this
is wrong: an hour may be missing or come twice, midnight may not exist, and days may even be left out. Such a day is
split into pieces of real time with one offset each. Within a piece, arithmetic is right again.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec

DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
# These names mean what the machine is set to, so two workers could read them differently.
_NOT_PORTABLE = frozenset({"localtime", "posixrules", "Factory"})
_MAX_NAME = 64
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WINDOW = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})")
_DAY_MINUTES = 24 * 60
# How far the next opening is searched. A window opens once a week at least, and clock changes remove few openings.
_SEARCHED_DAYS = 60


class Transition(msgspec.Struct, frozen=True):
    """A clock change: the moment at which the offset from UTC changes, and the offset before and after."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def skipped(self) -> tuple[datetime, datetime] | None:
        """Return the wall times that do not exist, end excluded, or None if the clock was set back."""
        wall = self.at.replace(tzinfo=None)
        return (wall + self.before, wall + self.after) if self.after > self.before else None


class Piece(msgspec.Struct, frozen=True):
    """A stretch of real time within one local day, with one offset from UTC; the end is excluded."""

    start: datetime
    end: datetime
    offset: timedelta

    def wall(self, moment: datetime) -> datetime:
        """Return the wall time of a moment of this piece."""
        return moment.replace(tzinfo=None) + self.offset


class Zone:
    """A timezone, with its clock changes and the pieces of its clock-change days."""

    def __init__(self, info: tzinfo) -> None:
        """Take the timezone of the standard library."""
        self._info = info

    def local(self, moment: datetime) -> datetime:
        """Return the wall time of a moment, without a zone."""
        return moment.astimezone(self._info).replace(tzinfo=None, fold=0)

    def offset(self, moment: datetime) -> timedelta:
        """Return the offset from UTC at a moment."""
        return moment.astimezone(self._info).utcoffset() or timedelta(0)

    def transitions(self, year: int) -> tuple[Transition, ...]:
        """Return the clock changes in a year of UTC."""
        return _transitions(self, year)

    def is_clock_change_day(self, day: date) -> bool:
        """Return whether this local day lacks or repeats some of its time, or all of it."""
        return day in self.clock_change_days(day.year)

    def clock_change_days(self, year: int) -> frozenset[date]:
        """Return the local days of a year that are not plain."""
        return _clock_change_days(self, year)

    def pieces(self, day: date) -> list[Piece]:
        """Return the pieces of a local day in the order of real time; a day that was left out has none."""
        return _pieces(self, day)

    def midnight(self, day: date) -> datetime:
        """Return the first moment of a plain day."""
        return datetime.combine(day, time(), self._info).astimezone(UTC)

    def compute_pieces(self, day: date) -> list[Piece]:
        """Compute ``pieces``, which is cached."""
        midnight = datetime.combine(day, time(), UTC)
        years = {day.year - 1, day.year, day.year + 1}
        changes = [transition.at for year in years for transition in self.transitions(year)]
        edges = sorted({midnight - 2 * DAY, *changes, midnight + 3 * DAY})
        pieces = []
        for start, end in pairwise(edges):
            offset = self.offset(start)
            first, last = max(start, midnight - offset), min(end, midnight + DAY - offset)
            if first < last:
                pieces.append(Piece(first, last, offset))
        return pieces

    def gaps(self, day: date) -> list[tuple[datetime, datetime]]:
        """Return the wall times of a local day that do not exist, as stretches with their ends excluded."""
        start, gaps = datetime.combine(day, time()), []
        for piece in sorted(self.pieces(day), key=lambda piece: piece.wall(piece.start)):
            if piece.wall(piece.start) > start:
                gaps.append((start, piece.wall(piece.start)))
            start = max(start, piece.wall(piece.end))
        end = datetime.combine(day + DAY, time())
        return [*gaps, (start, end)] if start < end else gaps

    def instant(self, wall: datetime) -> datetime:
        """Return the first moment at which the clock shows a wall time, or the end of the gap that skips it."""
        day = wall.date()
        if not self.is_clock_change_day(day):
            return wall.replace(tzinfo=self._info).astimezone(UTC)
        for piece in self.pieces(day):
            if wall < piece.wall(piece.end):
                return max(piece.start, (wall - piece.offset).replace(tzinfo=UTC))
        return self.instant(datetime.combine(day + DAY, time()))

    def shows_twice(self, wall: datetime) -> bool:
        """Return whether the clock shows a wall time twice, because it was set back."""
        pieces = self.pieces(wall.date()) if self.is_clock_change_day(wall.date()) else []
        return sum(piece.wall(piece.start) <= wall < piece.wall(piece.end) for piece in pieces) > 1

    def find_transitions(self, year: int) -> list[Transition]:
        """Compute ``transitions``, which is cached.

        The offset is compared every three days, and where it differs, day by day. Two changes that cancel each other
        within three days would be overlooked; no timezone has them.
        """
        transitions: list[Transition] = []
        start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
        while start < end:
            following = min(start + 3 * DAY, end)
            if self.offset(start) != self.offset(following):
                transitions += self._changes(start, following)
            start = following
        return transitions

    def _changes(self, start: datetime, end: datetime) -> Iterator[Transition]:
        while start < end:
            before, after = self.offset(start), self.offset(start + DAY)
            if after != before:
                yield Transition(self._change_second(start, start + DAY, before), before, after)
            start += DAY

    def _change_second(self, start: datetime, end: datetime, before: timedelta) -> datetime:
        """Find the first second with another offset than ``before``, by bisection."""
        seconds = range(1, (end - start) // _SECOND + 1)
        index = bisect_right(seconds, 0, key=lambda second: self.offset(start + second * _SECOND) != before)
        return start + seconds[index] * _SECOND


# The caches are shared by all zones: a request for all of them over all years evicts entries, and memory stays bounded.
@lru_cache(maxsize=8192)
def _transitions(zone: Zone, year: int) -> tuple[Transition, ...]:
    return tuple(zone.find_transitions(year))


@lru_cache(maxsize=8192)
def _clock_change_days(zone: Zone, year: int) -> frozenset[date]:
    near = [change for near_year in (year - 1, year, year + 1) for change in zone.transitions(near_year)]
    return frozenset(day for change in near for day in _affected_days(change) if day.year == year)


@lru_cache(maxsize=4096)
def _pieces(zone: Zone, day: date) -> list[Piece]:
    return zone.compute_pieces(day)


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """Return the zone of this name. Raise ``ValueError`` if there is none."""
    try:
        return Zone(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"There is no timezone '{name}'. Use an IANA name such as 'Europe/Berlin'.") from None


def canonical_zone(name: str) -> str:
    """Return a name as the timezone database spells it, upper and lower case. Raise ``ValueError`` if there is none."""
    known = _names().get(name.strip().lower())
    if known is None:
        raise ValueError(f"There is no timezone '{name[:_MAX_NAME]}'. Use an IANA name such as 'Europe/Berlin'.")
    return known


def zone_names() -> list[str]:
    """Return the names of all time zones that a spec can have, sorted."""
    return sorted(_names().values())


@cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in sorted(available_timezones() - _NOT_PORTABLE)}


def _affected_days(change: Transition) -> list[date]:
    """Return the local days that a clock change shortens, lengthens or leaves out."""
    wall = change.at.replace(tzinfo=None)
    # The second before the change is included: a change at midnight affects the day that ends, too.
    walls = (wall + change.before - _SECOND, wall + change.before, wall + change.after)
    first, last = min(walls).date(), max(walls).date()
    return [first + k * DAY for k in range((last - first).days + 1)]


class Window(msgspec.Struct, frozen=True):
    """Hours of the day, in minutes after midnight. The end is excluded; a start after the end spans midnight."""

    start: int
    end: int

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Return the window as stretches that lie within one day."""
        if self.start < self.end:
            return ((self.start, self.end),)
        return tuple(span for span in ((0, self.end), (self.start, _DAY_MINUTES)) if span[0] < span[1])

    def __str__(self) -> str:
        """Return the stored form, such as ``08:00-18:00``."""
        return f"{self.start // 60:02}:{self.start % 60:02}-{self.end // 60:02}:{self.end % 60:02}"


def window(text: str) -> Window:
    """Return the window that a text such as ``08:00-18:00`` names. Raise ``ValueError`` if it names none."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise ValueError("Expected a window such as '08:00-18:00'.")
    hour, minute, to_hour, to_minute = map(int, match.groups())
    start, end = hour * 60 + minute, to_hour * 60 + to_minute
    if max(minute, to_minute) > 59 or start >= _DAY_MINUTES or end > _DAY_MINUTES:  # noqa: PLR2004 - a clock has 60
        raise ValueError("The hours go from 00:00 to 24:00.")
    if start == end:
        raise ValueError("The window is empty: its start and its end are equal.")
    return Window(start, end or _DAY_MINUTES)


def weekdays(given: Iterable[int | str]) -> tuple[str, ...]:
    """Return weekdays by their full names, in the order of the week. Raise ``ValueError`` if one is not a weekday."""
    numbers = {_weekday(day) for day in given}
    return tuple(name for number, name in enumerate(WEEKDAYS) if number in numbers)


def _weekday(given: int | str) -> int:
    """Return the number of a weekday with Monday as 0. Given numbers count as in cron, with Sunday as 0 and 7."""
    text = str(given).strip().lower()
    if text.isdecimal() and text.isascii() and int(text) <= len(WEEKDAYS):
        return (int(text) - 1) % len(WEEKDAYS)
    for number, name in enumerate(WEEKDAYS):
        if text in {name, name[:3]}:
            return number
    raise ValueError("Expected a weekday: its name, or 0 to 7 (Sunday is 0 and 7).")


class Hours:
    """The moments at which slots are allowed: within the window, and not on the excluded weekdays."""

    def __init__(self, zone: Zone, allowed: Window | None, excluded: tuple[str, ...]) -> None:
        """Take the zone, the window if there is one, and the excluded weekdays."""
        self.zone = zone
        self._window = allowed
        self._excluded = frozenset(_weekday(name) for name in excluded)
        self.always = allowed is None and not excluded

    def in_window(self, moment: datetime) -> bool:
        """Return whether the time of day of a moment is allowed."""
        if self._window is None:
            return True
        wall = self.zone.local(moment)
        minutes = wall.hour * 60 + wall.minute
        return any(start <= minutes < end for start, end in self._window.spans())

    def on_weekday(self, moment: datetime) -> bool:
        """Return whether the weekday of a moment is allowed."""
        return self.allows_day(self.zone.local(moment))

    def allows_day(self, day: date) -> bool:
        """Return whether the weekday of a local day is allowed."""
        return day.weekday() not in self._excluded

    def allows(self, moment: datetime) -> bool:
        """Return whether a moment is allowed by its time of day and its weekday."""
        return self.always or (self.on_weekday(moment) and self.in_window(moment))

    def allows_minute(self, minute: int) -> bool:
        """Return whether a minute of a plain day lies in the window."""
        return self._window is None or any(start <= minute < end for start, end in self._window.spans())

    def opening(self, moment: datetime) -> datetime | None:
        """Return the first allowed moment at or after ``moment``, or None if the search ends."""
        if self.allows(moment):
            return moment
        day = self.zone.local(moment).date() - DAY
        for _ in range(_SEARCHED_DAYS):
            # Where the clocks were set back over midnight, two local days alternate in real time.
            near = (*self._spans(day), *self._spans(day + DAY), *self._spans(day + 2 * DAY))
            later = [start for start, _ in near if start > moment]
            if later:
                return min(later)
            day += DAY
        return None

    def closing(self, moment: datetime) -> datetime | None:
        """Return the end, excluded, of the last allowed stretch that ended by ``moment``, or None."""
        day = self.zone.local(moment).date() + DAY
        for _ in range(_SEARCHED_DAYS):
            near = (*self._spans(day), *self._spans(day - DAY), *self._spans(day - 2 * DAY))
            earlier = [end for _, end in near if end <= moment]
            if earlier:
                return max(earlier)
            day -= DAY
        return None

    def stretches(self, first: datetime, last: datetime) -> Iterable[tuple[datetime, datetime]]:
        """Yield the allowed stretches from ``first`` to ``last``; their ends are excluded."""
        day, final = self.zone.local(first).date() - DAY, self.zone.local(last).date() + DAY
        while day <= final:
            for start, end in self._spans(day):
                if start <= last and end > first:
                    yield max(start, first), end
            day += DAY

    def _spans(self, day: date) -> tuple[tuple[datetime, datetime], ...]:
        return _spans(self, day)

    def compute_spans(self, day: date) -> tuple[tuple[datetime, datetime], ...]:
        """Compute the allowed stretches of a local day, which are cached."""
        if not self.allows_day(day):
            return ()
        windows = ((0, _DAY_MINUTES),) if self._window is None else self._window.spans()
        spans = (_part(piece, day, start, end) for piece in self._pieces(day) for start, end in windows)
        return tuple(span for span in spans if span[0] < span[1])

    def _pieces(self, day: date) -> list[Piece]:
        if self.zone.is_clock_change_day(day):
            return self.zone.pieces(day)
        start = self.zone.midnight(day)
        return [Piece(start, start + DAY, self.zone.offset(start))]


# Shared by all windows, so that the memory that it takes is bounded.
@lru_cache(maxsize=8192)
def _spans(allowed: Hours, day: date) -> tuple[tuple[datetime, datetime], ...]:
    return allowed.compute_spans(day)


@lru_cache(maxsize=4096)
def hours(timezone: str, only_between: str | None, not_on: tuple[str, ...]) -> Hours:
    """Return the allowed moments of a spec. Raise ``ValueError`` if its zone, window or weekdays are not valid."""
    return Hours(zone(timezone), window(only_between) if only_between else None, not_on)


def _part(piece: Piece, day: date, start: int, end: int) -> tuple[datetime, datetime]:
    """Return the part of a piece in which the wall clock shows minute ``start`` to minute ``end`` of the day."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=piece.start.tzinfo) - piece.offset
    return (
        max(piece.start, midnight + timedelta(minutes=start)),
        min(piece.end, midnight + timedelta(minutes=end)),
    )
