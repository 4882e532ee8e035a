"""Timezones: which stretches of real time make up a local day, and where the clocks change."""

from bisect import bisect_right
from collections.abc import Iterator
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

    def is_uneven(self, day: date) -> bool:
        """Whether the clocks change on this local day, or it has none or only a part of its hours."""
        return day in self.uneven_days(day.year)

    def uneven_days(self, year: int) -> frozenset[date]:
        """The local days of a year that are not plain."""
        return _uneven_days(self, year)

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
        if not self.is_uneven(day):
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
def _uneven_days(place: Zone, year: int) -> frozenset[date]:
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
