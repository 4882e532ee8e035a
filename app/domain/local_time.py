"""Local time: timezones and their clock changes, and the hours and weekdays in which slots are allowed."""

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
# Not a name of a place but of whatever this machine is set to.
_NOT_PORTABLE = frozenset({"localtime", "posixrules", "Factory"})
_MAX_NAME = 64


class Transition(msgspec.Struct, frozen=True):
    """A moment at which the distance from UTC changes."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def skipped(self) -> tuple[datetime, datetime] | None:
        """The wall times that do not exist, from (included) to (excluded); None if the clock was set back."""
        wall = self.at.replace(tzinfo=None)
        return (wall + self.before, wall + self.after) if self.after > self.before else None


class Piece(msgspec.Struct, frozen=True):
    """A stretch of real time within one local day, with one distance from UTC."""

    start: datetime
    end: datetime
    offset: timedelta

    def wall(self, moment: datetime) -> datetime:
        """What the clock on the wall shows at a moment of this piece."""
        return moment.replace(tzinfo=None) + self.offset


class Zone:
    """A timezone. Days on which no clock changes are plain; the others are taken apart."""

    def __init__(self, info: tzinfo) -> None:
        """Wrap what the standard library knows."""
        self._info = info

    def local(self, moment: datetime) -> datetime:
        """The wall time of a moment, without a zone."""
        return moment.astimezone(self._info).replace(tzinfo=None, fold=0)

    def offset(self, moment: datetime) -> timedelta:
        """The distance from UTC at a moment."""
        return moment.astimezone(self._info).utcoffset() or timedelta(0)

    def transitions(self, year: int) -> tuple[Transition, ...]:
        """The changes of the clocks in a year of UTC."""
        return _transitions(self, year)

    def is_clock_change_day(self, day: date) -> bool:
        """Whether the clocks change on this local day, or it has none or only a part of its hours."""
        return day in self.clock_change_days(day.year)

    def clock_change_days(self, year: int) -> frozenset[date]:
        """The local days of a year that are not plain."""
        return _clock_change_days(self, year)

    def pieces(self, day: date) -> list[Piece]:
        """What a local day is made of, in the order of real time; nothing for a day that was left out."""
        return _pieces(self, day)

    def midnight(self, day: date) -> datetime:
        """The first moment of a plain day."""
        return datetime.combine(day, time(), self._info).astimezone(UTC)

    def taken_apart(self, day: date) -> list[Piece]:
        """The same, computed."""
        wall = datetime.combine(day, time())
        around = wall.replace(tzinfo=UTC)
        changes = [one.at for year in {day.year - 1, day.year, day.year + 1} for one in self.transitions(year)]
        edges = sorted({around - 2 * DAY, *changes, around + 3 * DAY})
        found = []
        for start, end in pairwise(edges):
            offset = self.offset(start)
            first, last = max(start, around - offset), min(end, around + DAY - offset)
            if first < last:
                found.append(Piece(first, last, offset))
        return found

    def gaps(self, day: date) -> list[tuple[datetime, datetime]]:
        """The wall times of a local day that do not exist, from (included) to (excluded)."""
        start, found = datetime.combine(day, time()), []
        for piece in sorted(self.pieces(day), key=lambda one: one.wall(one.start)):
            if piece.wall(piece.start) > start:
                found.append((start, piece.wall(piece.start)))
            start = max(start, piece.wall(piece.end))
        end = datetime.combine(day + DAY, time())
        return [*found, (start, end)] if start < end else found

    def instant(self, wall: datetime) -> datetime:
        """When the clock shows this: the first time that it does, or right after the gap that leaves it out."""
        day = wall.date()
        if not self.is_clock_change_day(day):
            return wall.replace(tzinfo=self._info).astimezone(UTC)
        for piece in self.pieces(day):
            if wall < piece.wall(piece.end):
                return max(piece.start, (wall - piece.offset).replace(tzinfo=UTC))
        return self.instant(datetime.combine(day + DAY, time()))

    def searched(self, year: int) -> list[Transition]:
        """In strides of three days, and where one differs at its ends day by day: no clock is so fickle."""
        found: list[Transition] = []
        start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
        while start < end:
            following = min(start + 3 * DAY, end)
            if self.offset(start) != self.offset(following):
                found += self._changes(start, following)
            start = following
        return found

    def _changes(self, start: datetime, end: datetime) -> Iterator[Transition]:
        while start < end:
            before, after = self.offset(start), self.offset(start + DAY)
            if after != before:
                yield Transition(self._changed(start, start + DAY, before), before, after)
            start += DAY

    def _changed(self, start: datetime, end: datetime, before: timedelta) -> datetime:
        seconds = range(1, (end - start) // _SECOND + 1)
        index = bisect_right(seconds, 0, key=lambda second: self.offset(start + second * _SECOND) != before)
        return start + seconds[index] * _SECOND


# One bound for all zones: whoever asks for all of them, over all years, pushes out what others asked for, no more.
@lru_cache(maxsize=8192)
def _transitions(place: Zone, year: int) -> tuple[Transition, ...]:
    return tuple(place.searched(year))


@lru_cache(maxsize=8192)
def _clock_change_days(place: Zone, year: int) -> frozenset[date]:
    near = [change for one in (year - 1, year, year + 1) for change in place.transitions(one)]
    return frozenset(day for change in near for day in _touched(change) if day.year == year)


@lru_cache(maxsize=4096)
def _pieces(place: Zone, day: date) -> list[Piece]:
    return place.taken_apart(day)


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """The zone of this name; ``ValueError`` if there is none."""
    try:
        return Zone(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"There is no timezone '{name}'.") from None


def canonical_zone(name: str) -> str:
    """The name as the timezone database spells it, however it was written; ``ValueError`` if there is none."""
    known = _names().get(name.strip().lower())
    if known is None:
        raise ValueError(f"There is no timezone '{name[:_MAX_NAME]}'.")
    return known


@cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in sorted(available_timezones() - _NOT_PORTABLE)}


def _touched(change: Transition) -> list[date]:
    """The local days that a change of the clocks cuts, repeats or leaves out."""
    wall = change.at.replace(tzinfo=None)
    # The moment before the change belongs to the day that ends, be it at midnight.
    walls = (wall + change.before - _SECOND, wall + change.before, wall + change.after)
    first, last = min(walls).date(), max(walls).date()
    return [first + k * DAY for k in range((last - first).days + 1)]


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
        self.zone = place
        self._window = allowed
        self._excluded = frozenset(_weekday(name) for name in excluded)
        self.always = allowed is None and not excluded

    def in_window(self, moment: datetime) -> bool:
        """Whether the time of the day is allowed."""
        if self._window is None:
            return True
        wall = self.zone.local(moment)
        minutes = wall.hour * 60 + wall.minute
        return any(start <= minutes < end for start, end in self._window.spans())

    def on_weekday(self, moment: datetime) -> bool:
        """Whether the day of the week is allowed."""
        return self.allows_day(self.zone.local(moment))

    def allows_day(self, day: date) -> bool:
        """The same of a local day."""
        return day.weekday() not in self._excluded

    def allows(self, moment: datetime) -> bool:
        """Whether both are."""
        return self.always or (self.on_weekday(moment) and self.in_window(moment))

    def allows_minute(self, minute: int) -> bool:
        """Whether a minute of a plain day lies in the window."""
        return self._window is None or any(start <= minute < end for start, end in self._window.spans())

    def opening(self, moment: datetime) -> datetime | None:
        """The first allowed moment from this one on, or None if there is none within reach."""
        if self.allows(moment):
            return moment
        day = self.zone.local(moment).date() - DAY
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
        day = self.zone.local(moment).date() + DAY
        for _ in range(_SEARCHED_DAYS):
            near = (*self._spans(day), *self._spans(day - DAY), *self._spans(day - 2 * DAY))
            earlier = [end for _, end in near if end <= moment]
            if earlier:
                return max(earlier)
            day -= DAY
        return None

    def stretches(self, first: datetime, last: datetime) -> Iterable[tuple[datetime, datetime]]:
        """All allowed stretches from one moment to another; their ends are excluded."""
        day, final = self.zone.local(first).date() - DAY, self.zone.local(last).date() + DAY
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
        if self.zone.is_clock_change_day(day):
            return self.zone.pieces(day)
        start = self.zone.midnight(day)
        return [Piece(start, start + DAY, self.zone.offset(start))]


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
